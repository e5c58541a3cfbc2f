"""The broker where what only Unix has is hidden: see without_unix.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from live import without_unix
from live.certificates import Authority
from live.serving import write

from flintmq.client import connect

COMMAND = (sys.executable, without_unix.__file__)
LARGE = b"large" * 1_000_000


class Broker(BrokerProcess):
    """The same, in such a place."""

    command = COMMAND

    @property
    def uri(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}"


def exchange_messages(uri: str) -> None:
    """Two clients, small and large messages, acks and confirms."""
    with (
        connect(uri) as publisher,
        connect(uri) as consumer,
        publisher.channel(confirm=True) as outgoing,
        consumer.channel(prefetch=10) as incoming,
    ):
        outgoing.queue("q", durable=True)
        for body in (b"small", LARGE, b"last"):
            outgoing.publish(body, routing_key="q", persistent=True)
        seen = []
        for message in incoming.consume("q"):
            seen.append(message.body)
            message.ack()
            if len(seen) == 3:
                break
    assert seen == [b"small", LARGE, b"last"]


def test_in_memory() -> None:
    with Broker("--host", "127.0.0.1") as broker:
        exchange_messages(broker.uri)
        exchange_messages(broker.uri)
    assert "flintmq is stopping" in broker.lines[-1]


def test_with_a_data_directory(tmp_path: Path) -> None:
    options = ("--host", "127.0.0.1", "--data", str(tmp_path))
    with Broker(*options) as broker:
        exchange_messages(broker.uri)
        with connect(broker.uri) as connection, connection.channel(confirm=True) as channel:
            channel.publish_many([b"%d" % number for number in range(1000)], routing_key="q", persistent=True)
            channel.publish(LARGE, routing_key="q", persistent=True)
        second = subprocess.run(
            [*COMMAND, "serve", "--port", "0", *options],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert second.returncode == 1
        assert f"is in use by process {broker.process.pid}" in second.stderr
    with Broker(*options) as broker, connect(broker.uri) as connection, connection.channel() as channel:
        for number in range(1000):
            message = channel.get("q")
            assert message is not None
            assert message.body == b"%d" % number
            message.ack()
        message = channel.get("q")
        assert message is not None
        assert message.body == LARGE
        message.ack()
        assert channel.queue("q", passive=True).message_count == 0
    checked = subprocess.run(
        [*COMMAND, "journal", "check", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_encrypted(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    signed = authority.sign("broker")
    settings = f'[tls]\ncertificate = "{signed.certificate}"\nkey = "{signed.key}"\nport = 0\n'
    file = write(tmp_path / "flintmq.toml", settings)
    with Broker("--host", "127.0.0.1", "--config", str(file)) as broker:
        port = broker.wait_for(re.compile(r"listening on amqps://127\.0\.0\.1:(\d+)"))[1]
        exchange_messages(f"amqps://guest:guest@127.0.0.1:{port}?cacertfile={authority.certificate}")


@pytest.mark.parametrize("arguments", [("--help",), ("info",), ("pipeline", "--help")])
def test_commands(arguments: tuple[str, ...]) -> None:
    run = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
