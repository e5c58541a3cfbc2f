"""What a transaction of the tx class has gathered: published messages, and settled deliveries.

Nothing of it shows until commit; then all of it does, in one go. Rollback forgets the publishes and
leaves the deliveries unsettled, as the standard says: the client may settle them again or recover.

A commit is one group of the journal, in which nobody else is served. Of very many messages the group has only
the decision: they are staged in a branch of the broker's own (dtx_branch.py) first, in portions, and go to
their queues in portions afterwards (dtx_completion.py), after a crash too.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from flintmq.broker.exchanges.router import KEY_COPIES
from flintmq.broker.messages import cc_bcc
from flintmq.broker.streams.stream_arguments import refuse_too_large
from flintmq.config import Limits
from flintmq.errors import ChannelFault
from flintmq.storage.streams.chunk import MESSAGE_OCTETS_MAX
from flintmq.wire import amqp, traits

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.exchanges.route import Route
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.delivery import Delivery
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.transactions.dtx_branch import Branch
    from flintmq.broker.transactions.dtx_branches import Branches
    from flintmq.broker.transactions.dtx_work import DtxWork

# Beside its content, what a message of an open transaction takes in memory.
MESSAGE_BYTES = 256
# Messages, and copies of them in queues, that one commit puts there in one pass: some 20 milliseconds.
MESSAGES_MAX = 8192
COPIES_MAX = 65_536
# Messages that one step looks at, or puts into a branch; and what finding their queues may take, in copies.
CHECKED = 1024
STAGED = 256
STEP_COPIES = 8192
# Settlements that one dead letter counts for.
LETTER_SETTLEMENTS = 64
# What an open transaction may hold while memory is short.
SHORT_BYTES_MAX = 1_048_576


class Transaction:
    """The open transaction of a channel; a new one begins where it ends."""

    __slots__ = (
        "acked",
        "channel",
        "content_bytes",
        "is_closed",
        "published",
        "rejected",
        "requeued",
        "settled_tags",
        "settlements",
        "work",
    )

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.is_closed = False  # the channel is
        self.work: DtxWork | None = None  # what publishes in the branch of a commit that is in hand
        self.clear()

    def clear(self) -> None:
        self.published: list[tuple[Message, int]] = []
        self.content_bytes = 0
        self.settlements = 0
        self.acked: list[Delivery] = []
        self.rejected: list[Delivery] = []
        self.requeued: list[Delivery] = []
        self.settled_tags: set[int] = set()

    def publish(self, message: Message, flags: int) -> None:
        self.content_bytes += len(message.content) + MESSAGE_BYTES
        pass_work = self.channel.virtual_host.pass_work
        most = (
            min(SHORT_BYTES_MAX, pass_work.transaction_bytes_max)
            if pass_work.is_short
            else pass_work.transaction_bytes_max
        )
        if self.content_bytes > most:
            raise ChannelFault(
                amqp.RESOURCE_ERROR,
                f"over {most} octets in a transaction: commit more often",
                60,
                40,
            )
        self.published.append((message, flags))

    def without_settled(self, deliveries: list[Delivery]) -> list[Delivery]:
        return [delivery for delivery in deliveries if delivery.tag not in self.settled_tags]

    def ack(self, deliveries: list[Delivery]) -> None:
        self.count(len(deliveries))
        self.acked.extend(deliveries)
        self.settled_tags.update(delivery.tag for delivery in deliveries)

    def reject(self, deliveries: list[Delivery], requeue: bool) -> None:
        self.count(len(deliveries) if requeue else LETTER_SETTLEMENTS * len(deliveries))
        (self.requeued if requeue else self.rejected).extend(deliveries)
        self.settled_tags.update(delivery.tag for delivery in deliveries)

    def count(self, settlements: int) -> None:
        """Raises if there are more of them than a commit may settle in one go."""
        self.settlements += settlements
        broker = self.channel.virtual_host.broker
        most = (Limits() if broker is None else broker.config.limits).settlements_per_transaction_max
        if self.settlements > most:
            raise ChannelFault(
                amqp.RESOURCE_ERROR,
                f"over {most} settlements in a transaction, of which a rejected message is "
                f"{LETTER_SETTLEMENTS}: commit more often",
            )

    def is_large(self) -> bool:
        """Whether the commit is more than a pass may take, as far as the routes of its messages tell."""
        if len(self.published) > MESSAGES_MAX:
            return True
        router = self.channel.router
        pass_work = router.pass_work
        work_max = pass_work.copies + COPIES_MAX
        total = copies = key_copies = 0
        last = b""
        for message, _ in self.published:
            if message.route != last:
                last = message.route
                route = router.route_of(last) if router.has_exchange_of(last) else None
                copies = 0 if route is None else router.copies_max(route)
                key_copies = 0 if route is None else router.key_copies_max(route.exchange)
            total += copies
            if message.traits & traits.HAS_COPIES:
                total += (key_copies + KEY_COPIES) * len(cc_bcc.keys_of(message))
            if total > COPIES_MAX or pass_work.copies > work_max:
                return True
        return False

    def commit(self) -> bool:
        """Whatever can refuse refuses before anything shows. Not where `is_large`.

        False, and nothing is done, if finding the queues is more than a pass may take.
        A bug on the way ends the connection. What was done until then stays done, in memory and on disk:
        messages are published before any delivery is settled, so nothing is lost by it.
        """
        channel = self.channel
        routed = self.check()
        if routed is None:
            return False
        store = channel.store
        with nullcontext() if store is None else store.journal.group() as group:
            self.carry_out(routed)
        self.hold_back(0 if group is None else group.sequence)
        return True

    def commit_in_portions(self) -> Chore:
        """The same where it is large. It is over when all messages are in their queues.

        Should the channel close before all of it is decided, nothing of it is done.
        """
        # With the branches, by the first commit that needs one.
        from flintmq.broker.transactions.dtx_work import DtxWork

        channel = self.channel
        store = channel.store
        branches: Branches = channel.virtual_host.branches
        published = self.published
        coming: dict[Queue, list[Message]] = {}
        checked = 0
        while checked < len(published):
            checked += self.check_some(published[checked : checked + CHECKED], coming, STEP_COPIES)
            yield None
        if self.is_closed:
            return
        check_room(coming, channel.virtual_host.name)
        branch = branches.open_own(channel.user)
        try:
            self.work = DtxWork(channel, branches)
            published.reverse()  # the last of a list is cheap to take
            while published:
                self.stage_some(branches, branch, self.work)
                if store is not None and store.is_behind():
                    yield partial(store.when_synced, store.last())
                else:
                    yield None
                if self.is_closed:
                    return
            if store is not None:
                yield partial(store.when_synced, store.last())
            if not self.is_closed:
                self.decide(branches, branch)
        finally:
            branches.abandon(branch)
        yield partial(branches.outcomes.when_applied, [branch])
        if not self.is_closed:
            self.hold_back(0 if store is None else store.last())

    def stage_some(self, branches: Branches, branch: Branch, work: DtxWork) -> None:
        """Takes messages from the end of `published` into the branch, unless their exchange is gone."""
        store, router = self.channel.store, self.channel.router
        copies_max = router.pass_work.copies + STEP_COPIES
        for _ in range(min(STAGED, len(self.published))):
            if router.pass_work.copies > copies_max:
                break
            message, flags = self.published[-1]
            if router.has_exchange_of(message.route):
                branches.publish(branch, work, message, flags)
            self.published.pop()
            if store is not None and message.traits & traits.SPOOLED:
                store.forget_arrived(message)

    def decide(self, branches: Branches, branch: Branch) -> None:
        """All of the transaction is to be done, whatever comes.

        As in any commit the messages come first: what was settled is back in its queues if that fails.
        """
        with branches.grouped():
            branches.commit_all([branch])
            self.settle()
            self.forget_bodies()
            self.channel.router.secure_streams()
            self.clear()

    def routed(self, published: list[tuple[Message, int]]) -> list[tuple[Message, Route, int]]:
        """Messages with their routes, but for those whose exchange is gone."""
        router = self.channel.router
        return [
            (message, router.route_of(message.route), flags)
            for message, flags in published
            if router.has_exchange_of(message.route)
        ]

    def check(self) -> list[tuple[Message, Route, int]] | None:
        """What was published, with its routes; a fault if any of it is refused, and then nothing is done.

        None if finding its queues takes too long for one pass.
        """
        coming: dict[Queue, list[Message]] = {}
        if self.check_some(self.published, coming, COPIES_MAX) < len(self.published):
            return None
        check_room(coming, self.channel.virtual_host.name)
        return self.routed(self.published)

    def check_some(
        self, published: list[tuple[Message, int]], coming: dict[Queue, list[Message]], copies: int
    ) -> int:
        """How many of these messages it has looked at: until it takes as long as so many `copies`.

        A fault if any is refused. `coming`: what goes to queues that have rules.
        """
        router = self.channel.router
        copies_max = router.pass_work.copies + copies
        for checked, (message, _) in enumerate(published):
            if router.pass_work.copies > copies_max:
                return checked
            if router.has_exchange_of(message.route):
                self.check_message(message, router.route_of(message.route), coming)
        return len(published)

    def check_message(self, message: Message, route: Route, coming: dict[Queue, list[Message]]) -> None:
        channel, router = self.channel, self.channel.router
        size = message.header_size + message.body_size()
        if size > MESSAGE_OCTETS_MAX or message.traits & traits.SPOOLED:
            further = cc_bcc.keys_of(message) if message.traits & traits.HAS_COPIES else []
            queues = router.reachable(route, further)
            refuse_too_large(queues, size)
            router.check_body(message, queues)
        router.check_way(route, message, channel)
        if route.by_headers:
            if route.exchange is not None:
                route.exchange.check_message(message, channel)
        elif route.ruled:
            for queue in route.queues:
                coming.setdefault(queue, []).append(message)

    def carry_out(self, routed: list[tuple[Message, Route, int]]) -> None:
        """In one group of the journal: all of it shows at once."""
        channel = self.channel
        for message, route, flags in routed:
            channel.forward(message, route, flags)
        self.settle()
        self.forget_bodies()
        channel.router.secure_streams()
        self.clear()

    def settle(self) -> None:
        """Acked and rejected messages leave their queues, requeued ones are back."""
        channel = self.channel
        channel.discard(self.acked)
        channel.refuse(self.rejected)
        channel.requeue(self.requeued)
        streams = channel.virtual_host.streams
        if streams is not None and (self.acked or self.rejected) and not streams.is_safe(channel.confirms):
            streams.moved = True

    def hold_back(self, sequence: int) -> None:
        """The answer leaves when all of it is on disk."""
        channel = self.channel
        if channel.store is not None:
            channel.store.hold_back(channel.output, sequence)
        streams = channel.virtual_host.streams
        if streams is not None and channel.confirms.stream_batch:
            streams.hold_back(channel.confirms)

    def rollback(self) -> None:
        self.forget_bodies()
        self.clear()

    def close(self) -> None:
        """The channel closes."""
        self.is_closed = True
        if self.work is not None:
            self.work.is_closed = True
        self.rollback()

    def forget_bodies(self) -> None:
        """Files of large messages that reached no queue go."""
        store = self.channel.store
        if store is not None:
            for message, _ in self.published:
                if message.traits & traits.SPOOLED:
                    store.forget_arrived(message)


def check_room(coming: dict[Queue, list[Message]], virtual_host: str) -> None:
    """A queue that refuses messages when it is full refuses the whole transaction."""
    for queue, messages in coming.items():
        if queue.lacks_room(messages):
            raise ChannelFault(
                amqp.PRECONDITION_FAILED,
                f"queue '{queue.name}' in vhost '{virtual_host}' is full: "
                "nothing of the transaction was done",
                90,
                20,
            )
