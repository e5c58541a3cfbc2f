"""A lake is read in the order of time, in slices that can be read again, at the pace that was asked for."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.clock import Clock
from flintmq.pipelines.errors import PipelineFailed
from flintmq.pipelines.queries.lake import Lake, Schedule, committed_files, ddl_of, done, time_us

SECOND = 1_000_000


def write(directory: Path, name: str, seconds: list[float], **options: Any) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    times = pyarrow.array([int(each * SECOND) for each in seconds], pyarrow.timestamp("us", "UTC"))
    table = pyarrow.table({"timestamp": times, "value": [b"%d" % (each * 1000) for each in seconds]})
    pyarrow.parquet.write_table(table, directory / name, **options)


class StillClock(Clock):
    now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s


def schedule(
    path: Path, speed: str = "0", rows: int = 3, clock: Clock | None = None, **more: str
) -> Schedule:
    return Schedule(
        {"path": str(path), "time": "timestamp", "speed": speed, "rows": str(rows), **more}, clock
    )


def values(lake: Lake, start_us: int, end_us: int) -> list[int]:
    return [int(value) for value in lake.rows(start_us, end_us)["value"].to_pylist()]


def test_slices(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [5, 1, 3], row_group_size=2)
    write(tmp_path, "b.parquet", [2, 4, 2])
    planned = schedule(tmp_path)
    offset = planned.first()
    assert offset == {"at": SECOND, "until": 5 * SECOND + 1, "done": False}
    found = []
    while not offset["done"]:
        after = planned.next(offset)
        found.append(values(planned.lake, offset["at"], after["at"]))
        offset = after
    assert found == [[1000, 2000, 2000], [3000, 4000, 5000]]
    assert planned.next(offset) == offset
    assert done([json.dumps(offset)])
    assert not done([json.dumps(planned.first())])
    assert not done([])


@given(st.lists(st.lists(st.integers(0, 20), min_size=1), min_size=1, max_size=4), st.integers(1, 9))
def test_every_row_is_in_one_slice(files: list[list[int]], rows: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        for number, seconds in enumerate(files):
            write(Path(name), f"{number}.parquet", [float(each) for each in seconds])
        planned = schedule(Path(name), rows=rows)
        offset, found = planned.first(), []
        while not offset["done"]:
            after = planned.next(offset)
            assert after["at"] > offset["at"]
            found += values(planned.lake, offset["at"], after["at"])
            offset = after
    assert found == sorted(1000 * second for seconds in files for second in seconds)


def test_pace(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [0, 1, 2, 3, 4])
    clock = StillClock()
    planned = schedule(tmp_path, speed="2", rows=100, clock=clock)
    offset = planned.next(planned.first())
    assert offset["at"] == 0, "nothing is due yet"
    clock.now_s += 1.0
    offset = planned.next(offset)
    assert offset["at"] == 2 * SECOND, "twice as fast"
    clock.now_s += 9.0
    assert planned.next(offset)["done"]


def test_range(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [0, 1, 2, 3, 4])
    planned = schedule(tmp_path, rows=100, since="1970-01-01T00:00:01Z", until="1970-01-01 00:00:03")
    offset = planned.first()
    assert values(planned.lake, offset["at"], planned.next(offset)["at"]) == [1000, 2000]
    assert (
        time_us("2026-05-01T09:30:00+02:00")
        == int(datetime(2026, 5, 1, 7, 30, tzinfo=UTC).timestamp()) * SECOND
    )
    with pytest.raises(PipelineFailed, match="is no time: write it as"):
        time_us("yesterday-ish")


def test_files_that_were_never_committed_do_not_count(tmp_path: Path) -> None:
    for name, second in (("a", 1), ("b", 2), ("orphan", 3), ("c", 4)):
        write(tmp_path, f"{name}.parquet", [second])
    log = tmp_path / "_spark_metadata"
    log.mkdir()

    def entry(name: str, action: str = "add") -> str:
        return json.dumps({"path": f"file://{tmp_path}/{name}.parquet", "action": action})

    (log / "0").write_text("v1\n" + entry("orphan"))
    (log / "1.compact").write_text("\n".join(["v1", entry("a"), entry("b")]))
    (log / "2").write_text("\n".join(["v1", entry("c"), entry("b", "delete")]))
    assert committed_files(tmp_path) == [f"{tmp_path}/a.parquet", f"{tmp_path}/c.parquet"]
    lake = Lake(str(tmp_path), "timestamp")
    assert values(lake, 0, 9 * SECOND) == [1000, 4000]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match="is not there"):
        Lake(str(tmp_path / "none"), "timestamp")
    with pytest.raises(PipelineFailed, match="holds no Parquet files"):
        Lake(str(tmp_path), "timestamp")
    write(tmp_path, "a.parquet", [1])
    with pytest.raises(PipelineFailed, match="has no column 'time' to order by; it has timestamp, value"):
        Lake(str(tmp_path), "time")
    assert ddl_of(str(tmp_path)) == "`timestamp` timestamp, `value` binary"
