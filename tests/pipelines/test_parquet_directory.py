"""Whose batches a Parquet directory has, without Spark: by numbers, and by the notes of runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import of_text

from flintmq.pipelines.errors import CheckpointUnfit
from flintmq.pipelines.queries.fingerprint import FlowRecord
from flintmq.pipelines.queries.parquet_directory import LOOK_S, SETTLE_S, DirectoryTaken, ParquetDirectory
from flintmq.pipelines.queries.run_notes import RUNS, RUNS_MAX


class Files:
    """Files of this machine, as if they were in an object store."""

    def __init__(self) -> None:
        self.made_max = 1_000_000  # after so many a kill comes

    def names(self, place: str) -> list[str]:
        return [file.name for file in Path(place).iterdir()] if Path(place).is_dir() else []

    def make(self, place: str) -> None:
        if self.made_max == 0:
            raise OSError(f"{place} cannot be made: killed")
        self.made_max -= 1
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        Path(place).touch()

    def remove(self, place: str) -> None:
        Path(place).unlink()

    def local(self, place: str) -> Path | None:
        return None


class Stage:
    """A directory, and the checkpoints that write to it."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.files = Files()
        self.runs = 0
        self.pauses_s: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None
        text = (
            f'[pipeline]\nname = "p"\n[[source]]\nname = "r"\nrate = 1\n[[sink]]\nparquet = "{top}/table"\n'
        )
        self.sink = of_text(text).sinks[0]

    def begin(self, checkpoint: str) -> ParquetDirectory:
        self.runs += 1
        record = FlowRecord(f"{self.top}/{checkpoint}", "id", run=f"run{self.runs}")
        files: Any = self.files
        made = ParquetDirectory(self.sink, record, files)
        made.pause = self.pause
        made.hold()
        made.begin()
        return made

    def pause(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        self.meanwhile()

    def plan(self, checkpoint: str, number: int) -> None:
        self.files.make(f"{self.top}/{checkpoint}/offsets/{number}")

    def write(self, checkpoint: str, number: int, is_committed: bool = True) -> None:
        """Plans a batch if need be, and writes it: Spark leaves it out where the directory has the number."""
        self.plan(checkpoint, number)
        self.files.make(f"{self.top}/table/_spark_metadata/{number}")
        if is_committed:
            self.files.make(f"{self.top}/{checkpoint}/commits/{number}")

    def copy(self, checkpoint: str, to: str) -> None:
        import shutil

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
        CheckpointUnfit, match=r"a copy or the original.+from 1 on.+start afresh with --reset"
    ):
        stage.begin("original")
    assert stage.notes("table") == ["0.0.run1", "1.1.run2"], "a run that is refused leaves no note"
    stage.begin("copy")


def test_a_copy_that_has_written_nothing_does_not_keep_the_original_from_going_on(stage: Stage) -> None:
    stage.plan("original", 1)
    stage.begin("copy")
    stage.plan("copy", 1)
    stage.begin("original")
    stage.write("original", 1)
    with pytest.raises(CheckpointUnfit, match="a copy or the original"):
        stage.begin("copy")
    stage.begin("original")


def test_a_copy_goes_on_where_the_original_has_written_the_batch_that_both_planned(stage: Stage) -> None:
    """The copy was made after the plan: it is one batch."""
    stage.plan("original", 1)
    stage.copy("original", "later")
    stage.write("original", 1)
    stage.begin("original")
    stage.begin("later")


def test_a_batch_that_is_run_again_is_no_stranger(stage: Stage) -> None:
    stage.begin("original")
    stage.write("original", 1, is_committed=False)
    stage.begin("original")


@pytest.mark.parametrize("has_notes", [True, False])
def test_kills_at_each_moment_of_a_start(tmp_path: Path, has_notes: bool) -> None:
    """The last batch is written and not noted as such: it is run again, and left out."""
    stage = Stage(tmp_path)
    if has_notes:
        stage.begin("original")
    stage.write("original", 0)
    stage.copy("original", "copy")
    stage.write("original", 1, is_committed=False)
    for made in range(2):
        stage.files.made_max = made
        with pytest.raises(OSError, match=rf"{'original' if made else 'table'}/{RUNS}/.+ cannot be made"):
            stage.begin("original")
    stage.files.made_max = 1_000_000
    stage.begin("original")
    with pytest.raises(CheckpointUnfit, match="goes up to 0"):
        stage.begin("copy")


def test_a_start_that_is_tried_again_is_no_stranger(stage: Stage) -> None:
    stage.files.made_max = 1
    with pytest.raises(OSError, match=f"original/{RUNS}/1.1.run2 cannot be made"):
        stage.begin("original")
    stage.files.made_max = 1_000_000
    stage.runs -= 1
    stage.begin("original")
    assert stage.notes("table") == ["0.0.run1", "1.1.run2", "2.1.run2"]
    assert stage.pauses_s == []


def test_a_kill_does_not_make_a_stranger_known(stage: Stage) -> None:
    stage.plan("original", 1)
    stage.begin("copy")
    stage.files.made_max = 1
    with pytest.raises(OSError, match="cannot be made"):
        stage.begin("original")
    stage.files.made_max = 1_000_000
    stage.write("copy", 1)
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


def test_an_earlier_run_ends_when_a_later_one_has_begun(stage: Stage) -> None:
    earlier = stage.begin("original")
    earlier.look()
    later = stage.begin("copy")
    later.look()
    with pytest.raises(DirectoryTaken, match="another run writes to"):
        earlier.look()
    earlier.leave()
    later.look()


def test_both_runs_end_where_both_may_have_written(stage: Stage) -> None:
    earlier = stage.begin("original")
    later = stage.begin("copy")
    stage.write("original", 1)
    stage.write("copy", 1)
    earlier.leave()
    with pytest.raises(DirectoryTaken, match="has a batch 1"):
        later.look()
    later.leave()
    assert stage.notes("table")[-1] == "3.1.mixed"
    for checkpoint in ("original", "copy"):
        with pytest.raises(CheckpointUnfit, match="from 1 on"):
            stage.begin(checkpoint)


def test_a_run_that_follows_a_stranger_waits_until_the_stranger_has_ended(stage: Stage) -> None:
    earlier = stage.begin("original")
    stage.begin("original")
    assert stage.pauses_s == [], "it follows a run of its own"
    stage.begin("copy")
    assert stage.pauses_s == [SETTLE_S]
    assert SETTLE_S > LOOK_S
    stage.plan("original", 1)
    stage.meanwhile = lambda: stage.write("copy", 1)
    with pytest.raises(DirectoryTaken, match="has a batch 1"):
        stage.begin("original")
    with pytest.raises(CheckpointUnfit, match="from 1 on"):
        stage.begin("original")
    with pytest.raises(DirectoryTaken):
        earlier.look()


def test_two_runs_that_begin_at_once_find_each_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    make = stage.files.make

    def make_later(place: str) -> None:
        monkeypatch.setattr(stage.files, "make", make)
        stage.begin("copy")
        make(place)

    monkeypatch.setattr(stage.files, "make", make_later)
    with pytest.raises(DirectoryTaken):
        stage.begin("original")
    assert stage.notes("table") == ["0.0.run1", "1.1.run2", "1.1.run3"]


def test_a_query_that_is_started_again_is_of_the_same_run(stage: Stage) -> None:
    run = stage.begin("original")
    run.begin()
    assert stage.notes("table") == ["0.0.run1", "1.1.run2"]
    stage.begin("copy")
    stage.write("original", 1)
    stage.plan("copy", 1)
    with pytest.raises(DirectoryTaken):
        run.begin()
    assert stage.notes("table")[-1] == "3.1.mixed"


def test_old_notes_are_forgotten(stage: Stage) -> None:
    for _ in range(RUNS_MAX + 10):
        stage.begin("original")
    for place in ("table", "original"):
        assert len(stage.notes(place)) == RUNS_MAX
        assert "0.0.run1" not in stage.notes(place)
    stage.begin("copy")  # it has no note that the directory knows, and nothing that it could lose


def test_a_note_that_cannot_be_read_is_named(stage: Stage) -> None:
    (stage.top / "table" / RUNS / ".hidden").touch()
    stage.begin("original")
    (stage.top / "table" / RUNS / "1.one.x").touch()
    with pytest.raises(CheckpointUnfit, match=rf"table/{RUNS}/1.one.x is not a note of a run: remove"):
        stage.begin("original")
