"""Batch leases of simulated clients, beside what the model makes of them.

Requests go the whole way: published to the exchange `amq.system`, answered through a queue of the client.
What a reader was given has numbers; the model knows which message each stands for, in this life and the
next ones, until it is acked, released, or expired.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from flintmq.wire import amqp, methods
from flintmq.wire.columns import Columns
from flintmq.wire.properties import BasicProperties, decode_basic_properties

from .branch_actions import BranchActions
from .broker_client import Client
from .broker_model import OUT, UNKNOWN, Commit, ModelChannel, ModelLease, ModelQueue
from .ruled_queues import MORGUES

READERS = ("spark", "export")
REPLIES = "replies-"
SERVICE_CHANNEL = 9  # plain, and of no interest to anybody else


class LeaseActions(BranchActions):
    """The services of queues."""

    askers = 0

    # Asking

    def request(self, client: Client, service: str, **arguments: Any) -> None:
        """Sends a request; the broker has answered it when this returns, `answer` looks at that."""
        if not client.reply_queue:
            self.askers += 1
            client.reply_queue = f"{REPLIES}{self.askers}"
            client.say(SERVICE_CHANNEL, methods.ChannelOpen())
            client.say(SERVICE_CHANNEL, methods.QueueDeclare(queue=client.reply_queue, exclusive=True))
            assert len(self.listen(exact=False)) == 2
        headers = {name.replace("_", "-"): value for name, value in arguments.items()}
        properties = BasicProperties(reply_to=client.reply_queue, headers=headers)
        client.publish(SERVICE_CHANNEL, "amq.system", service, b"", False, properties)

    def answer(self, client: Client) -> tuple[dict[str, Any], bytes]:
        client.say(SERVICE_CHANNEL, methods.BasicGet(queue=client.reply_queue, no_ack=True))
        [event] = self.listen(exact=False)
        assert isinstance(event.method, methods.BasicGetOk), "a request is not answered"
        properties = decode_basic_properties(event.header, 12, len(event.header))
        return dict(properties.headers or {}), event.body

    def refused(self, client: Client, code: int) -> None:
        results, _ = self.answer(client)
        assert results.get("error-code") == code, f"not refused by {code}: {results}"

    # What readers do

    def lease(self, client: Client, channel: ModelChannel) -> None:
        """Claims a lease, or asks for more under one, or once more for what was given before."""
        names = [name for name in self.model.queues if name not in MORGUES]
        if not names:
            return
        full = [name for name in names if self.model.queues[name].ready()]
        queue = self.model.queues[self.chance.choice(full if full and self.chance.random() < 0.8 else names)]
        reader = self.chance.choice(READERS)
        lease = self.model.leases.get((queue.name, reader))
        asked: dict[str, Any] = {"queue": queue.name, "consumer": reader}
        rows = asked["max_rows"] = self.chance.choice((0, 1, 2, 5, 100))
        timeout_ms = asked["timeout_ms"] = self.chance.choice((40, 400, 60_000))
        if self.chance.random() < 0.2:
            asked["max_bytes"] = 1
            rows = min(rows, 1)
        if lease is not None and lease.epoch and self.chance.random() < 0.1:
            self.request(client, "queue.lease", **asked, epoch=lease.epoch - 1)
            self.refused(client, amqp.ACCESS_REFUSED)
            return
        if lease is None or self.chance.random() < 0.3:
            asked["claim"] = True
        else:
            asked["epoch"] = lease.epoch
        start = 0 if lease is None else lease.acked
        if lease is not None and self.chance.random() < 0.6:
            start = asked["start"] = self.chance.randint(lease.acked, lease.last)
        self.request(client, "queue.lease", **asked)
        if lease is None:
            lease = self.model.leases[queue.name, reader] = ModelLease(reader, queue)
        if "claim" in asked:
            lease.epoch += 1
            self.model.note_lease(lease, lease.value(), self.store.last())  # a record of its own
        last = self.grant(lease, start, rows)
        lease.timeout_ms = timeout_ms
        lease.due_ms = self.now_ms() + timeout_ms
        self.model.note_lease(lease, lease.value(), self.store.last())
        results, _ = self.answer(client)
        given = tuple(results.get(name) for name in ("first", "last", "epoch", "acked"))
        assert given == (start + 1, last, lease.epoch, lease.acked), f"a lease from {start} is {results}"
        self.promise_lease(client, lease, "lease")

    def grant(self, lease: ModelLease, start: int, rows: int) -> int:
        """The last number that is given."""
        if start < lease.last:
            return lease.ends[bisect_right(lease.ends, start)]
        taken = 0
        while taken < rows:
            self.expire_heads(lease.queue)
            ready = lease.queue.ready()
            if not ready:
                break
            copy = ready[0]
            copy.state = OUT
            if copy.sequence:
                copy.handed_out = min(copy.handed_out or UNKNOWN, self.store.last())
            lease.rows.append(copy)
            taken += 1
        if taken:
            lease.last += taken
            lease.ends.append(lease.last)
        return lease.last

    def some_lease(self, client: Client, service: str, **more: Any) -> ModelLease | None:
        """One that is held; now and then under an epoch that is over, which is refused."""
        if not self.model.leases:
            return None
        leases = list(self.model.leases.values())
        full = [lease for lease in leases if lease.rows]
        lease = self.chance.choice(full if full and self.chance.random() < 0.8 else leases)
        if lease.epoch and self.chance.random() < 0.1:
            asked = {"queue": lease.queue.name, "consumer": lease.reader, "epoch": lease.epoch - 1, **more}
            self.request(client, service, **asked)
            self.refused(client, amqp.ACCESS_REFUSED)
            return None
        return lease

    def ask_of(self, client: Client, lease: ModelLease, service: str, **more: Any) -> None:
        held = {"queue": lease.queue.name, "consumer": lease.reader, "epoch": lease.epoch}
        self.request(client, service, **held, **more)

    def read_lease(self, client: Client, channel: ModelChannel) -> None:
        """Any range of what is held, and it is the same as ever."""
        lease = self.some_lease(client, "lease.read")
        if lease is None:
            return
        start = self.chance.randint(lease.acked, lease.last)
        end = self.chance.randint(start, lease.last)
        self.ask_of(client, lease, "lease.read", **{"from": start, "to": end})
        lease.due_ms = self.now_ms() + lease.timeout_ms
        results, body = self.answer(client)
        wanted = lease.rows[start - lease.acked : end - lease.acked]
        assert results == {"count": len(wanted), "last": end}, f"({start}, {end}] is answered by {results}"
        rows = [(row["offset"], row["value"], row["redelivered"]) for row in Columns(body).rows()]
        expected = [
            (start + 1 + index, self.body(copy.number), int(copy.redelivered))
            for index, copy in enumerate(wanted)
        ]
        assert rows == expected, f"{lease.queue.name}: a lease reads {brief(rows)}, not {brief(expected)}"

    def ack_lease(self, client: Client, channel: ModelChannel) -> None:
        lease = self.some_lease(client, "lease.ack", through=0)
        if lease is None:
            return
        through = self.chance.randint(max(0, lease.acked - 1), lease.last)
        self.ask_of(client, lease, "lease.ack", through=through)
        commit = Commit(self.store.last())
        settled = max(0, through - lease.acked)
        for copy in lease.rows[:settled]:
            self.model.settle(copy, commit.sequence)
            if copy.sequence:
                commit.settled.append(copy)
        if settled:
            del lease.rows[:settled]
            lease.acked = through
            lease.ends = [end for end in lease.ends if end > through]
            self.model.note_lease(lease, lease.value(), commit.sequence)
            self.model.commits.append(commit)
            self.groups.append({copy.number for copy in commit.settled})
        lease.due_ms = self.now_ms() + lease.timeout_ms
        results, _ = self.answer(client)
        assert results == {"acked": lease.acked, "settled": settled}, f"an ack is answered by {results}"
        self.promise_lease(client, lease, "lease.ack")

    def tend_lease(self, client: Client, channel: ModelChannel) -> None:
        """Renews it, or gives it back."""
        lease = self.some_lease(client, "lease.renew")
        if lease is None:
            return
        if self.chance.random() < 0.5:
            timeout_ms = self.chance.choice((20, 400, 60_000))
            self.ask_of(client, lease, "lease.renew", timeout_ms=timeout_ms)
            lease.timeout_ms = timeout_ms
            lease.due_ms = self.now_ms() + timeout_ms
            results, _ = self.answer(client)
            told = results["acked"], results["last"], results["messages-ready"]
            assert told == (lease.acked, lease.last, len(lease.queue.ready())), f"{told} is told of a lease"
        else:
            self.release_lease(client, lease)

    def release_lease(self, client: Client, lease: ModelLease) -> None:
        self.ask_of(client, lease, "lease.release")
        count = len(lease.rows)
        self.end_lease(lease)
        results, _ = self.answer(client)
        assert results == {"returned": count}, f"a release is answered by {results}"
        self.promise_lease(client, lease, "lease.release")

    def end_lease(self, lease: ModelLease) -> None:
        """What is not acked is back in its place, to be redelivered."""
        rows, lease.rows = lease.rows, []
        lease.ends.clear()
        lease.acked = lease.last
        lease.epoch += 1
        for copy in rows:
            self.come_back(self.model.ready_again(copy))
        self.model.note_lease(lease, lease.value(), self.store.last())

    def promise_lease(self, client: Client, lease: ModelLease, what: str) -> None:
        client.unheard.append((f"{what} of {lease.queue.name}", self.model.sequence_of(lease.key())))

    # The clock

    def follow_leases(self) -> None:
        """Those that the broker has ended were due."""
        for (name, reader), lease in self.model.leases.items():
            if lease.rows and self.real_lease(lease.queue, reader).epoch != lease.epoch:
                assert lease.due_ms <= self.now_ms(), f"the lease of {name} has ended before its time"
                self.end_lease(lease)

    def check_leases(self) -> None:
        """None is held for longer than it may be, and none is other than it should be."""
        for (name, reader), lease in self.model.leases.items():
            real = self.real_lease(lease.queue, reader)
            assert not lease.rows or lease.due_ms > self.now_ms(), f"the lease of {name} does not end"
            found = (real.epoch, real.acked, real.last, len(real.deliveries))
            assert found == (lease.epoch, lease.acked, lease.last, len(lease.rows)), f"{name}: {found}"

    def real_lease(self, queue: ModelQueue, reader: str) -> Any:
        leases = self.host.queues[queue.name].leases
        assert leases is not None
        return leases[reader]


def brief(rows: list[tuple[int, bytes, int]]) -> list[tuple[int, bytes, int]]:
    return [(number, body[: body.index(b".")], redelivered) for number, body, redelivered in rows]
