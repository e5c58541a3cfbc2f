"""Headers of Jms contents and of Basic ones, from one to the other without a look at what they mean.

    Jms     | 6 | weight 1 | body size 8 | flags 2 | properties ... |
    Basic   | 60 | weight 2 | body size 8 | flags 2 | properties ... |

    Jms     type encoding       mode priority correlation reply destination expiration id timestamp ... table
    Basic   type encoding table mode priority correlation reply             expiration id timestamp ...

Most headers have no table, and texts of ASCII without NUL: of these the properties are copied as they are,
but for the destination, which is the routing key in AMQP, and for the timestamp, which is digits in Jms. Of
all others there is no result here: crossing.py knows the long way, and says what is wrong with a bad one.
"""

from __future__ import annotations

from flintmq.wire import octets

CLASS_JMS = 6
CLASS_BASIC = 60

# Positions of the body size, the flags and the first property.
JMS_SIZE = 2
JMS_FLAGS = 10
JMS_PROPERTIES = 12
BASIC_SIZE = 4
BASIC_FLAGS = 12
BASIC_PROPERTIES = 14

# Flags of Jms. Bits 13 to 10 are those of Basic moved by one, as Basic has its table before these.
JMS_MOVED = 0x3C00
JMS_MODE = 0x2000
JMS_PRIORITY = 0x1000
JMS_DESTINATION = 0x0200
JMS_LAST = 0x0008
# The table, a bit of no property, and the one that says that more flags follow.
JMS_OTHERS = 0x0007
BASIC_MOVED = 0x1E00
BASIC_MODE = 0x1000
BASIC_PRIORITY = 0x0800
# The table, the cluster id, and the same two.
BASIC_OTHERS = 0x2007
# In both.
TIMESTAMP = 0x0040
UNMOVED = 0xC1F8

DIGITS_MAX = 19  # a number of seconds that 64 bits hold
TEXT_MAX = 255


def to_basic(payload: bytes) -> tuple[bytes, str] | None:
    """The header of Basic and the destination of a header of Jms."""
    size = len(payload)
    source = octets.readable_bytes(payload)
    if size < JMS_PROPERTIES or source[0] != CLASS_JMS or source[1]:
        return None
    flags = octets.read_short(source, JMS_FLAGS)
    if flags & JMS_OTHERS:
        return None
    buffer = bytearray(size + 10)  # a timestamp may grow by 6 octets, from a length and a digit to 8
    out = octets.writable(buffer)
    octets.write_long(out, 0, CLASS_BASIC << 16)
    octets.write_longlong(out, BASIC_SIZE, octets.read_longlong(source, JMS_SIZE))
    basic_flags = (flags & UNMOVED) | ((flags & JMS_MOVED) >> 1)
    octets.write_octet(out, BASIC_FLAGS, basic_flags >> 8)
    octets.write_octet(out, BASIC_FLAGS + 1, basic_flags & 0xFF)
    destination = ""
    at, made, bit = JMS_PROPERTIES, BASIC_PROPERTIES, 0x8000
    while bit >= JMS_LAST:
        if flags & bit:
            if bit in (JMS_MODE, JMS_PRIORITY):
                stop = at + 1
                if stop > size:
                    return None
                made = octets.write_octet(out, made, source[at])
            else:
                stop = text_end(source, at, size)
                if stop < 0:
                    return None
                if bit == JMS_DESTINATION:
                    destination = octets.text(source, at + 1, stop)
                elif bit == TIMESTAMP:
                    if not are_digits(source, at + 1, stop):
                        return None
                    made = octets.write_longlong(out, made, int(payload[at + 1 : stop]))
                else:
                    made = octets.write_range(out, made, payload, at, stop)
            at = stop
        bit >>= 1
    if at != size:
        return None
    return octets.copy(octets.readable(buffer), 0, made), destination


def to_jms(header: bytes, key: bytes) -> bytes | None:
    """The header of Jms of one of Basic; `key` is the routing key."""
    size, key_size = len(header), len(key)
    source = octets.readable_bytes(header)
    if size < BASIC_PROPERTIES or octets.read_long(source, 0) != CLASS_BASIC << 16:
        return None
    flags = octets.read_short(source, BASIC_FLAGS)
    if flags & BASIC_OTHERS or key_size > TEXT_MAX or not is_plain(octets.readable_bytes(key), 0, key_size):
        return None
    buffer = bytearray(size + key_size + 32)  # a timestamp grows from 8 octets to 21 at the most
    out = octets.writable(buffer)
    jms_flags = (flags & UNMOVED) | ((flags & BASIC_MOVED) << 1) | (JMS_DESTINATION if key_size else 0)
    octets.write_octet(out, 0, CLASS_JMS)
    octets.write_octet(out, 1, 0)
    octets.write_longlong(out, JMS_SIZE, octets.read_longlong(source, BASIC_SIZE))
    octets.write_octet(out, JMS_FLAGS, jms_flags >> 8)
    octets.write_octet(out, JMS_FLAGS + 1, jms_flags & 0xFF)
    at, made, bit = BASIC_PROPERTIES, JMS_PROPERTIES, 0x8000
    while bit >= JMS_LAST:
        if bit == JMS_DESTINATION >> 1 and key_size:  # in front of the expiration
            made = octets.write_octet(out, made, key_size)
            made = octets.write_range(out, made, key, 0, key_size)
        if flags & bit:
            if bit in (BASIC_MODE, BASIC_PRIORITY):
                stop = at + 1
                if stop > size:
                    return None
                made = octets.write_octet(out, made, source[at])
            elif bit == TIMESTAMP:
                stop = at + 8
                if stop > size:
                    return None
                digits = b"%d" % octets.read_longlong(source, at)
                made = octets.write_octet(out, made, len(digits))
                made = octets.write_bytes(out, made, digits)
            else:
                stop = text_end(source, at, size)
                if stop < 0:
                    return None
                made = octets.write_range(out, made, header, at, stop)
            at = stop
        bit >>= 1
    if at != size:
        return None
    return octets.copy(octets.readable(buffer), 0, made)


def text_end(source: octets.Readable, at: int, size: int) -> int:
    """Where the short string at `at` ends; -1 if it is cut short, or not plain."""
    if at >= size:
        return -1
    stop = at + 1 + source[at]
    if stop > size or not is_plain(source, at + 1, stop):
        return -1
    return stop


def is_plain(source: octets.Readable, at: int, stop: int) -> bool:
    """Whether the text is ASCII without NUL."""
    while at < stop:
        if source[at] == 0 or source[at] >= 128:
            return False
        at += 1
    return True


def are_digits(source: octets.Readable, at: int, stop: int) -> bool:
    if stop == at or stop - at > DIGITS_MAX:
        return False
    while at < stop:
        if source[at] < 48 or source[at] > 57:
            return False
        at += 1
    return True
