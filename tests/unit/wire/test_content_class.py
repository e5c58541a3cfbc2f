"""Headers of the file and stream classes as basic ones, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.errors import ConnectionFault
from flintmq.wire import amqp, content, traits
from flintmq.wire.content_class import FILENAME, class_of, from_basic, to_basic, trait_of
from flintmq.wire.header_edits import with_property
from flintmq.wire.properties import (
    BasicProperties,
    FileProperties,
    Properties,
    StreamProperties,
    decode_properties,
    encode_properties,
)

SHORT = st.none() | st.text(max_size=20)
OCTET = st.none() | st.integers(0, 255)
TIME = st.none() | st.integers(0, 2**64 - 1)
HEADERS = st.none() | st.dictionaries(st.text(max_size=10), st.integers(-5, 5) | st.text(), min_size=1)


def header_of(properties: Properties, size: int = 4) -> bytes:
    head = properties.CLASS_ID.to_bytes(2, "big") + bytes(2) + size.to_bytes(8, "big")
    return head + encode_properties(properties)


def test_a_stream_message_has_the_same_octets_in_both_classes() -> None:
    # class 80, weight 0, 4 octets of body; type, encoding, headers, priority, timestamp
    properties = (
        b"\x01t" + b"\x01e" + b"\x00\x00\x00\x07\x01hI\x00\x00\x00\x06" + b"\x05" + bytes(7) + b"\x09"
    )
    stream = b"\x00\x50\x00\x00" + (4).to_bytes(8, "big") + b"\xf8\x00" + properties
    basic = b"\x00\x3c\x00\x00" + (4).to_bytes(8, "big") + b"\xe8\x40" + properties
    assert to_basic(stream) == basic
    assert from_basic(amqp.CLASS_STREAM, basic) == stream


def test_a_file_is_persistent_and_has_its_name_in_the_headers() -> None:
    file = FileProperties(
        content_type="t",
        headers={"h": 6},
        priority=5,
        reply_to="r",
        message_id="m",
        filename="a.txt",
        timestamp=9,
        cluster_id="c",
    )
    basic = to_basic(header_of(file))
    found = decode_properties(amqp.CLASS_BASIC, basic, 12, len(basic))
    assert found == BasicProperties(
        content_type="t",
        headers={FILENAME: "a.txt", "h": 6},
        delivery_mode=2,
        priority=5,
        reply_to="r",
        message_id="m",
        timestamp=9,
        cluster_id="c",
    )
    assert from_basic(amqp.CLASS_FILE, basic) == header_of(file)


@given(
    st.builds(
        StreamProperties,
        content_type=SHORT,
        content_encoding=SHORT,
        headers=HEADERS,
        priority=OCTET,
        timestamp=TIME,
    )
)
def test_any_stream_header_comes_back_as_it_went(properties: StreamProperties) -> None:
    header = header_of(properties)
    basic = to_basic(header)
    assert content.traits_of(basic) >= 0
    assert not content.traits_of(basic) & traits.PERSISTENT
    assert from_basic(amqp.CLASS_STREAM, basic) == header


@given(
    st.builds(
        FileProperties,
        content_type=SHORT,
        content_encoding=SHORT,
        headers=HEADERS,
        priority=OCTET,
        reply_to=SHORT,
        message_id=SHORT,
        filename=SHORT,
        timestamp=TIME,
        cluster_id=SHORT,
    )
)
def test_any_file_header_comes_back_as_it_went(properties: FileProperties) -> None:
    header = header_of(properties)
    basic = to_basic(header)
    assert content.traits_of(basic) & traits.PERSISTENT
    assert from_basic(amqp.CLASS_FILE, basic) == header


def test_a_header_of_the_same_name_as_the_file_name_stays_behind_it() -> None:
    file = FileProperties(headers={FILENAME: "mine"}, filename="name")
    basic = to_basic(header_of(file))
    found = decode_properties(amqp.CLASS_BASIC, basic, 12, len(basic))
    assert isinstance(found, BasicProperties)
    assert found.headers == {FILENAME: "name"}  # of two of a name the first counts
    assert from_basic(amqp.CLASS_FILE, basic) == header_of(file)


def test_what_the_broker_has_added_to_headers_is_there_in_the_class_too() -> None:
    basic = to_basic(header_of(FileProperties(filename="name")))
    entry = b"\x07x-deathI\x00\x00\x00\x01"
    place = basic.index(b"\x0ax-filename")
    table = entry + basic[place : place + 11 + 5 + 4]
    changed = with_property(basic, amqp.FLAG_HEADERS, len(table).to_bytes(4, "big") + table)
    header = from_basic(amqp.CLASS_FILE, changed)
    found = decode_properties(amqp.CLASS_FILE, header, 12, len(header))
    assert found == FileProperties(headers={"x-death": 1}, filename="name")


def test_basic_properties_that_a_class_does_not_have_are_left_out() -> None:
    basic = header_of(BasicProperties(delivery_mode=2, priority=3, message_id="m", expiration="9"))
    header = from_basic(amqp.CLASS_STREAM, basic)
    assert decode_properties(amqp.CLASS_STREAM, header, 12, len(header)) == StreamProperties(priority=3)


@pytest.mark.parametrize("size", range(14, 40))
def test_a_file_header_that_is_cut_short_is_a_fault(size: int) -> None:
    header = header_of(FileProperties(headers={"h": 6}, filename="a.txt", timestamp=9))
    if size < len(header):
        with pytest.raises(ConnectionFault):
            to_basic(header[:size])


@pytest.mark.parametrize("class_id", [amqp.CLASS_FILE, amqp.CLASS_STREAM])
def test_flags_that_a_class_does_not_have_are_a_fault(class_id: int) -> None:
    with pytest.raises(ConnectionFault, match="flags 0x0001"):
        to_basic(class_id.to_bytes(2, "big") + bytes(10) + b"\x00\x01")


def test_traits_and_classes() -> None:
    assert class_of(traits.PERSISTENT) == amqp.CLASS_BASIC
    for class_id in (amqp.CLASS_FILE, amqp.CLASS_STREAM):
        assert class_of(trait_of(class_id) | traits.HAS_HEADERS) == class_id
        assert trait_of(class_id) & traits.CONTENT_CLASSES
    assert trait_of(amqp.CLASS_BASIC) == 0
