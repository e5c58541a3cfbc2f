"""AMQP 0-8 as spoken by python3-amqplib, in a process of the system's Python."""

from collections.abc import Callable
from pathlib import Path

import pytest
from interop_live import HERE, Broker, missing, run_client

Name = Callable[[str], str]
SYSTEM_PYTHON = "/usr/bin/python3"
SCENARIOS = [
    "login",
    "access_tickets",
    "declare_and_count",
    "exchanges",
    "properties",
    "consume_and_ack",
    "reject_and_recover",
    "transactions",
    "returned",
    "channel_error",
    "unbind",
    pytest.param("flow", marks=pytest.mark.standard),
    "large_message",
]


@pytest.fixture(scope="session")
def python() -> str:
    hint = "apt-get install python3-amqplib"
    if not Path(SYSTEM_PYTHON).exists():
        missing(SYSTEM_PYTHON, hint)
    if run_client([SYSTEM_PYTHON, "-c", "import amqplib"], status=None).returncode:
        missing("python3-amqplib", hint)
    return SYSTEM_PYTHON


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_amqplib_0_8(python: str, broker: Broker, name: Name, scenario: str) -> None:
    script = str(HERE / "scripts" / "amqplib_0_8.py")
    run_client([python, script, f"{broker.host}:{broker.port}", scenario, name(scenario)])
