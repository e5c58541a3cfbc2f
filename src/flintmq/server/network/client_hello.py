"""The first word of a client that speaks TLS, looked at before anything is made ready to answer it.

    record     | 0x16 | 3 | minor | length 2 |                                  the handshake follows
    handshake  | 1 | length 3 | version 2 | random 32 | session 1+n | ciphers 2+n | compression 1+n |
               | extensions 2+n |                                               which may be missing

To answer a hello costs a millisecond and 40 KiB: that is for peers whose first word is one, and is whole. A
hello in several records is left to TLS as soon as the first of them is there.
"""

from __future__ import annotations

RECORD_HEAD = 5
HANDSHAKE = 0x16
CLIENT_HELLO = 1
MAJOR = 3
# What one record may hold.
RECORD_BYTES_MAX = 16_384
HELLO_HEAD = RECORD_HEAD + 4
# The version and what is random.
FIXED = 34
SESSION_BYTES_MAX = 32


class NoHello(ValueError):
    """What the peer has said is no beginning of TLS; the text says why."""


def octets_wanted(seen: bytes) -> int:
    """How many octets there have to be before it can be answered: all that are there, or fewer, if it can."""
    if seen[:1] != bytes((HANDSHAKE,)) or (len(seen) > 1 and seen[1] != MAJOR):
        raise NoHello("its first octets are not those of TLS")
    if len(seen) < RECORD_HEAD:
        return RECORD_HEAD
    size = int.from_bytes(seen[3:RECORD_HEAD], "big")
    if not HELLO_HEAD - RECORD_HEAD + FIXED <= size <= RECORD_BYTES_MAX:
        raise NoHello(f"its first record is of {size} octets")
    if len(seen) > RECORD_HEAD and seen[RECORD_HEAD] != CLIENT_HELLO:
        raise NoHello("its first word is not a hello")
    end = RECORD_HEAD + size
    if len(seen) >= end and HELLO_HEAD + int.from_bytes(seen[6:HELLO_HEAD], "big") == end:
        check_lengths(seen, end)
    return end


def check_lengths(seen: bytes, end: int) -> None:
    """Raises unless the parts of a hello that ends at `end` are as long as they say."""
    at = HELLO_HEAD + FIXED
    for length_octets, most in ((1, SESSION_BYTES_MAX), (2, end), (1, end)):
        size = int.from_bytes(seen[at : at + length_octets], "big")
        at += length_octets + size
        if size > most or at > end:
            raise NoHello("a part of its hello is longer than the whole")
    if at != end and at + 2 + int.from_bytes(seen[at : at + 2], "big") != end:
        raise NoHello("the extensions of its hello do not end with it")
