"""amqplib, the client of Node: each scenario of node/*.js is a process of its own."""

import re
from collections.abc import Callable

import pytest
from interop_live import HERE, Broker, missing, require_program, run_client

Name = Callable[[str], str]
NODE = HERE / "node"


def scenarios(script: str) -> list[str]:
    """The scenarios are the methods of the tables at the left margin of the script."""
    text = (NODE / script).read_text()
    return re.findall(r"^  (?:async )?([a-z_]+)\([a-z, ]*\) \{$", text, re.MULTILINE)


CASES = [(script, scenario) for script in ("promise.js", "callback.js") for scenario in scenarios(script)]


@pytest.fixture(scope="session")
def node() -> str:
    program = require_program("node", "apt-get install nodejs npm")
    if not (NODE / "node_modules" / "amqplib").is_dir():
        missing("amqplib for Node", "npm ci --prefix tests/interop/node")
    return program


def test_no_scenario_is_left_out(node: str) -> None:
    for script in ("promise.js", "callback.js"):
        listed = run_client([node, str(NODE / script), "-", "--list"]).stdout.decode().split()
        assert scenarios(script) == listed


@pytest.mark.parametrize(("script", "scenario"), CASES)
def test_amqplib(node: str, broker: Broker, name: Name, script: str, scenario: str) -> None:
    done = run_client([node, str(NODE / script), broker.url, scenario, name(scenario)])
    assert script != "callback.js" or done.stdout == b"done", "it stopped before its end"
