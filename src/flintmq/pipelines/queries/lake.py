"""A lake read as a stream in the order of time: what was archived comes back, at its own pace or another.

The offset is a time, so a batch is the rows of [start, end) of event time: read again after a failure it
gives the same rows, and with a transactional sink each row goes out once. The lake must be at rest in the
range that is read.

    offset   {"at": microseconds since 1970, "until": microseconds, "done": whether at has reached until}

Times are those of one column, held as a timestamp. The lake is a directory of Parquet files (of which only
those that Spark committed count, where it keeps a log of them) or a Delta table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from flintmq.clock import Clock
from flintmq.pipelines.errors import PipelineFailed
from flintmq.pipelines.file.model import Source

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset
    from pyspark.sql import DataFrame, SparkSession

SLICE_ROWS_MAX = 200_000
TIME_COLUMN = "timestamp"
_LOG = "_spark_metadata"


def frame(session: SparkSession, source: Source) -> DataFrame:
    """The lake as a streaming DataFrame."""
    from flintmq.pipelines.queries.lake_source import LakeSource

    session.dataSource.register(LakeSource)
    given = source.given
    options = {
        "path": source.target,
        "time": given.get("time_column", TIME_COLUMN),
        "speed": str(given.get("speed", 1.0)),
        "rows": str(given.get("slice_rows_max", SLICE_ROWS_MAX)),
    }
    options |= {name: given[name] for name in ("since", "until") if given.get(name)}
    return session.readStream.format(LakeSource.name()).options(**options).load()


def ddl_of(path: str) -> str:
    """The lake's columns as in SQL."""
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = from_arrow_schema(_readable(open_lake(path).schema)).fields
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in columns)


def open_lake(path: str) -> pyarrow.dataset.Dataset:
    """The files of the lake that count."""
    import pyarrow.dataset

    place = Path(path)
    if (place / "_delta_log").is_dir():
        import deltalake

        return deltalake.DeltaTable(path).to_pyarrow_dataset()
    if not place.is_dir():
        raise PipelineFailed(f"the lake {path!r} is not there: expected a directory of Parquet files")
    files = committed_files(place)
    if files is None:
        files = sorted(str(file) for file in place.rglob("*.parquet") if not file.name.startswith((".", "_")))
    if not files:
        raise PipelineFailed(f"the lake {path!r} holds no Parquet files")
    return pyarrow.dataset.dataset(
        files, format="parquet", partitioning="hive", partition_base_dir=str(place)
    )


def committed_files(place: Path) -> list[str] | None:
    """What Spark's log says was committed: files of batches that failed lie around too. None: no log."""
    log = place / _LOG
    if not log.is_dir():
        return None
    entries: dict[int, Path] = {}
    compacted = -1
    for file in log.iterdir():
        digits, _, kind = file.name.partition(".")
        if not digits.isdigit() or kind not in ("", "compact"):
            continue
        entries[int(digits)] = file
        if kind:
            compacted = max(compacted, int(digits))
    found: dict[str, None] = {}
    for number in sorted(number for number in entries if number >= compacted):
        for line in entries[number].read_text("utf-8").splitlines()[1:]:
            entry = json.loads(line)
            path = unquote(urlsplit(entry["path"]).path)
            if entry.get("action", "add") == "add":
                found[path] = None
            else:
                found.pop(path, None)
    return list(found)


def exact_schema(schema: pyarrow.Schema) -> pyarrow.Schema:
    """Just what Spark expects of record batches whose columns it knows by `ddl_of`."""
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    return to_arrow_schema(from_arrow_schema(_readable(schema)), timezone="UTC")


def _readable(schema: pyarrow.Schema) -> pyarrow.Schema:
    """The schema as Spark takes it: plain strings and binaries, times in microseconds with a zone."""
    import pyarrow

    return pyarrow.schema([pyarrow.field(field.name, _readable_type(field.type)) for field in schema])


def _readable_type(given: pyarrow.DataType) -> pyarrow.DataType:
    import pyarrow

    types = pyarrow.types
    if types.is_dictionary(given):
        return _readable_type(given.value_type)
    if types.is_large_string(given) or types.is_string_view(given):
        return pyarrow.string()
    if types.is_large_binary(given) or types.is_binary_view(given):
        return pyarrow.binary()
    if types.is_timestamp(given):
        return pyarrow.timestamp("us", tz="UTC")
    return given


@dataclass(frozen=True)
class Chunk:
    """A row group or file: its earliest time and latest, and how to read its times again."""

    first_us: int
    last_us: int
    fragment: Any


class Lake:
    """The lake's times: where it begins and ends, and where to cut a slice of so many rows."""

    def __init__(self, path: str, time_column: str) -> None:
        self.dataset = open_lake(path)
        self.time = time_column
        if time_column not in self.dataset.schema.names:
            raise PipelineFailed(
                f"the lake {path!r} has no column {time_column!r} to order by; "
                f"it has {', '.join(self.dataset.schema.names)}"
            )
        self.schema = exact_schema(self.dataset.schema)
        self._chunks: list[Chunk] | None = None
        self._times: dict[int, Any] = {}

    @property
    def chunks(self) -> list[Chunk]:
        """Row groups by their first time. Their statistics tell; where there are none, the column is read."""
        if self._chunks is None:
            found: list[Chunk] = []
            for fragment in self.dataset.get_fragments():
                for part in fragment.split_by_row_group():
                    bounds = self._bounds(part)
                    if bounds is not None:
                        found.append(Chunk(*bounds, part))
            self._chunks = sorted(found, key=lambda chunk: (chunk.first_us, chunk.last_us))
        return self._chunks

    def _bounds(self, part: Any) -> tuple[int, int] | None:
        import pandas

        (group,) = part.row_groups
        told = (group.statistics or {}).get(self.time)
        if told is not None:
            first, last = (pandas.Timestamp(told[name]) for name in ("min", "max"))
            return _microseconds(first), _microseconds(last)
        times = self._times_of(part)
        return (int(times.min()), int(times.max())) if len(times) else None

    def _times_of(self, part: Any) -> Any:
        import pyarrow
        import pyarrow.compute

        column = part.to_table(columns=[self.time], schema=self.dataset.schema)[self.time].drop_null()
        return column.cast(pyarrow.timestamp("us")).cast(pyarrow.int64()).to_numpy()

    def first_us(self) -> int:
        return self.chunks[0].first_us if self.chunks else 0

    def end_us(self) -> int:
        """Just after the last row."""
        return max((chunk.last_us for chunk in self.chunks), default=-1) + 1

    def cut(self, start_us: int, until_us: int, rows_max: int) -> int:
        """A time up to which there are about `rows_max` rows from the start; more if they are alike."""
        import numpy

        gathered: list[Any] = []
        chunks = [chunk for chunk in self.chunks if chunk.last_us >= start_us and chunk.first_us < until_us]
        for place, chunk in enumerate(chunks):
            if id(chunk) not in self._times:
                self._times[id(chunk)] = self._times_of(chunk.fragment)
            times = self._times[id(chunk)]
            gathered.append(times[(times >= start_us) & (times < until_us)])
            settled_us = chunks[place + 1].first_us if place + 1 < len(chunks) else until_us
            if settled_us == until_us and sum(map(len, gathered)) <= rows_max:
                continue
            together = numpy.sort(numpy.concatenate(gathered))
            if numpy.searchsorted(together, settled_us) >= rows_max:
                self._forget(start_us)
                return min(until_us, int(together[rows_max - 1]) + 1)
        self._forget(start_us)
        return until_us

    def _forget(self, start_us: int) -> None:
        """Times of chunks that lie behind are not needed again."""
        for chunk in self.chunks:
            if chunk.last_us < start_us:
                self._times.pop(id(chunk), None)

    def rows(self, start_us: int, end_us: int) -> pyarrow.Table:
        """The rows of [start, end), by time."""
        import pyarrow
        import pyarrow.compute

        type_ = self.dataset.schema.field(self.time).type
        bounds = [
            pyarrow.scalar(limit, pyarrow.timestamp("us", getattr(type_, "tz", None))).cast(type_)
            for limit in (start_us, end_us)
        ]
        column = pyarrow.compute.field(self.time)
        table = self.dataset.to_table(filter=(column >= bounds[0]) & (column < bounds[1]))
        return table.sort_by(self.time).cast(self.schema)


def _microseconds(moment: Any) -> int:
    if moment.tzinfo is None:
        moment = moment.tz_localize("UTC")
    return int(moment.value // 1000)


def time_us(text: str) -> int:
    """A time as users write it: 2026-05-01, or 2026-05-01T09:30:00Z; UTC where it says nothing else."""
    import pandas

    try:
        return _microseconds(pandas.Timestamp(text))
    except ValueError:
        raise PipelineFailed(f"{text!r} is no time: write it as 2026-05-01T09:30:00Z") from None


class Pace:
    """How far a replay has come by the clock: from where it began, times its speed. 0 is without limit."""

    def __init__(self, speed: float, clock: Clock) -> None:
        self.speed = speed
        self.clock = clock
        self._origin: tuple[float, int] | None = None

    def reached_us(self, start_us: int, until_us: int) -> int:
        if self.speed == 0.0:
            return until_us
        now_s = self.clock.monotonic_s()
        if self._origin is None:
            self._origin = (now_s, start_us)
        began_s, began_us = self._origin
        return min(until_us, began_us + int((now_s - began_s) * self.speed * 1_000_000))


class Schedule:
    """Offsets of a replay: where it begins, and where the batch that begins at an offset ends."""

    def __init__(self, options: Mapping[str, str], clock: Clock | None = None) -> None:
        self.lake = Lake(options["path"], options["time"])
        self.rows_max = int(options["rows"])
        self.since = options.get("since")
        self.until = options.get("until")
        self.pace = Pace(float(options["speed"]), clock or Clock())

    def first(self) -> dict[str, Any]:
        begin_us = time_us(self.since) if self.since else self.lake.first_us()
        until_us = min(self.lake.end_us(), time_us(self.until)) if self.until else self.lake.end_us()
        until_us = max(begin_us, until_us)
        return {"at": begin_us, "until": until_us, "done": begin_us == until_us}

    def next(self, start: Mapping[str, Any]) -> dict[str, Any]:
        at_us, until_us = int(start["at"]), int(start["until"])
        reached_us = self.pace.reached_us(at_us, until_us)
        if reached_us <= at_us:
            return dict(start)
        end_us = self.lake.cut(at_us, reached_us, self.rows_max)
        return {"at": end_us, "until": until_us, "done": end_us == until_us}

    def without_pace(self) -> None:
        self.pace.speed = 0.0


def batches(lake: Lake, start_us: int, end_us: int) -> Iterator[pyarrow.RecordBatch]:
    yield from lake.rows(start_us, end_us).to_batches(max_chunksize=10_000)


_lakes: dict[tuple[str, str], Lake] = {}


def opened(path: str, time_column: str) -> Lake:
    """A lake kept by this worker process for the next batch."""
    key = (path, time_column)
    if key not in _lakes:
        _lakes.clear()
        _lakes[key] = Lake(path, time_column)
    return _lakes[key]


def done(offsets: Sequence[str | Mapping[str, Any] | None]) -> bool:
    """Whether these offsets of a query's sources say that there is nothing more to come, ever."""
    found = [json.loads(offset) if isinstance(offset, str) else offset for offset in offsets]
    return bool(found) and all(isinstance(offset, dict) and offset.get("done") is True for offset in found)
