"""Changes the broker makes to the content header of a message, octet for octet where it changes nothing.

    | class 2 | weight 2 | body size 8 | flags 2 | type | encoding | headers | ... expiration ... | body |
                                                                     ^ behind two short strings

Entries of the table that stay are copied undecoded, so that they keep the types they came with.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING

from flintmq.errors import PeerFault
from flintmq.wire import amqp, traits
from flintmq.wire.header_edits import FLAGS_AT, PROPERTIES_AT, place_of
from flintmq.wire.tables import FieldValue, LongLong, decode_value, encode_value, join_entries, split_entries

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message

# Tells whoever gets a message that headers of it were too large, and how many.
LEFT_OUT = "x-headers-left-out"
LEFT_OUT_BYTES = 1 + len(LEFT_OUT) + 9 + 4  # with its value, and with the size of a table of its own

_FLAGS = struct.Struct(">H")


def header_entries(content: bytes, header_size: int) -> list[tuple[str, bytes]]:
    """The headers as names and undecoded values; none when the table is not well formed."""
    start, end = place_of(content, amqp.FLAG_HEADERS)
    if start == end:
        return []
    try:
        return split_entries(content, start, header_size)
    except PeerFault:
        return []


def header_value(entries: Iterable[tuple[str, bytes]], name: str) -> FieldValue:
    """The value of one header; None when it is not there or cannot be read."""
    for each, octets in entries:
        if each == name:
            try:
                return decode_value(octets, 0, len(octets))[0]
            except PeerFault:
                return None
    return None


def expiration_of(content: bytes) -> str | None:
    """The expiration property as it was written."""
    start, end = place_of(content, amqp.FLAG_EXPIRATION)
    return None if start == end else content[start + 1 : end].decode("utf-8", "surrogateescape")


def with_headers(
    content: bytes,
    header_size: int,
    changed: Mapping[str, FieldValue],
    removed: Iterable[str] = (),
    keep_expiration: bool = True,
) -> tuple[bytes, int]:
    """Content and header size with these headers set and those taken out."""
    gone = {*changed, *removed}
    entries = [(name, encode_value(value)) for name, value in changed.items()]
    entries += [entry for entry in header_entries(content, header_size) if entry[0] not in gone]
    table = join_entries(entries)
    flags = _FLAGS.unpack_from(content, FLAGS_AT)[0] | amqp.FLAG_HEADERS
    start, end = place_of(content, amqp.FLAG_HEADERS)
    cut, kept = place_of(content, amqp.FLAG_EXPIRATION)
    if keep_expiration or cut == kept:
        cut = kept = end
    else:
        flags &= ~amqp.FLAG_EXPIRATION
    header = b"".join(
        (
            content[:FLAGS_AT],
            _FLAGS.pack(flags),
            content[PROPERTIES_AT:start],
            table,
            content[end:cut],
            content[kept:header_size],
        )
    )
    return header + content[header_size:], len(header)


def fitted(message: Message, bytes_max: int, kept: Container[str] = ()) -> Message:
    """The message with a content header of so many octets at most, without its largest headers if it must be.

    A header that is `kept` stays. LEFT_OUT says how many were left out.
    """
    if message.header_size <= bytes_max:
        return message
    over = message.header_size + LEFT_OUT_BYTES - bytes_max
    gone = []
    entries = header_entries(message.content, message.header_size)
    for name, octets in sorted(entries, key=lambda entry: len(entry[1]), reverse=True):
        if over <= 0:
            break
        if name not in kept:
            gone.append(name)
            over -= 1 + len(name.encode("utf-8", "surrogateescape")) + len(octets)
    left_out: Mapping[str, FieldValue] = {LEFT_OUT: LongLong(len(gone))}
    content, header_size = with_headers(message.content, message.header_size, left_out, gone)
    return message.variant(message.route, content, header_size, message.traits | traits.HAS_HEADERS)


def with_delivery_count(content: bytes, header_size: int, redeliveries: int) -> tuple[bytes, int]:
    """Content and header size with the number of earlier deliveries, as clients of quorum queues read it."""
    return with_headers(content, header_size, {"x-delivery-count": LongLong(redeliveries)})
