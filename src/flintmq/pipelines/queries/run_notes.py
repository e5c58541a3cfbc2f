"""Notes of the runs of a flow, in its checkpoint and in the Parquet directory that it writes to.

A note is an empty file. All that it says is its name, so a note is there as a whole or not at all, whatever
the file system, and two runs that begin at once do not overwrite each other's:

    CHECKPOINT/_flintmq_runs/12.40.5f3c09d1a2b4c6e8
    DIRECTORY/_flintmq_runs/12.40.5f3c09d1a2b4c6e8
                            |  |  random
                            |  how many batches the directory had when the run began
                            higher than in all notes that were there

A copy of a checkpoint has the notes that were there when it was made, and none of later runs. Names that
begin with _ are left out by those who read the directory, and Spark does not look at them in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from flintmq.pipelines.errors import CheckpointUnfit
from flintmq.pipelines.queries.spark_files import SparkFiles

RUNS = "_flintmq_runs"
# One look at the notes is one request to an object store, which lists up to 1,000 names in its answer.
RUNS_MAX = 100
# Old notes that one start removes: each is a request. A start adds one note, so 10 catch up with any excess.
_REMOVED_MAX = 10


class Run(NamedTuple):
    sequence: int
    batches: int
    token: str

    def __str__(self) -> str:
        return f"{self.sequence}.{self.batches}.{self.token}"


class RunNotes:
    """The notes in a checkpoint or in a directory."""

    def __init__(self, place: str, files: SparkFiles) -> None:
        self.place = f"{place.rstrip('/')}/{RUNS}"
        self.files = files

    def runs(self) -> set[Run]:
        found: set[Run] = set()
        for name in self.files.names(self.place):
            if name.startswith((".", "_")):  # a file system's own
                continue
            sequence, _, rest = name.partition(".")
            batches, _, token = rest.partition(".")
            if not (_is_number(sequence) and _is_number(batches) and token.isalnum()):
                raise CheckpointUnfit(f"{self.place}/{name} is not a note of a run: remove the file")
            found.add(Run(int(sequence), int(batches), token))
        return found

    def add(self, run: Run, known: Iterable[Run] = ()) -> None:
        """Notes a run. Of those that are known the oldest are forgotten where there are too many."""
        self.files.make(f"{self.place}/{run}")
        kept = sorted(known)
        for old in kept[: min(_REMOVED_MAX, max(0, len(kept) + 1 - RUNS_MAX))]:
            self.remove(old)

    def remove(self, run: Run) -> bool:
        """Whether the note is gone."""
        return self.files.remove(f"{self.place}/{run}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
