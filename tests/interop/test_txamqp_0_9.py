"""AMQP 0-9 as spoken by txAMQP on Twisted, in a process of its own because of Twisted's reactor."""

import sys
from collections.abc import Callable

import pytest
from interop_live import HERE, Broker, run_client

Name = Callable[[str], str]
SCENARIOS = [
    "login",
    "declare_bind_publish_get",
    "consume_with_qos",
    "reject_and_recover",
    "transactions",
    "returned",
    "channel_error",
    "purge_and_counts",
    "large_message",
    "heartbeat",
    pytest.param("ping", marks=pytest.mark.standard),
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_txamqp_0_9(broker: Broker, name: Name, scenario: str) -> None:
    script = str(HERE / "scripts" / "txamqp_0_9.py")
    run_client([sys.executable, script, f"{broker.host}:{broker.port}", scenario, name(scenario)])
