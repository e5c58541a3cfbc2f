"""How far a stream of another broker goes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from flintmq.spark.feeds.replay_feed import ReplayFeed
from flintmq.spark.options import STREAM, ReadOptions


class Growing:
    """A consumer of a stream to which somebody publishes all the time."""

    def __init__(self) -> None:
        self.offset = 0
        self.acked = -1

    def take(self, count_max: int, timeout_s: float) -> list[Any]:
        assert self.offset < 1_000_000, "the driver follows the stream for ever"
        number, self.offset = self.offset, self.offset + 1
        message = SimpleNamespace(headers={"x-stream-offset": number}, ack=lambda multiple: self.ack(number))
        return [message]

    def ack(self, number: int) -> None:
        assert number == self.acked + 1
        self.acked = number


def test_the_end_of_a_stream_that_grows_is_told() -> None:
    options = ReadOptions.of({"queue": "q"}, STREAM)
    consumer = Growing()
    feed = ReplayFeed("q", options, connection=None)  # type: ignore[arg-type]
    feed.consumer = consumer  # type: ignore[assignment]
    first = feed.tail(0, 0.0)
    assert first > 0
    assert feed.tail(first, 0.0) > first, "the next look goes on"
    assert consumer.acked >= first
