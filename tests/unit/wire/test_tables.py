"""Field tables: every type there is, the limits, and entries moved without decoding."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp, tables
from flintmq.wire.tables import (
    DEPTH_MAX,
    ENTRIES_MAX,
    Timestamp,
    decode_table,
    decode_value,
    encode_table,
    encode_value,
    join_entries,
    split_entries,
)

MOMENT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def value_of(octets: str) -> Any:
    raw = bytes.fromhex(octets)
    value, at = decode_value(raw, 0, len(raw))
    assert at == len(raw)
    return value


def table_of(octets: bytes) -> Any:
    table, at = decode_table(octets, 0, len(octets))
    assert at == len(octets)
    return table


def refused(octets: bytes) -> str:
    with pytest.raises(ConnectionFault) as raised:
        decode_table(octets, 0, len(octets), "headers")
    assert raised.value.code == amqp.SYNTAX_ERROR
    assert raised.value.text.startswith("headers ")
    return raised.value.text


def sized(octets: bytes) -> bytes:
    return len(octets).to_bytes(4, "big") + octets


LETTERS = [
    ("74 00", False),
    ("74 01", True),
    ("74 02", True),
    ("62 ff", -1),
    ("42 ff", 255),
    ("73 ffff", -1),
    ("55 ffff", -1),
    ("75 ffff", 65535),
    ("49 ffffffff", -1),
    ("69 ffffffff", 4294967295),
    ("6c ffffffffffffffff", -1),
    ("4c 8000000000000000", -(1 << 63)),
    ("66 3fc00000", 1.5),
    ("64 3ff8000000000000", 1.5),
    ("44 02 00000139", Decimal("3.13")),
    ("44 01 ffffffff", Decimal("-0.1")),
    ("53 00000002 c3a9", "é"),
    ("53 00000001 ff", b"\xff"),
    ("78 00000001 41", b"A"),
    ("54 000000006553f100", MOMENT),
    ("54 ffffffffffffffff", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ("54 7fffffffffffffff", Timestamp((1 << 63) - 1)),
    ("54 8000000000000000", Timestamp(-(1 << 63))),
    ("56", None),
    ("41 00000000", []),
    ("41 00000005 42 01 74 01 56", [1, True, None]),
    ("46 00000000", {}),
    ("46 00000004 0161 42 05", {"a": 5}),
]

NUMBERS = [
    ("00 ff", b"\xff"),
    ("01 ff", -1),
    ("02 ff", 255),
    ("04 a4", "€"),
    ("08 01", True),
    ("10 0102", b"\x01\x02"),
    ("11 ffff", -1),
    ("12 ffff", 65535),
    ("20 01020304", b"\x01\x02\x03\x04"),
    ("21 ffffffff", -1),
    ("22 ffffffff", 4294967295),
    ("23 3fc00000", 1.5),
    ("27 0001f600", "\U0001f600"),
    ("27 0000d800", b"\x00\x00\xd8\x00"),
    ("30 0102030405060708", b"\x01\x02\x03\x04\x05\x06\x07\x08"),
    ("31 ffffffffffffffff", -1),
    ("32 7fffffffffffffff", (1 << 63) - 1),
    ("33 3ff8000000000000", 1.5),
    ("38 000000006553f100", MOMENT),
    ("40" + "ab" * 16, b"\xab" * 16),
    ("48" + "ab" * 16, b"\xab" * 16),
    ("50" + "ab" * 32, b"\xab" * 32),
    ("60" + "ab" * 64, b"\xab" * 64),
    ("70" + "ab" * 128, b"\xab" * 128),
    ("80 01 ff", b"\xff"),
    ("84 01 a4", "€"),
    ("85 02 c3a9", "é"),
    ("86 02 00e9", "é"),
    ("86 01 00", b"\x00"),
    ("87 04 000000e9", "é"),
    ("90 0001 ff", b"\xff"),
    ("94 0001 a4", "€"),
    ("95 0002 c3a9", "é"),
    ("96 0002 00e9", "é"),
    ("97 0004 000000e9", "é"),
    ("a0 00000001 ff", b"\xff"),
    ("a4 00000001 a4", "€"),
    ("a5 00000002 c3a9", "é"),
    ("a6 00000002 00e9", "é"),
    ("a7 00000004 000000e9", "é"),
    ("a8 00000004 0161 02 05", {"a": 5}),
    ("a9 00000003 02 05 f0", [5, None]),
    ("aa 00000009 12 00000002 00010002", [1, 2]),
    ("aa 00000005 f0 00000003", [None, None, None]),
    ("c0 0102030405", b"\x01\x02\x03\x04\x05"),
    ("c8 02 00000139", Decimal("3.13")),
    ("d0 010203040506070809", b"\x01\x02\x03\x04\x05\x06\x07\x08\x09"),
    ("d8 01 ffffffffffffffff", Decimal("-0.1")),
    ("f0", None),
]


@pytest.mark.parametrize(("octets", "value"), LETTERS + NUMBERS)
def test_a_type_is_decoded_and_what_it_gives_encodes_to_the_same_value(octets: str, value: Any) -> None:
    found: Any = value_of(octets)
    assert found == value
    assert type(found) is type(value)
    again = value_of(encode_value(found).hex())
    assert again == value
    assert type(again) is type(value)


def test_no_number_is_a_letter() -> None:
    assert len(tables._FIXED) + len(tables._VARIABLE) + len(tables._CONTAINERS) == len(
        {*tables._FIXED, *tables._VARIABLE, *tables._CONTAINERS}
    )
    known = {int(octets[:2], 16) for octets, _ in LETTERS + NUMBERS}
    assert known == {*tables._FIXED, *tables._VARIABLE, *tables._CONTAINERS}


@pytest.mark.parametrize("octets", [octets for octets, _ in LETTERS + NUMBERS])
def test_a_truncated_value_is_refused(octets: str) -> None:
    raw = bytes.fromhex(octets)
    for end in range(len(raw)):
        with pytest.raises(ConnectionFault):
            decode_value(raw[:end], 0, end)
        with pytest.raises(ConnectionFault):
            decode_value(raw, 0, end)


@pytest.mark.parametrize(
    ("value", "octets"),
    [
        (0, "49 00000000"),
        ((1 << 31) - 1, "49 7fffffff"),
        (1 << 31, "6c 0000000080000000"),
        (-(1 << 31) - 1, "6c ffffffff7fffffff"),
        (1 << 63, "53 00000013 " + b"9223372036854775808".hex()),
        (True, "74 01"),
        (1.5, "64 3ff8000000000000"),
        ("é", "53 00000002 c3a9"),
        ("\udcff", "53 00000001 ff"),
        (b"\x01", "78 00000001 01"),
        (bytearray(b"\x01"), "78 00000001 01"),
        ((1, None), "41 00000006 49 00000001 56"),
        (MOMENT, "54 000000006553f100"),
        (MOMENT.astimezone(timezone(timedelta(hours=2))), "54 000000006553f100"),
        (MOMENT + timedelta(milliseconds=999), "54 000000006553f100"),
        (Timestamp(5), "54 0000000000000005"),
        (Decimal("3.13"), "44 02 00000139"),
        (Decimal("2E+2"), "44 00 000000c8"),
        (Decimal("-0.0000000001"), "44 0a ffffffff"),
        (Decimal("21474836.48"), "53 0000000b " + b"21474836.48".hex()),
    ],
)
def test_how_a_value_is_encoded(value: Any, octets: str) -> None:
    assert encode_value(value) == bytes.fromhex(octets)


@pytest.mark.parametrize(
    "value",
    [
        1 << 64,
        -(1 << 63) - 1,
        Timestamp(1 << 63),
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("1E+30"),
        Decimal("1E-256"),
        Decimal(10**19),
        datetime(2023, 1, 1),
        "\ud800",
        object(),
        {1, 2},
        {"k" * 256: 1},
    ],
)
def test_what_cannot_be_encoded_is_our_mistake(value: Any) -> None:
    with pytest.raises(ProtocolMisuse):
        encode_value(value)


def test_not_a_number_is_a_number_on_the_wire() -> None:
    found = value_of(encode_value(math.nan).hex())
    assert isinstance(found, float)
    assert math.isnan(found)


def test_a_table_stands_between_other_octets() -> None:
    table = encode_table({"a": 1, "b": "x"})
    assert decode_table(b"??" + table + b"??", 2, 2 + len(table) + 2) == ({"a": 1, "b": "x"}, 2 + len(table))


def test_the_first_of_two_equal_names_counts() -> None:
    assert table_of(join_entries([("a", b"t\x00"), ("a", b"t\x01")])) == {"a": False}


def test_a_name_of_any_octets_goes_back_as_it_came() -> None:
    octets = sized(b"\x02\xff\x00V" + b"\x00V")
    table = table_of(octets)
    assert table == {"\udcff\x00": None, "": None}
    assert encode_table(table) == octets


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        ("000000", "is cut short"),
        ("00000001", "has a length of 1 octets where 0 are left"),
        ("ffffffff 00", "has a length of 4294967295 octets where 1 are left"),
        ("00000001 00", "ends within an entry"),
        ("00000003 05 6162", "ends within an entry"),
        ("00000002 01 61", "ends within an entry"),
        ("00000003 01 61 5a", "unknown type 0x5a"),
        ("00000004 01 61 49 00", "ends within a value"),
        ("00000007 01 61 53 000000 ff", "ends within a value"),
        ("00000007 01 61 53 7fffffff", "ends within a value"),
        ("00000007 01 61 46 00000001", "has a length of 1 octets where 0 are left"),
        ("00000007 01 61 aa 00000000", "ends within an array"),
        ("0000000d 01 61 aa 00000006 12 00000000 00", "octets left over"),
        ("0000000c 01 61 aa 00000005 f0 ffffffff", f"more than {ENTRIES_MAX} entries"),
    ],
)
def test_bad_octets(octets: str, text: str) -> None:
    assert text in refused(bytes.fromhex(octets))


def nested(levels: int, code: bytes, name: bytes) -> bytes:
    """A table of that many levels in all, each in the one before."""
    octets = sized(b"")
    for _ in range(levels - 2):
        octets = sized(name + code + octets)
    return sized(b"\x00" + code + octets)


@pytest.mark.parametrize(("code", "name"), [(b"F", b"\x00"), (b"A", b""), (b"\xa8", b"\x00"), (b"\xa9", b"")])
def test_depth_is_limited(code: bytes, name: bytes) -> None:
    assert table_of(nested(DEPTH_MAX, code, name))
    assert f"deeper than {DEPTH_MAX}" in refused(nested(DEPTH_MAX + 1, code, name))


def test_a_deep_nest_costs_no_stack() -> None:
    assert f"deeper than {DEPTH_MAX}" in refused(nested(20_000, b"F", b"\x00"))


def test_what_we_may_encode_may_be_decoded() -> None:
    table: Any = {}
    for _ in range(DEPTH_MAX - 1):
        table = {"t": table}
    assert table_of(encode_table(table)) == table
    with pytest.raises(ProtocolMisuse, match="deeper"):
        encode_table({"t": table})
    values: Any = []
    for _ in range(DEPTH_MAX):
        values = [values]
    with pytest.raises(ProtocolMisuse, match="deeper"):
        encode_table({"a": values})


def test_entries_are_limited_over_all_levels() -> None:
    most = sized(b"\x00A" + sized(b"V" * (ENTRIES_MAX - 1)))
    assert len(table_of(most)[""]) == ENTRIES_MAX - 1
    assert "entries" in refused(sized(b"\x00A" + sized(b"V" * ENTRIES_MAX)))
    assert "entries" in refused(sized(b"\x00V" * (ENTRIES_MAX + 1)))
    half = b"\x00A" + sized(b"V" * (ENTRIES_MAX // 2))
    assert "entries" in refused(sized(half * 3))
    too_many = sized(b"\x00V" * (ENTRIES_MAX + 1))
    with pytest.raises(ConnectionFault, match="entries"):
        split_entries(too_many, 0, len(too_many))


def test_entries_split_and_join_as_they_came() -> None:
    values = [bytes.fromhex(octets) for octets, _ in LETTERS + NUMBERS]
    entries = [(f"name {number}", value) for number, value in enumerate(values)]
    table = join_entries(entries)
    assert split_entries(b"?" + table + b"?", 1, 1 + len(table)) == entries
    assert [decode_value(raw, 0, len(raw))[0] for _, raw in entries] == list(table_of(table).values())


@pytest.mark.parametrize(
    "octets",
    [
        "00000001",
        "00000001 00",
        "00000003 00 5a 00",
        "00000003 00 49 00",
        "00000006 00 53 7fffffff",
        "00000003 00 46 00",
    ],
)
def test_bad_octets_are_not_split(octets: str) -> None:
    raw = bytes.fromhex(octets)
    with pytest.raises(ConnectionFault) as raised:
        split_entries(raw, 0, len(raw), "headers")
    assert raised.value.code == amqp.SYNTAX_ERROR
    assert raised.value.text.startswith("headers ")
