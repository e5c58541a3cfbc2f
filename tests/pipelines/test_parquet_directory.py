"""Whose batches a Parquet directory has, without Spark: by numbers, and by the notes of runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from running import of_text

from flintmq.pipelines.errors import CheckpointUnfit
from flintmq.pipelines.queries.fingerprint import FlowRecord
from flintmq.pipelines.queries.parquet_directory import DirectoryTaken, ParquetDirectory
from flintmq.pipelines.queries.run_notes import RUNS, RUNS_MAX, Run, RunNotes
from flintmq.pipelines.queries.spark_files import SparkFiles


class Files:
    """Files of this machine, as if they were in an object store."""

    def __init__(self) -> None:
        self.made_max = 1_000_000  # after so many the store is away, or a kill comes
        self.is_killed = False

    def names(self, place: str) -> list[str]:
        return [file.name for file in Path(place).iterdir()] if Path(place).is_dir() else []

    def make(self, place: str) -> None:
        if self.made_max == 0:
            raise OSError(f"{place} cannot be made: killed")
        self.made_max -= 1
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        Path(place).touch()

    def remove(self, place: str) -> bool:
        if not self.is_killed:
            Path(place).unlink(missing_ok=True)
        return not self.is_killed

    def local(self, place: str) -> Path | None:
        return None


class Stage:
    """A directory, and the checkpoints that write to it."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.files = Files()
        self.runs = 0
        text = (
            f'[pipeline]\nname = "p"\n[[source]]\nname = "r"\nrate = 1\n[[sink]]\nparquet = "{top}/table"\n'
        )
        self.sink = of_text(text).sinks[0]

    def begin(self, checkpoint: str, has_query: bool = True) -> ParquetDirectory:
        """As Start in pipelines/run/runner.py, whose query begins or not."""
        self.runs += 1
        record = FlowRecord(f"{self.top}/{checkpoint}", "id", run=f"run{self.runs}")
        files: Any = self.files
        made = ParquetDirectory(self.sink, record, files)
        made.hold()
        try:
            made.begin()
        except BaseException:
            made.undo()
            raise
        if has_query:
            made.began()
        else:
            made.undo()
        return made

    def plan(self, checkpoint: str, number: int) -> None:
        self.files.make(f"{self.top}/{checkpoint}/offsets/{number}")

    def write(self, checkpoint: str, number: int, is_committed: bool = True) -> None:
        """Plans a batch if need be, and writes it: Spark leaves it out where the directory has the number."""
        self.plan(checkpoint, number)
        self.files.make(f"{self.top}/table/_spark_metadata/{number}")
        if is_committed:
            self.files.make(f"{self.top}/{checkpoint}/commits/{number}")

    def copy(self, checkpoint: str, to: str) -> None:
        shutil.copytree(self.top / checkpoint, self.top / to)

    def notes(self, place: str) -> list[str]:
        return sorted(self.files.names(f"{self.top}/{place}/{RUNS}"))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """The original has written batch 0, and was copied."""
    made = Stage(tmp_path)
    made.begin("original")
    made.write("original", 0)
    made.copy("original", "copy")
    return made


def test_a_run_is_noted_in_both_places(stage: Stage) -> None:
    stage.begin("original")
    assert stage.notes("table") == stage.notes("original") == ["0.0.run1", "1.1.run2"]


def test_a_planned_batch_that_a_copy_has_written_is_refused(stage: Stage) -> None:
    stage.plan("original", 1)
    stage.begin("copy")
    stage.write("copy", 1)
    with pytest.raises(
        CheckpointUnfit, match=r"a copy or the original.+has a batch 1.+Give the sink"
    ) as told:
        stage.begin("original")
    assert "move the checkpoint and original.flow.json beside it aside" in str(told.value)
    assert str(told.value).endswith(f"delete {stage.top}/table/{RUNS}.")
    assert stage.notes("table") == ["0.0.run1", "1.1.run2"], "a run that is refused leaves no note"
    stage.begin("copy")
    shutil.rmtree(stage.top / "table" / RUNS)
    stage.begin("original")


def test_a_copy_that_has_written_nothing_does_not_keep_the_original_from_going_on(stage: Stage) -> None:
    stage.plan("original", 1)
    stage.begin("copy")
    stage.plan("copy", 1)
    stage.begin("original")
    stage.write("original", 1)
    with pytest.raises(CheckpointUnfit, match="a copy or the original"):
        stage.begin("copy")
    stage.begin("original")


def test_a_batch_that_a_copy_has_planned_too_is_refused_until_the_notes_are_gone(stage: Stage) -> None:
    """The copy was made after the plan: it is one batch, which the numbers alone do not tell."""
    stage.plan("original", 1)
    stage.copy("original", "later")
    stage.write("original", 1)
    stage.begin("original")
    with pytest.raises(CheckpointUnfit, match="a copy or the original"):
        stage.begin("later")
    shutil.rmtree(stage.top / "table" / RUNS)
    stage.begin("later")


def test_a_batch_that_is_run_again_is_no_stranger(stage: Stage) -> None:
    stage.begin("original")
    stage.write("original", 1, is_committed=False)
    stage.begin("original")


def test_two_runs_of_one_checkpoint_that_overlap_go_on(stage: Stage) -> None:
    """As in a rolling deploy. The earlier run ends, and nobody is refused afterwards."""
    earlier = stage.begin("original")
    later = stage.begin("original")
    stage.write("original", 1, is_committed=False)
    with pytest.raises(DirectoryTaken, match="since it had 1 batches"):
        earlier.look()
    later.look()
    assert stage.notes("table") == ["0.0.run1", "1.1.run2", "2.1.run3"], "the earlier run leaves nothing"
    for _ in range(2):
        stage.begin("original").look()


def test_committed_batches_are_no_reason_to_refuse(stage: Stage) -> None:
    """Both have written batch 1, which is one of the two. Spark runs neither again."""
    earlier = stage.begin("original")
    stage.begin("copy")
    stage.write("original", 1)
    stage.write("copy", 1)
    with pytest.raises(DirectoryTaken, match="from 1 on may be missing"):
        earlier.look()
    for checkpoint in ("original", "copy", "original"):
        stage.begin(checkpoint)


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("has_notes", [True, False])
def test_kills_at_each_moment_of_a_start(tmp_path: Path, has_notes: bool, is_killed: bool) -> None:
    """The last batch is written and not noted as such: it is run again, and left out."""
    stage = Stage(tmp_path)
    if has_notes:
        stage.begin("original")
    stage.write("original", 0)
    stage.copy("original", "copy")
    stage.write("original", 1, is_committed=False)
    noted = stage.notes("original")
    for made in range(2):
        stage.files.made_max, stage.files.is_killed = made, is_killed
        with pytest.raises(OSError, match=rf"{'table' if made else 'original'}/{RUNS}/.+ cannot be made"):
            stage.begin("original")
    assert is_killed or stage.notes("original") == noted, "half a start leaves nothing"
    stage.files.made_max, stage.files.is_killed = 1_000_000, False
    stage.begin("original")
    with pytest.raises(CheckpointUnfit, match="goes up to 0"):
        stage.begin("copy")


def test_a_start_that_fails_before_its_query_has_begun_leaves_no_notes(stage: Stage) -> None:
    stage.begin("original", has_query=False)
    assert stage.notes("table") == stage.notes("original") == ["0.0.run1"]
    run = stage.begin("original")
    run.begin()
    run.undo()
    assert stage.notes("table") == stage.notes("original") == ["0.0.run1", "1.1.run3"], "a query has begun"


def test_a_note_that_stays_in_the_directory_stays_in_the_checkpoint(stage: Stage) -> None:
    stage.files.is_killed = True
    stage.begin("original", has_query=False)
    assert stage.notes("table") == stage.notes("original") == ["0.0.run1", "1.1.run2"]


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_start_that_is_tried_again_does_not_make_a_stranger_known(stage: Stage, is_killed: bool) -> None:
    """Its notes may have stayed."""
    stage.plan("original", 1)
    stage.begin("copy")
    stage.files.is_killed = is_killed
    stage.begin("original", has_query=False)
    assert ("2.1.run3" in stage.notes("table")) == is_killed
    stage.write("copy", 1)
    stage.runs -= 1  # of the same run
    with pytest.raises(CheckpointUnfit, match="a copy or the original"):
        stage.begin("original")


def test_a_checkpoint_without_notes_does_not_lose_a_batch_to_a_copy_with_notes(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write("original", 0)
    stage.copy("original", "copy")
    stage.plan("original", 1)
    stage.begin("copy")
    stage.write("copy", 1)
    with pytest.raises(CheckpointUnfit, match="a copy or the original"):
        stage.begin("original")


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_directory_and_a_checkpoint_without_notes_are_believed(tmp_path: Path, is_committed: bool) -> None:
    stage = Stage(tmp_path)
    stage.write("original", 0, is_committed)
    stage.begin("original")
    assert stage.notes("table") == stage.notes("original") == ["0.1.run1"]


def test_numbers_that_do_not_follow_each_other(stage: Stage) -> None:
    with pytest.raises(CheckpointUnfit, match=r"has batches up to 0, and .+ is new"):
        stage.begin("new")
    for number in (1, 2):
        stage.plan("original", number)
    stage.files.make(f"{stage.top}/original/commits/1")
    with pytest.raises(CheckpointUnfit, match=r"has batches up to 0, and .+ goes on with batch 2"):
        stage.begin("original")


def test_numbers_that_change_while_they_are_read_are_read_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run of the checkpoint commits a batch between two listings."""
    names, batches = stage.files.names, iter(range(1, 100))

    def names_later(place: str) -> list[str]:
        found = names(place)
        number = next(batches) if place.endswith("_spark_metadata") else 100
        if number <= busy:
            stage.write("original", number)
        return found

    monkeypatch.setattr(stage.files, "names", names_later)
    busy = 3
    stage.begin("original")
    assert stage.notes("table") == ["0.0.run1", "1.4.run2"]
    batches, busy = iter(range(4, 100)), 50
    with pytest.raises(OSError, match="change while they are compared"):
        stage.begin("original")


def test_an_earlier_run_ends_when_a_later_one_has_begun(stage: Stage) -> None:
    earlier = stage.begin("original")
    earlier.look()
    later = stage.begin("copy")
    later.look()
    with pytest.raises(DirectoryTaken, match=r"another run writes to .+ since it had 1 batches"):
        earlier.look()
    later.look()


@pytest.mark.parametrize("number", [2, 9])
def test_of_two_runs_that_begin_at_once_one_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The one with the higher name goes on."""
    make, begun = stage.files.make, list[ParquetDirectory]()

    def make_later(place: str) -> None:
        monkeypatch.setattr(stage.files, "make", make)
        stage.runs = 2
        begun.append(stage.begin("copy"))
        make(place)

    monkeypatch.setattr(stage.files, "make", make_later)
    stage.runs = number - 1
    if number == 2:
        with pytest.raises(DirectoryTaken):
            stage.begin("original")
        begun[0].look()
        assert stage.notes("table") == ["0.0.run1", "1.1.run3"]
    else:
        stage.begin("original").look()
        with pytest.raises(DirectoryTaken):
            begun[0].look()
        assert stage.notes("table") == ["0.0.run1", "1.1.run3", "1.1.run9"]


def test_a_query_that_is_started_again_is_of_the_same_run(stage: Stage) -> None:
    run = stage.begin("original")
    run.begin()
    assert stage.notes("table") == ["0.0.run1", "1.1.run2"]
    stage.begin("copy")
    with pytest.raises(DirectoryTaken):
        run.begin()


def test_old_notes_are_forgotten(stage: Stage) -> None:
    for _ in range(RUNS_MAX + 10):
        stage.begin("original")
    for place in ("table", "original"):
        assert len(stage.notes(place)) == RUNS_MAX
        assert "0.0.run1" not in stage.notes(place)
    stage.begin("copy")  # it has no note that the directory knows, and nothing that it could lose


def test_a_start_removes_few_old_notes(stage: Stage) -> None:
    files: Any = stage.files
    for number in range(1, RUNS_MAX + 30):
        RunNotes(f"{stage.top}/table", files).add(Run(number, 1, "old"))
    stage.begin("original")
    assert len(stage.notes("table")) == RUNS_MAX + 30 + 1 - 10


def test_a_note_that_cannot_be_read_is_named(stage: Stage) -> None:
    (stage.top / "table" / RUNS / ".hidden").touch()
    stage.begin("original")
    for name in ("1.one.x", "1.².x", "\N{ARABIC-INDIC DIGIT ONE}.1.x"):
        (stage.top / "table" / RUNS / name).touch()
        with pytest.raises(CheckpointUnfit, match=rf"table/{RUNS}/{name} is not a note of a run: remove"):
            stage.begin("original")
        (stage.top / "table" / RUNS / name).unlink()


def test_an_error_that_spark_has_turned_into_its_own_is_an_error_of_a_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark does so with some errors of Java, such as IllegalArgumentException."""
    from pyspark.errors import PySparkException

    def path_of(place: str) -> Any:
        raise PySparkException(f"Wrong FS: {place}\nJVM stacktrace")

    files = SparkFiles.__new__(SparkFiles)
    files._path_of = path_of
    with pytest.raises(OSError, match=r"far://a cannot be made: Wrong FS: far://a$"):
        files.make("far://a")
    with caplog.at_level("DEBUG", "flintmq.pipelines"):
        assert not files.remove("far://a")
    assert caplog.messages == ["far://a stays: Wrong FS: far://a"]
