"""The scheduler of passes: passes that are left to do come one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from flintmq.broker.broker import Broker
from flintmq.broker.scheduling.pass_work import HANDED_OUT_ALONE_MAX, HANDED_OUT_MAX
from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.server.event_loop.pass_scheduler import PassScheduler


class NotingLoop:
    """Keeps what is to be called soon."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def iterate(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


def endless() -> Iterator[None]:
    while True:
        yield


def test_sockets_are_looked_at_between_passes_however_many_turns_there_were() -> None:
    loop: Any = NotingLoop()
    broker = Broker(Config(), Clock())
    scheduler = PassScheduler(loop, broker, 1024)
    broker.pass_work.chores.begin(endless())
    for _ in range(20):
        scheduler.begin_turn(1)
        scheduler.end_turn()
        loop.iterate()
        assert len(loop.soon) == 1


def test_many_links_share_a_turn() -> None:
    loop: Any = NotingLoop()
    broker = Broker(Config(), Clock())
    scheduler = PassScheduler(loop, broker, 262_144)
    scheduler.begin_turn(8)
    alone = broker.pass_work.copies_max
    assert scheduler.read_bytes == 262_144
    scheduler.end_turn()
    scheduler.begin_turn(256)
    assert scheduler.read_bytes == 8192
    assert broker.pass_work.copies_max * 256 <= alone
    scheduler.end_turn()
    scheduler.limit_reads(4096)
    assert scheduler.read_bytes == 4096
    scheduler.begin_turn(1)
    assert scheduler.read_bytes == 4096


def test_passes_are_short_where_more_than_a_few_send_something() -> None:
    loop: Any = NotingLoop()
    broker = Broker(Config(), Clock())
    scheduler = PassScheduler(loop, broker, 1024)
    assert broker.pass_work.handed_out_max == HANDED_OUT_MAX
    for senders, most in ((2, HANDED_OUT_ALONE_MAX), (3, HANDED_OUT_MAX), (0, HANDED_OUT_ALONE_MAX)):
        for descriptor in (*range(senders), *range(senders)):
            scheduler.note_sender(descriptor)
        time.sleep(0.07)  # longer than senders are counted for
        scheduler.begin_turn(1)
        scheduler.end_turn()
        assert broker.pass_work.handed_out_max == most
