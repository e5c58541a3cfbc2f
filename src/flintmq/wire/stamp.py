"""Adds `x-stream-offset` to a content as it leaves: a twin of stamp.pxd, which is inline C.

    header  ... | table length + 25 | entries ... | 15 x-stream-offset l offset | ...  body

Nothing is decoded: the entry goes behind those that are there, or a table with this entry alone goes where
the table would be. Callers have found the table and checked every bound.
"""

from __future__ import annotations

import struct
from typing import Final

# A short string of 15, the type and 8 octets; a table of its own has a length too.
ENTRY_BYTES: Final = 25
TABLE_BYTES: Final = 29

_ENTRY = struct.Struct(">B15scq")
_LONG = struct.Struct(">I")
_SHORT = struct.Struct(">H")


def stamped(source: bytes, start: int, table_at: int, table_end: int, end: int, offset: int) -> bytes:
    """The content at start..end of `source` with the entry in its headers, which lie at `table_at`.

    Where the content has no headers, `table_end` is `table_at`.
    """
    entry = _ENTRY.pack(15, b"x-stream-offset", b"l", offset)
    if table_end > table_at:
        size = _LONG.pack(table_end - table_at - 4 + ENTRY_BYTES)
        parts = (source[start:table_at], size, source[table_at + 4 : table_end], entry, source[table_end:end])
        return b"".join(parts)
    flags = _SHORT.pack(_SHORT.unpack_from(source, start + 12)[0] | 0x2000)
    head = source[start : start + 12] + flags + source[start + 14 : table_at]
    return head + _LONG.pack(ENTRY_BYTES) + entry + source[table_at:end]
