"""Which batch of a query this is: what tells a batch that is run again from another one of the same number.

Spark runs a batch again, under its number, when it does not know that the batch was done. But numbers come
again as well when a checkpoint was restored from a backup, copied or cut short: then they are of other rows.
So what was committed under a number is noted with it, in the marker that the broker keeps for the query:

    plan      of the file offsets/N in the checkpoint: Spark writes it once, before a batch first runs, with
              the time and the offsets of all sources. A batch that is run again has the same, no other has.
    offsets   of the offsets in it alone
    rows      of the messages, in whatever order: sums of a hash of each
    sink      of the exchange, the routing key and the virtual host

The driver reads the file where the checkpoint is in a file system of its machine. Elsewhere, in HDFS or in an
object store, the rows are compared. Those differ in a batch that is run again if the query computes others
each time, by rand() or uuid(), or by sums of floating-point numbers: that is told, never guessed.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from flintmq.spark.errors import AmqpError
from flintmq.spark.feeds.offsets import Progress
from flintmq.spark.options import WriteOptions
from flintmq.spark.write.rows import Run
from flintmq.wire.properties import encode_properties

log = logging.getLogger("flintmq.spark")

# What the broker takes for a note. 10 earlier batches have some 1,120 octets, this one 240: the rest is for
# the offsets themselves, which are noted if there is room, as a reader of the note may need them.
NOTE_OCTETS_MAX = 2048
EARLIER_MAX = 10
DIGEST_CHARACTERS = 24
_MASK = (1 << 64) - 1
# Odd numbers with many bits: what a 64-bit hash is multiplied with, so that two sums say more than one.
_MIX_KEY = 0x9E3779B97F4A7C15
_MIX_SUM = 0xC2B2AE3D27D4EB4F


@dataclass
class RowDigest:
    """A digest of rows that does not depend on their order, nor on how they are shared among tasks."""

    count: int = 0
    octets: int = 0
    one: int = 0
    two: int = 0

    def add(self, run: Run) -> None:
        import numpy

        hashes = hashes_of(run.bodies)
        if run.routing_keys is not None:
            hashes = hashes * numpy.uint64(_MIX_KEY) ^ hashes_of(run.routing_keys)
        if isinstance(run.properties, list):
            hashes = hashes * numpy.uint64(_MIX_KEY) ^ hashes_of(
                [encode_properties(each) for each in run.properties]
            )
        if run.exchange:
            hashes = hashes * numpy.uint64(_MIX_KEY) ^ hashes_of([run.exchange])
        self.count += len(run.bodies)
        self.octets += sum(map(len, run.bodies))
        self.one = (self.one + int(hashes.sum(dtype=numpy.uint64))) & _MASK
        mixed = (hashes ^ (hashes >> numpy.uint64(29))) * numpy.uint64(_MIX_SUM)
        self.two = (self.two + int(mixed.sum(dtype=numpy.uint64))) & _MASK

    def merge(self, other: RowDigest) -> None:
        self.count += other.count
        self.octets += other.octets
        self.one = (self.one + other.one) & _MASK
        self.two = (self.two + other.two) & _MASK

    def __str__(self) -> str:
        return f"{self.count}:{self.one:016x}{self.two:016x}"


def hashes_of(values: list[Any]) -> Any:
    """A hash of 64 bits for each text or octets, the same in every process."""
    import numpy
    from pandas.util import hash_array

    array: Any = numpy.empty(len(values), object)
    array[:] = values
    return hash_array(array, categorize=False)


@dataclass
class Note:
    """What is noted of a batch that is committed."""

    rows: str = ""
    sink: str = ""
    plan: str = ""
    offsets: str = ""
    ends: str = ""  # the offsets themselves, for people
    branches: int = 0
    # By number, of some batches before it that went to the same place: plan, offsets, rows.
    earlier: dict[str, list[str]] = field(default_factory=dict)

    def text(self) -> str:
        """As the broker keeps it. What does not fit is left out: the offsets, then the oldest batches."""
        found = {name: value for name, value in asdict(self).items() if value}
        made = json.dumps(found)
        if len(made) > NOTE_OCTETS_MAX:
            found.pop("ends", None)
            made = json.dumps(found)
        kept = sorted(self.earlier, key=int)
        while len(made) > NOTE_OCTETS_MAX and kept:
            del kept[0]
            made = json.dumps({**found, "earlier": {each: self.earlier[each] for each in kept}})
        return made

    @classmethod
    def of(cls, text: str) -> Note | None:
        """None for a note that says nothing: of an older version, or of another writer."""
        try:
            found = json.loads(text)
            return cls(**{name: found[name] for name in cls.__dataclass_fields__ if name in found})
        except (ValueError, TypeError):
            return None

    def places(self) -> str:
        """The offsets as `startingOffsets` takes them; those of other sources as they are."""
        return " and ".join(map(_place, self.ends.splitlines()))

    def is_same(self, other: Note) -> bool:
        """Whether both are of one batch, and were written to one place."""
        if self.sink != other.sink:
            return False
        if self.plan and other.plan:
            return self.plan == other.plan or (self.offsets == other.offsets and self.rows == other.rows)
        return self.rows == other.rows

    def following(self, number: int, known: Note) -> Note:
        """This note, with what is known of the batches before it; `known` is that of batch `number`."""
        if known.sink == self.sink:
            batches = {**known.earlier, str(number): [known.plan, known.offsets, known.rows]}
            kept = sorted(batches, key=int)[-EARLIER_MAX:]
            self.earlier = {each: batches[each] for each in kept}
        return self

    def before(self, batch: int) -> Note | None:
        """What is known of an earlier batch."""
        found = self.earlier.get(str(batch))
        if found is None or len(found) != 3:
            return None
        return Note(plan=found[0], offsets=found[1], rows=found[2], sink=self.sink)


def _place(line: str) -> str:
    try:
        return json.dumps(Progress.of(json.loads(line)).queues)
    except (ValueError, TypeError, AmqpError):
        return line


def note_of(options: WriteOptions, query: str, batch: int, rows: RowDigest, branches: int) -> Note:
    note = Note(rows=str(rows), sink=digest(sink_of(options)), branches=branches)
    planned = planned_in(options.checkpoint, query, batch)
    if planned is not None:
        lines = planned.splitlines()
        note.plan = digest(planned)
        note.offsets = digest("\n".join(lines[2:]))
        note.ends = "\n".join(lines[2:])
    return note


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]


def sink_of(options: WriteOptions) -> str:
    """Where the rows go; not by which address or as whom: these change while the broker stays the same."""
    return json.dumps([options.settings.virtual_host, options.exchange, options.routing_key])


def planned_in(checkpoint: str | None, query: str | None, batch: int) -> str | None:
    """The file of the batch in the log of offsets; None if it cannot be read here, or is another query's."""
    directory = local_directory(checkpoint)
    if directory is None:
        return None
    try:
        if query is not None and json.loads((directory / "metadata").read_text()).get("id") != query:
            return None
        return (directory / "offsets" / str(batch)).read_text()
    except (OSError, ValueError, AttributeError) as error:
        log.debug("the checkpoint cannot be read here: %s", error)
        return None


def local_directory(checkpoint: str | None) -> Path | None:
    if not checkpoint:
        return None
    parts = urlsplit(checkpoint)
    if not parts.scheme:
        return Path(checkpoint)
    return Path(unquote(parts.path)) if parts.scheme == "file" and not parts.netloc else None
