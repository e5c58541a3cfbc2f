"""What clients say of a stream: the arguments of queue.declare and basic.consume, checked and understood.

x-max-length-bytes                octets kept; whole segments go from the old end
x-max-age                         "7D": Y, M, D, h, m, s
x-stream-max-segment-size-bytes   octets of a segment file
x-stream-filter-size-bytes        octets of the filter of each chunk

x-stream-offset                   first, last, next, an offset, a timestamp, or an age such as "1h"
x-stream-filter                   a text, or an array of texts
x-stream-match-unfiltered         also messages without a filter value
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from flintmq import checks
from flintmq.broker.exchanges.arguments import checked, wrong
from flintmq.errors import ChannelFault, PeerFault
from flintmq.storage.streams.chunk import (
    FILTER_OCTETS_MAX,
    FILTER_OCTETS_MIN,
    FILTER_VALUE_OCTETS_MAX,
    MESSAGE_OCTETS_MAX,
)
from flintmq.storage.streams.cursor import offset_of_time
from flintmq.storage.streams.log import SEGMENT_OCTETS, SEGMENT_OCTETS_MIN, StreamOptions
from flintmq.wire import amqp
from flintmq.wire.tables import FieldTable, FieldValue, Timestamp, decode_value, split_entries

if TYPE_CHECKING:
    from flintmq.broker.queues.queue import Queue
    from flintmq.storage.streams.log import StreamLog

# As in RabbitMQ.
SEGMENT_OCTETS_MAX = 3_000_000_000
FILTERS_MAX = 255
# A stream that ends with the process must not fill a disk that nobody gave it.
TEMPORARY_OCTETS_MAX = 268_435_456
FILTER_VALUE = "x-stream-filter-value"
FILTER_VALUE_OCTETS = b"\x15x-stream-filter-value"

_AGE = r"([1-9][0-9]{0,17})([YMDhms])"  # compiled for the first stream that has one
_UNIT_MS = {
    "Y": 365 * 86_400_000,
    "M": 30 * 86_400_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
}


def check_properties(what: str, durable: bool, exclusive: bool, auto_delete: bool) -> None:
    for is_wrong, name in (
        (auto_delete, "auto-delete"),
        (exclusive, "exclusive"),
        (not durable, "non-durable"),
    ):
        if is_wrong:
            raise refused(f"invalid property '{name}' for {what}: a stream is durable and belongs to nobody")


def stream_options(arguments: FieldTable, is_temporary: bool) -> StreamOptions:
    """How the stream is to be kept; a fault names the argument that is wrong."""
    octets_max = whole(arguments, "x-max-length-bytes", 1, checks.NUMBER_MAX)
    age = arguments.get("x-max-age")
    age_max_ms = None if age is None else age_ms(age)
    if age is not None and age_max_ms is None:
        raise wrong("x-max-age", f"a number and one of Y M D h m s, not {age!r}")
    filter_octets = whole(arguments, "x-stream-filter-size-bytes", FILTER_OCTETS_MIN, FILTER_OCTETS_MAX)
    segment_octets = whole(arguments, "x-stream-max-segment-size-bytes", 1, SEGMENT_OCTETS_MAX)
    if is_temporary:
        octets_max = min(octets_max or TEMPORARY_OCTETS_MAX, TEMPORARY_OCTETS_MAX)
    if segment_octets is None:
        # Retention drops whole segments: of a small stream they must be small.
        segment_octets = SEGMENT_OCTETS if octets_max is None else min(SEGMENT_OCTETS, octets_max // 4)
        segment_octets = max(segment_octets, SEGMENT_OCTETS_MIN)
    return StreamOptions(segment_octets, octets_max, age_max_ms, filter_octets or FILTER_OCTETS_MIN)


def whole(arguments: FieldTable, name: str, least: int, most: int) -> int | None:
    if arguments.get(name) is None:
        return None
    found: int = checked(arguments, name, checks.whole(least, most))
    return found


def age_ms(value: FieldValue) -> int | None:
    """Milliseconds of "7D", "1h" and the like; None if it is not such."""
    matched = re.fullmatch(_AGE, value) if isinstance(value, str) else None
    return None if matched is None else int(matched[1]) * _UNIT_MS[matched[2]]


def first_offset(log: StreamLog, asked: FieldValue, now_ms: int) -> int:
    """Where reading begins: `asked` is what x-stream-offset says."""
    if asked is None or asked == "next":
        return log.end
    if asked == "first":
        return log.first
    if asked == "last":
        return max(log.first, log.end - 1)
    if isinstance(asked, datetime):
        return offset_of_time(log, max(0, int(asked.timestamp() * 1000)))
    if isinstance(asked, Timestamp):
        return log.end if asked > 0 else log.first
    if isinstance(asked, int) and not isinstance(asked, bool) and 0 <= asked < 1 << 63:
        return asked
    age = age_ms(asked)
    if age is None:
        raise wrong(
            "x-stream-offset",
            f"first, last, next, an offset, a timestamp, or an age such as 1h, not {asked!r:.64}",
        )
    return offset_of_time(log, max(0, now_ms - age))


def filters(arguments: FieldTable) -> tuple[tuple[bytes, ...] | None, bool]:
    """The filter values that are wanted, None for all; and whether messages without one are."""
    asked = arguments.get("x-stream-filter")
    if asked is None:
        return None, False
    values = asked if isinstance(asked, list) else [asked]
    octets = tuple([value.encode("utf-8", "surrogateescape") for value in values if isinstance(value, str)])
    if len(octets) != len(values) or not 1 <= len(octets) <= FILTERS_MAX:
        raise wrong("x-stream-filter", f"a text or an array of 1 to {FILTERS_MAX} texts")
    return octets, checked(arguments, "x-stream-match-unfiltered", checks.switch, False)


def filter_value_of(content: bytes, header_size: int) -> bytes | None:
    """The filter value of a message with headers; None if it has none, or one that is too long for one."""
    if content.find(FILTER_VALUE_OCTETS, 0, header_size) < 0:
        return None
    at = 14
    for bit in (0x80, 0x40):
        if content[12] & bit:
            at += 1 + content[at]
    try:
        for name, octets in split_entries(content, at, header_size):
            if name == FILTER_VALUE:
                value, _ = decode_value(octets, 0, len(octets))
                found = value.encode("utf-8") if isinstance(value, str) else value
                if isinstance(found, bytes) and len(found) <= FILTER_VALUE_OCTETS_MAX:
                    return found
    except PeerFault:
        return None  # headers that cannot be read are no concern of a stream
    return None


def refuse_too_large(queues: list[Queue], size: int) -> None:
    """A message is held in memory to go to a stream, so there is a limit."""
    if size > MESSAGE_OCTETS_MAX:
        for queue in queues:
            if queue.is_stream:
                raise ChannelFault(
                    amqp.CONTENT_TOO_LARGE,
                    f"a message of {size} octets is too large for stream "
                    f"'{queue.name}': it takes {MESSAGE_OCTETS_MAX}",
                    amqp.CLASS_BASIC,
                    40,
                )


def refused(why: str) -> ChannelFault:
    return ChannelFault(amqp.PRECONDITION_FAILED, f"{why}")
