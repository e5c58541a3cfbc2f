"""What the journal and the overflow keep of a message before its content: the Python half of a twin.

    | header size 4 | traits 4 | arrived 8 | origin 4 | [arrived 8 | lifetime 8] | [content header] | route |
                     ^ NOTED is set: entries of earlier versions   ^ TIMED        ^ SPOOLED
                       lack the two fields behind it

Little-endian. `arrived` is in milliseconds since 1970, 0 if nobody knows; `origin` is the number of the
connection that published the message, which means nothing any more after a restart.
Compiled modules see `entry_head.pxd`, which packs the same octets in C: every persistent message pays for it.
"""

from __future__ import annotations

import struct

_HEAD = struct.Struct("<IIqI")


def pack(header_size: int, traits: int, arrived_ms: int, origin: int, rest: bytes) -> bytes:
    """The fields that every entry has, and what follows them."""
    return _HEAD.pack(header_size, traits, arrived_ms, origin) + rest


def header_size(head: bytes) -> int:
    """Of the content header."""
    return int.from_bytes(head[:4], "little")


def traits_of(head: bytes) -> int:
    return int.from_bytes(head[4:8], "little")
