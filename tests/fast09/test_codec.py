"""Vectors of AMQP/Fast 0.9: tables, methods and content headers, by hand from the document."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from fast09.conversation import octets, table

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire.fast09 import content_header, crossing, frames, methods, tables
from flintmq.wire.fast09.content_header import ContentHeader
from flintmq.wire.fast09.methods import KINDS, method
from flintmq.wire.tables import Timestamp

# Name, octets and value of a field.
FIELDS = [
    ("01 's' 'S' 02 'ab'", "ab"),
    ("01 's' 'S' 00", ""),
    ("01 's' 'S' 02 c3a4", "ä"),
    ("01 's' 'L' 0002 ff00", b"\xff\x00"),
    ("01 's' 'L' 0003 'a' 00 'b'", "a\0b"),
    ("01 's' 'I' 7fffffff", 2**31 - 1),
    ("01 's' 'I' 80000000", -(2**31)),
    ("01 's' 'D' 02 fffffffb", Decimal("-0.05")),
    ("01 's' 'D' ff 00000001", Decimal("1E-255")),
    ("01 's' 'T' 00000000425f9a80", datetime.fromtimestamp(0x425F9A80, UTC)),
    ("01 's' 'T' ffffffffffffffff", Timestamp(2**64 - 1)),
    ("01 's' 'F' 00000000", {}),
]


@pytest.mark.parametrize(("text", "value"), FIELDS)
def test_fields_both_ways(text: str, value: object) -> None:
    wanted = octets(table(text))
    assert tables.encode({"s": value}) == wanted  # type: ignore[dict-item]
    assert tables.decode(wanted, 0, len(wanted)) == ({"s": value}, len(wanted))


@pytest.mark.parametrize(
    "text",
    [
        "000000",
        "00000001",
        "00000002 01 'a'",
        "00000003 01 'a' 'S'",
        "00000005 01 'a' 'L' 0002",
        "00000006 01 'a' 'I' 000000",
        "00000004 01 'a' 'X' 00",
        "00000005 01 'a' 'S' 01 00",  # a NUL
        "00000007 01 '-' 'I' 00000000",
        "00000006 00 'I' 00000000",
        "00000007 01 ff 'I' 00000000",
        f"00000087 81 {'61' * 129} 'I' 00000000",  # a name of 129 octets
    ],
)
def test_a_table_that_is_none_is_a_fault(text: str) -> None:
    with pytest.raises(ConnectionFault, match="field table"):
        tables.decode(octets(text), 0, len(octets(text)))


@pytest.mark.parametrize("value", [2**31, 1.5, [1], Timestamp(-1), "x" * 65_536])
def test_what_no_field_holds_cannot_be_encoded(value: object) -> None:
    with pytest.raises(ProtocolMisuse):
        tables.encode({"s": value})  # type: ignore[dict-item]


def test_a_table_has_so_many_fields() -> None:
    entry = octets("01 'a' 'I' 00000000")
    whole = (len(entry) * 2049).to_bytes(4, "big") + entry * 2049
    with pytest.raises(ConnectionFault, match="2048"):
        tables.decode(whole, 0, len(whole))


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_method_is_cut_short_everywhere(kind: methods.MethodKind) -> None:
    made = method(kind.name)
    whole = methods.encode(made, methods.TRACER, 7)
    assert methods.read_ids(whole) == (kind.class_id, kind.method_id, methods.TRACER, 7, kind)
    assert methods.decode(kind, whole) == made
    for size in range(5, len(whole)):
        with pytest.raises(ConnectionFault, match="cut short"):
            methods.decode(kind, whole[:size])
    with pytest.raises(ConnectionFault, match="too many"):
        methods.decode(kind, whole + b"\0")


def test_bits_share_an_octet_and_the_first_is_the_lowest() -> None:
    """Proxy.Assert: ticket, proxy, class, if_exists, durable, auto_delete."""
    made = method("proxy.assert", ticket=258, proxy="p", class_name="fanout", durable=True, auto_delete=True)
    assert methods.encode(made, 0, 1) == octets("04 01 00 0001 | 0102 01 'p' 06 'fanout' 06")
    # Tune-Ok: bits between numbers.
    made = method("connection.tune-ok", frame_max=1, stream_support=True, prefetch_max=2)
    assert methods.encode(made) == octets("01 06 00 0000 | 00000001 0000 0000 0000 04 00000002")


def test_heads_of_frames() -> None:
    assert frames.head_of(frames.BODY, 255, 65_535) == octets("03 ff ffff")
    assert frames.head_of(frames.BODY, 1, 65_536) == octets("09 00 0000 | 03 00 0001 0000000000010000")
    assert frames.head_of(frames.METHOD, 256, 0) == octets("09 00 0000 | 01 00 0100 0000000000000000")
    assert frames.read_head(octets("01 02 0003"), 0, 4) == (1, 2, 3, 4)
    assert frames.read_head(octets("09 00 0000 | 03 00 0100"), 0, 8) is None


def test_a_content_header_of_each_class() -> None:
    for class_id, fields in content_header.PROPERTIES.items():
        for name, form in fields:
            value: object = {"shortstr": "x", "table": {"a": 1}}.get(form, 7)
            header = ContentHeader(class_id, 9, {name: value})
            assert content_header.decode(content_header.encode(header)) == header
    # Flags may go on, as long as they name nothing.
    assert content_header.decode(octets("06 00 0000000000000000 8001 0000 01 'x'")).properties == {
        "content_type": "x"
    }


def test_a_timestamp_that_is_no_number_is_kept() -> None:
    header = ContentHeader(methods.CLASS_JMS, 0, {"timestamp": "2005-04-16"})
    made = crossing.amqp_header(header, False)
    assert crossing.fast_header(methods.CLASS_JMS, made, b"", 4096) == (content_header.encode(header), False)


def test_headers_without_room_are_left_out() -> None:
    headers = {f"h{number}": "x" * 100 for number in range(100)}
    made = crossing.amqp_header(ContentHeader(methods.CLASS_JMS, 0, {"headers": headers}), False)
    whole, _ = crossing.fast_header(methods.CLASS_JMS, made, b"q", 4096)
    assert 3900 < len(whole) <= 4096
    assert content_header.decode(whole).properties["headers"].items() <= headers.items()


def test_the_tests_that_the_page_names_are_there() -> None:
    here = Path(__file__).resolve()
    page = (here.parents[2] / "docs" / "fast09.md").read_text()
    there = "".join(each.read_text() for each in here.parent.glob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", page)
    assert len(named) > 15
    assert [name for name in named if f"def {name}(" not in there] == []


@pytest.mark.parametrize("name", ["jms.deliver", "stream.deliver"])
@pytest.mark.parametrize("redelivered", [False, True])
def test_a_delivery_is_encoded_as_its_method_is(name: str, redelivered: bool) -> None:
    said = methods.method(
        name, delivery_tag=1 << 63, redelivered=redelivered, proxy="p", namespace="n", queue="\u00fc"
    )
    tail = methods.delivery_tail("p", "n", "\u00fc")
    made = methods.encode_delivery(said.kind.class_id, methods.TRACER, 1 << 63, redelivered, tail)
    assert made == methods.encode(said, methods.TRACER)


@pytest.mark.parametrize("body_size", [0, 1, (1 << 64) - 1])
@pytest.mark.parametrize("octets", [3, 300])
def test_headers_that_differ_in_their_size_alone_cross_alike(body_size: int, octets: int) -> None:
    """Those of up to 256 octets are remembered, longer ones are not."""
    properties = {"destination": "d", "headers": {"h": "x" * octets}}
    header = content_header.ContentHeader(methods.CLASS_JMS, body_size, properties)
    payload = content_header.encode(header)
    for is_traced in (False, True, False):
        found = crossing.crossed(payload, is_traced)
        assert (found.class_id, found.weight, found.destination) == (methods.CLASS_JMS, 0, "d")
        made = found.sized(payload)
        assert made == crossing.amqp_header(header, is_traced)
        assert crossing.fast_header(methods.CLASS_JMS, made, b"d", 4096) == (payload, is_traced)
