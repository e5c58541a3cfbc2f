"""Checkpoints that were restored, deleted or set aside, over sinks that remember the numbers of batches."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from running import Told, of_text, run, run_until

from flintmq.pipelines.errors import CheckpointUnfit
from flintmq.pipelines.queries import parquet_directory
from flintmq.pipelines.run import status

SINKS = ("parquet", "delta")
# The second is a file system that Spark can read and this process cannot, as HDFS and object stores are.
FILE_SYSTEMS = ("file://", "viewfs://far")


class Archive:
    """A stream into a table, whose rows are looked at."""

    def __init__(self, spark: Any, uri: str, connection: Any, directory: Path, sink: str) -> None:
        self.spark = spark
        self.uri = uri
        self.connection = connection
        self.state = directory / "state"
        self.table = directory / "table"
        self.sink = sink
        self.stream = f"checkpoints-{directory.name}"
        self.published = 0
        self.pipeline = self.pipeline_into(uri, self.table)
        with connection.channel() as channel:
            channel.queue(self.stream, durable=True, arguments={"x-queue-type": "stream"})

    def pipeline_into(self, uri: str, table: Path | str) -> Any:
        return of_text(
            f'[pipeline]\nname = "archive"\n[[source]]\nname = "rows"\nuri = "{uri}"\n'
            f'stream = "{self.stream}"\nformat = "json"\nschema = "id BIGINT NOT NULL"\n'
            f'[[sink]]\nname = "out"\n{self.sink} = "{table}"\n'
        )

    @property
    def checkpoint(self) -> Path:
        return self.state / "checkpoints" / "archive"

    def move(self, file_system: str) -> None:
        """Names the checkpoint by a URI, and a Parquet directory too; both stay where they are."""
        table = f"{file_system}{self.table}" if self.sink == "parquet" else self.table
        self.pipeline = replace(
            self.pipeline_into(self.uri, table), checkpoint=f"{file_system}{self.checkpoint}"
        )

    def restore(self, backup: Path) -> None:
        shutil.rmtree(self.checkpoint)
        shutil.copytree(backup, self.checkpoint)

    def forget_last_commit(self) -> None:
        """As after a kill between the batch in the sink and the note of it in the checkpoint."""
        commits = self.checkpoint / "out" / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def forget_last_batch(self) -> None:
        """As after a kill between the plan of the batch in the checkpoint and the batch in the directory."""
        self.forget_last_commit()
        log = self.table / "_spark_metadata"
        last = max(int(file.name) for file in log.iterdir() if file.name.isdigit())
        (log / str(last)).unlink()
        (log / f".{last}.crc").unlink(missing_ok=True)

    def run(self, rows: int, **options: Any) -> tuple[bool, Told]:
        """Publishes some rows, and reads what is there."""
        numbers = range(self.published, self.published + rows)
        with self.connection.channel(confirm=True) as channel:
            channel.publish_many([b'{"id": %d}' % number for number in numbers], routing_key=self.stream)
        self.published += rows
        return run(self.spark, self.pipeline, self.state, **options)

    def found(self) -> list[int]:
        if self.sink == "parquet":
            target = self.pipeline.sinks[0].target
            return sorted(row.id for row in self.spark.read.parquet(target).collect())
        import deltalake

        return sorted(deltalake.DeltaTable(str(self.table)).to_pyarrow_table().column("id").to_pylist())


@pytest.fixture(params=SINKS)
def archive(request: pytest.FixtureRequest, spark: Any, uri: str, connection: Any, tmp_path: Path) -> Archive:
    return Archive(spark, uri, connection, tmp_path, request.param)


@pytest.fixture(params=FILE_SYSTEMS)
def file_system(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> str:
    top = tmp_path.parts[1]
    spark._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.far.link./{top}", f"file:///{top}")
    return str(request.param)


def test_a_restored_checkpoint_does_not_lose_rows_in_silence(archive: Archive, tmp_path: Path) -> None:
    assert archive.run(10)[0]
    shutil.copytree(archive.checkpoint, tmp_path / "backup")
    for _ in range(2):
        assert archive.run(10)[0]
    archive.restore(tmp_path / "backup")
    done, told = archive.run(10)
    assert not done, "its rows go under numbers of batches that the table has already"
    assert "restored" in told[-1], told
    advice = "--reset" if archive.sink == "delta" else "the checkpoint and out.flow.json beside it aside"
    assert advice in told[-1], told
    assert not any("again in" in line for line in told), "no second try mends it"
    assert archive.found() == list(range(30))


def test_a_checkpoint_restored_by_one_batch_does_not_lose_rows_in_silence(
    archive: Archive, tmp_path: Path
) -> None:
    assert archive.run(10)[0]
    shutil.copytree(archive.checkpoint, tmp_path / "backup")
    assert archive.run(10)[0]
    archive.restore(tmp_path / "backup")
    done, told = archive.run(10)
    assert not done, "the batch has the number of another"
    assert "restored" in told[-1], told
    assert archive.found() == list(range(20))


def test_a_batch_that_is_written_but_not_noted_is_written_once(archive: Archive) -> None:
    for _ in range(2):
        assert archive.run(10)[0]
    archive.forget_last_commit()
    done, told = archive.run(10)
    assert done, told
    assert archive.found() == list(range(30))


def look_at_a_new_checkpoint(archive: Archive, done: bool, told: Told) -> None:
    """A table takes the batches of another flow, a directory does not."""
    assert done == (archive.sink == "delta"), told
    if done:
        assert archive.found() == sorted([*range(20), *range(30)]), "what was there, and all of it again"
    else:
        assert "another directory" in told[-1], told
        assert archive.found() == list(range(20))


def test_a_deleted_checkpoint_does_not_lose_rows_in_silence(archive: Archive) -> None:
    for _ in range(2):
        assert archive.run(10)[0]
    shutil.rmtree(archive.checkpoint / "out")
    done, told = archive.run(10)
    assert any("its checkpoint" in line and "is not there" in line for line in told), told
    look_at_a_new_checkpoint(archive, done, told)


def test_a_flow_that_starts_afresh_does_not_lose_rows_in_silence(
    archive: Archive, uri: str, tmp_path: Path
) -> None:
    for _ in range(2):
        assert archive.run(10)[0]
    if archive.sink == "delta":
        look_at_a_new_checkpoint(archive, *archive.run(10, reset=True))
    else:
        with pytest.raises(CheckpointUnfit, match="another directory, or run without --reset"):
            archive.run(10, reset=True)
        done, told = archive.run(0)
        assert done, told
        assert archive.found() == list(range(30)), "the old checkpoint is there, and the flow goes on from it"
    archive.pipeline = archive.pipeline_into(uri, tmp_path / "another")
    archive.table = tmp_path / "another"
    done, told = archive.run(0, reset=True)
    assert done, told
    assert archive.found() == list(range(30))


def test_a_checkpoint_by_uri_that_is_another_or_new_does_not_lose_rows_in_silence(
    spark: Any, uri: str, connection: Any, tmp_path: Path
) -> None:
    """Its record does not tell: a flow finds the table by the id that Spark keeps in the checkpoint."""
    archive = Archive(spark, uri, connection, tmp_path, "delta")
    expected: list[int] = []
    for name in ("first", "second", "second"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        archive.pipeline = replace(archive.pipeline, checkpoint=(tmp_path / name).as_uri())
        done, told = archive.run(10)
        assert done, told
        expected += range(archive.published)
        assert archive.found() == sorted(expected), "what was there, and all of it again"


def test_a_remote_checkpoint_restored_by_one_batch_does_not_lose_rows_in_silence(
    archive: Archive, file_system: str, tmp_path: Path
) -> None:
    archive.move(file_system)
    assert archive.run(10)[0]
    shutil.copytree(archive.checkpoint, tmp_path / "backup")
    assert archive.run(10)[0]
    archive.restore(tmp_path / "backup")
    done, told = archive.run(10)
    assert not done, "the batch has the number of another"
    assert "restored" in told[-1], told
    advice = "Name another checkpoint" if archive.sink == "delta" else "another directory"
    assert advice in told[-1], told
    assert archive.found() == list(range(20))


@pytest.mark.parametrize("archive", ["delta"], indirect=True)
def test_a_batch_of_a_remote_checkpoint_that_is_run_again_is_written_once(
    archive: Archive, file_system: str, caplog: pytest.LogCaptureFixture
) -> None:
    archive.move(file_system)
    for _ in range(2):
        assert archive.run(10)[0]
    archive.forget_last_commit()
    done, told = archive.run(10)
    assert done, told
    assert archive.found() == list(range(30))
    assert [line for line in caplog.messages if "batch 1 was written" in line], "it is told"


@pytest.mark.parametrize("archive", ["delta"], indirect=True)
def test_a_remote_checkpoint_that_is_gone_is_told(archive: Archive, file_system: str) -> None:
    archive.move(file_system)
    for _ in range(2):
        done, told = archive.run(10)
        assert done, told
        assert not any("is not there" in line for line in told), told
    shutil.rmtree(archive.checkpoint / "out")
    done, told = archive.run(10)
    assert any("its checkpoint" in line and "is not there" in line for line in told), told
    look_at_a_new_checkpoint(archive, done, told)


@pytest.mark.parametrize("archive", ["parquet"], indirect=True)
def test_a_planned_batch_is_not_lost_to_a_copy_that_wrote_its_number(
    archive: Archive, file_system: str, tmp_path: Path
) -> None:
    archive.move(file_system)
    assert archive.run(10)[0]
    shutil.copytree(archive.checkpoint, tmp_path / "copy")
    assert archive.run(10)[0]
    archive.forget_last_batch()
    shutil.copytree(archive.checkpoint, tmp_path / "original")
    archive.restore(tmp_path / "copy")
    done, told = archive.run(5)
    assert done, told
    assert archive.found() == list(range(25))
    shutil.rmtree(tmp_path / "copy")
    shutil.copytree(archive.checkpoint, tmp_path / "copy")

    archive.restore(tmp_path / "original")
    done, told = archive.run(0)
    assert not done, "batch 1 of the directory is the copy's"
    assert "a copy or the original" in told[-1], told
    assert "another directory" in told[-1], told
    assert told[-1].endswith(f"delete {archive.pipeline.sinks[0].target}/_flintmq_runs."), told
    assert not any("again in" in line for line in told), "no second try mends it"
    archive.restore(tmp_path / "copy")
    done, told = archive.run(5)
    assert done, "the copy goes on by itself"
    assert archive.found() == list(range(30))

    archive.state, archive.table = tmp_path / "another-state", tmp_path / "another"
    archive.move(file_system)
    done, told = archive.run(0)
    assert done, told
    assert archive.found() == list(range(30)), "what the message advises"


@pytest.mark.parametrize("archive", ["parquet"], indirect=True)
def test_a_flow_does_not_go_on_in_an_empty_directory(archive: Archive, tmp_path: Path) -> None:
    """Spark would not read it for the batches that it lacks, nor write to it for long."""
    assert archive.run(10)[0]
    before = archive.pipeline
    archive.pipeline = archive.pipeline_into(archive.uri, tmp_path / "another")
    done, told = archive.run(10)
    assert not done, told
    assert "another has no batches" in told[-1], told
    assert "goes on with batch 1" in told[-1], told
    assert "move the checkpoint and out.flow.json beside it aside: rows are read anew" in told[-1], told
    archive.pipeline = before
    done, told = archive.run(0)
    assert done, told
    assert archive.found() == list(range(20))
    for name in ("out", "out.flow.json"):
        (archive.checkpoint / name).rename(tmp_path / name)
    archive.pipeline = archive.pipeline_into(archive.uri, tmp_path / "another")
    done, told = archive.run(0)
    assert done, told
    assert archive.found() == list(range(20)), "what the message advises"


@pytest.mark.parametrize("archive", ["parquet"], indirect=True)
def test_readers_and_spark_do_not_see_the_notes_of_runs(archive: Archive, tmp_path: Path) -> None:
    import pyarrow.dataset

    for _ in range(2):
        assert archive.run(10)[0]
    assert archive.run(0)[0]
    notes = [
        sorted(file.name for file in (place / "_flintmq_runs").iterdir() if file.name[0] != ".")
        for place in (archive.table, archive.checkpoint / "out")
    ]
    assert len(notes[0]) == 3
    assert notes[0] == notes[1]
    assert archive.found() == list(range(20))
    listed = shutil.copytree(archive.table, tmp_path / "listed")
    shutil.rmtree(listed / "_spark_metadata")
    assert archive.spark.read.parquet(str(listed)).count() == 20, "without its log Spark lists the directory"
    assert pyarrow.dataset.dataset(str(listed)).count_rows() == 20


@pytest.mark.parametrize("archive", ["parquet"], indirect=True)
def test_a_directory_and_a_checkpoint_of_an_older_version_go_on(archive: Archive) -> None:
    for _ in range(2):
        assert archive.run(10)[0]
    for place in (archive.table, archive.checkpoint / "out"):
        shutil.rmtree(place / "_flintmq_runs", ignore_errors=True)
    archive.forget_last_commit()
    done, told = archive.run(10)
    assert done, told
    assert archive.found() == list(range(30))
    assert any((archive.table / "_flintmq_runs").iterdir())


def test_two_runs_into_a_directory_without_a_lock_are_told(
    spark: Any, uri: str, connection: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an object store. The second run begins before the first has written."""
    monkeypatch.setattr(parquet_directory, "LOOK_S", 0.5)
    top = tmp_path.parts[1]
    spark._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.far.link./{top}", f"file:///{top}")
    archive = Archive(spark, uri, connection, tmp_path, "parquet")
    archive.move("viewfs://far")
    first = replace(archive.pipeline, name="first", checkpoint=f"viewfs://far{tmp_path}/first")
    second: list[tuple[bool, Told]] = []

    def state_of_first() -> str:
        known = status.read(tmp_path / "other-state", "first")
        return "" if known is None else known.flows["out"].state

    def seen() -> bool:
        if not second and state_of_first() == status.RUNNING:
            second.append(archive.run(0))
        return state_of_first() == status.FAILED

    told = run_until(spark, first, tmp_path / "other-state", seen)
    assert "another run writes to" in told[-1], told
    assert "batches from 0 on may be missing" in told[-1], told
    assert not any("again in" in line for line in told), "two runs would take it from each other for ever"
    [(done, told)] = second
    assert done, told
    done, told = archive.run(10)
    assert done, told
    assert archive.found() == list(range(10))


@pytest.mark.parametrize("archive", ["parquet"], indirect=True)
def test_two_runs_of_one_checkpoint_that_overlap_go_on(
    archive: Archive, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a rolling deploy with the checkpoint in an object store: the earlier run ends."""
    monkeypatch.setattr(parquet_directory, "LOOK_S", 0.5)
    top = tmp_path.parts[1]
    spark._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.far.link./{top}", f"file:///{top}")
    archive.move("viewfs://far")
    assert archive.run(10)[0]
    notes = archive.table / "_flintmq_runs"

    def state_of_earlier() -> str:
        known = status.read(tmp_path / "other-state", "archive")
        return "" if known is None else known.flows["out"].state

    def seen() -> bool:
        if state_of_earlier() == status.RUNNING:
            for place in (notes, archive.checkpoint / "out" / "_flintmq_runs"):
                (place / "2.1.later").touch()  # Spark lets no two queries of a session have one checkpoint
        return state_of_earlier() == status.FAILED

    told = run_until(spark, archive.pipeline, tmp_path / "other-state", seen)
    assert "since it had 1 batches" in told[-1], told
    for rows in (10, 0):
        done, told = archive.run(rows)
        assert done, told
    assert archive.found() == list(range(20))


@pytest.mark.parametrize("archive", ["parquet"], indirect=True)
def test_a_note_that_cannot_be_made_is_named(archive: Archive) -> None:
    archive.table.mkdir(parents=True)
    (archive.table / "_flintmq_runs").touch()
    archive.pipeline = replace(archive.pipeline, restarts_max=0)
    done, told = archive.run(10)
    assert not done
    assert f"{archive.table}/_flintmq_runs/0.0." in told[-1], told
    assert "cannot be made" in told[-1], told
    notes = archive.checkpoint / "out" / "_flintmq_runs"
    assert not [file.name for file in notes.iterdir() if file.name[0] != "."], "half a start leaves nothing"


def test_two_runs_that_begin_at_the_same_moment_do_not_lose_rows_in_silence(
    spark: Any, uri: str, connection: Any, tmp_path: Path
) -> None:
    """Neither finds a batch of the other in the directory."""
    archive = Archive(spark, uri, connection, tmp_path, "parquet")
    other: list[tuple[bool, Told]] = []
    first = replace(archive.pipeline, name="first")

    def seen() -> bool:
        known = status.read(tmp_path / "other-state", "first")
        if not other and known is not None and known.flows["out"].state == status.RUNNING:
            other.append(archive.run(10))
        return bool(other) and archive.table.is_dir() and any(archive.table.glob("*.parquet"))

    told = run_until(spark, first, tmp_path / "other-state", seen)
    assert not any("failed" in line for line in told), told
    [(done, told)] = other
    assert not done, "batch 0 of both is one to Spark"
    assert "another run writes to" in told[-1], told
    assert "name another directory" in told[-1], told
    archive.state = tmp_path / "other-state"
    archive.pipeline = first
    assert archive.run(10)[0], "the other run has ended"
    assert archive.found() == list(range(20))
