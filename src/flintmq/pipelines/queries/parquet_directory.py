"""The directory of a Parquet sink: which run of which checkpoint may write its batches there.

Spark's file sink keeps the numbers of its batches in DIRECTORY/_spark_metadata. Spark leaves out a batch
whose number is there, and tells nobody. That is right for a batch that Spark runs again, and wrong for the
batch of another checkpoint: a new one, one that was restored from a backup, or a copy. Four things keep these
apart:

    numbers   The directory must have each batch before the next one of the checkpoint, and none after it.
              Spark cannot read a directory whose log has gaps, and fails when it compacts the log.
    lock      DIRECTORY/_flintmq.lock is locked while a run writes, where the directory is on this machine.
    notes     Before its query starts, each run notes itself in the checkpoint, and then in the directory
              (pipelines/queries/run_notes.py).
    looks     A run looks every few seconds whether a later run is noted in the directory, and ends if so.

A copy of a checkpoint has the notes that were there when the copy was made. The later runs of the original
are strangers to the copy, and the runs of the copy are strangers to the original. If the newest note in the
directory is a stranger's, the last batch in the directory may be the stranger's too. A checkpoint is refused
if it has planned a batch of that number and has not committed it: Spark would leave out the rows of that
batch. A committed batch is never a reason to refuse, as Spark does not run it again.

Two runs at once without a lock are found out after the fact: rows of one may be missing by then.

A directory without notes, of an older version, is believed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import IO, NamedTuple

from flintmq.pipelines.errors import CheckpointUnfit, PipelineFailed
from flintmq.pipelines.file.model import Sink
from flintmq.pipelines.queries.fingerprint import SUFFIX, FlowRecord, is_remote
from flintmq.pipelines.queries.run_notes import Run, RunNotes
from flintmq.pipelines.queries.spark_files import SparkFiles
from flintmq.storage.file_lock import try_lock

log = logging.getLogger("flintmq.pipelines")

# In the directory. Readers leave out files whose names begin so.
LOG, _LOCK = "_spark_metadata", "_flintmq.lock"
# How often a run looks for others: 17,280 requests a day to an object store.
LOOK_S = 5.0
# Readings of the numbers at a start. While they differ, another run is writing.
_READINGS_MAX = 5


class DirectoryTaken(PipelineFailed):
    """A later run has begun to write to the directory."""


class Numbers(NamedTuple):
    """The last batches of the directory and of the checkpoint; -1 where there is none."""

    written: int  # in the directory
    planned: int  # a batch is planned in the checkpoint before it is in the directory
    committed: int

    @property
    def following(self) -> int:
        """The batch that the checkpoint goes on with."""
        return self.planned if self.planned > self.committed else self.planned + 1

    @property
    def is_too_far(self) -> bool:
        """Whether the directory has batches that the checkpoint has not planned."""
        return self.written > self.planned

    @property
    def has_gap(self) -> bool:
        """Whether the directory lacks a batch before the next one."""
        return self.written + 1 < self.following

    @property
    def is_last_open(self) -> bool:
        """Whether the directory has the batch that Spark is about to run again."""
        return self.committed < self.planned == self.written


def last_number(names: Iterable[str]) -> int:
    """The highest number of a batch in a log of Spark's, a directory with a file for each; -1 if none."""
    numbers = (name.partition(".")[0] for name in names)
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)


class ParquetDirectory:
    """The directory of one flow, for one run of the flow, however often its query is started."""

    def __init__(self, sink: Sink, record: FlowRecord, files: SparkFiles) -> None:
        self.sink = sink
        self.place = sink.target.rstrip("/")
        self.checkpoint = record.checkpoint
        self.files = files
        self._noted_there = RunNotes(self.place, files)
        self._noted_here = RunNotes(record.checkpoint, files)
        self._token = record.run
        self._run: Run | None = None  # the note of this run
        self._has_query = False  # a query of this run has begun, and may have written
        self._held: IO[str] | None = None

    def hold(self) -> None:
        """Locks a directory on this machine until it is released.

        Two runs that begin at the same moment find no batches of each other. Spark then takes a batch of the
        one for that of the other, and leaves it out.
        """
        directory = self.files.local(self.sink.target)
        if directory is None or self._held is not None:
            return
        directory.mkdir(parents=True, exist_ok=True)
        held = open(directory / _LOCK, "a", encoding="utf-8")  # noqa: SIM115 held until release
        try:
            is_held = try_lock(held.fileno())
        except OSError as error:
            log.warning("%s: no lock, so runs are told apart by their notes: %s", held.name, error.strerror)
            held.close()
            return
        if not is_held:
            held.close()
            raise PipelineFailed(
                f"sink {self.sink.name!r}: another run writes to {self.sink.target}, and a directory of "
                "Parquet files takes the batches of one; end that run, or name another directory"
            )
        self._held = held

    def release(self) -> None:
        if self._held is not None:
            self._held.close()

    def begin(self) -> None:
        """Before each start of the query: raises if batches would be left out, and notes the run once.

        `began` or `undo` follows, by whether the query has begun.
        """
        if self._run is not None:
            self.look()
        numbers = self._check_numbers()
        if self._run is None:
            self._note_run(numbers)
            self.look()

    def began(self) -> None:
        """The query has begun: from here on the notes of the run stay."""
        self._has_query = True

    def undo(self) -> None:
        """After a start that has failed: removes the notes, also half made, if no query has ever begun."""
        made = self._run
        if made is None or self._has_query:
            return
        self._run = None
        # A note in the checkpoint alone does no harm. A note in the directory alone would be a stranger's.
        if self._noted_there.remove(made):
            self._noted_here.remove(made)

    def _check_numbers(self) -> Numbers:
        """The last batches; raises if those of the directory and of the checkpoint do not go together.

        A live run may write between two listings, so a reading counts once the next one is equal.
        """
        found = self._numbers()
        for _ in range(_READINGS_MAX):
            if not found.is_too_far and not found.has_gap:
                return found
            before, found = found, self._numbers()
            if found == before:
                raise self._unfit(found)
        raise OSError(
            f"{self.place} and {self.checkpoint} change while they are compared: another run writes"
        )

    def _unfit(self, numbers: Numbers) -> CheckpointUnfit:
        written, planned, _ = numbers
        has = f"has batches up to {written}" if written >= 0 else "has no batches"
        if numbers.is_too_far:
            return CheckpointUnfit(
                f"sink {self.sink.name!r}: {self.place} {has}, and the checkpoint {self.checkpoint} "
                f"{f'goes up to {planned}' if planned >= 0 else 'is new'}: it was restored, deleted or set "
                "aside, or is another flow's, and rows of batches that the directory has would be left out. "
                f"{self._afresh()}"
            )
        return CheckpointUnfit(
            f"sink {self.sink.name!r}: {self.place} {has}, and the checkpoint {self.checkpoint} goes on "
            f"with batch {numbers.following}: Spark cannot read a directory that lacks the batches between. "
            f"Name the directory that has them. Or: {self._afresh()}"
        )

    def _note_run(self, numbers: Numbers) -> None:
        there, here = self._noted_there.runs(), self._noted_here.runs()
        self._check_strangers(there, here, numbers)
        last = max((run.sequence for run in there | here), default=-1)
        self._run = made = Run(last + 1, numbers.written + 1, self._token)
        # In this order: a run that is killed between the two notes is no stranger to its own checkpoint.
        self._noted_here.add(made, here)
        self._noted_there.add(made, there)

    def _check_strangers(self, there: set[Run], here: set[Run], numbers: Numbers) -> None:
        """Raises if Spark would leave out a batch for one that may be a stranger's.

        Notes of this run, which an earlier try of its start has left, do not make a stranger known.
        """
        newest = max((run for run in there if run.token != self._token), default=None)
        if newest is None or newest in here or not numbers.is_last_open:
            return
        raise CheckpointUnfit(
            f"sink {self.sink.name!r}: a run of another checkpoint, a copy or the original of this one, has "
            f"begun since. The directory has a batch {numbers.planned}, which may be that run's, and the "
            f"checkpoint {self.checkpoint} has one that is not committed: Spark would leave out its rows. "
            f"{self._afresh()} Or, whoever has made sure that no rows are missing: delete "
            f"{self._noted_there.place}."
        )

    def look(self) -> None:
        """Raises if a later run has begun to write to the directory. Of two with one number one is later."""
        own = self._run
        if own is None:
            return
        later = [run for run in self._noted_there.runs() if run > own and run.token != own.token]
        if later:
            first = min(run.batches for run in later)
            raise DirectoryTaken(
                f"sink {self.sink.name!r}: another run writes to {self.place} since it had {first} batches, "
                "and a directory of Parquet files takes the batches of one run; this run ends. Rows of "
                f"batches from {first} on may be missing of one of the two: end one, and compare the rows "
                "with the source"
            )

    def _numbers(self) -> Numbers:
        return Numbers(
            last_number(self.files.names(f"{self.place}/{LOG}")),
            last_number(self.files.names(f"{self.checkpoint}/offsets")),
            last_number(self.files.names(f"{self.checkpoint}/commits")),
        )

    def _afresh(self) -> str:
        """How rows are read anew. --reset is no way: it is refused while any sink's directory has batches."""
        if is_remote(self.checkpoint):
            return (
                "Give the pipeline another checkpoint, and each of its Parquet sinks another directory: rows "
                "are read anew."
            )
        flow = self.checkpoint.rpartition("/")[2]
        return (
            f"Give the sink another directory, and move the checkpoint and {flow}{SUFFIX} beside it aside: "
            "rows are read anew."
        )
