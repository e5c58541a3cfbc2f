"""Services for whoever copies the data directory of a broker that runs: `flintmq backup` asks them.

    backup.begin ---> what was appended is synced ---> positions noted ---> answer
                      |<------------- no file of the journal, spools and streams goes ------------->|
                                                            files, notes, renew ... backup.end

The files noted, each as far as it is written at that moment, are what a crash would leave then: segments only
grow, so the octets before those ends stay what they are. The broker copies nothing itself. It stops keeping
the files when the asker's connection ends, when the asker has not been heard of for HELD_S, and when the disk
runs short: `backup.end` then says that the copy is not to be trusted.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from flintmq import __version__
from flintmq.broker.services.administration_services import administration
from flintmq.broker.services.arguments import PAGE
from flintmq.broker.services.request import Request, service
from flintmq.errors import ServiceFault
from flintmq.storage.journal.journal import PROMISES_NAME as SEGMENT_NOTES
from flintmq.storage.journal.segment import segment_name
from flintmq.storage.streams.segment import index_name
from flintmq.storage.streams.store import PROMISES_NAME as STREAM_NOTES
from flintmq.storage.sync_notes import HEAD, STREAM, Promise
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.services.request import Row
    from flintmq.broker.store.store import Store
    from flintmq.storage.streams.log import StreamLog
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.backup")

# Without a word of the asker: a write to a slow disk may take that long, a program that hangs takes longer.
HELD_S = 120
WATCHED_MS = 1000
# Streams looked at in one step: a few microseconds each.
STEP_STREAMS = 64


class Backup:
    """The files of one moment, which stay as they are for one asker."""

    def __init__(self, request: Request, store: Store) -> None:
        self.broker = request.broker
        self.store = store
        self.connection = request.channel.origin
        self.files: list[tuple[str, int]] = []  # in the order of their names
        self.notes: list[tuple[str, Promise]] = []
        self.lost = ""  # why the files are no longer kept
        self.heard_ms = self.broker.timetable.now_ms()

    def hold(self) -> None:
        """From here on no file goes."""
        journal = self.store.journal
        journal.reclaimer.is_held = journal.spools.is_held = True
        if self.broker.streams is not None:
            self.broker.streams.storage.hold()
        self.broker.backup = self
        self.watch()

    def release(self, why: str) -> None:
        """Files go again as they are used up."""
        if self.broker.backup is not self:
            return
        self.lost = why
        self.broker.backup = None
        journal = self.store.journal
        journal.reclaimer.is_held = journal.spools.is_held = False
        if self.broker.streams is not None:
            self.broker.streams.storage.release()
        if why:
            log.warning("the backup of connection %d is given up: %s", self.connection, why)

    def watch(self) -> None:
        """Sees each second whether somebody still needs the files, and whether there is room for them."""
        self.look()
        if self.broker.backup is self:
            timetable = self.broker.timetable
            timetable.at(timetable.now_ms() + WATCHED_MS, self.watch)

    def look(self) -> None:
        """Gives the backup up if nobody needs the files any more, or others need the room."""
        silent_ms = self.broker.timetable.now_ms() - self.heard_ms
        alarm = self.broker.storage_alarm()
        if self.connection not in self.broker.connections:
            self.release("its connection has ended")
        elif silent_ms > HELD_S * 1000:
            self.release(f"nothing was heard of it for {HELD_S} s")
        elif alarm:
            self.release(f"the room is needed: {alarm}")

    def list_files(self) -> Iterator[None]:
        """Notes the files; all of the journal at once, as it is one history."""
        journal, streams = self.store.journal, self.broker.streams
        logs = [] if streams is None else list(streams.storage.logs.values())
        for promise in journal.written_segments():
            self.files.append((segment_name(promise.number), promise.end))
            self.notes.append((SEGMENT_NOTES, promise))
        self.files += [(os.path.basename(each.path), each.octets) for each in journal.spools.named()]
        marks = self.store.delivered_marks
        self.files.append((os.path.basename(marks.path), 0))
        if journal.promises is not None:
            self.notes.append((SEGMENT_NOTES, journal.promises.head()))
        yield
        if streams is not None and streams.storage.promises is not None:
            promises = streams.storage.promises
            self.notes.append((STREAM_NOTES, promises.head()))
            self.notes += [(STREAM_NOTES, each) for each in promises.gaps()]
        for at, stream in enumerate(logs, 1):
            self.list_stream(stream)
            if at % STEP_STREAMS == 0:
                yield
        # The note at the head of a file comes first.
        self.notes.sort(key=lambda each: (each[0], each[1].kind != HEAD))
        self.files.sort()

    def list_stream(self, stream: StreamLog) -> None:
        """What is safe of one stream. It may be later than the journal: nothing goes from a stream to it."""
        directory = f"streams/{os.path.basename(stream.directory)}"
        for segment in stream.segments:
            if segment.octets:
                self.files.append((f"{directory}/{segment.name}", segment.octets))
                if segment.is_indexed:
                    self.files.append((f"{directory}/{index_name(segment.first_offset)}", 0))
        if stream.end:
            promise = Promise(STREAM, stream.number, stream.first, stream.end, stream.epoch)
            self.notes.append((STREAM_NOTES, promise))


def begun(request: Request) -> Backup:
    """The backup that this connection has begun; a fault if there is none, or none any more."""
    administration(request)
    backup = request.broker.backup
    if backup is None or backup.connection != request.channel.origin:
        raise ServiceFault(
            amqp.NOT_FOUND,
            f"{request.name}: this connection has no backup under way: it was not begun, or the broker has "
            "given it up, as its log tells",
        )
    backup.heard_ms = request.broker.timetable.now_ms()
    return backup


@service("backup.begin", "", changes=True, administers=True)
def backup_begin(request: Request) -> Chore:
    """Keeps the files of the data directory for this connection: `directory`, `files`, `octets`."""
    administration(request)
    broker, store = request.broker, request.broker.store
    if store is None:
        raise ServiceFault(
            amqp.PRECONDITION_FAILED, f"{request.name}: the broker has no data directory: nothing is on disk"
        )
    if broker.backup is not None:
        broker.backup.look()
    if broker.backup is not None:
        raise ServiceFault(
            amqp.RESOURCE_LOCKED,
            f"{request.name}: connection {broker.backup.connection} makes a backup: wait until it is done",
        )
    if alarm := broker.storage_alarm():
        raise ServiceFault(amqp.PRECONDITION_FAILED, f"{request.name}: the disk has trouble: {alarm}")
    backup = Backup(request, store)
    backup.hold()
    try:
        # Acks that came before this request are part of the copy.
        store.journal.end_batch()
        yield partial(store.when_synced, store.last())
        yield from backup.list_files()
    except BaseException:
        backup.release("it could not be begun")
        raise
    request.reply(
        {
            "directory": os.path.abspath(store.journal.directory),
            "process": os.getpid(),
            "version": __version__,
            "now-ms": broker.timetable.now_ms(),
            "files": len(backup.files),
            "octets": sum([octets for _, octets in backup.files]),
            "disk-bytes-free-min": store.journal.options.disk_free_octets_min,
        }
    )


@service("backup.files", PAGE)
def backup_files(request: Request) -> Iterator[None]:
    """The files to copy, below the directory: `name`, and `octets`, so many from the start; 0: as it is."""
    files = begun(request).files
    return listed(request, len(files), lambda at: {"name": files[at][0], "octets": files[at][1]})


@service("backup.notes", PAGE)
def backup_notes(request: Request) -> Iterator[None]:
    """What was synced at that moment, slots of files to be written anew: `name` of the file, `slot`."""
    notes = begun(request).notes
    return listed(request, len(notes), lambda at: {"name": notes[at][0], "slot": notes[at][1].encode()})


def listed(request: Request, count: int, row: Callable[[int], FieldTable]) -> Iterator[None]:
    """A page of rows that are known by their place."""
    if not re.fullmatch("([0-9]{12})?", request.text("after", "")):
        raise request.wrong("after", "expected the `next` of an earlier page")

    def rows(after: str) -> Iterator[Row]:
        for at in range(int(after) + 1 if after else 0, count):
            yield f"{at:012d}", partial(row, at)

    return request.listing(rows)


@service("backup.renew", "")
def backup_renew(request: Request) -> None:
    """Says that the copy is still being made: the broker keeps the files for two minutes without a word."""
    begun(request)
    request.reply({"seconds": HELD_S})


@service("backup.end", "", changes=True, administers=True)
def backup_end(request: Request) -> None:
    """The copy is made; a fault if the files were not kept until now."""
    begun(request).release("")
    request.reply({})
