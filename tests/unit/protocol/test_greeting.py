"""Which protocol the first octets speak."""

from __future__ import annotations

import pytest

from flintmq.protocol.greeting import INCOMPLETE, OPENINGS, PREFERRED, UNKNOWN, named, recognise


@pytest.mark.parametrize("opening", OPENINGS)
def test_each_opening_octet_by_octet(opening: bytes) -> None:
    for size in range(len(opening)):
        assert recognise(opening[:size]) == (INCOMPLETE, 0)
    assert recognise(opening) == (OPENINGS[opening], len(opening))
    assert recognise(opening + b"more") == (OPENINGS[opening], len(opening))


def test_no_opening_is_the_beginning_of_another() -> None:
    for one in OPENINGS:
        assert [other for other in OPENINGS if other.startswith(one)] == [one]


@pytest.mark.parametrize(
    "start", [b"B", b"AMQQ", b"AMQP\x03", b"AMQP\x00\x00\x09\x02", b"GET / HT", b"\x80\x01"]
)
def test_anything_else_is_known_to_be_unknown_at_once(start: bytes) -> None:
    assert recognise(start) == (UNKNOWN, 0)


def test_what_we_prefer_is_something_we_speak() -> None:
    assert PREFERRED in OPENINGS


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS, and this port is the plain one"),
        (b"AMQP\x03\x01\x00\x00", "AMQP 1.0 with SASL"),
        (b"AMQP\x00\x01\x00\x00", "AMQP 1.0, "),
        (b"AMQP\x01\x01\x00\x0a", "a version of AMQP that is not served"),
        (b"GET / HT", "HTTP, "),
        (b"\x00\xff", "no AMQP; its first octets are 00 ff"),
    ],
)
def test_a_stranger_is_named(start: bytes, name: str) -> None:
    assert named(start).startswith(name)
