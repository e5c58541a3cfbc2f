"""Sizes in a stream's log, and moving parts of octets: a twin of stream_octets.pxd, which is inline C.

Unchecked there: callers have checked every bound before they call.
"""

from __future__ import annotations

from typing import Final

# Octets before a chunk's filter and messages, and before a message's route.
CHUNK_HEAD: Final = 64
MESSAGE_HEAD: Final = 24
# The filter size of a message that has no filter value.
NO_FILTER: Final = 0xFFFF


def put_part(target: bytearray, at: int, source: bytes, start: int, end: int) -> int:
    """Copies octets start..end of `source` to `at`; returns where the next ones go."""
    after = at + end - start
    target[at:after] = source[start:end]
    return after


def part(source: bytes, start: int, end: int) -> bytes:
    return source[start:end]


def is_same(source: bytes, start: int, end: int, other: bytes) -> bool:
    """Are octets start..end of `source` those of `other`?"""
    return source[start:end] == other
