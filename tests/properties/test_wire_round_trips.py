"""What is encoded decodes to the same: every method in every version, tables, properties."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.wire import methods, properties
from flintmq.wire.fields import Content
from flintmq.wire.tables import (
    Timestamp,
    decode_table,
    encode_table,
    encode_value,
    join_entries,
    split_entries,
)

# Any octets up to 255, as the text they stand for.
shortstrs = st.binary(max_size=255).map(lambda octets: octets.decode("utf-8", "surrogateescape"))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
decimals = st.builds(
    lambda unscaled, places: Decimal(unscaled).scaleb(-places),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, 255),
)
moments = st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(microsecond=0))
beyond = st.integers(300_000_000_000, (1 << 63) - 1).map(Timestamp)
scalars = (
    texts
    | st.binary(max_size=40)
    | st.booleans()
    | st.none()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | decimals
    | moments
    | beyond
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(shortstrs, inner, max_size=4),
    max_leaves=12,
)
field_tables = st.dictionaries(shortstrs, values, max_size=5)

BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 0xFF),
    "short": st.integers(0, 0xFFFF),
    "long": st.integers(0, 0xFFFF_FFFF),
    "longlong": st.integers(0, (1 << 64) - 1),
    "timestamp": st.integers(0, (1 << 64) - 1),
    "shortstr": shortstrs,
    "longstr": st.binary(max_size=300),
    "table": field_tables,
    "content": st.builds(Content, st.binary(max_size=100), st.booleans()),
}
SPEC = Path(__file__).resolve().parents[2] / "spec" / "methods.txt"


def spec_layouts() -> dict[tuple[int, str], list[tuple[str, str]]]:
    """(name, type) of each argument a version carries, read from the table without the generator."""
    layouts: dict[tuple[int, str], list[tuple[str, str]]] = {}
    class_name, method = "", ""
    for line in SPEC.read_text(encoding="utf-8").splitlines():
        if line.startswith("class "):
            class_name = line.split()[1]
        elif line.startswith("method "):
            method = f"{class_name}.{line.split()[1]}"
            layouts.update({(version, method): [] for version in versions_in(line)})
        elif line.startswith(" "):
            for argument in filter(None, (part.strip() for part in line.split(","))):
                name, kind = argument.split()[:2]
                for version in versions_in(argument):
                    layouts.get((version, method), []).append((name, kind))
    return layouts


def versions_in(text: str) -> list[int]:
    """The versions in brackets, without those where the argument is reserved; all when there are none."""
    if "[" not in text:
        return [8, 9, 91]
    marks = text.split("[")[1].split("]")[0].split()
    return [int(mark.split("=")[0].rstrip("?")) for mark in marks if not mark.endswith("-")]


LAYOUTS = spec_layouts()


def test_the_table_and_the_module_have_the_same_methods() -> None:
    assert {(version, method.NAME) for method in methods.METHODS for version in method.VERSIONS} == set(
        LAYOUTS
    )


# Some three hundred methods and versions of a few fields each: fewer examples of each keep the run short.
@pytest.mark.parametrize(("version", "name"), sorted(LAYOUTS))
@settings(max_examples=25)
@given(data=st.data())
def test_method(version: int, name: str, data: st.DataObject) -> None:
    fields = {field: data.draw(BY_TYPE[kind], label=field) for field, kind in LAYOUTS[version, name]}
    method = methods.NAMES[name](**fields)
    payload = methods.encode_method(version, method)
    assert methods.decode_method(version, payload) == method
    assert int.from_bytes(payload[:4], "big") == methods.code_of(version, name)


@given(field_tables)
def test_table(table: dict[str, Any]) -> None:
    octets = encode_table(table)
    found, at = decode_table(b"?" + octets + b"?", 1, 1 + len(octets) + 1)
    assert found == table
    assert at == 1 + len(octets)
    assert [type(value) for value in found.values()] == [type(value) for value in table.values()]
    assert encode_table(found) == octets


@given(field_tables, shortstrs, values)
def test_an_entry_added_leaves_the_others_as_they_were(table: dict[str, Any], name: str, value: Any) -> None:
    octets = encode_table(table)
    entries = split_entries(octets, 0, len(octets))
    assert join_entries(entries) == octets
    longer = join_entries([*entries, (name, encode_value(value))])
    assert decode_table(longer, 0, len(longer))[0] == {name: value, **table}


PROPERTY_CLASSES = [
    properties.BasicProperties,
    properties.FileProperties,
    properties.StreamProperties,
    properties.TunnelProperties,
    properties.TestProperties,
]
OCTETS = {"delivery_mode", "priority", "durable", "broadcast"}


@pytest.mark.parametrize("kind", PROPERTY_CLASSES)
@given(data=st.data())
def test_properties(kind: type[properties.Properties], data: st.DataObject) -> None:
    drawn: dict[str, Any] = {}
    for field in kind.FIELDS:
        if field == "headers":
            strategy: st.SearchStrategy[Any] = field_tables
        elif field in OCTETS:
            strategy = BY_TYPE["octet"]
        elif field == "timestamp":
            strategy = BY_TYPE["timestamp"]
        else:
            strategy = shortstrs
        drawn[field] = data.draw(st.none() | strategy, label=field)
    found = kind(**drawn)
    octets = properties.encode_properties(found)
    assert properties.decode_properties(kind.CLASS_ID, octets, 0, len(octets)) == found


def test_moments_have_a_whole_second() -> None:
    moment = datetime(1, 1, 1, tzinfo=UTC)
    octets = encode_table({"t": moment})
    assert decode_table(octets, 0, len(octets))[0] == {"t": moment}
