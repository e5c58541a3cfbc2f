"""Services for those who read streams in bulk: what there is, where it is, and a lot of it at once.

    stream.offsets           first and end; waits for more if asked to
    stream.offset-for-time   the offset to begin with for messages since a time
    stream.bytes             about how much lies between two offsets
    stream.fetch             messages of a range of offsets, laid out in columns (wire/columns.py)

A range goes from `from` up to but not including `to`. Only what is safe on disk is told or served.
docs/internals/streams.md has the arguments and results.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from flintmq.auth import Operation, require
from flintmq.broker.services.queue_identity import CREATION_ID, creation_id, require_same
from flintmq.broker.services.request import Request, service
from flintmq.broker.streams.stream_queue import StreamQueue
from flintmq.errors import ChannelFault, ServiceFault, StorageFault
from flintmq.storage.streams.columns import fetch
from flintmq.storage.streams.cursor import offset_of_time
from flintmq.wire import amqp, columns
from flintmq.wire.tables import FieldTable

if TYPE_CHECKING:
    from flintmq.broker.scheduling.timetable import Alarm

WAIT_MS_MAX = 60_000
FETCH_OCTETS = 1_048_576
FETCH_OCTETS_MAX = 16_777_216
OFFSET_MAX = (1 << 63) - 1


def stream_of(request: Request) -> StreamQueue:
    """The stream that the request names, if the user may read it."""
    name = request.text("stream")
    channel = request.channel
    host = channel.virtual_host
    require(request.user, host.name, Operation.READ, "queue", name)
    queue = host.find_queue(name, channel.origin)
    if not isinstance(queue, StreamQueue):
        raise ServiceFault(
            amqp.PRECONDITION_FAILED,
            f"queue '{name}' in vhost '{host.name}' is not a stream",
        )
    return queue


def range_of(request: Request) -> tuple[int, int]:
    start = request.number("from", 0, maximum=OFFSET_MAX)
    return start, request.number("to", OFFSET_MAX, minimum=start, maximum=OFFSET_MAX)


def extent(queue: StreamQueue, request: Request) -> FieldTable:
    stream = queue.log
    return {
        "first": stream.first,
        "end": stream.end,
        "octets": stream.octets,
        "messages": len(stream),
        CREATION_ID: creation_id(queue, request),
    }


class OffsetsWatch:
    """A request that waits until the stream has grown past what its asker knows."""

    def __init__(self, request: Request, queue: StreamQueue, beyond: int, wait_ms: int) -> None:
        request.wait(self.end)
        self.request = request
        self.queue = queue
        self.beyond = beyond
        self.is_over = False
        timetable = queue.streams.pass_work.timetable
        self.alarm: Alarm = timetable.at(timetable.now_ms() + wait_ms, self.answer)
        queue.streams.watch(queue.log, self.added)

    def added(self) -> None:
        """The stream has grown, or is gone."""
        if self.is_over:
            return
        if self.queue.log.end > self.beyond or self.queue.deleted:
            self.answer()
        else:
            self.queue.streams.watch(self.queue.log, self.added)

    def end(self) -> None:
        self.is_over = True
        self.alarm.cancel()
        self.queue.streams.forget_watcher(self.queue.log, self.added)

    def answer(self) -> None:
        self.end()
        if self.queue.deleted:
            self.request.fail(amqp.NOT_FOUND, f"{self.queue.what} was deleted")
            return
        try:
            self.request.require(Operation.READ, "queue", self.queue.name)  # as it was when it began to wait
        except ChannelFault as fault:
            self.request.fail(fault.code, fault.text)
        else:
            self.request.reply(extent(self.queue, self.request))


@service("stream.offsets", "stream text, beyond? number, wait-ms? number")
def offsets(request: Request) -> None:
    """stream, beyond, wait-ms -> first, end, octets, messages, creation-id"""
    queue = stream_of(request)
    beyond = request.number("beyond", 0, maximum=OFFSET_MAX)
    wait_ms = request.number("wait-ms", 0, maximum=WAIT_MS_MAX)
    if wait_ms and queue.log.end <= beyond:
        OffsetsWatch(request, queue, beyond, wait_ms)
    else:
        request.reply(extent(queue, request))


@service("stream.offset-for-time", "stream text, time-ms? number, time? time")
def offset_for_time(request: Request) -> None:
    """stream, time-ms or time -> offset"""
    queue = stream_of(request)
    time = request.arguments.get("time")
    if isinstance(time, datetime):
        time_ms = max(0, int(time.timestamp() * 1000))
    else:
        time_ms = request.number("time-ms", maximum=OFFSET_MAX)
    with_disk(request, lambda: request.reply({"offset": offset_of_time(queue.log, time_ms)}))


@service("stream.bytes", "stream text, from? number, to? number")
def octets_between(request: Request) -> None:
    """stream, from, to -> octets"""
    queue = stream_of(request)
    start, end = range_of(request)
    with_disk(request, lambda: request.reply({"octets": queue.log.octets_between(start, end)}))


@service(
    "stream.fetch",
    "stream text, creation-id? text, from? number, to? number, max-bytes? number, columns? array",
    large_bytes=FETCH_OCTETS,
)
def fetch_columns(request: Request) -> None:
    """stream, creation-id, from, to, max-bytes, columns -> first, next, count, end; body: the columns"""
    queue = stream_of(request)
    require_same(queue, request)
    start, end = range_of(request)
    octets_max = request.bytes_max(FETCH_OCTETS_MAX)
    wanted = wanted_columns(request)

    def answer() -> None:
        body, count, first, following = fetch(queue.log, start, end, octets_max, wanted)
        results: FieldTable = {"first": first, "next": following, "count": count, "end": queue.log.end}
        request.reply(results, bytes(body))

    with_disk(request, answer)


def wanted_columns(request: Request) -> tuple[int, ...]:
    asked = request.arguments.get("columns")
    if asked is None:
        return columns.STANDARD
    names = asked if isinstance(asked, list) else [asked]
    numbers = [columns.OF_STREAMS.get(name) if isinstance(name, str) else None for name in names]
    found = tuple([number for number in numbers if number is not None])
    if len(found) != len(names) or not found or len(set(found)) != len(found):
        raise ServiceFault(
            amqp.PRECONDITION_FAILED,
            f"argument 'columns': expected some of {', '.join(columns.OF_STREAMS)}",
        )
    return found


def with_disk(request: Request, work: Callable[[], None]) -> None:
    """What the disk refuses is the answer, not a bug."""
    try:
        work()
    except (OSError, StorageFault) as failure:
        request.fail(amqp.INTERNAL_ERROR, f"{request.name}: the disk says: {failure}")
