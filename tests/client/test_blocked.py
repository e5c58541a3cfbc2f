"""A broker that blocks publishers reads nothing of them, and a confirmed message is safe all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from client.either import Either

from flintmq.cli import main
from flintmq.client import CallTimeout
from flintmq.testing import Broker
from flintmq.testing.served_broker import ServedBroker

TIMEOUT_S = 5.0


@pytest.fixture
def alarmed() -> Iterator[ServedBroker]:
    """A broker with a queue `q`, which has no memory left."""
    with Broker() as broker:
        assert main(["declare", "queue", "q", "--url", broker.uri]) == 0
        broker.raise_alarm()
        yield broker
        broker.clear_alarm()
        assert main(["get", "q", "--url", broker.uri]) == 0


def test_closing_after_a_confirm_is_no_error(alarmed: ServedBroker, either: Either) -> None:
    async def test() -> None:
        connection = await either.connect(alarmed.uri, timeout_s=TIMEOUT_S)
        channel = await connection.channel(confirm=True)
        await channel.publish(b"x", routing_key="q")
        began_s = time.monotonic()
        await channel.close()
        await connection.close()
        assert time.monotonic() - began_s < TIMEOUT_S

    either.run(test)


def test_a_close_without_confirms_tells_that_there_was_no_answer(
    alarmed: ServedBroker, either: Either
) -> None:
    async def test() -> None:
        connection = await either.connect(alarmed.uri, timeout_s=0.5)
        channel = await connection.channel()
        await channel.publish(b"x", routing_key="q")
        await asyncio.sleep(0.3)  # until the broker has read it, and reads no more
        with pytest.raises(CallTimeout, match="the broker blocks publishers"):
            await channel.close()
        await connection.close()

    either.run(test)


def test_the_command_tells_that_the_message_was_published(
    alarmed: ServedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", "q", "x", "--url", alarmed.uri]) == 0
    said = capsys.readouterr()
    assert said.out.endswith("1 published\n")
    assert said.err == ""
