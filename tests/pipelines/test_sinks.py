"""A Delta table and the numbers of batches, without Spark: whose batch is taken for one that is written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from running import of_text

from flintmq.pipelines.errors import CheckpointUnfit
from flintmq.pipelines.queries.fingerprint import FlowRecord
from flintmq.pipelines.queries.sinks import DeltaWriter

REMOTE = "s3a://bucket/checkpoints/out"


class Table:
    """Batches of one row each, written as the flow of a checkpoint writes them."""

    def __init__(self, place: Path) -> None:
        self.place = str(place)
        self.pipeline = of_text(
            f'[pipeline]\nname = "d"\n[[source]]\nname = "r"\nrate = 1\n[[sink]]\ndelta = "{self.place}"\n'
        )

    def write(self, row: int, number: int, query: str | None, checkpoint: str = REMOTE) -> None:
        import pyarrow

        properties = {"sql.streaming.queryId": query}
        batch: Any = SimpleNamespace(
            toArrow=lambda: pyarrow.table({"id": [row]}),
            sparkSession=SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=properties.get)),
        )
        DeltaWriter(self.pipeline, self.pipeline.sinks[0], FlowRecord(checkpoint, "x"))(batch, number)

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
    table.write(3, 1, "first")
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
    with pytest.raises(CheckpointUnfit, match=rf"Nothing was written\. {advice} that are in the table come"):
        table.write(9, 1, "first", checkpoint)
    assert table.found() == [0, 1, 2]
