"""The fixtures of pytest-rabbitmq, with FlintMQ behind them; pytest_plugins names this module.

    rabbitmq_proc    a broker for the run: host, port, list_queues() and the like
    rabbitmq         a connection of pika to it; queues and exchanges go with the test

Further ones are made as there: `rabbitmq_proc(port=5673)` and `rabbitmq("name_of_the_process_fixture")` of
this module return fixtures. Its options are taken too; those about RabbitMQ's own files change nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flintmq.testing.served_broker import HOST, ServedBroker
from flintmq.testing.sources import Source

THEIRS = "pytest_rabbitmq"
# By its name, what is said of each: on the command line --rabbitmq-NAME, in pytest.ini rabbitmq_NAME.
OPTIONS = {
    "host": "where the broker listens: 127.0.0.1 alone",
    "port": "its port; any free one if there is none",
    "distribution-port": "changes nothing",
    "ctl": "changes nothing: flintmq ctl is asked",
    "server": "changes nothing",
    "plugindir": "changes nothing",
    "logsdir": "changes nothing",
    "node": "changes nothing",
}


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    if pluginmanager.hasplugin(THEIRS):
        raise pytest.UsageError(
            f"pytest-rabbitmq is installed too, and both have the same fixtures: add -p no:{THEIRS}"
        )
    for name, text in OPTIONS.items():
        destination = f"rabbitmq_{name.replace('-', '_')}"
        parser.addini(destination, f"{text} (FlintMQ)")
        parser.addoption(f"--rabbitmq-{name}", dest=destination, help=f"{text} (FlintMQ)")


class RabbitProcess:
    """A broker, with the names that pytest-rabbitmq has."""

    def __init__(self, broker: ServedBroker) -> None:
        self.broker = broker
        self.host = HOST

    @property
    def port(self) -> int:
        return self.broker.port

    def running(self) -> bool:
        return bool(self.broker.process)

    def start(self) -> RabbitProcess:
        if not self.running():
            self.broker.start()
        return self

    def stop(self) -> RabbitProcess:
        self.broker.stop()
        return self

    def kill(self) -> RabbitProcess:
        self.broker.kill()
        return self

    def list_exchanges(self) -> list[str]:
        """Without the nameless one."""
        return [name for name in self.broker.ask("names")["exchanges"] if name]

    def list_queues(self) -> list[str]:
        names: list[str] = self.broker.ask("names")["queues"]
        return names

    def rabbitctl_output(self, *arguments: str) -> str:
        """What `rabbitmqctl` would print."""
        command = [sys.executable, "-m", "flintmq", "ctl", *arguments]
        environment = {**os.environ, "FLINTMQ_URL": self.broker.uri}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        return done.stdout


def clear_rabbitmq(process: RabbitProcess, connection: Any) -> None:
    """Deletes all queues and exchanges, whatever has become of the connection."""
    process.broker.ask("clear")


def rabbitmq_proc(
    host: str | None = None, port: int | str | None = None, *, name: str | None = None, **others: object
) -> Callable[..., Any]:
    """A fixture: a broker for the run. `others` are options of pytest-rabbitmq that change nothing here."""
    unknown = others.keys() - {"distribution_port", "ctl", "server", "plugin_path", "logsdir", "node"}
    if unknown:
        raise TypeError(f"rabbitmq_proc has no argument {min(unknown)!r}")

    @pytest.fixture(scope="session", name=name)
    def process(pytestconfig: pytest.Config, _flintmq_source: Source) -> Iterator[RabbitProcess]:
        check_host(host or setting(pytestconfig, "rabbitmq_host"))
        chosen = port_number(port or setting(pytestconfig, "rabbitmq_port"))
        broker = ServedBroker(_flintmq_source, ("--port", str(chosen)))
        try:
            yield RabbitProcess(broker)
        finally:
            broker.stop()

    return process


def rabbitmq(
    process_fixture_name: str,
    teardown: Callable[[RabbitProcess, Any], None] = clear_rabbitmq,
    *,
    name: str | None = None,
) -> Callable[..., Any]:
    """A fixture: a connection of pika to the broker of a process fixture, which `teardown` clears."""

    @pytest.fixture(name=name)
    def connection(request: pytest.FixtureRequest) -> Iterator[Any]:
        try:
            import pika
        except ImportError:
            raise pytest.UsageError(
                "the fixture rabbitmq is a connection of pika: pip install pika"
            ) from None

        process: RabbitProcess = request.getfixturevalue(process_fixture_name)
        made = pika.BlockingConnection(pika.URLParameters(process.broker.uri))
        try:
            yield made
            teardown(process, made)
        finally:
            if made.is_open:
                made.close()

    return connection


def setting(config: pytest.Config, name: str) -> str | None:
    """The command line comes before pytest.ini."""
    given: str | None = config.getoption(name) or config.getini(name) or None
    return given


def check_host(host: str | None) -> None:
    if host not in (None, HOST, "localhost"):
        raise pytest.UsageError(f"--rabbitmq-host {host}: brokers of tests listen on {HOST} alone")


def port_number(port: int | str | None) -> int:
    """0 is any free one, as -1 is there."""
    try:
        number = max(int(port or 0), 0)
    except ValueError:
        number = 65_536
    if number > 65_535:
        raise pytest.UsageError(f"--rabbitmq-port {port}: give a number, or none for any free port")
    return number


process_of_run = rabbitmq_proc(name="rabbitmq_proc")
connection_of_test = rabbitmq("rabbitmq_proc", name="rabbitmq")
