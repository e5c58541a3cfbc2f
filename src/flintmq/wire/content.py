"""What the broker must know of a content header without decoding it.

    | class 2 | weight 2 | body size 8 | flags 2 | properties of the flags that are set ... |

`survey` walks the properties of a basic header once: it proves that their lengths fit, so that what
is delivered later is well formed, and picks out the few that decide how a message is handled.
"""

from __future__ import annotations

from flintmq.wire import amqp, octets, traits


def traits_of(header: bytes) -> int:
    """The same of a header by itself, for those that are not compiled."""
    found: int = survey(octets.readable_bytes(header), 0, len(header))
    return found


def survey(source: octets.Readable, at: int, end: int) -> int:
    """The bits of traits.py for the basic content header at `at`..`end`, or MALFORMED."""
    flags = octets.read_short(source, at + 12)
    at += 14
    found = 0
    if flags == 0x1000 and end - at == 1:  # delivery mode alone: what most fast publishers send
        return traits.PERSISTENT if source[at] == 2 else 0
    # Bit 1 has no property in the basic class, bit 0 announces a second flag word, which it never needs.
    if flags & 0x0003:
        return traits.MALFORMED
    bit = 0x8000
    while flags and bit > 2:
        if not flags & bit:
            bit >>= 1
            continue
        flags &= ~bit
        if at >= end:
            return traits.MALFORMED
        if bit == amqp.FLAG_HEADERS:
            if end - at < 4:
                return traits.MALFORMED
            # In two steps: a sum of C's 32 bits would wrap, and a length of 2**32 - 1 seem to fit.
            table_size = octets.read_long(source, at)
            at += 4
            if table_size > end - at:
                return traits.MALFORMED
            found |= traits.HAS_HEADERS
            if octets.names_copies(source, at, at + table_size):
                found |= traits.HAS_COPIES
            at += table_size
        elif bit == amqp.FLAG_DELIVERY_MODE:
            if source[at] == 2:
                found |= traits.PERSISTENT
            at += 1
        elif bit == amqp.FLAG_PRIORITY:
            found |= (source[at] << 8) | traits.HAS_PRIORITY
            at += 1
        elif bit == amqp.FLAG_TIMESTAMP:
            at += 8
        else:
            if bit == amqp.FLAG_EXPIRATION:
                found |= traits.HAS_EXPIRATION
            elif bit == amqp.FLAG_USER_ID:
                found |= traits.HAS_USER_ID
            elif bit == amqp.FLAG_REPLY_TO:
                found |= traits.HAS_REPLY_TO
            at += 1 + source[at]
        if at > end:
            return traits.MALFORMED
        bit >>= 1
    return found if at == end else traits.MALFORMED
