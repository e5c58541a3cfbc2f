"""The header block of an AMQP/Fast message, which precedes its body in the first fragment.

| body size 4 | persistent 1 | priority 1 | expiration 4 | mime type 1+n | encoding 1+n | identifier 1+n |
| headers 2+n (tables.py) |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp
from flintmq.wire.fast import commands, tables

_FIXED = Struct(">IBBI")
_SHORT = Struct(">H")
FIXED_OCTETS = 10
# 0 to 4 are normal, 5 to 9 are high.
PRIORITY_MAX = 9


@dataclass(slots=True)
class MessageHead:
    """What a message says of itself."""

    body_size: int = 0
    persistent: bool = False
    priority: int = 0
    expiration: int = 0  # seconds since 1970, 0 for never
    mime_type: str = ""
    encoding: str = ""
    identifier: str = ""
    headers: tables.Table = field(default_factory=dict)


def end_of(octets: bytes, at: int, end: int) -> int:
    """Where the header ends that begins at `at`; -1 if that is behind `end`."""
    stop = at + FIXED_OCTETS
    for _ in range(3):
        if stop >= end:
            return -1
        stop += 1 + octets[stop]
    if stop + 2 > end:
        return -1
    stop += 2 + int.from_bytes(octets[stop : stop + 2], "big")
    return stop if stop <= end else -1


def decode(octets: bytes) -> MessageHead:
    """`octets` are the header and no more."""
    if end_of(octets, 0, len(octets)) != len(octets):
        raise ConnectionFault(amqp.SYNTAX_ERROR, "a message header is cut short, or longer than it says")
    body_size, persistent, priority, expiration = _FIXED.unpack_from(octets)
    texts, at = [], FIXED_OCTETS
    for name in ("mime type", "encoding", "identifier"):
        stop = at + 1 + octets[at]
        texts.append(commands.read_text(octets[at + 1 : stop], f"message header: {name}"))
        at = stop
    return MessageHead(
        body_size,
        persistent & 1 == 1,
        priority,
        expiration,
        texts[0],
        texts[1],
        texts[2],
        tables.decode(octets[at + 2 :]),
    )


def encode(head: MessageHead) -> bytes:
    if not 0 <= head.body_size < 2**32:
        raise ProtocolMisuse(f"a body of {head.body_size} octets: a message has at most 4 GiB")
    if not 0 <= head.priority <= PRIORITY_MAX:
        raise ProtocolMisuse(f"priority {head.priority} is not in 0..{PRIORITY_MAX}")
    if not 0 <= head.expiration < 2**32:
        raise ProtocolMisuse(f"expiration {head.expiration} is no time in seconds that 32 bits hold")
    fixed = _FIXED.pack(head.body_size, head.persistent, head.priority, head.expiration)
    texts = [
        commands.encode_text(text, f"message header: {name}")
        for name, text in (
            ("mime type", head.mime_type),
            ("encoding", head.encoding),
            ("identifier", head.identifier),
        )
    ]
    table = tables.encode(head.headers)
    return b"".join((fixed, *texts, _SHORT.pack(len(table)), table))
