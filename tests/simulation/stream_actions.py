"""Streams and delayed messages of simulated clients, in the same history as their queues.

A stream is in the model by its offsets: which message each of them has, and how far that was promised.
An exchange that delays has a holder, which is to the journal what a queue is; when a message is due it
leaves there and is in its queues, in one group: never both, and never neither.
"""

from __future__ import annotations

from flintmq.broker.exchanges.delayed_exchange import DelayedExchange
from flintmq.wire import methods
from flintmq.wire.columns import Columns

from .broker_client import Client
from .broker_model import UNKNOWN, Copy, ModelChannel, ModelQueue, ModelStream
from .lease_actions import LeaseActions

STREAMS = ("s1", "s2")
_ENTRY_BITS = 64
_ENTRY_MASK = (1 << _ENTRY_BITS) - 1


class StreamActions(LeaseActions):
    """What goes elsewhere than to queues, or goes there later."""

    put_off: dict[Copy, int]  # delayed messages that could not be read in time, and when they are due since

    # Streams

    def declare_stream(self, client: Client, channel: ModelChannel) -> None:
        name = self.chance.choice(STREAMS)
        known = self.model.streams.get(name)
        if known is not None and self.chance.random() < 0.1:
            known.deleted = True
            self.ask(client, channel, methods.QueueDelete(queue=name), methods.QueueDeleteOk)
            self.model.delete_stream(name, self.store.last())
            self.tell(client, f"no stream {name}", ("queue", name))
            return
        arguments = {"x-queue-type": "stream"}
        method = methods.QueueDeclare(queue=name, durable=True, arguments=arguments)
        self.ask(client, channel, method, methods.QueueDeclareOk)
        if known is None:
            real = self.host.queues[name]
            stream = ModelStream(name, real.number)
            stream.log = real.log  # type: ignore[attr-defined]
            self.model.add_stream(stream, self.store.last())
        self.tell(client, f"stream {name}", ("queue", name))

    def read_stream(self, client: Client, channel: ModelChannel) -> None:
        """Any part of what is safe is what was published, in order, and there is no more."""
        if not self.model.streams:
            return
        name, stream = self.chance.choice(list(self.model.streams.items()))
        self.request(client, "stream.offsets", stream=name)
        extent, _ = self.answer(client)
        end = extent["end"]
        assert stream.promised <= end <= len(stream.numbers), f"{name} ends at {end}"
        if stream.has_holes:
            return
        assert extent["first"] == (0 if end else end)
        start = self.chance.randint(0, end)
        self.request(client, "stream.fetch", stream=name, **{"from": start})
        results, body = self.answer(client)
        rows = [(row["offset"], row["value"]) for row in Columns(body).rows()]
        wanted = [(at, self.body(stream.numbers[at])) for at in range(start, end)]
        assert rows == wanted[: len(rows)], f"{name} from {start} on is not what was published"
        assert results["next"] == start + len(rows)
        assert rows or start == end, f"{name} gives nothing from {start} to {end}"

    # What comes later

    def is_delayed(self, exchange: str, number: int) -> bool:
        return bool(self.delays.get(number)) and exchange in self.model.holders

    def route_out(self, number: int, exchange: str, key: str, persistent: bool) -> list[Copy]:
        """A message takes its way, now; those of its copies that go to disk."""
        if not self.is_delayed(exchange, number):
            return self.enqueue(number, self.model.route(exchange, key), persistent)
        holder = self.model.holders[exchange]
        real = self.host.exchanges[exchange]
        assert isinstance(real, DelayedExchange)
        known = {copy.entry for copy in holder.copies.values()}
        copies = self.enqueue(number, [holder], persistent)
        copy = holder.copies[number]
        copy.due_ms = self.now_ms() + self.delays[number]
        # Several of them may have come in one go; those of the same time leave in the order of entries.
        coming = [
            each
            for each in real.waiting
            if each & _ENTRY_MASK not in known and each >> _ENTRY_BITS == copy.due_ms
        ]
        assert coming, f"{number} does not wait in {exchange}"
        copy.entry = self.entry_among(number, coming)
        return copies

    def entry_among(self, number: int, waiting: list[int]) -> int:
        for each in waiting:
            entry = each & _ENTRY_MASK
            with self.sound():
                [message] = self.store.load([entry])
            assert message is not None
            if message.content[message.header_size :] == self.body(number):
                return entry
        raise AssertionError(f"{number} does not wait for its time")

    def follow_delays(self, was_cut: bool = False) -> None:
        """What the exchanges have let go was due, and is where it should be.

        `was_cut`: the power has failed meanwhile, and nothing of it can be safe.
        """
        for name, holder in self.model.holders.items():
            real = self.host.exchanges[name]
            assert isinstance(real, DelayedExchange)
            waiting = due_times(real)
            gone = [copy for copy in holder.copies.values() if copy.entry not in waiting]
            for copy in sorted(gone, key=lambda each: (self.put_off.get(each, each.due_ms), each.entry)):
                assert copy.due_ms <= self.now_ms(), f"{copy.number} came before its time"
                letters = self.arrive(copy, name)
                for letter in letters if was_cut else ():
                    letter.sequence = UNKNOWN
            for copy in holder.copies.values():
                if waiting[copy.entry] != copy.due_ms:
                    assert waiting[copy.entry] > copy.due_ms
                    self.put_off[copy] = waiting[copy.entry]

    def arrive(self, copy: Copy, exchange: str) -> list[Copy]:
        _, key, persistent = self.sent[copy.number]
        queues = self.model.route(exchange, key)
        self.model.settle(copy)
        letters = self.enqueue(copy.number, queues, persistent)
        self.model.deaths += [(copy, letter) for letter in letters]
        for stream in queues:
            if isinstance(stream, ModelStream) and copy.sequence:
                self.model.moves.append((copy, stream, len(stream.numbers)))
        return letters

    def check_delays(self) -> None:
        if self.is_blind():
            return  # what is due waits until it can be read
        for name, holder in self.model.holders.items():
            real = self.host.exchanges[name]
            assert isinstance(real, DelayedExchange)
            due_ms = due_times(real)  # later than in the model, for those that could not be read
            late = [copy.number for copy in holder.copies.values() if due_ms[copy.entry] <= self.now_ms()]
            assert not late, f"{late} should have left {name}"

    def hold_delayed(self, name: str) -> None:
        """An exchange that delays was declared."""
        holder = ModelQueue(name, self.host.exchanges[name].number)
        self.model.add_holder(holder)
        if holder.number:
            self.ever[holder.number] = {}


def due_times(exchange: DelayedExchange) -> dict[int, int]:
    """When each entry that waits in the exchange is due, in ms."""
    return {each & _ENTRY_MASK: each >> _ENTRY_BITS for each in exchange.waiting}
