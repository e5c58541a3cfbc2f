"""What the broker must know of a content header without decoding it.

    | class 2 | weight 2 | body size 8 | flags 2 | properties of the flags that are set ... |

`survey` walks the properties of a basic header once: it proves that their lengths fit, so that what
is delivered later is well formed, and picks out the few that decide how a message is handled.

`look_over` walks the headers table in the same way, nested tables and arrays included, without making an
object of anything. A table that it cannot vouch for gets the trait UNPROVEN: a type that is no letter of
0-9-1, a length that does not fit, too deep. tables.py decides about those (letter_table).
"""

from __future__ import annotations

from flintmq.wire import amqp, octets, traits

# As tables.DEPTH_MAX: the table itself is the first level.
DEPTH_MAX = 32


def traits_of(header: bytes) -> int:
    """The same of a header by itself, for those that are not compiled."""
    found: int = survey(octets.readable_bytes(header), 0, len(header))
    return found


def survey(source: octets.Readable, at: int, end: int) -> int:
    """The bits of traits.py for the basic content header at `at`..`end`, or MALFORMED or WRONG_MODE."""
    flags = octets.read_short(source, at + 12)
    at += 14
    found = 0
    if flags == 0x1000 and end - at == 1:  # delivery mode alone: what most fast publishers send
        if source[at] == 2:
            return traits.PERSISTENT
        return 0 if source[at] == 1 else traits.WRONG_MODE
    # Bit 1 has no property in the basic class, bit 0 announces a second flag word, which it never needs.
    if flags & 0x0003:
        return traits.MALFORMED
    mode = 1
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
            seen = look_over(source, at, at + table_size, 1)
            # An element of an array has one octet or more: only a longer table has to be counted.
            is_long = seen >= 0 and table_size > traits.HEADERS_MAX
            if is_long and count_entries(source, at, at + table_size, 0x46) > traits.HEADERS_MAX:
                found |= traits.TOO_MANY | traits.HAS_COPIES  # for which it is looked into
            if seen == -1:
                found |= traits.UNPROVEN | traits.HAS_COPIES  # it may
            elif seen == 1:
                found |= traits.HAS_COPIES
            at += table_size
        elif bit == amqp.FLAG_DELIVERY_MODE:
            mode = source[at]
            if mode == 2:
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
    if at != end:
        return traits.MALFORMED
    return found if mode == 1 or mode == 2 else traits.WRONG_MODE


def look_over(source: octets.Readable, at: int, end: int, depth: int) -> int:
    """The entries of the table at `at`..`end`: 0 well formed, 1 with CC or BCC among them, -1 unproven."""
    found = 0
    while at < end:
        size = source[at]
        at += 1
        if size >= end - at:  # the type octet has to follow
            return -1
        if (size == 2 or size == 3) and names_copies(source, at, size):
            found = 1
        at += size + 1
        kind = source[at - 1]
        if kind == 0x53 and end - at >= 4:  # S
            size = octets.read_long(source, at)
            at += 4
        elif kind == 0x49:  # I
            size = 4
        else:  # most values are texts or integers, for which a call would take as long as all else here
            at = after_value(source, at - 1, end, depth)
            if at < 0:
                return -1
            continue
        if size > end - at:
            return -1
        at += size
    return found


def names_copies(source: octets.Readable, at: int, size: int) -> bool:
    """Whether the name at `at` is CC or BCC."""
    if size == 2:
        return source[at] == 0x43 and source[at + 1] == 0x43
    return size == 3 and source[at] == 0x42 and source[at + 1] == 0x43 and source[at + 2] == 0x43


def after_value(source: octets.Readable, at: int, end: int, depth: int) -> int:
    """The position after the type octet at `at` and its value; -1 if that cannot be told."""
    kind = source[at]
    at += 1
    if kind == 0x53 or kind == 0x78:  # S x
        if end - at < 4:
            return -1
        size = octets.read_long(source, at)
        at += 4
    elif kind == 0x49 or kind == 0x69 or kind == 0x66:  # I i f
        size = 4
    elif kind == 0x6C or kind == 0x4C or kind == 0x64 or kind == 0x54:  # l L d T
        size = 8
    elif kind == 0x74 or kind == 0x62 or kind == 0x42:  # t b B
        size = 1
    elif kind == 0x73 or kind == 0x75 or kind == 0x55:  # s u U
        size = 2
    elif kind == 0x44:  # D
        size = 5
    elif kind == 0x56:  # V
        size = 0
    elif kind == 0x46 or kind == 0x41:  # F A
        return after_container(source, at, end, depth, kind)
    else:
        return -1
    return at + size if size <= end - at else -1


def after_container(source: octets.Readable, at: int, end: int, depth: int, kind: int) -> int:
    """after_value for a table or an array; `at` is behind the type octet."""
    if depth >= DEPTH_MAX or end - at < 4:
        return -1
    size = octets.read_long(source, at)
    at += 4
    if size > end - at:
        return -1
    stop = at + size
    if kind == 0x46:
        return stop if look_over(source, at, stop, depth + 1) >= 0 else -1
    while 0 <= at < stop:
        at = after_value(source, at, stop, depth + 1)
    return at


def count_entries(source: octets.Readable, at: int, end: int, kind: int) -> int:
    """How many entries and elements the table (F) or array (A) at `at`..`end` has, which was looked over."""
    count = 0
    while at < end:
        count += 1
        if kind == 0x46:
            at += 1 + source[at]
        if source[at] == 0x46 or source[at] == 0x41:  # F A
            stop = at + 5 + octets.read_long(source, at + 1)
            count += count_entries(source, at + 5, stop, source[at])
            at = stop
        else:
            at = after_value(source, at, end, DEPTH_MAX)
    return count
