"""Reading, writing and copying octets: the Python half of a twin.

Compiled modules never see this file: `octets.pxd` holds the same functions as inline C, working on
pointers where this one works on memoryviews. Callers check every bound before they call: in C
nothing else does. Integers are unsigned unless a name says otherwise, and in network order.
"""

from __future__ import annotations

import struct

Readable = memoryview
Writable = memoryview

_SHORT = struct.Struct(">H")
_LONG = struct.Struct(">I")
_LONGLONG = struct.Struct(">Q")
_DOUBLE = struct.Struct(">d")
_FRAME_HEAD = struct.Struct(">BHI")
_NOTIFY = struct.Struct(">HBHIIB")
_METHOD_HEAD = struct.Struct(">BHII")
_TAG_FLAG = struct.Struct(">QB")

_read_short = _SHORT.unpack_from
_read_long = _LONG.unpack_from
_read_longlong = _LONGLONG.unpack_from


def readable(buffer: bytearray) -> Readable:
    """The octets of `buffer` for reading; valid until it is resized."""
    return memoryview(buffer)


def readable_bytes(buffer: bytes) -> Readable:
    return memoryview(buffer)


def writable(buffer: bytearray) -> Writable:
    """The octets of `buffer` for writing; valid until it is resized."""
    return memoryview(buffer)


def unset(size: int) -> bytearray:
    """A buffer whose octets are anything: all of them are to be written."""
    return bytearray(size)


def read_short(source: Readable, at: int) -> int:
    value: int = _read_short(source, at)[0]
    return value


def read_long(source: Readable, at: int) -> int:
    value: int = _read_long(source, at)[0]
    return value


def read_longlong(source: Readable, at: int) -> int:
    value: int = _read_longlong(source, at)[0]
    return value


def read_signed_long(source: Readable, at: int) -> int:
    return int.from_bytes(source[at : at + 4], "big", signed=True)


def read_signed_longlong(source: Readable, at: int) -> int:
    return int.from_bytes(source[at : at + 8], "big", signed=True)


def read_double(source: Readable, at: int) -> float:
    value: float = _DOUBLE.unpack_from(source, at)[0]
    return value


def text(source: Readable, start: int, end: int) -> str:
    """Octets as text, those that are not UTF-8 as surrogate escapes."""
    return str(source[start:end], "utf-8", "surrogateescape")


def text_or_none(source: Readable, start: int, end: int) -> str | None:
    """Octets as text, None when they are not UTF-8."""
    try:
        return str(source[start:end], "utf-8")
    except UnicodeDecodeError:
        return None


def copy(source: Readable, start: int, end: int) -> bytes:
    return bytes(source[start:end])


def join(source: Readable, start: int, end: int, start2: int, end2: int) -> bytes:
    """Two runs of `source` as one bytes object."""
    return b"".join((source[start:end], source[start2:end2]))


def with_body(header: bytes, size: int, source: Readable, start: int, end: int) -> bytes:
    """A content header with another body size (octets 4 to 11), and the body behind it."""
    return header[:4] + size.to_bytes(8, "big") + header[12:] + bytes(source[start:end])


def equal(source: Readable, start: int, end: int, other: bytes) -> bool:
    return source[start:end] == other


def write_longlong(target: Writable, at: int, value: int) -> int:
    _LONGLONG.pack_into(target, at, value)
    return at + 8


def write_octet(target: Writable, at: int, value: int) -> int:
    target[at] = value
    return at + 1


def write_long(target: Writable, at: int, value: int) -> int:
    _LONG.pack_into(target, at, value)
    return at + 4


def write_frame_head(target: Writable, at: int, kind: int, channel: int, size: int) -> int:
    """type, channel and payload size: the 7 octets before a frame's payload."""
    _FRAME_HEAD.pack_into(target, at, kind, channel, size)
    return at + 7


def write_method_head(target: Writable, at: int, channel: int, size: int, code: int) -> int:
    """The head of a method frame and the method's class and id, 11 octets."""
    _METHOD_HEAD.pack_into(target, at, 1, channel, size, code)
    return at + 11


def write_bytes(target: Writable, at: int, source: bytes) -> int:
    end = at + len(source)
    target[at:end] = source
    return end


def write_frame(
    target: Writable, at: int, kind: int, channel: int, source: bytes, start: int, end: int
) -> int:
    """A whole frame whose payload is octets start..end of `source`."""
    _FRAME_HEAD.pack_into(target, at, kind, channel, end - start)
    at += 7
    after = at + end - start
    target[at:after] = source[start:end]
    target[after] = 0xCE
    return after + 1


def write_deliver(
    target: Writable,
    at: int,
    channel: int,
    size: int,
    code: int,
    consumer_tag: bytes,
    tag: int,
    flag: int,
    route: bytes,
) -> int:
    """The whole method frame of a basic.deliver; its payload has `size` octets."""
    after = at + size + 8
    target[at:after] = b"".join(
        (_METHOD_HEAD.pack(1, channel, size, code), consumer_tag, _TAG_FLAG.pack(tag, flag), route, b"\xce")
    )
    return after


def write_range(target: Writable, at: int, source: bytes, start: int, end: int) -> int:
    """Octets start..end of `source`."""
    after = at + end - start
    target[at:after] = source[start:end]
    return after


def write_notify(
    target: Writable, at: int, handle: int, number: int, fragment: int, flags: int, name: bytes
) -> int:
    """HANDLE NOTIFY of AMQP/Fast; `name` is an encoded short string."""
    _NOTIFY.pack_into(target, at, 13 + len(name), 41, handle, number, fragment, flags)
    at = write_bytes(target, at + 14, name)
    target[at] = 0xCE
    return at + 1
