"""The directory of a Parquet sink: which run of which checkpoint may write its batches there.

Spark's file sink keeps the numbers of its batches in DIRECTORY/_spark_metadata. Spark leaves out a batch
whose number is there, and tells nobody. That is right for a batch that Spark runs again, and wrong for the
batch of another checkpoint: a new one, one that was restored from a backup, or a copy. Four things keep these
apart:

    numbers   The directory must have each batch before the next one of the checkpoint, and none after it.
              Spark cannot read a directory whose log has gaps, and fails when it compacts the log.
    lock      DIRECTORY/_flintmq.lock is locked while a run writes, where the directory is on this machine.
    notes     Before its query starts, each run notes itself in the directory, and then in the checkpoint.
    looks     A run looks every few seconds whether another run is noted in the directory, and ends if so.
              A run that comes after a stranger's waits first, where there is no lock: the stranger may still
              be running, and ends meanwhile.

A note says how many batches the directory had when the run began (pipelines/queries/run_notes.py).

A copy of a checkpoint has the notes that were there when it was made. The runs of the original since then are
strangers to the copy, and the runs of the copy are strangers to the original. The batches that a directory
got after a stranger began may be the stranger's. A checkpoint that has planned batches of these numbers is
refused.

A directory without notes, of an older version, is believed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import IO

from flintmq.pipelines.errors import CheckpointUnfit, PipelineFailed
from flintmq.pipelines.file.model import Sink
from flintmq.pipelines.queries.fingerprint import FlowRecord, is_remote
from flintmq.pipelines.queries.run_notes import RUNS_MAX, Run, RunNotes
from flintmq.pipelines.queries.spark_files import SparkFiles
from flintmq.storage.file_lock import try_lock

log = logging.getLogger("flintmq.pipelines")

# In the directory. Readers leave out files whose names begin so.
LOG, _LOCK = "_spark_metadata", "_flintmq.lock"
# How often a run looks for others: 17,280 requests a day to an object store.
LOOK_S = 5.0
# A run that another has followed finds out within LOOK_S, and has as long again to end its query.
SETTLE_S = 2 * LOOK_S
# In place of a run: two runs have written to the directory since the second of them began.
_MIXED = "mixed"


class DirectoryTaken(PipelineFailed):
    """Another run has begun to write to the directory."""


def last_number(names: Iterable[str]) -> int:
    """The highest number of a batch in a log of Spark's, a directory with a file for each; -1 if none."""
    numbers = (name.partition(".")[0] for name in names)
    return max((int(number) for number in numbers if number.isdigit()), default=-1)


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
        self._run: Run | None = None  # the note of this run, once it is in both places
        self._held: IO[str] | None = None
        self.pause: Callable[[float], object] = threading.Event().wait

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
        """Before each start of the query: raises if batches would be left out, and notes the run once."""
        if self._run is not None:
            try:
                self.look()
            except DirectoryTaken:
                self.leave()
                raise
        written, planned = self._check_numbers()
        if self._run is None:
            self._note_run(written, planned)
            self.look()

    def _check_numbers(self) -> tuple[int, int]:
        """The last batches that are written and planned; raises if they do not go together."""
        written, planned = self._written(), self._planned()
        following = planned if planned > self._committed() else planned + 1
        has = f"has batches up to {written}" if written >= 0 else "has no batches"
        if written > planned:
            raise CheckpointUnfit(
                f"sink {self.sink.name!r}: {self.place} {has}, and the checkpoint {self.checkpoint} "
                f"{f'goes up to {planned}' if planned >= 0 else 'is new'}: it was restored, deleted or set "
                "aside, or is another flow's, and rows of batches that the directory has would be left out. "
                f"{self._afresh()}"
            )
        if written + 1 < following:
            raise CheckpointUnfit(
                f"sink {self.sink.name!r}: {self.place} {has}, and the checkpoint {self.checkpoint} goes on "
                f"with batch {following}: Spark cannot read a directory that lacks the batches between. "
                f"Name the directory that has them. Or: {self._afresh()}"
            )
        return written, planned

    def _note_run(self, written: int, planned: int) -> None:
        there, own = self._noted_there.runs(), self._noted_here.runs()
        own |= {run for run in there if run.token == self._token}  # of a start that failed
        self._check_strangers(there, own, written, planned)
        last = max((run.sequence for run in there | own), default=-1)
        made = Run(last + 1, written + 1, self._token)
        # A run that is killed between the two notes is a stranger to its own checkpoint. That does no harm
        # while nobody has written since, and the checkpoint is refused if somebody has.
        self._noted_there.add(made, there)
        if there and max(there) not in own and self._held is None:
            self.pause(SETTLE_S)
            if self._written() > written:
                raise self._taken(written + 1)
        self._noted_here.add(made, own)
        self._run = made

    def _check_strangers(self, there: set[Run], own: set[Run], written: int, planned: int) -> None:
        """Raises if the directory may have a batch of a stranger under a number that the checkpoint has."""
        known = there & own
        last = max((run.sequence for run in known), default=-1)
        strangers = [run for run in there - own if run.sequence >= last]
        if not strangers:
            return
        first = min(run.batches for run in strangers)
        if not known:
            # The directory was another flow's until now, or the checkpoint is older than all notes. A batch
            # that is committed was written, wherever. A batch that is run now would be left out.
            is_open = planned > self._committed()
            first = max(planned if is_open else planned + 1, first if len(there) < RUNS_MAX else 0)
        if first <= min(written, planned):
            raise CheckpointUnfit(
                f"sink {self.sink.name!r}: a run of another checkpoint, a copy or the original of this one, "
                f"has written to {self.place} meanwhile. Spark would take its batches from {first} on for "
                f"those of the checkpoint {self.checkpoint}, whose rows would be left out. "
                f"{self._afresh()}"
            )

    def look(self) -> None:
        """Raises if another run has begun to write to the directory since this one."""
        others = self._others()
        if others:
            raise self._taken(min(run.batches for run in others))

    def _taken(self, first: int) -> DirectoryTaken:
        return DirectoryTaken(
            f"sink {self.sink.name!r}: another run writes to {self.place}, with another --state or another "
            "checkpoint, and a directory of Parquet files takes the batches of one; this run ends. End the "
            "other run and start this one again. If that is refused, the directory has a batch "
            f"{first} that may be of either run, and rows of the other are left out. {self._afresh()}"
        )

    def leave(self) -> None:
        """After the last batch of a run that another has followed: if both may have written since, says so to
        the other run and to all later ones by a note that is no checkpoint's."""
        others = self._others()
        if not others or any(run.token == _MIXED for run in others):
            return
        first = min(run.batches for run in others)
        if first <= min(self._written(), self._planned()):
            last = max(run.sequence for run in others)
            self._noted_there.add(Run(last + 1, first, _MIXED))

    def _others(self) -> list[Run]:
        own = self._run
        if own is None:
            return []
        return [run for run in self._noted_there.runs() if run != own and run.sequence >= own.sequence]

    def _written(self) -> int:
        return last_number(self.files.names(f"{self.place}/{LOG}"))

    def _planned(self) -> int:
        """A batch is planned in the checkpoint before it is in the directory."""
        return last_number(self.files.names(f"{self.checkpoint}/offsets"))

    def _committed(self) -> int:
        return last_number(self.files.names(f"{self.checkpoint}/commits"))

    def _afresh(self) -> str:
        how = "the pipeline another checkpoint" if is_remote(self.checkpoint) else "start afresh with --reset"
        return f"Give the sink another directory, and {how}: rows are read anew."
