"""The turns of the event loop: who was read, when the pass over them ends, who is sent to.

    begin_turn -> link reads, broker routes -> ... the next link ... -> end_turn: one pass for all of them

What comes in at another time has its pass in the next turn of the event loop. What all links share is
here: the buffer that they read into and the list of those with something to send.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from flintmq import clock
from flintmq.broker.scheduling.pass_work import PassWork
from flintmq.protocol.outbox import Output, Room
from flintmq.server.event_loop.read_coalescing import ReadCoalescing

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.broker import Broker
    from flintmq.server.network.link import Link

log = logging.getLogger("flintmq.link")

# Alarms far away are looked at again this often: event loops count time in few bits.
ALARM_WAIT_MAX_MS = 3_600_000

# What all sockets together bring in a turn, some milliseconds of work: up to 8 of them a buffer full each,
# of hundreds each little, so that whoever asks for little waits for little.
TURN_BYTES = 2_097_152
# Passes that a turn adds for so many queues at most.
PASSES_MORE = 3
QUEUES_FEW = 32
READ_BYTES_MIN = 8192
# What links that go on with their reads may come to in a turn (PassWork.copies): as much as one read.
RESUMED_COPIES = 8192
# What a socket brings where somebody else sends little: some 1,600 small messages, a third of a millisecond.
# The other one waits for the turn that is under way, and for what has come meanwhile.
READ_BYTES_WAITED = 98_304
# What a pass hands out of messages that have waited, in the same case: a quarter of a millisecond.
HANDED_OUT_WAITED = 256
# The time that messages are noted to have come at is asked for anew this often at most.
REFRESH_US = 1000
# A publisher and a consumer with acks, among those whose sockets were read within so long: hardly anybody.
# Whoever has less to do with the broker in that time than a megabyte a second has no part in a great flow of
# messages, and waits for an answer.
SENDERS_FEW = 2
SENDERS_US = 65_536
SENDER_BYTES_FEW = 65_536


class PassScheduler:
    """One for each server."""

    __slots__ = (
        "alarm_clock",
        "alarm_due_ms",
        "began_us",
        "broker",
        "buffer",
        "count",
        "is_alarmed",
        "is_resuming",
        "is_scheduled",
        "is_stopped",
        "little_waits",
        "loop",
        "outbox",
        "pass_due",
        "pass_work",
        "read_bytes",
        "read_bytes_max",
        "read_coalescing",
        "reads",
        "refreshed_us",
        "resuming",
        "room",
        "senders",
        "senders_us",
        "sent_octets",
        "slow_turn",
        "slow_us",
        "view",
        "waiting_changed",
        "writable",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Broker, buffer_bytes: int) -> None:
        self.loop = loop
        self.broker = broker
        self.pass_work: PassWork = broker.pass_work
        self.buffer = bytearray(buffer_bytes)
        self.view = memoryview(self.buffer)
        self.outbox: list[Output] = []
        self.room: Room = self.pass_work.room
        self.writable: list[Link] = []  # whose sockets take more again
        self.read_coalescing = ReadCoalescing()
        self.pass_due = False  # sockets are being read, and it comes after them
        self.is_scheduled = False  # it comes in the next turn of the event loop
        self.is_stopped = False
        self.resuming: deque[Link] = deque()  # which go on with what was left of their reads
        self.is_resuming = False  # that comes in the next turn of the event loop
        self.reads = 0  # in this turn
        self.count = 0  # since somebody set it to 0
        self.is_alarmed = False  # publishers must not be read from
        self.read_bytes_max = buffer_bytes  # of one link in a turn
        self.read_bytes = buffer_bytes  # the same in this turn
        self.alarm_clock: asyncio.TimerHandle | None = None
        self.alarm_due_ms = 0  # what it is set to
        self.began_us = 0  # when this turn did
        self.refreshed_us = 0
        # Some of those that were read from since `senders_us`, with what had come and gone there by then.
        self.senders: dict[Link, int] = {}
        self.senders_us = 0
        self.sent_octets = 0  # to all links since then
        self.little_waits = True  # somebody who sends little; `waiting_changed` is told when that changes
        self.waiting_changed: Callable[[bool], None] | None = None
        self.slow_us = 1 << 62  # a turn that takes so long is told to `slow_turn`
        self.slow_turn: Callable[[int], None] | None = None

    def begin_turn(self, links: int) -> None:
        """So many sockets are about to be read and written, and end_turn comes when they have been."""
        self.pass_due = True
        self.begin_time()
        self.pass_work.share(links)
        share = TURN_BYTES // links if links > 1 else TURN_BYTES
        if self.little_waits and share > READ_BYTES_WAITED:
            share = READ_BYTES_WAITED
        self.read_bytes = min(self.read_bytes_max, max(share, READ_BYTES_MIN))

    def begin_time(self) -> int:
        """A turn begins."""
        self.began_us = clock.monotonic_us()
        if self.began_us - self.refreshed_us >= REFRESH_US:
            self.refreshed_us = self.began_us
            self.pass_work.tick()
            if self.began_us - self.senders_us >= SENDERS_US:
                self.count_senders()
        return 0

    def note_sender(self, link: Link) -> None:
        """The link was read from. One more than a few is enough to know."""
        if len(self.senders) <= SENDERS_FEW and link not in self.senders:
            self.senders[link] = link.received_octets + link.sent_octets

    def count_senders(self) -> int:
        """Passes are short where many send something, or somebody little: each waits for a pass to end.

        Where nobody has sent anything and little was sent to anybody no great flow goes on, and whoever comes
        next is not to wait either. A consumer without acks sends nothing while it drains a queue.
        """
        self.senders_us = self.began_us
        little_waits = not self.senders and self.sent_octets < SENDER_BYTES_FEW
        for link, before in self.senders.items():
            if link.received_octets + link.sent_octets - before < SENDER_BYTES_FEW:
                little_waits = True
        self.pass_work.keep_waiting(little_waits or len(self.senders) > SENDERS_FEW)
        if little_waits:
            self.pass_work.handed_out_max = HANDED_OUT_WAITED
        if little_waits != self.little_waits:
            self.little_waits = little_waits
            self.pass_work.chores.keep_waiting(little_waits)
            if self.waiting_changed is not None:
                self.waiting_changed(little_waits)
        self.senders.clear()
        self.sent_octets = 0
        return 0

    def end_time(self) -> int:
        took_us = clock.monotonic_us() - self.began_us
        self.pass_work.turn_times.note(took_us)
        if took_us >= self.slow_us and self.slow_turn is not None:
            self.slow_turn(took_us)
        return 0

    def limit_reads(self, most: int) -> None:
        """From now on no read brings more."""
        self.read_bytes_max = most
        self.read_bytes = min(self.read_bytes, most) if self.pass_due else most

    def after_read(self) -> None:
        self.reads += 1
        self.schedule_pass()

    def schedule_pass(self) -> None:
        # One alone: each turn of the sockets would add another, and they keep each other going while there is
        # work for many passes, with no look at the sockets between them.
        if not self.pass_due and not self.is_scheduled:
            self.is_scheduled = True
            self.loop.call_soon(self.scheduled_turn)

    def resume_soon(self, link: Link) -> None:
        """The link goes on with what was left of its read when it is its turn."""
        self.resuming.append(link)
        self.resume_more()

    def resume_more(self) -> None:
        if self.resuming and not self.is_resuming:
            self.is_resuming = True
            self.loop.call_soon(self.resume_some)

    def resume_some(self) -> None:
        """As many as take as long as one read may, and one more: before others the sockets are looked at."""
        self.is_resuming = False
        copies = 0
        try:
            for _ in range(len(self.resuming)):
                self.pass_work.copies = 0
                link = self.resuming.popleft()
                try:
                    link.resume()
                except Exception:
                    self.end_link(link)
                copies += self.pass_work.copies
                if copies > RESUMED_COPIES:
                    break
        finally:
            self.resume_more()

    def end_link(self, link: Link) -> None:
        """What the link has raised is a bug: its connection ends, and others have their turn all the same."""
        log.exception("a bug ends the connection of %s", link.session)
        try:
            link.drop()
        except Exception:
            log.exception("a bug in ending the connection of %s", link.session)

    def stop(self) -> None:
        """No pass comes any more, also none that is scheduled: what passes write to is about to be closed."""
        self.is_stopped = True
        self.is_scheduled = True  # so that none is scheduled
        self.stop_alarm_clock()

    def scheduled_turn(self) -> None:
        if self.is_stopped:
            return
        self.is_scheduled = False
        self.begin_time()
        self.end_turn()

    def has_room(self, link: Link) -> None:
        """It sends with the end of the turn: before anything leaves, the pass notes what was handed out."""
        self.writable.append(link)
        self.schedule_pass()

    def end_turn(self) -> None:
        """After all sockets that were readable have been read."""
        self.pass_due = False
        self.count += 1
        # Whatever was read: what goes to disk alone, for nobody to hear of, must not pile up here.
        if self.outbox or self.reads or self.pass_work.has_work():
            self.finish_pass()
        elif self.broker.timetable.has_alarms():
            # Nothing came in and nothing goes out, yet what the disk has finished may have made an alarm due.
            self.set_alarm_clock()
        if self.writable:
            links, self.writable = self.writable, []
            for link in links:
                try:
                    link.writable()
                except Exception:
                    self.end_link(link)
        # Consumers that waited for room may have it now. Where they are few they get theirs before more is
        # read: else a fast publisher piles up messages that could be sent. A backlog waits for the next turn.
        more = PASSES_MORE
        while (
            more
            and self.pass_work.queues
            and len(self.pass_work.queues) <= QUEUES_FEW
            and self.pass_work.pass_left > 0
        ):
            more -= 1
            self.finish_pass()
        if self.reads:
            self.reads = 0
            self.read_coalescing.end_turn()
        self.end_time()

    def finish_pass(self) -> None:
        self.broker.finish_pass()
        outbox = self.outbox
        # By index: sending may find a peer gone, whose queues then have something to tell others.
        index = 0
        while index < len(outbox):
            output = outbox[index]
            index += 1
            try:
                output.sender.flush()
            except Exception:
                self.end_link(output.sender)
        outbox.clear()
        if self.pass_work.has_work():
            self.schedule_pass()
        if self.broker.timetable.has_alarms():
            self.set_alarm_clock()

    # The broker's timetable

    def set_alarm_clock(self) -> None:
        """Has the timetable looked at when its next alarm is due."""
        timetable = self.broker.timetable
        due_ms = timetable.next_due_ms()
        if due_ms is None or (self.alarm_clock is not None and self.alarm_due_ms <= due_ms):
            return
        self.stop_alarm_clock()
        self.alarm_due_ms = due_ms
        # A millisecond more: the timers of the loop may come that much early.
        wait_ms = min(due_ms - timetable.now_ms() + 1, ALARM_WAIT_MAX_MS)
        self.alarm_clock = self.loop.call_later(wait_ms / 1000, self.alarms_due)

    def stop_alarm_clock(self) -> None:
        if self.alarm_clock is not None:
            self.alarm_clock.cancel()
            self.alarm_clock = None

    def alarms_due(self) -> None:
        self.alarm_clock = None
        self.begin_time()
        self.broker.timetable.run()
        self.finish_pass()
        self.end_time()
