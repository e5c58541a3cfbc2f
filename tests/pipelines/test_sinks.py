"""A Delta table and the numbers of batches, without Spark: whose batch is taken for one that is written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from running import of_text

from flintmq.clock import Clock
from flintmq.pipelines.errors import CheckpointUnfit
from flintmq.pipelines.queries import sinks
from flintmq.pipelines.queries.fingerprint import FlowRecord
from flintmq.pipelines.queries.run_notes import RUNS_MAX
from flintmq.pipelines.queries.sinks import DeltaWriter

REMOTE = "s3a://bucket/checkpoints/out"


class Table:
    """Batches of one row each, written as the flow of a checkpoint writes them."""

    def __init__(self, place: Path) -> None:
        self.place = str(place)
        self.clock = Clock()
        self.plans: dict[str, str] = {}  # the files of all checkpoints
        self.notes: list[str] = []  # the notes of runs of all checkpoints
        self.pipeline = of_text(
            f'[pipeline]\nname = "d"\n[[source]]\nname = "r"\nrate = 1\n[[sink]]\ndelta = "{self.place}"\n'
        )

    def writer(self, checkpoint: str = REMOTE) -> DeltaWriter:
        record = FlowRecord(checkpoint, "x", run=f"{self.clock.random.getrandbits(64):016x}")
        files: Any = SimpleNamespace(text=self.plans.get, names=self.names, make=self.notes.append)
        files.remove = self.notes.remove
        sinks.note_run(record, files)
        return DeltaWriter(self.pipeline, self.pipeline.sinks[0], record, files)

    def names(self, place: str) -> list[str]:
        return [note.rpartition("/")[2] for note in self.notes if note.rpartition("/")[0] == place]

    def copy_notes(self, checkpoint: str) -> None:
        self.notes += [note.replace(REMOTE, checkpoint, 1) for note in self.notes]

    def write(
        self,
        row: int | None,
        number: int,
        query: str | None = "first",
        checkpoint: str = REMOTE,
        plan: str | None = None,
        writer: DeltaWriter | None = None,
    ) -> None:
        """Plans the batch, by its row unless told otherwise, and writes it. Without a row it is empty."""
        import pyarrow

        self.plans[f"{checkpoint}/offsets/{number}"] = plan or f"v1\n{{}}\n{row}"
        properties = {"sql.streaming.queryId": query}
        rows = pyarrow.table({"id": pyarrow.array([] if row is None else [row], pyarrow.int64())})
        batch: Any = SimpleNamespace(
            toArrow=lambda: rows,
            limit=lambda count: SimpleNamespace(toArrow=lambda: rows.slice(0, count)),
            sparkSession=SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=properties.get)),
        )
        (writer or self.writer(checkpoint))(batch, number)

    def write_others(self, commits: int) -> None:
        """Others write to the table, and its log is cut, so that what it was made by is gone from it."""
        import deltalake
        import pyarrow

        for _ in range(commits):
            deltalake.write_deltalake(self.place, pyarrow.table({"id": [-1]}), mode="append")
        table = deltalake.DeltaTable(self.place)
        table.create_checkpoint()
        for commit in (Path(self.place) / "_delta_log").glob("*.json"):
            if int(commit.stem) < table.version():
                commit.unlink()

    def found(self) -> list[int]:
        import deltalake

        return sorted(deltalake.DeltaTable(self.place).to_pyarrow_table().column("id").to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


def test_batches_of_another_checkpoint_are_not_taken_for_those_that_are_written(table: Table) -> None:
    """The record of a remote checkpoint stays when the checkpoint is deleted: its id says nothing."""
    table.write(1, 0, "first")
    table.write(2, 0, "second")
    table.write(3, 1, "second")
    table.write(4, 0, "third")
    assert table.found() == [1, 2, 3, 4]


@pytest.mark.parametrize("query", ["first", None])
def test_a_batch_that_is_run_again_is_written_once(table: Table, query: str | None) -> None:
    for _ in range(2):
        table.write(1, 0, query)
    assert table.found() == [1]


@pytest.mark.parametrize(
    ("checkpoint", "advice"),
    [(REMOTE, "Name another checkpoint: rows"), ("checkpoints/out", "Start afresh with --reset: rows")],
)
def test_a_restored_checkpoint_is_told_with_what_helps(table: Table, checkpoint: str, advice: str) -> None:
    for number in range(3):
        table.write(number, number, "first", checkpoint)
    with pytest.raises(
        CheckpointUnfit, match=rf"batch 1 was not written.+\. {advice} that are in the table come"
    ):
        table.write(9, 1, "first", checkpoint)
    assert table.found() == [0, 1, 2]


def test_a_table_of_an_older_version_goes_on(table: Table) -> None:
    """Its log has numbers of batches without their plans."""
    import deltalake
    import pyarrow

    marks: Any = deltalake.CommitProperties(
        app_transactions=[deltalake.Transaction(f"{table.writer().flow}.first", 5)]
    )
    deltalake.write_deltalake(table.place, pyarrow.table({"id": [5]}), commit_properties=marks)
    table.write(5, 5)
    table.write(6, 6)
    table.write(6, 6)
    assert table.found() == [5, 6]


def test_a_checkpoint_restored_by_one_batch_is_found_out(table: Table) -> None:
    for number in range(2):
        table.write(number, number)
    with pytest.raises(CheckpointUnfit, match=r"has the number of another.+restored.+another checkpoint"):
        table.write(9, 1)
    assert table.found() == [0, 1]


@pytest.mark.parametrize("checkpoint", [REMOTE, "checkpoints/out"])
def test_a_batch_is_known_however_much_others_have_written(
    table: Table, checkpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2):
        table.write(number, number, "first", checkpoint)
    table.write_others(3)
    with pytest.raises(CheckpointUnfit, match="batch 1 was not written: it has the number of another"):
        table.write(9, 1, "first", checkpoint)
    assert not caplog.messages
    table.write(1, 1, "first", checkpoint)
    assert caplog.messages == [f"batch 1 was written to {table.place} before, and is not written again"]
    table.write(2, 2, "first", checkpoint)
    assert table.found() == [-1, -1, -1, 0, 1, 2]


def test_a_copy_that_wrote_while_this_flow_had_no_rows_is_found_out(table: Table) -> None:
    """The batch after it has a number of its own, and the rows that the copy has written."""
    copy = f"{REMOTE}-copy"
    table.write(1, 0)
    table.copy_notes(copy)
    table.write(None, 1, plan="filtered out")
    table.write(2, 1, checkpoint=copy)
    with pytest.raises(
        CheckpointUnfit, match=r"batch 2 was not written: .+ has another batch 1 than the checkpoint.+copied"
    ):
        table.write(2, 2)
    assert table.found() == [1, 2]


def test_a_flow_that_had_no_rows_for_long_goes_on(table: Table) -> None:
    """Spark keeps the plans of 100 batches."""
    table.write(1, 0)
    table.plans.clear()
    table.write(2, 150)
    assert table.found() == [1, 2]


def test_a_copy_that_wrote_while_this_flow_had_no_rows_for_long_is_found_out(table: Table) -> None:
    """The plan that the copy's differs from is gone: the run tells."""
    copy = f"{REMOTE}-copy"
    table.write(1, 0)
    table.copy_notes(copy)
    table.write(2, 1, checkpoint=copy)
    table.plans.clear()
    with pytest.raises(
        CheckpointUnfit, match=r"batch 150 was not written: .+ another batch 1 than the check"
    ):
        table.write(2, 150)
    table.write(3, 150, checkpoint=copy)
    assert table.found() == [1, 2, 3]


def test_a_flow_that_had_no_rows_for_very_long_goes_on(table: Table) -> None:
    """The notes of its runs do not go back so far."""
    table.write(1, 0)
    table.plans.clear()
    for _ in range(RUNS_MAX):
        table.writer()
    table.write(2, 150)
    assert table.found() == [1, 2]


def test_a_flow_looks_at_its_plans_once(table: Table) -> None:
    """In an object store a look takes a while."""
    looked: list[str] = []
    writer = table.writer()
    get = table.plans.get
    files: Any = SimpleNamespace(text=lambda place: looked.append(place) or get(place))
    writer.files = files
    for number in range(3):
        table.write(number, number, writer=writer)
    assert looked == [f"{REMOTE}/offsets/{number}" for number in range(3)]


@pytest.mark.parametrize("number", [0, 1])
def test_two_copies_that_write_at_the_same_time_are_told_apart(
    table: Table, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one writes after the other has looked at the table, or has seen that there is none."""
    import deltalake

    for before in range(number):
        table.write(before, before)
    table.copy_notes(f"{REMOTE}-copy")
    write = deltalake.write_deltalake

    def write_later(*arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(deltalake, "write_deltalake", write)
        table.write(7, number, checkpoint=f"{REMOTE}-copy")
        write(*arguments, **options)

    monkeypatch.setattr(deltalake, "write_deltalake", write_later)
    with pytest.raises((deltalake.exceptions.CommitFailedError, CheckpointUnfit), match=r"Concurrent|copied"):
        table.write(9, number)
    with pytest.raises(CheckpointUnfit, match="copied"):
        table.write(9, number)
    assert table.found() == [*range(number), 7]


def test_a_checkpoint_that_is_gone_while_the_flow_runs_is_told(table: Table) -> None:
    writer = table.writer()
    writer.files = SimpleNamespace(text=lambda place: None)  # type: ignore[assignment]
    with pytest.raises(CheckpointUnfit, match=r"no file offsets/0.+deleted.+Restore it, or name another"):
        table.write(1, 0, writer=writer)
