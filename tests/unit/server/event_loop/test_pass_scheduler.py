"""The scheduler of passes: passes that are left to do come one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from flintmq.broker.broker import Broker
from flintmq.broker.scheduling.pass_work import HANDED_OUT_ALONE_MAX, HANDED_OUT_MAX
from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.protocol.outbox import Output
from flintmq.server.event_loop.pass_scheduler import HANDED_OUT_WAITED, SENDER_BYTES_FEW, PassScheduler
from flintmq.server.network.link import Link

SENDERS_FEW = 2  # which is a constant of C in the compiled build


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


class WaitingLink:
    """Each of its turns takes as long as so many copies."""

    def __init__(self, scheduler: PassScheduler, copies: int) -> None:
        self.pass_work = scheduler.pass_work
        self.copies = copies
        self.session = "a session"
        self.turns = 0
        self.is_dropped = False

    def drop(self) -> None:
        self.is_dropped = True

    def flush(self) -> None:
        self.resume()

    writable = flush

    def resume(self) -> None:
        self.turns += 1
        self.pass_work.copies += self.copies
        if not self.copies:
            raise ValueError("a bug")


@pytest.mark.parametrize(("copies", "turns"), [(100_000, 1), (4000, 3), (1, 20)])
def test_sockets_are_looked_at_between_links_that_go_on_with_much(copies: int, turns: int) -> None:
    """All that waited went on in one turn: twenty of them kept others waiting twenty times as long."""
    loop: Any = NotingLoop()
    scheduler = PassScheduler(loop, Broker(Config(), Clock()), 1024)
    links: list[Any] = [WaitingLink(scheduler, copies) for _ in range(20)]
    for link in links:
        scheduler.resume_soon(link)
    loop.iterate()
    assert [link.turns for link in links] == [1] * turns + [0] * (20 - turns)
    while loop.soon:
        loop.iterate()
    assert [link.turns for link in links] == [1] * 20


def test_a_link_that_fails_keeps_no_other_from_going_on() -> None:
    loop: Any = NotingLoop()
    scheduler = PassScheduler(loop, Broker(Config(), Clock()), 1024)
    links: list[Any] = [WaitingLink(scheduler, copies) for copies in (0, 1)]
    for link in links:
        scheduler.resume_soon(link)
    loop.iterate()
    assert [(link.turns, link.is_dropped) for link in links] == [(1, True), (1, False)]


@pytest.mark.parametrize("is_writable", [False, True])
def test_a_link_that_fails_to_send_keeps_no_other_from_it(is_writable: bool) -> None:
    """Those behind it in the pass were sent nothing for as long as it failed."""
    scheduler = PassScheduler(cast(Any, NotingLoop()), Broker(Config(), Clock()), 1024)
    links: list[Any] = [WaitingLink(scheduler, copies) for copies in (0, 1)]
    for link in links:
        if is_writable:
            scheduler.has_room(link)
        else:
            Output(scheduler.outbox, link).write(b"x")
    scheduler.begin_turn(1)
    scheduler.end_turn()
    assert [(link.turns, link.is_dropped) for link in links] == [(1, True), (1, False)]
    assert not scheduler.outbox


def test_no_pass_comes_after_the_end() -> None:
    """The journal is closed by then."""
    loop: Any = NotingLoop()
    broker = Broker(Config(), Clock())
    scheduler = PassScheduler(loop, broker, 1024)
    steps = 0

    def chore() -> Iterator[None]:
        nonlocal steps
        while True:
            steps += 1
            yield

    broker.pass_work.chores.begin(chore())
    scheduler.schedule_pass()
    scheduler.stop()
    before = steps
    loop.iterate()
    scheduler.schedule_pass()
    loop.iterate()
    assert steps == before
    assert not loop.soon


def test_many_links_share_a_turn() -> None:
    loop: Any = NotingLoop()
    broker = Broker(Config(), Clock())
    scheduler = PassScheduler(loop, broker, 262_144)
    scheduler.begin_turn(8)
    alone = broker.pass_work.copies_max
    assert scheduler.read_bytes == 98_304
    scheduler.end_turn()
    scheduler.begin_turn(256)
    assert scheduler.read_bytes == 8192
    assert broker.pass_work.copies_max * 256 <= alone
    scheduler.end_turn()
    scheduler.limit_reads(4096)
    assert scheduler.read_bytes == 4096
    scheduler.begin_turn(1)
    assert scheduler.read_bytes == 4096


class Talker:
    """As much of a link as is counted."""

    def __init__(self, octets: int = SENDER_BYTES_FEW) -> None:
        self.octets = octets
        self.received_octets = self.sent_octets = 1 << 40

    def talk(self, scheduler: PassScheduler) -> None:
        scheduler.note_sender(cast(Link, self))
        self.received_octets += self.octets // 4
        scheduler.note_sender(cast(Link, self))
        self.sent_octets += self.octets - self.octets // 4


def scheduler_beside(*talkers: Talker) -> PassScheduler:
    """One that knows that these have talked for a while."""
    loop: Any = NotingLoop()
    broker = Broker(Config(), Clock())
    scheduler = PassScheduler(loop, broker, 262_144)
    for talker in talkers:
        talker.talk(scheduler)
    assert len(scheduler.senders) <= SENDERS_FEW + 1
    broker.pass_work.keep_waiting(False)
    while scheduler.senders:
        scheduler.begin_turn(1)
        scheduler.end_turn()
    return scheduler


def handed_out_max_beside(*talkers: Talker) -> int:
    """What a pass hands out of a backlog after these have talked for a while."""
    return scheduler_beside(*talkers).pass_work.handed_out_max


def test_passes_are_long_where_a_few_send_much() -> None:
    for count in range(1, SENDERS_FEW + 1):
        assert handed_out_max_beside(*[Talker() for _ in range(count)]) == HANDED_OUT_ALONE_MAX


def test_passes_are_short_where_more_than_a_few_send_something() -> None:
    for count in (SENDERS_FEW + 1, 10 * SENDERS_FEW):
        assert handed_out_max_beside(*[Talker() for _ in range(count)]) == HANDED_OUT_MAX


def test_passes_are_short_where_somebody_sends_little() -> None:
    """One who asks for little waits for each pass, however much the other one hoards."""
    assert handed_out_max_beside(Talker(SENDER_BYTES_FEW - 1)) == HANDED_OUT_WAITED
    assert handed_out_max_beside(Talker(), Talker(100)) == HANDED_OUT_WAITED


@pytest.mark.parametrize(
    ("sent_octets", "most"),
    [(SENDER_BYTES_FEW, HANDED_OUT_ALONE_MAX), (SENDER_BYTES_FEW - 1, HANDED_OUT_WAITED)],
)
def test_passes_are_long_where_a_queue_is_drained_by_one_who_sends_nothing(
    sent_octets: int, most: int
) -> None:
    loop: Any = NotingLoop()
    scheduler = PassScheduler(loop, Broker(Config(), Clock()), 262_144)
    scheduler.sent_octets = sent_octets
    while scheduler.sent_octets:
        scheduler.begin_turn(1)
        scheduler.end_turn()
    assert scheduler.pass_work.handed_out_max == most


def test_a_read_is_small_where_somebody_sends_little() -> None:
    for talkers in ([Talker(100)], [Talker(), Talker(100)]):
        scheduler = scheduler_beside(*talkers)
        for links, octets in ((1, 98_304), (3, 98_304), (256, 8192)):
            scheduler.begin_turn(links)
            assert scheduler.read_bytes == octets
    for count in (1, 2, 3):
        scheduler = scheduler_beside(*[Talker() for _ in range(count)])
        scheduler.begin_turn(count)
        assert scheduler.read_bytes == 262_144


def test_a_read_brings_less_where_others_wait() -> None:
    pass_work = Broker(Config(), Clock()).pass_work
    pass_work.keep_waiting(False)
    pass_work.share(1)
    alone = pass_work.copies_max
    pass_work.keep_waiting(True)
    pass_work.share(1)
    assert pass_work.copies_max == alone // 8
    pass_work.keep_waiting(False)
    pass_work.share(4)  # a crowd that sends after a silence
    assert pass_work.copies_max == alone // 8


def test_it_is_told_when_somebody_begins_to_send_little_and_when_nobody_does_any_more() -> None:
    loop: Any = NotingLoop()
    scheduler = PassScheduler(loop, Broker(Config(), Clock()), 1024)
    told: list[bool] = []
    scheduler.waiting_changed = told.append
    asker = Talker(100)
    for talkers in ([asker], [Talker()], [Talker(), asker], [asker], [Talker()], []):
        heard = len(told) + 1
        before = scheduler.little_waits
        for talker in talkers:
            talker.talk(scheduler)
        while scheduler.senders or (not talkers and len(told) < heard):
            scheduler.begin_turn(1)
            scheduler.end_turn()
        assert len(told) == heard - (scheduler.little_waits == before)
    assert told == [False, True, False, True]
