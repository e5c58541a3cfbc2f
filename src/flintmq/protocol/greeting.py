"""The first octets of a connection: which protocol does the peer speak?

    | A M Q P | 0 | 0 | 9 | 1 |      0-9-1
    | A M Q P | 1 | 1 | 0 | 9 |      0-9, and clients that mean 0-9-1 by it
    | A M Q P | 1 | 1 | 0 | 11 |     0-9, as its text prints it: field types are numbers
    | A M Q P | 1 | 1 | 8 | 0 |      0-8
    | A M Q P | 1 | 1 | 9 | 1 |      0-8, from clients that got the order wrong

One port serves them all. A further wire protocol is a further row of OPENINGS: rows may have any
length, and none is the beginning of another.
"""

from __future__ import annotations

from flintmq.wire import amqp

OPENINGS: dict[bytes, int] = {
    b"AMQP\x00\x00\x09\x01": amqp.VERSION_0_9_1,
    b"AMQP\x01\x01\x00\x5b": amqp.VERSION_0_9_1,
    b"AMQP\x01\x01\x00\x09": amqp.VERSION_0_9,
    b"AMQP\x01\x01\x00\x0b": amqp.VERSION_0_9,
    b"AMQP\x01\x01\x08\x00": amqp.VERSION_0_8,
    b"AMQP\x01\x01\x09\x01": amqp.VERSION_0_8,
}
# Who opens so reads field types that are numbers, and no letters.
NUMERIC = b"AMQP\x01\x01\x00\x0b"
# The answer to anything else, before the connection is closed: the version we would rather speak.
PREFERRED = b"AMQP\x00\x00\x09\x01"

UNKNOWN = -1
INCOMPLETE = 0


# What comes to the wrong port more often than not.
STRANGERS = {
    b"AMQP\x00\x01": "AMQP 1.0, which is not served",
    b"AMQP\x02\x01": "AMQP 1.0 over TLS, which is not served",
    b"AMQP\x03\x01": "AMQP 1.0 with SASL, which is not served",
    b"AMQP": "a version of AMQP that is not served; there are 0-9-1, 0-9 and 0-8",
    b"\x16\x03": "TLS, and this port is the plain one; [tls] of the settings opens one for TLS",
    b"PROXY ": "the PROXY protocol, which [listen] does not allow from there",
    b"\r\n\r\n\x00\r\nQUIT\n": "the PROXY protocol, which [listen] does not allow from there",
    b"GET ": "HTTP, and this port is for AMQP",
    b"POST": "HTTP, and this port is for AMQP",
    b"PUT ": "HTTP, and this port is for AMQP",
    b"HEAD": "HTTP, and this port is for AMQP",
}


# What `named` looks at.
NAMED_OCTETS = 12


def recognise(start: bytes) -> tuple[int, int]:
    """(version, octets used); the version is INCOMPLETE while more octets are needed, or UNKNOWN."""
    for opening, version in OPENINGS.items():
        if start[: len(opening)] == opening:
            return version, len(opening)
    if any(opening.startswith(start) for opening in OPENINGS):
        return INCOMPLETE, 0
    return UNKNOWN, 0


def is_another_version(start: bytes) -> bool:
    """Whether a peer that was not recognised speaks AMQP nevertheless."""
    return start.startswith(b"AMQP")


def named(start: bytes) -> str:
    """What a peer spoke that was not recognised, for the log."""
    for opening, name in STRANGERS.items():
        if start.startswith(opening):
            return name
    return f"no AMQP; its first octets are {start[:8].hex(' ')}"
