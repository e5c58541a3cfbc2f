"""What the server does as memory runs short, mark by mark: memory.py has the marks.

    short       queues keep little in memory, contents that are coming in go to files, consumers with much
                unacked wait, and free memory is given back to the system
    urgent      queues keep hardly anything, and such consumers one message at a time
    alarm       publishers are blocked: server.py
    critical    topology is refused, and so are connections above 64 and a channel's second consumer; what
                cannot go to disk ends with the connections that hold most of it

Each step is some milliseconds of work, and the next one comes when others have been served.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from flintmq.broker.memory_shedding import MemoryShedding
from flintmq.errors import ConnectionFault
from flintmq.server import memory
from flintmq.wire import amqp
from flintmq.wire.stream import held_octets

if TYPE_CHECKING:
    from flintmq.server.network.link import Link
    from flintmq.server.server import Server

log = logging.getLogger("flintmq.relief")

# Between steps, and between rounds that found nothing to do.
STEP_S = 0.002
ROUND_S = 0.1
# Between looks at what each connection holds.
WEIGH_S = 0.05
# Free memory is given back this often: it takes milliseconds.
TRIM_S = 0.5
# The collector looks for what connections have left behind this often: it looks at every object, and nobody
# is served meanwhile. Each leaves some kilobytes, so that has time: until memory is critical, the collector
# has at most one in so many parts of the time.
COLLECT_S = 3.0
COLLECT_PARTS = 100
# What queues keep in memory, at each mark: messages, octets.
KEPT_SHORT = (1024, 262_144)
KEPT_URGENT = (16, 16_384)
# What a consumer may hold unacked.
HOARD_BYTES_SHORT = 1_048_576
HOARD_BYTES_URGENT = 1
# All outputs together may hold this part of the limit before each gets little: 200 MiB / 8 = 25 MiB.
OUTPUT_PARTS = 8
# As much may one transaction.
TRANSACTION_PARTS = 8
# And the batches on their way to the disk, each: 3.1 MiB.
BATCH_PARTS = 64
# Links looked at in one go for contents that are coming in; connections with less than this are left alone.
LINKS_MAX = 256
WEIGHT_BYTES_MIN = 131_072
# Connections that end in one go, and consumers that are woken.
ENDS_MAX = 16
HOARDERS_MAX = 64


class Relief:
    """One for each server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.pass_work = server.broker.pass_work
        self.shedding = MemoryShedding(server.broker)
        self.links: list[Link] = []  # still to be looked at in this round
        self.timer: asyncio.TimerHandle | None = None
        self.trim_due_s = 0.0
        self.weigh_due_s = 0.0
        self.collected_s = 0.0
        self.collect_took_s = 0.0
        self.is_urgent = False
        store = server.broker.store
        self.kept_usual = (0, 0) if store is None else (store.kept_messages, store.kept_bytes)
        self.transaction_bytes_usual = self.pass_work.transaction_bytes_max
        self.take_shares()

    def take_shares(self) -> None:
        """Outputs, transactions and batches get their parts of the limit, which may have changed."""
        limit = self.server.alarm.high_bytes
        self.server.scheduler.room.budget_bytes = limit // OUTPUT_PARTS
        self.server.broker.answer_room.take_share(limit)
        self.pass_work.transaction_bytes_max = min(self.transaction_bytes_usual, limit // TRANSACTION_PARTS)
        if self.server.broker.store is not None:
            self.server.broker.store.limit_batches(limit // BATCH_PARTS)

    def react(self) -> None:
        """Memory has been looked at."""
        alarm = self.server.alarm
        self.pass_work.is_critical = alarm.critical.is_on
        if alarm.short.is_on != self.pass_work.is_short or alarm.urgent.is_on != self.is_urgent:
            self.set_limits(alarm.short.is_on, alarm.urgent.is_on)
        if alarm.short.is_on and self.timer is None:
            self.timer = self.server.loop.call_later(STEP_S, self.step)
        if alarm.critical.is_on:
            self.end_heaviest(alarm.used - alarm.high_bytes)

    def set_limits(self, is_short: bool, is_urgent: bool) -> None:
        self.pass_work.is_short = is_short
        self.pass_work.share(1)  # until the next turn says how many share it
        self.is_urgent = is_urgent
        self.pass_work.hoard_bytes_max = HOARD_BYTES_URGENT if is_urgent else HOARD_BYTES_SHORT
        store = self.server.broker.store
        if store is not None:
            kept = KEPT_URGENT if is_urgent else KEPT_SHORT
            store.kept_messages_lean, store.kept_bytes_lean = kept
            store.kept_messages, store.kept_bytes = kept if is_short else self.kept_usual
        if not is_urgent:
            self.wake_hoarders()

    def wake_hoarders(self) -> None:
        """Some at a time, unless memory has become scarce again."""
        if not self.is_urgent and self.pass_work.wake_hoarders(HOARDERS_MAX):
            self.server.loop.call_later(STEP_S, self.wake_hoarders)
        self.server.scheduler.schedule_pass()

    def step(self) -> None:
        """A portion of what there is to do; comes again while memory is short."""
        self.timer = None
        server = self.server
        if server.stopping is not None or not server.alarm.short.is_on:
            return
        has_more = self.shedding.step()
        if not has_more:
            self.spool_contents()
        server.scheduler.schedule_pass()  # the disk gets what was shed
        now_s = server.loop.time()
        if not has_more and now_s >= self.trim_due_s:
            if server.has_garbage and self.may_collect(now_s):
                server.give_back()
                self.collected_s = server.loop.time()
                self.collect_took_s = self.collected_s - now_s
            else:
                memory.trim()
            self.trim_due_s = server.loop.time() + TRIM_S
        self.timer = server.loop.call_later(STEP_S if has_more else ROUND_S, self.step)
        server.watch_memory()

    def may_collect(self, now_s: float) -> bool:
        """Whether the last time the collector looked at everything is long enough ago."""
        pause_s = COLLECT_S
        if not self.server.alarm.critical.is_on:
            pause_s = max(pause_s, COLLECT_PARTS * self.collect_took_s)
        return now_s >= self.collected_s + pause_s

    def spool_contents(self) -> None:
        """Contents that are coming in go to files, those of some links at a time."""
        if self.server.broker.store is None:
            return
        if not self.links:
            self.links = list(self.server.links)
        for link in self.links[-LINKS_MAX:]:
            link.session.spool_contents()
        del self.links[-LINKS_MAX:]

    def end_heaviest(self, excess_bytes: int) -> None:
        """Connections end that hold what cannot go to disk, the heaviest first, until the rest fits."""
        now_s = self.server.loop.time()
        if now_s < self.weigh_due_s:
            return
        self.weigh_due_s = now_s + WEIGH_S
        weights = [(weight_of(link), index, link) for index, link in enumerate(self.server.links)]
        weights.sort(reverse=True)
        for weight, _, link in weights[:ENDS_MAX]:
            if excess_bytes <= 0 or weight < WEIGHT_BYTES_MIN:
                break
            excess_bytes -= weight
            end(link, weight)

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def weight_of(link: Link) -> int:
    """What the connection holds in memory that nothing but its end or its client's reading frees."""
    output = link.output
    waits = output.capacity + output.behind_bytes + held_octets(output.streams)
    return len(link.leftover) + waits + link.session.content_bytes()


def end(link: Link, weight: int) -> None:
    text = f"memory is short, and this connection holds {weight >> 10} KiB of it"
    if link.output.pending() or link.output.streaming:
        log.warning("%s ends: %s", link.session, text)
        link.drop()  # it does not read, so it would not hear of it
    else:
        link.session.close_connection(ConnectionFault(amqp.RESOURCE_ERROR, text))
        link.leftover = bytearray()
