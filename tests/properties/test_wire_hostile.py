"""Octets of an enemy: whatever they are, they decode or raise a PeerFault, and nothing else."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flintmq.errors import ConnectionFault, PeerFault
from flintmq.wire import methods, properties
from flintmq.wire.fields import Content
from flintmq.wire.tables import decode_table, decode_value, encode_table, split_entries

VERSIONS = (8, 9, 91)
TABLE: dict[str, Any] = {
    "text": "x",
    "number": 1 << 40,
    "list": [1, "two", None, {"three": 3.0}],
    "table": {"flag": True, "octets": b"\xff"},
}
CLASS_IDS = [60, 70, 80, 110, 120]


def full(method: type[methods.Method]) -> methods.Method:
    """A method of which every field has something in it."""
    made = method()
    for name in method.FIELDS:
        old = getattr(made, name)
        filled: Any = {
            bool: True,
            int: 1,
            str: "text",
            bytes: b"octets",
            dict: TABLE,
            Content: Content(b"body"),
        }[type(old)]
        setattr(made, name, filled)
    return made


PAYLOADS = [
    (version, methods.encode_method(version, full(method)))
    for method in methods.METHODS
    for version in method.VERSIONS
]
HEADERS = properties.encode_properties(
    properties.BasicProperties(
        content_type="text/plain", headers=TABLE, delivery_mode=2, timestamp=1, app_id="a"
    )
)


def try_everything(version: int, payload: bytes) -> None:
    with suppress(PeerFault):
        methods.decode_method(version, payload)


@pytest.mark.parametrize(("version", "payload"), PAYLOADS)
def test_a_method_cut_anywhere_is_refused(version: int, payload: bytes) -> None:
    name = methods.decode_method(version, payload).NAME
    whole = {len(payload)}
    if version == 8 and name in ("basic.consume", "file.consume", "stream.consume"):
        # The standard ends before the table that some clients add.
        whole.add(len(payload) - len(encode_table(TABLE)))
    for end in range(len(payload)):
        if end in whole:
            methods.decode_method(version, payload[:end])
            continue
        with pytest.raises(ConnectionFault) as raised:
            methods.decode_method(version, payload[:end])
        if end >= 4:
            assert raised.value.text.startswith(name)


@given(
    st.sampled_from(PAYLOADS),
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 255)), min_size=1, max_size=6),
    st.sampled_from(VERSIONS),
)
def test_a_method_with_octets_changed(
    sample: tuple[int, bytes], changes: list[tuple[int, int]], version: int
) -> None:
    payload = bytearray(sample[1])
    for place, octet in changes:
        payload[place % len(payload)] = octet
    try_everything(sample[0], bytes(payload))
    try_everything(version, bytes(payload))


@given(st.sampled_from(VERSIONS), st.sampled_from(PAYLOADS), st.binary(max_size=200))
def test_a_method_with_random_arguments(version: int, sample: tuple[int, bytes], arguments: bytes) -> None:
    try_everything(version, sample[1][:4] + arguments)


@given(st.sampled_from(VERSIONS), st.binary(max_size=100))
def test_random_payloads(version: int, payload: bytes) -> None:
    try_everything(version, payload)


@given(st.binary(max_size=300))
@example(b"\x05AAAAA\xaa\x00\x00\x00\x05\xf0\xff\xff\xff\xff")
@example(b"\x00T\x7f\xff\xff\xff\xff\xff\xff\xff")
@example(b"\x00D\xff\x80\x00\x00\x00")
@example(b"\x00\x27\xff\xff\xff\xff")
def test_random_tables(entries: bytes) -> None:
    octets = len(entries).to_bytes(4, "big") + entries
    try:
        table, at = decode_table(octets, 0, len(octets))
    except PeerFault:
        table, at = {}, len(octets)
    assert at == len(octets)
    # Whatever a peer may send, we may send on.
    again = encode_table(table)
    assert set(decode_table(again, 0, len(again))[0]) == set(table)
    with suppress(PeerFault):
        for _, raw in split_entries(octets, 0, len(octets)):
            with suppress(PeerFault):
                decode_value(raw, 0, len(raw))


@given(st.sampled_from(CLASS_IDS), st.binary(max_size=200))
def test_random_properties(class_id: int, octets: bytes) -> None:
    with suppress(PeerFault):
        found = properties.decode_properties(class_id, octets, 0, len(octets))
        properties.encode_properties(found)


def test_properties_cut_anywhere_are_refused() -> None:
    for end in range(len(HEADERS)):
        with pytest.raises(ConnectionFault):
            properties.decode_properties(60, HEADERS[:end], 0, end)
        with pytest.raises(ConnectionFault):
            properties.decode_properties(60, HEADERS, 0, end)


@given(st.integers(0, len(HEADERS) - 1), st.integers(0, 255))
def test_properties_with_an_octet_changed(place: int, octet: int) -> None:
    octets = bytearray(HEADERS)
    octets[place] = octet
    with suppress(PeerFault):
        properties.decode_properties(60, bytes(octets), 0, len(octets))
