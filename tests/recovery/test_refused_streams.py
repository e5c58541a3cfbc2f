"""A dead letter for a stream that the disk refuses: it is where it was, or where it went, whatever happens.

A file lies where the directory of the stream is to be made.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq.wire import methods

REFUSED = re.compile("publishers are blocked: cannot write to .*streams: ")


class Refusal:
    """What stands in the way of the stream."""

    def __init__(self, data: Path) -> None:
        # The stream has one of the first numbers.
        self.files = [data / "streams" / f"{number:016d}" for number in range(1, 5)]
        for file in self.files:
            file.write_text("")

    def end(self) -> None:
        for file in self.files:
            file.unlink()


def count(life: Any, queue: str) -> int:
    peer = life.connect()
    found: int = peer.call(1, methods.QueueDeclare(queue=queue, passive=True)).message_count
    peer.close()
    return found


@pytest.fixture
def begun(start: Callable[..., Any], data: Path, publish: Callable[..., None]) -> tuple[Any, Refusal]:
    """A life in which a dead letter is on its way to a stream and the journal waits for it."""
    life = start()
    peer = life.connect()
    peer.call(1, methods.QueueDeclare(queue="s", durable=True, arguments={"x-queue-type": "stream"}))
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "s"}
    peer.call(1, methods.QueueDeclare(queue="q", durable=True, arguments=arguments))
    publish(peer, "q", [b"1"])
    refusal = Refusal(data)
    consumer = life.connect()
    consumer.call(1, methods.BasicConsume(queue="q", consumer_tag="c"))
    method, _ = consumer.delivery(1)
    consumer.send(1, methods.BasicReject(delivery_tag=method.delivery_tag))
    life.wait_for(REFUSED)
    asker = life.connect()
    asker.socket.settimeout(2)
    asker.send(1, methods.QueueDeclare(queue="unsafe", durable=True))
    with pytest.raises(TimeoutError):
        asker.expect(1, methods.QueueDeclareOk)
    return life, refusal


def test_kill_9(begun: tuple[Any, Refusal], start: Callable[..., Any]) -> None:
    life, refusal = begun
    life.kill()
    refusal.end()
    life = start()
    assert (count(life, "q"), count(life, "s")) == (1, 0)
    life.stop()


def test_an_orderly_stop(begun: tuple[Any, Refusal], start: Callable[..., Any]) -> None:
    life, refusal = begun
    life.stop(expected=1)
    assert "not everything in streams is on disk" in life.said_text()
    assert "not everything is on disk: the journal waits for its streams" in life.said_text()
    refusal.end()
    life = start()
    assert (count(life, "q"), count(life, "s")) == (1, 0)
    life.stop()


def test_a_disk_that_works_again(begun: tuple[Any, Refusal], start: Callable[..., Any]) -> None:
    life, refusal = begun
    peer = life.connect()
    peer.send(1, methods.QueueDeclare(queue="new", durable=True))
    refusal.end()
    peer.expect(1, methods.QueueDeclareOk)  # which waits for the journal
    life.kill()
    life = start()
    assert (count(life, "q"), count(life, "s"), count(life, "new")) == (0, 1, 0)
    life.stop()
