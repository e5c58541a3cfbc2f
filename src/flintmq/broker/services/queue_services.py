"""Services for readers of queues: batch leases, looking without disturbing, moving and copying."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from flintmq.auth import Operation
from flintmq.broker.channels.channel import Channel
from flintmq.broker.matching import late_binding
from flintmq.broker.queues.consumer_selector import ConsumerSelector, selector_of
from flintmq.broker.queues.leases import Lease, find_lease, lease_of
from flintmq.broker.services import browsing
from flintmq.broker.services.arguments import PAGE
from flintmq.broker.services.queue_identity import CREATION_ID, creation_id, require_same
from flintmq.broker.services.request import Request, Service, failure, service
from flintmq.broker.services.row_columns import CHOICE, Row, lay_out
from flintmq.checks import NAME_OCTETS_MAX, octets_of
from flintmq.errors import ChannelFault, ServiceFault
from flintmq.wire import amqp, traits
from flintmq.wire.properties import decode_basic_properties
from flintmq.wire.tables import FieldTable

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.chores import Chore

# Whose lease of which queue a request is about.
LEASE = "queue text, creation-id? text, consumer text, epoch? number"
CLAIM = (
    ", claim? flag, start? number, max-rows? number, max-bytes? number, timeout-ms? number, wait-ms? number"
)
PEEK = (
    "queue text, after? number, limit? number, max-bytes? number, selector? text, filter? any, "
    "contains? text, columns? array"
)
ROWS_MAX = 1_000_000
# Of one reply: it is a message in memory, once here and once on its way out.
REPLY_BYTES_MAX = 67_108_864
REPLY_BYTES = 8_388_608
# What one look into a queue goes through at most: some milliseconds.
LOOKED_MAX = 2048
LOOKED_BYTES_MAX = 16_777_216
# What one step of it goes through: a fraction of a millisecond.
STEP_MESSAGES = 256
STEP_BYTES = 262_144
LEASE_BYTES = 67_108_864
LEASE_BYTES_MAX = 268_435_456
TIMEOUT_MS = 60_000
TIMEOUT_MS_MAX = 86_400_000
WAIT_MS_MAX = 30_000
# How often a reader that waits for messages is looked after.
LOOK_MS = 20
# A part of a message: what one reply holds of it, and what one step reads.
PART_BYTES = 1_048_576
PART_BYTES_MAX = 4_194_304
READ_BYTES = 262_144
# Rows of one reply, which is made in one go: some 20 milliseconds.
REPLY_ROWS_MAX = 8192
# Messages of a lease whose octets one step counts.
COUNTED_AT_ONCE = 8192
# Of one channel: a selector takes 400 KB at the worst.
GET_FILTERS_MAX = 16
# Moved or copied in one step, which is one group of the journal: 10 microseconds each.
MOVED_AT_ONCE = 256


def queue_of(request: Request, argument: str = "queue", operation: Operation = Operation.READ) -> Queue:
    """The queue that an argument names, if the asker may read it."""
    name = request.text(argument)
    request.require(operation, "queue", name)
    queue = request.channel.virtual_host.find_queue(name, request.channel.origin)
    if queue.is_stream and operation is Operation.READ:
        raise ServiceFault(
            amqp.NOT_IMPLEMENTED,
            f"queue '{name}' is a stream: consume it from an offset, or ask stream.fetch",
        )
    return queue


def reader_of(request: Request) -> str:
    name = request.text("consumer")
    if not 0 < octets_of(name) <= NAME_OCTETS_MAX:
        raise request.wrong("consumer", f"expected a name of 1 to {NAME_OCTETS_MAX} octets")
    return name


def held_lease(request: Request) -> Lease:
    """The lease that a request is about, which it holds under the epoch it names."""
    queue = queue_of(request)
    require_same(queue, request)
    lease = find_lease(queue, reader_of(request))
    lease.check(request.number("epoch"))
    return lease


def promise(request: Request) -> None:
    """The answer leaves when what was done is on disk."""
    store = request.channel.store
    if store is not None:
        store.hold_back(request.channel.output, store.last())


@service("queue.lease", LEASE + CLAIM, changes=True)
def queue_lease(request: Request) -> Iterator[None]:
    """Consecutive messages for a named reader: queue, consumer, epoch or claim, start, max-rows."""
    queue = queue_of(request)
    require_same(queue, request)
    if queue.consumers and queue.consumers[0].exclusive:
        raise ServiceFault(amqp.RESOURCE_LOCKED, f"queue '{queue.name}' has an exclusive consumer")
    timeout_ms = request.number("timeout-ms", TIMEOUT_MS, 1, TIMEOUT_MS_MAX)
    lease = lease_of(queue, reader_of(request), timeout_ms)
    if request.flag("claim", False):
        lease.claim()
        lease.keep()
    else:
        lease.check(request.number("epoch"))
    return LeaseRequest(request, lease, timeout_ms).look()


class LeaseRequest:
    """A request for a lease, which may wait for the first message to come."""

    def __init__(self, request: Request, lease: Lease, timeout_ms: int) -> None:
        self.request = request
        self.lease = lease
        self.epoch = lease.epoch
        self.timeout_ms = timeout_ms
        self.start = request.number("start", lease.acked)
        self.rows_max = request.number("max-rows", ROWS_MAX, 0, ROWS_MAX)
        self.bytes_max = request.number("max-bytes", LEASE_BYTES, 1, LEASE_BYTES_MAX)
        request.until_ms = lease.timetable.now_ms() + request.number("wait-ms", 0, 0, WAIT_MS_MAX)

    def look(self) -> Iterator[None]:
        lease = self.lease
        first, last = yield from lease.grant(self.start, self.rows_max, self.bytes_max)
        lease.check_there(self.epoch)
        now_ms = lease.timetable.now_ms()
        if last < first and self.rows_max and now_ms < self.request.until_ms:
            look_again(self.request, lease, lambda _: self.look_there())
            return
        lease.renew(self.timeout_ms)
        promise(self.request)
        results: FieldTable = {
            "first": first,
            "last": last,
            "epoch": lease.epoch,
            "acked": lease.acked,
            CREATION_ID: creation_id(lease.queue, self.request),
        }
        octets = 0
        granted = list(lease.between(first - 1, last))
        for at in range(0, len(granted), COUNTED_AT_ONCE):
            if at:
                yield
            portion = granted[at : at + COUNTED_AT_ONCE]
            octets += sum([each.content_size() for each in portion])
        self.request.reply({**results, "octets": octets})

    def look_there(self) -> Iterator[None]:
        """Once more. Who has waited may have lost the right to read the queue meanwhile."""
        self.request.require(Operation.READ, "queue", self.lease.queue.name)
        self.lease.check_there(self.epoch)
        return self.look()


def look_again(request: Request, lease: Lease, function: Service) -> None:
    """Serves a request that waits once more, soon; what it raises is the answer, as it is the first time."""
    request.wait()

    def serve() -> None:
        request.function = function
        lease.queue.pass_work.chores.begin(request.serve())

    lease.timetable.at(min(lease.timetable.now_ms() + LOOK_MS, request.until_ms), serve)


@service(
    "lease.read",
    LEASE + ", from? number, to? number, max-bytes? number, columns? array",
    large_bytes=REPLY_BYTES,
)
def lease_read(request: Request) -> Iterator[None]:
    """Messages of a lease, numbered from + 1 to to, in columns; 8,192, or as many as max-bytes allow."""
    lease = held_lease(request)
    start = request.number("from", lease.acked)
    end = request.number("to", lease.last)
    lease.between(start, end)
    lease.renew(lease.timeout_ms)
    rows = ReplyRows(request)
    last = yield from read_rows(rows, lease, start, min(end, start + REPLY_ROWS_MAX))
    yield from rows.reply({"last": last})


def read_rows(rows: ReplyRows, lease: Lease, number: int, last: int) -> Generator[None, None, int]:
    """Takes as many of a lease as the reply may hold; the first is the one behind `number`.

    The number it has come to: that of the last row, unless messages behind it are lost.
    """
    request = rows.request
    epoch = lease.epoch
    while number < last:
        octets = 0
        # What lies on disk is read in here: after a pause the lease is asked anew, as others may ack.
        for delivery, message in lease.read(number, last, last - number):
            number += 1
            if message is None:
                continue
            body = yield from browsing.whole_body(request.channel, message, REPLY_BYTES_MAX)
            if body is None:
                raise ServiceFault(
                    amqp.CONTENT_TOO_LARGE,
                    f"{request.name}: message {number} has {message.body_size()} octets, "
                    "or its file is lost: release the lease and take it with basic.get",
                )
            row = Row(number, message, body, delivery.redeliveries > 0)
            if not rows.takes(row):
                return number - 1
            octets += row.octets()
            if octets > STEP_BYTES or message.traits & traits.SPOOLED:
                yield
                lease.check_there(epoch)
                break
    return number


class ReplyRows:
    """The rows of one reply: as many as it may hold, at least one."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.chosen = chosen_columns(request)
        self.bytes_max = request.bytes_max(REPLY_BYTES_MAX)
        self.taken: list[Row] = []
        self.octets = 0

    def takes(self, row: Row) -> bool:
        """Whether there was room for the row, which is part of the reply then."""
        self.octets += row.octets()
        if self.taken and self.octets > self.bytes_max:
            return False
        self.taken.append(row)
        self.request.broker.answer_room.grow(self.request, self.octets)
        return True

    def reply(self, results: dict[str, int]) -> Iterator[None]:
        """Answers, in portions where it is large; `results` have the number to go on after, `last`."""
        now_ms = self.request.broker.timetable.now_ms()
        taken, self.taken = self.taken, []  # the pieces alone hold the messages from here on
        pieces = lay_out(taken, results["last"] + 1, self.chosen, now_ms)
        return self.request.reply_in_pieces({"count": len(taken), **results}, pieces)


def chosen_columns(request: Request) -> list[str]:
    chosen = request.arguments.get("columns", [])
    if not isinstance(chosen, list) or not all(name in CHOICE for name in chosen):
        raise request.wrong("columns", f"expected a list of: {', '.join(CHOICE)}")
    return [str(each) for each in chosen]


@service(
    "lease.content", LEASE + ", number number, offset? number, max-bytes? number", large_bytes=PART_BYTES
)
def lease_content(request: Request) -> Iterator[None]:
    """A part of one message of a lease, from `offset` on: `size`, exchange, routing-key, properties at 0."""
    lease = held_lease(request)
    number = request.number("number", minimum=1)
    offset = request.number("offset", 0)
    bytes_max = request.bytes_max(PART_BYTES_MAX, 0)
    delivery, message = next(lease.read(number - 1, number, 1))
    if message is None:
        raise ServiceFault(amqp.NOT_FOUND, f"{request.name}: message {number} is gone")
    lease.renew(lease.timeout_ms)
    size = message.body_size()
    if offset > size:
        raise request.wrong("offset", f"the message has {size} octets")
    route = message.shown_route()
    results: FieldTable = {
        "number": number,
        "size": size,
        "offset": offset,
        "exchange": route[1 : 1 + route[0]].decode("utf-8", "surrogateescape"),
        "routing-key": route[2 + route[0] :].decode("utf-8", "surrogateescape"),
        "redelivered": delivery.redeliveries > 0,
        CREATION_ID: creation_id(lease.queue, request),
    }
    if not offset:
        results["properties"] = properties_table(message)
    part: list[bytes] = []
    with closing(browsing.body_reader(request.channel, message)) as reader:
        for at in range(offset, min(size, offset + bytes_max), READ_BYTES):
            if part:
                yield
            part.append(reader.read(at, min(READ_BYTES, size - at, offset + bytes_max - at)))
    request.reply(results, b"".join(part))


def properties_table(message: Message) -> FieldTable:
    """The properties that a message has, by their names in the standard."""
    found = decode_basic_properties(message.content, 12, message.header_size)
    given = {name: getattr(found, name) for name in found.FIELDS}
    return {name.replace("_", "-"): value for name, value in given.items() if value is not None}


@service("lease.ack", LEASE + ", through number", changes=True)
def lease_ack(request: Request) -> Iterator[None]:
    """Lets go of the messages of a lease up to a number: queue, consumer, epoch, through."""
    lease = held_lease(request)
    settled = yield from lease.ack(request.number("through"))
    lease.renew(lease.timeout_ms)
    promise(request)
    request.reply({"acked": lease.acked, "settled": settled})


@service("lease.renew", LEASE + ", timeout-ms? number, wait-ms? number")
def lease_renew(request: Request) -> None:
    """The reader is alive: its lease ends timeout-ms from now. With wait-ms it waits for messages to come."""
    now_ms = held_lease(request).timetable.now_ms()
    request.until_ms = now_ms + request.number("wait-ms", 0, 0, WAIT_MS_MAX)
    renew(request)


def renew(request: Request) -> None:
    lease = held_lease(request)
    lease.renew(request.number("timeout-ms", lease.timeout_ms, 1, TIMEOUT_MS_MAX))
    if not lease.queue.message_count() and lease.timetable.now_ms() < request.until_ms:
        look_again(request, lease, renew)
        return
    request.reply(
        {
            "acked": lease.acked,
            "last": lease.last,
            "messages-ready": lease.queue.message_count(),
            CREATION_ID: creation_id(lease.queue, request),
        }
    )


@service("lease.release", LEASE, changes=True)
def lease_release(request: Request) -> None:
    """Ends a lease: what is not acked goes back to the queue."""
    lease = held_lease(request)
    returned = lease.release()
    promise(request)
    request.reply({"returned": returned})


@service("lease.list", "queue text, " + PAGE)
def lease_list(request: Request) -> Iterator[None]:
    """The readers that have leases of a queue, and what they hold."""
    queue = queue_of(request)
    now_ms = request.broker.timetable.now_ms()

    def row(lease: Lease) -> FieldTable:
        return {
            "consumer": lease.name,
            "epoch": lease.epoch,
            "acked": lease.acked,
            "last": lease.last,
            "octets": lease.held_bytes,
            "expires-ms": max(0, lease.due_ms - now_ms) if lease.deliveries else 0,
        }

    return request.page((name, partial(row, lease)) for name, lease in (queue.leases or {}).items())


@service("queue.peek", PEEK, large_bytes=REPLY_BYTES)
def queue_peek(request: Request) -> Iterator[None]:
    """The messages that wait in a queue, in columns, without taking them: queue, after, limit, selector."""
    rows = ReplyRows(request)
    look = QueueLook(request, queue_of(request))
    yield from look.find(rows)
    yield from rows.reply({"last": look.last, "looked-at": look.looked_at, "more": look.more})


@service("get.filter", "queue text, selector? text, filter? any")
def get_filter(request: Request) -> None:
    """What basic.get of a queue takes from now on, on the channel that asks: queue, selector, filter."""
    queue = queue_of(request)
    selection = asked_selection(request)
    channel = request.channel
    if not isinstance(channel, Channel):
        raise ServiceFault(amqp.NOT_ALLOWED, "get.filter: the channel that asks gets nothing from queues")
    filters = channel.get_filters or {}
    filters.pop(queue.name, None)
    if selection is not None:
        if len(filters) >= GET_FILTERS_MAX:
            raise ServiceFault(
                amqp.RESOURCE_ERROR, f"get.filter: a channel has filters for {GET_FILTERS_MAX} queues at most"
            )
        filters[queue.name] = selection
    channel.get_filters = filters or None
    request.reply({})


def asked_selection(request: Request) -> ConsumerSelector | None:
    """What the arguments `selector` and `filter` select; None for everything."""
    asked: FieldTable = {}
    selector = request.text("selector", "")
    if selector:
        asked[late_binding.SELECTOR] = selector
    if "filter" in request.arguments:
        asked[late_binding.FILTER] = request.arguments["filter"]
    condition = late_binding.condition_of(asked, request.channel.virtual_host.pass_work)
    return None if condition is None else selector_of(condition)


class QueueLook:
    """One look into a queue: at some of its messages, so that others have their turn, and where it ended."""

    def __init__(self, request: Request, queue: Queue) -> None:
        self.channel = request.channel
        self.queue = queue
        self.last = request.number("after", -1, -(1 << 62))
        self.limit = request.number("limit", 100, 1, ROWS_MAX)
        self.wanted = request.text("contains", "").encode("utf-8", "surrogateescape")
        self.selection = asked_selection(request)
        self.looked_at = 0
        self.more = True  # there may be messages behind `last`

    def find(self, rows: ReplyRows) -> Iterator[None]:
        """Takes what is found, in portions; `last` is before the first message that was not looked at."""
        octets = 0
        while self.more:
            step_octets = 0
            for step, (place, message, is_redelivered) in enumerate(browsing.browse(self.queue, self.last)):
                is_enough = self.looked_at == LOOKED_MAX or octets > LOOKED_BYTES_MAX
                if is_enough or len(rows.taken) == self.limit:
                    return
                if step == STEP_MESSAGES or step_octets > STEP_BYTES:
                    break
                self.looked_at += 1
                step_octets += len(message.content)
                is_selected = self.selection is None or self.selection.accepts(message)
                if self.selection is not None:
                    step_octets += self.selection.octets()
                if is_selected:
                    body = yield from browsing.whole_body(self.channel, message, REPLY_BYTES_MAX)
                    if body is not None:
                        octets += sum(map(len, body))
                        is_found = browsing.is_within(self.wanted, body)
                        if is_found and not rows.takes(Row(place, message, body, is_redelivered)):
                            return
                octets += len(message.content)
                self.last = place
                if message.traits & traits.SPOOLED:
                    break  # others had their turn while it was read: the queue may be another
            else:
                self.more = False
            if self.more:
                yield


def require_both(request: Request, results: FieldTable) -> None:
    """Ends the work of a user who has lost the right to it meanwhile; the answer tells how far it came."""
    try:
        request.require(Operation.READ, "queue", request.text("queue"))
        request.require(Operation.WRITE, "queue", request.text("to"))
    except ChannelFault as fault:
        promise(request)
        request.reply({**failure(fault.code, fault.text), **results})
        raise


@service("queue.copy", "queue text, to text, limit? number, after? number", changes=True, administers=True)
def queue_copy(request: Request) -> Iterator[None]:
    """Copies messages to the end of another queue: queue, to, limit, after."""
    source, target = queue_of(request), queue_of(request, "to", Operation.WRITE)
    limit = request.number("limit", 1000, 1, ROWS_MAX)
    last = request.number("after", -1, -(1 << 62))
    copied, stopped = 0, ""
    # Of a queue that is copied into itself, what was there at first.
    limit = min(limit, source.message_count())
    while copied < limit and not source.deleted and not target.deleted:
        require_both(request, {"copied": copied, "last": last})
        some, last, stopped = browsing.copy(
            request.channel.router, source, target, last, min(limit - copied, MOVED_AT_ONCE)
        )
        copied += some
        if not some or stopped:
            break
        yield
    promise(request)
    request.reply({"copied": copied, "last": last, **why(stopped)})


def why(stopped: str) -> FieldTable:
    """What has ended a copy or a move before its limit, as the answer tells it."""
    return {"stopped": stopped} if stopped else {}


@service("queue.move", "queue text, to text, limit? number", changes=True, administers=True)
def queue_move(request: Request) -> Chore:
    """Moves messages from the head of a queue to the end of another: queue, to, limit."""
    source, target = queue_of(request), queue_of(request, "to", Operation.WRITE)
    if source is target:
        raise request.wrong("to", "is the same queue")
    limit = request.number("limit", 1000, 1, ROWS_MAX)
    moved, stopped = 0, ""
    while moved < limit and not source.deleted and not target.deleted:
        require_both(request, {"moved": moved, "left": source.message_count()})
        if source.sweep():
            yield source.room_for_letters()
            continue
        some, stopped = browsing.move(
            request.channel.router, source, target, min(limit - moved, MOVED_AT_ONCE)
        )
        moved += some
        if not some or stopped:
            break
        yield None
    promise(request)
    request.reply({"moved": moved, "left": source.message_count(), **why(stopped)})
