"""Content properties: flags, and how bad headers are refused."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp
from flintmq.wire.properties import (
    FLAG_WORDS_MAX,
    BasicProperties,
    FileProperties,
    StreamProperties,
    decode_basic_properties,
    decode_properties,
    encode_properties,
)


def refused(class_id: int, octets: bytes) -> ConnectionFault:
    with pytest.raises(ConnectionFault) as raised:
        decode_properties(class_id, octets, 0, len(octets))
    assert raised.value.code == amqp.SYNTAX_ERROR
    return raised.value


def test_what_is_not_given_is_none() -> None:
    assert BasicProperties().headers is None
    assert BasicProperties(type="t") != BasicProperties()
    assert repr(StreamProperties(priority=1)).startswith("StreamProperties(content_type=None")


def test_an_empty_value_is_not_an_absent_one() -> None:
    octets = encode_properties(BasicProperties(content_type="", headers={}, priority=0))
    assert octets == bytes.fromhex("a800 00 00000000 00")
    assert decode_basic_properties(octets, 0, len(octets)) == BasicProperties(
        content_type="", headers={}, priority=0
    )


def test_continued_flag_words_may_be_empty_and_are_few() -> None:
    octets = b"\x00\x01" * (FLAG_WORDS_MAX - 1) + b"\x00\x00"
    assert decode_properties(60, octets, 0, len(octets)) == BasicProperties()
    assert "flag words" in refused(60, b"\x00\x01" * FLAG_WORDS_MAX + b"\x00\x00").text


@pytest.mark.parametrize(
    ("class_id", "octets", "text"),
    [
        (60, "", "content header flags is cut short"),
        (60, "00", "content header flags is cut short"),
        (60, "0001", "content header flags is cut short"),
        (60, "0002", "unknown property flags 0x0002"),
        (60, "0001 8000", "flags of unknown properties"),
        (70, "0040", "unknown property flags 0x0040"),
        (60, "0000 00", "1 octets after its last property"),
        (60, "8000", "basic content_type is cut short"),
        (60, "8000 0261", "basic content_type is cut short"),
        (60, "1000", "basic delivery_mode is cut short"),
        (60, "0040 00000000000000", "basic timestamp is cut short"),
        (60, "2000 00000001", "basic headers has a length of 1 octets where 0 are left"),
        (61, "0000", "class 61 has no content"),
    ],
)
def test_bad_octets(class_id: int, octets: str, text: str) -> None:
    assert text in refused(class_id, bytes.fromhex(octets)).text


@pytest.mark.parametrize(
    "properties",
    [
        BasicProperties(priority=256),
        BasicProperties(delivery_mode=-1),
        BasicProperties(timestamp=1 << 64),
        FileProperties(filename="f" * 256),
    ],
)
def test_what_cannot_be_encoded_is_our_mistake(properties: BasicProperties) -> None:
    with pytest.raises(ProtocolMisuse):
        encode_properties(properties)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"priority": "high"}, "priority is 'high', and takes a whole number"),
        ({"timestamp": 1.5}, "timestamp is 1.5, and takes a whole number"),
        ({"delivery_mode": "2"}, "delivery_mode is '2', and takes a whole number"),
        ({"user_id": 3}, "a short string that is not text: 3"),
        ({"correlation_id": b"id"}, "a short string that is not text: b'id'"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ProtocolMisuse, match=said):
        encode_properties(BasicProperties(**given))
