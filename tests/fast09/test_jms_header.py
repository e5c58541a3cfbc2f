"""Headers of Jms and Basic that cross as they are: each is what the long way makes of it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from flintmq.errors import PeerFault, ProtocolMisuse
from flintmq.wire.fast09 import content_header, crossing, jms_header, methods
from flintmq.wire.fast09.content_header import ContentHeader
from flintmq.wire.properties import BasicProperties, encode_properties

TEXTS = ("", "a", "text/plain", "1763375000", "x" * 255)
ODD = ("\u00fc", "1" * 20, "soon")
NAMES = [name for name, _ in content_header.PROPERTIES[methods.CLASS_JMS]]


def long_way(payload: bytes) -> tuple[bytes, str] | None:
    """None where the header is at fault."""
    try:
        found = crossing._crossed(payload, False)
    except (PeerFault, ProtocolMisuse):
        return None
    return found.sized(payload), found.destination


def some_properties(chance: Random, texts: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, form in content_header.PROPERTIES[methods.CLASS_JMS]:
        if form != "table" and chance.random() < 0.4:
            found[name] = chance.choice((0, 1, 9, 255)) if form == "octet" else chance.choice(texts)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_header_of_jms_is_what_the_long_way_makes_of_it(seed: int) -> None:
    chance = Random(seed)
    short = 0
    for _ in range(200):
        properties = some_properties(chance, TEXTS + ODD if chance.random() < 0.3 else TEXTS)
        payload = content_header.encode(ContentHeader(methods.CLASS_JMS, chance.getrandbits(64), properties))
        found = jms_header.to_basic(payload)
        if found is not None:
            short += 1
            assert found == long_way(payload)
            # And back.
            key = found[1].encode()
            wanted = crossing._fast_header(methods.CLASS_JMS, found[0], found[1], 1 << 17)
            assert (jms_header.to_jms(found[0], key), False) == wanted
    assert short > 80


@pytest.mark.parametrize("seed", range(20))
def test_a_header_of_jms_that_is_at_fault_goes_the_long_way(seed: int) -> None:
    chance = Random(seed)
    for _ in range(300):
        properties = some_properties(chance, TEXTS)
        payload = bytearray(content_header.encode(ContentHeader(methods.CLASS_JMS, 3, properties)))
        for _ in range(chance.randrange(1, 4)):
            payload[chance.randrange(len(payload))] = chance.randrange(256)
        mutated = bytes(payload[: chance.randrange(len(payload) + 1)] if chance.random() < 0.3 else payload)
        found = jms_header.to_basic(mutated)
        assert found is None or found == long_way(mutated)


@pytest.mark.parametrize("seed", range(20))
def test_a_header_of_basic_that_is_at_fault_goes_the_long_way(seed: int) -> None:
    chance = Random(seed)
    for _ in range(300):
        properties = BasicProperties(
            **{name: value for name, value in some_properties(chance, TEXTS).items() if name in LIKE}
        )
        if chance.random() < 0.5:
            properties.timestamp = chance.choice((0, 1763375000, (1 << 64) - 1))
        head = b"\x00\x3c\x00\x00" + (5).to_bytes(8, "big")
        octets = bytearray(head + encode_properties(properties))
        for _ in range(chance.randrange(3)):
            octets[chance.randrange(len(octets))] = chance.randrange(256)
        if chance.random() < 0.2:
            del octets[chance.randrange(len(octets)) :]
        key = chance.choice((b"", b"q", b"x" * 255, b"\xff", "\u00fc".encode(), b"a\0b"))
        header = bytes(octets)
        found = jms_header.to_jms(header, key)
        if found is not None:
            wanted = crossing._fast_header(methods.CLASS_JMS, header, key.decode(), 1 << 17)
            assert (found, False) == wanted


LIKE = frozenset(NAMES) - {"destination", "headers", "timestamp"}


def test_what_is_not_plain_goes_the_long_way() -> None:
    for properties in (
        {"headers": {"a": 1}},
        {"headers": {}},
        {"type": "\u00fc"},
        {"timestamp": "2005-04-16"},
        {"timestamp": ""},
        {"timestamp": "1" * 20},
    ):
        payload = content_header.encode(ContentHeader(methods.CLASS_JMS, 0, properties))
        assert jms_header.to_basic(payload) is None
    for properties in (BasicProperties(headers={}), BasicProperties(cluster_id="c")):
        header = b"\x00\x3c" + bytes(10) + encode_properties(properties)
        assert jms_header.to_jms(header, b"q") is None
