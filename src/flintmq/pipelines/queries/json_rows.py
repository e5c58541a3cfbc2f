"""JSON objects to columns in bulk, for schemas of simple types.

The bodies of a batch are parsed as one text with a line for each. That is right only if every body is one
object: each begins with `{` and ends with `}`, and `}`, newline, `{` is nowhere inside of an object, so if
there are as many objects as bodies, each body is one. A batch in which some body is not is halved until
those are found, and these are read one by one, in the way of Spark's own parser:

| type | what is taken |
|---|---|
| STRING | a string; anything else as its JSON text |
| INT, BIGINT | a whole number in its range |
| DOUBLE | a number; the strings NaN, Infinity and -Infinity |
| BOOLEAN | true, false |

What is missing or null is NULL.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

# Fewer rows than this are read one by one.
ROWS_FEW = 16
_NOT_NUMBERS = ("NaN", "Infinity", "-Infinity")


def is_simple(schema: pyarrow.Schema) -> bool:
    import pyarrow

    simple = (pyarrow.string(), pyarrow.int32(), pyarrow.int64(), pyarrow.float64(), pyarrow.bool_())
    return all(field.type in simple for field in schema)


def parse(bodies: pyarrow.Array, schema: pyarrow.Schema) -> tuple[pyarrow.Table, list[int]]:
    """A row of each body, and the places of those that are no object of this schema: NULL in all columns."""
    import pyarrow

    tables: list[pyarrow.Table] = []
    malformed: list[int] = []
    waiting = [(0, len(bodies))]
    while waiting:
        start, size = waiting.pop()
        part = bodies.slice(start, size)
        table = _all_at_once(part, schema) if size >= ROWS_FEW else None
        if table is not None:
            tables.append(table)
        elif size >= 2 * ROWS_FEW:
            waiting += [(start + size // 2, size - size // 2), (start, size // 2)]
        else:
            rows = [_row(body.as_py(), schema) for body in part]
            malformed += [start + place for place, row in enumerate(rows) if row is None]
            tables.append(pyarrow.Table.from_pylist([row or {} for row in rows], schema))
    return pyarrow.concat_tables(tables) if tables else schema.empty_table(), malformed


def _all_at_once(bodies: pyarrow.Array, schema: pyarrow.Schema) -> pyarrow.Table | None:
    """None if some of them are not what one hopes for."""
    import pyarrow
    import pyarrow.compute as compute
    from pyarrow import json as parser

    try:
        texts = compute.ascii_trim_whitespace(bodies.cast(pyarrow.string()))  # which looks at the encoding
        framed = compute.and_(compute.starts_with(texts, "{"), compute.ends_with(texts, "}"))
        if not compute.all(framed).as_py():
            return None
        lines = compute.binary_join(pyarrow.ListArray.from_arrays([0, len(texts)], texts), "\n")[0]
        octets = lines.as_buffer()
        table = parser.read_json(
            pyarrow.BufferReader(octets),
            read_options=parser.ReadOptions(use_threads=False, block_size=octets.size + 1),
            parse_options=parser.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pyarrow.ArrowInvalid:
        return None
    return table if table.num_rows == len(bodies) else None


def _row(body: bytes, schema: pyarrow.Schema) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
        if not isinstance(found, dict):
            return None
        return {field.name: _value(found.get(field.name), field.type) for field in schema}
    except (ValueError, RecursionError):
        return None


def _value(value: Any, type_: pyarrow.DataType) -> Any:
    import pyarrow

    if value is None:
        return None
    if type_ == pyarrow.string():
        text = (
            value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        )
        text.encode()  # half of a pair of surrogates is no text
        return text
    is_boolean = isinstance(value, bool)  # which Python takes for a number
    if type_ == pyarrow.bool_():
        if is_boolean:
            return value
    elif type_ == pyarrow.float64():
        if value in _NOT_NUMBERS or (isinstance(value, int | float) and not is_boolean):
            return float(str(value))  # of the text: a whole number too large is infinite
    elif isinstance(value, int) and not is_boolean:
        limit = 1 << type_.bit_width - 1
        if -limit <= value < limit:
            return value
    raise ValueError(f"{value!r} is no {type_}")
