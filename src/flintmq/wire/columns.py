"""The body of a stream.fetch reply: messages laid out in columns, so that nobody makes an object of each.

All integers are little-endian; every column begins at a multiple of 8 octets.

    0      4         6         8         16             24            32
    +------+---------+---------+---------+--------------+-------------+------------------------------+
    | FLCB | version | columns | count n | first offset | next offset | directory, 32 octets a column |
    +------+---------+---------+---------+--------------+-------------+------------------------------+

    directory   0        2        4        8            16           24           32
                +--------+--------+--------+------------+------------+------------+
                | column | kind   |   0    | position   | data       | data       |
                |  u16   |  u16   |  u32   | u64        | position   | octets     |
                +--------+--------+--------+------------+------------+------------+

    kind INT64    int64[n] at `position`; the data fields say the same octets again
    kind OCTETS   int32[n + 1] at `position`: where each value begins in the data, and where the last one ends

`next offset` is where the next fetch goes on: offsets that retention has removed, and messages that a
filter refused, are skipped. These are the buffers that Arrow wants, so reading costs nothing per message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

# What answers are put together of.
Octets: TypeAlias = bytes | memoryview

MAGIC = b"FLCB"
VERSION = 1
HEAD_BYTES = 32
ENTRY_BYTES = 32

INT64 = 1
OCTETS = 2

# What the columns are called, with their numbers. Headers and properties come only when they are asked for,
# and redelivered (0 or 1) only from queues.
OFFSET = 1
TIMESTAMP = 2
VALUE = 3
ROUTING_KEY = 4
EXCHANGE = 5
HEADERS = 6
PROPERTIES = 7
REDELIVERED = 8
NAMES = {
    OFFSET: "offset",
    TIMESTAMP: "timestamp",
    VALUE: "value",
    ROUTING_KEY: "routing_key",
    EXCHANGE: "exchange",
    HEADERS: "headers",
    PROPERTIES: "properties",
    REDELIVERED: "redelivered",
}
NUMBERS = {name: number for number, name in NAMES.items()}
OF_STREAMS = {name: number for name, number in NUMBERS.items() if number != REDELIVERED}
STANDARD = (OFFSET, TIMESTAMP, VALUE, ROUTING_KEY, EXCHANGE)

_HEAD = struct.Struct("<4sHHQQQ")
_ENTRY = struct.Struct("<HHIQQQ")


class Columns:
    """The columns of one reply, as views of its body: nothing is copied."""

    __slots__ = ("_columns", "body", "count", "first_offset", "next_offset")

    def __init__(self, body: bytes | bytearray | memoryview) -> None:
        self.body = memoryview(body).toreadonly()
        if len(self.body) < HEAD_BYTES:
            raise ValueError(f"columns of {len(self.body)} octets: the head alone has {HEAD_BYTES}")
        magic, version, columns, self.count, self.first_offset, self.next_offset = _HEAD.unpack_from(
            self.body
        )
        if magic != MAGIC or version != VERSION:
            raise ValueError(f"not columns of version {VERSION}: they begin with {bytes(self.body[:6])!r}")
        if HEAD_BYTES + columns * ENTRY_BYTES > len(self.body):
            raise ValueError(f"a directory of {columns} columns does not fit in {len(self.body)} octets")
        self._columns: dict[str, tuple[memoryview, memoryview | None]] = {}
        for index in range(columns):
            self._take(*_ENTRY.unpack_from(self.body, HEAD_BYTES + index * ENTRY_BYTES))

    def _take(self, number: int, kind: int, _: int, position: int, data_at: int, data_bytes: int) -> None:
        """One line of the directory, once it is known to lie inside the body."""
        name = NAMES.get(number)
        if name is None:
            return  # a newer broker may have more to tell
        if kind == INT64:
            self._columns[name] = (self._part(name, position, 8 * self.count).cast("q"), None)
            return
        if kind != OCTETS:
            raise ValueError(f"column {name} is of the unknown kind {kind}")
        starts = self._part(name, position, 4 * (self.count + 1)).cast("i")
        if starts[0] != 0 or starts[self.count] != data_bytes:
            raise ValueError(f"column {name} does not end where its data do")
        self._columns[name] = (starts, self._part(name, data_at, data_bytes))

    def _part(self, name: str, at: int, size: int) -> memoryview:
        if at % 8 or at + size > len(self.body):
            raise ValueError(f"column {name} does not fit in {len(self.body)} octets")
        return self.body[at : at + size]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are there."""
        return tuple(self._columns)

    def __len__(self) -> int:
        return int(self.count)

    def numbers(self, name: str) -> memoryview:
        """An INT64 column: `offset`, or `timestamp` in microseconds since 1970; a view of int64."""
        values, data = self._columns[name]
        if data is not None:
            raise KeyError(f"column {name} holds octets, not numbers")
        return values

    def octets(self, name: str) -> tuple[memoryview, memoryview]:
        """An OCTETS column: where each value begins (a view of int32, n + 1 of them), and the data."""
        starts, data = self._columns[name]
        if data is None:
            raise KeyError(f"column {name} holds numbers, not octets")
        return starts, data

    def values(self, name: str) -> list[bytes]:
        """An OCTETS column as objects, where a few are wanted."""
        starts, data = self.octets(name)
        return [bytes(data[starts[index] : starts[index + 1]]) for index in range(self.count)]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each message as a dict of its columns: for people and tests, not for speed."""
        names = self.names
        taken = [
            self.numbers(name) if self._columns[name][1] is None else self.values(name) for name in names
        ]
        for index in range(self.count):
            yield {name: column[index] for name, column in zip(names, taken, strict=True)}

    def arrow(self, name: str, as_type: Any = None) -> Any:
        """The column as a pyarrow array that shares the body's memory.

        OCTETS columns are binary unless `as_type` (pyarrow.string(), say) asks for another type of the
        same layout; `timestamp` is timestamp("us", "UTC"). Needs pyarrow.
        """
        import pyarrow

        values, data = self._columns[name]
        if data is not None:
            chosen = pyarrow.binary() if as_type is None else as_type
            buffers = [None, pyarrow.py_buffer(values), pyarrow.py_buffer(data)]
        else:
            plain = pyarrow.timestamp("us", "UTC") if name == "timestamp" else pyarrow.int64()
            chosen = plain if as_type is None else as_type
            buffers = [None, pyarrow.py_buffer(values)]
        return pyarrow.Array.from_buffers(chosen, self.count, buffers)

    def record_batch(self, names: tuple[str, ...] | None = None) -> Any:
        """The columns, or those named, as a pyarrow record batch."""
        import pyarrow

        chosen = self.names if names is None else names
        return pyarrow.RecordBatch.from_arrays([self.arrow(name) for name in chosen], names=list(chosen))


class Column(NamedTuple):
    """What an encoder has for one column: numbers as int64 octets, or starts as int32 octets with data.

    Data that is large may be in pieces.
    """

    number: int
    values: bytes
    data: bytes | list[Octets] | None = None


def encode(count: int, first_offset: int, next_offset: int, columns: list[Column]) -> bytes:
    """The same octets as the broker's builder makes: for tests, and for those who keep columns elsewhere."""
    return b"".join(encoded(count, first_offset, next_offset, columns))


def encoded(count: int, first_offset: int, next_offset: int, columns: list[Column]) -> list[Octets]:
    """The same in pieces, without a copy of the data."""
    at = HEAD_BYTES + len(columns) * ENTRY_BYTES
    parts: list[Octets] = [_HEAD.pack(MAGIC, VERSION, len(columns), count, first_offset, next_offset)]
    body: list[Octets] = []
    for column in columns:
        octets = len(column.values)
        data_at = at + octets + padding(octets)
        body += [column.values, bytes(padding(octets))]
        if column.data is None:
            parts.append(_ENTRY.pack(column.number, INT64, 0, at, at, octets))
            at = data_at
        else:
            pieces: list[Octets] = [column.data] if isinstance(column.data, bytes) else column.data
            size = sum(map(len, pieces))
            parts.append(_ENTRY.pack(column.number, OCTETS, 0, at, data_at, size))
            body += [*pieces, bytes(padding(size))]
            at = data_at + size + padding(size)
    return parts + body


def padding(octets: int) -> int:
    """How many octets there are from here to where the next column begins."""
    return -octets % 8
