"""What was promised: a small file beside the data, so that damage at its end is told from a torn tail.

Records and chunks tell what was safe before them. Nothing comes behind the last one, and nothing is left of a
file that is missing. So each position is noted here as soon as it is synced, before anybody is told:

    SEGMENT   a segment of the journal      first: its first sequence   end: octets    mark: its last sequence
    STREAM    a stream                      first: its oldest offset    end: offset    mark: its epoch
    GAP       offsets that a stream lost    first: the first of them    end: behind    mark: 0

    0        4      8         16        24       32       40           64
    +--------+------+---------+---------+--------+--------+------------+
    | crc32c | kind | number  |  first  |  end   |  mark  | zeros      |     kind 0: a free slot
    +--------+------+---------+---------+--------+--------+------------+

The first slot is the head: kind 0xF11D, number: the version, first: the epoch of the journal, end: the time
of the broker in ms since 1970, which must not go back. A slot never crosses a sector. A note is written after
the sync of what it tells, and is not synced itself while the broker runs: the death of the process costs no
note, the loss of power may cost the newest ones. So a note may tell too little, never too much. An orderly
stop syncs the notes. A note goes, synced, before that which it tells of does.
"""

from __future__ import annotations

import logging
import os
import struct
import threading
from typing import TYPE_CHECKING

from flintmq.field_tuple import FieldTuple
from flintmq.storage import layout

if TYPE_CHECKING:
    from flintmq.storage.disk import Disk

log = logging.getLogger("flintmq.storage")

SEGMENT = 1
STREAM = 2
GAP = 3
HEAD = 0xF11D
VERSION = 1

SLOT_OCTETS = 64
PAGE_OCTETS = 4096

_SLOT = struct.Struct("<IIQQQQ24x")
_FREE = bytes(SLOT_OCTETS)


class Promise(FieldTuple):
    """One note; see the head of this module."""

    kind: int
    number: int
    first: int
    end: int
    mark: int

    @property
    def key(self) -> tuple[int, int, int]:
        return self.kind, self.number, self.first if self.kind == GAP else 0

    def encode(self) -> bytes:
        octets = _SLOT.pack(0, self.kind, self.number, self.first, self.end, self.mark)
        return layout.crc_read(0, octets, 4, SLOT_OCTETS).to_bytes(4, "little") + octets[4:]


def decode(octets: bytes, at: int) -> Promise | None:
    """The note in a slot; None if there is no true one."""
    crc, kind, number, first, end, mark = _SLOT.unpack_from(octets, at)
    if not kind or crc != layout.crc_read(0, octets, at + 4, at + SLOT_OCTETS):
        return None
    return Promise(kind, number, first, end, mark)


class Notes:
    """The notes of a file as an earlier life has left them."""

    def __init__(self, octets: bytes = b"") -> None:
        self.promises: dict[tuple[int, int, int], Promise] = {}
        self.places: dict[tuple[int, int, int], int] = {}
        self.unreadable_at: list[int] = []  # slots that do not check
        self.epoch = 0
        self.time_ms = 0
        for at in range(0, len(octets) // SLOT_OCTETS * SLOT_OCTETS, SLOT_OCTETS):
            promise = decode(octets, at)
            if promise is None:
                if octets[at : at + SLOT_OCTETS] != _FREE:
                    self.unreadable_at.append(at)
            elif promise.kind == HEAD and at == 0 and promise.number == VERSION:
                self.epoch, self.time_ms = promise.first, promise.end
            elif promise.kind != HEAD:
                self.promises[promise.key] = promise
                self.places[promise.key] = at

    def of(self, kind: int, number: int) -> Promise | None:
        return self.promises.get((kind, number, 0))

    def all_of(self, kind: int) -> dict[int, Promise]:
        """By number."""
        return {each.number: each for each in self.promises.values() if each.kind == kind}

    def gaps(self, number: int) -> set[tuple[int, int]]:
        """What a stream has lost, as was told before."""
        return {
            (each.first, each.end)
            for each in self.promises.values()
            if each.kind == GAP and each.number == number
        }

    def outdated_by(self, epoch: int) -> bool:
        """Whether a FlintMQ that keeps no notes has used the data since."""
        return epoch > self.epoch


def read_notes(disk: Disk, path: str) -> Notes:
    """The notes of a file that may be in use, or may not be there."""
    directory, name = os.path.split(path)
    if name not in disk.list(directory):
        return Notes()
    handle = disk.open_to_read(path)
    try:
        return Notes(disk.read(handle, 0, disk.size(handle)))
    finally:
        disk.let_go(handle)


class Promises:
    """The file of a running journal, or of running streams. Threads may share it."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.found = read_notes(disk, path)
        if self.found.unreadable_at:
            log.warning("%s: %d notes cannot be read", path, len(self.found.unreadable_at))
        self.epoch = self.found.epoch
        self.time_ms = self.found.time_ms
        self.is_failing = False
        self._lock = threading.Lock()
        self._handle = -1
        self._size = 0
        self._notes: dict[tuple[int, int, int], Promise] = {}
        self._places: dict[tuple[int, int, int], int] = {}
        self._gaps: set[tuple[int, int, int]] = set()
        self._free: list[int] = []
        self._unwritten: dict[int, bytes] = {}  # slots of which the last write failed
        self._gone: set[tuple[int, int, int]] = set()  # in this life; a note of them would come too late
        self._drops = 0  # of notes, and how many of them are on the disk
        self._drops_synced = 0

    # Beginning

    def begin(self, epoch: int, promises: list[Promise]) -> None:
        """From here on these are the notes, and those that are not among them go; all synced."""
        self.open(epoch)
        kept = {each.key for each in promises}
        for promise in promises:
            self.note(promise)
        for key in [key for key in self._notes if key not in kept]:
            self._drop(key)
        self.sync()

    def open(self, epoch: int) -> None:
        """Goes on with what was found; slots that do not check are free."""
        directory, name = os.path.split(self.path)
        is_new = name not in self.disk.list(directory)
        self._handle = self.disk.open(self.path, create=True)
        self._size = self.disk.size(self._handle) // SLOT_OCTETS * SLOT_OCTETS
        self._notes = dict(self.found.promises)
        self._places = dict(self.found.places)
        self._gaps = {key for key in self._notes if key[0] == GAP}
        used = set(self._places.values())
        self._free = [at for at in range(self._size - SLOT_OCTETS, 0, -SLOT_OCTETS) if at not in used]
        self.epoch = epoch
        if not self._size:
            self._grow()
        self._write(0, self.head().encode())
        for at in self.found.unreadable_at:
            if at:
                self._write(at, _FREE)
        if is_new:
            self.sync()
            self.disk.sync_directory(directory)

    # Noting

    def note(self, promise: Promise) -> None:
        """Writes it down; a disk that refuses is told once, and the note is then behind."""
        with self._lock:
            key = promise.key
            if self._handle < 0 or key in self._gone or self._notes.get(key) == promise:
                return
            place = self._places.get(key)
            if place is None:
                if not self._free:
                    self._grow()
                place = self._places[key] = self._free.pop()
            self._notes[key] = promise
            if promise.kind == GAP:
                self._gaps.add(key)
            self._write(place, promise.encode())

    def slot_of(self, promise: Promise) -> tuple[int, int] | None:
        """The open file and the place for somebody who writes the note himself; None if it needs more.

        What it tells of must not go before that somebody has called `noted`.
        """
        with self._lock:
            place = self._places.get(promise.key)
            if self._handle < 0 or place is None or self._unwritten:
                return None
            return self._handle, place

    def noted(self, promise: Promise) -> None:
        """It is written where slot_of has said."""
        with self._lock:
            if promise.key in self._places:
                self._notes[promise.key] = promise
                self.is_failing = False

    def held(self, kind: int, number: int) -> Promise | None:
        """The note as it is now."""
        return self._notes.get((kind, number, 0))

    def gaps(self) -> list[Promise]:
        """What streams have lost."""
        with self._lock:
            return [self._notes[key] for key in self._gaps]

    def head(self) -> Promise:
        return Promise(HEAD, VERSION, self.epoch, self.time_ms, 0)

    def forget(self, kind: int, number: int) -> None:
        """What it tells of is about to go: the note has gone for good when this returns."""
        with self._lock:
            keys = [key for key in ((kind, number, 0),) if key in self._notes]
            if kind == STREAM:
                keys += [key for key in self._gaps if key[1] == number]
            for key in keys:
                self._drop(key)
            self._gone.add((kind, number, 0))
            self._drops += len(keys)
            is_safe = self._drops_synced == self._drops  # not so after an attempt that has failed
        if not is_safe:
            self.sync()

    def tell_time(self, time_ms: int) -> None:
        """How late it is; it is never noted to be earlier."""
        if time_ms > self.time_ms:
            self.time_ms = time_ms
            if self._handle >= 0:
                with self._lock:
                    self._write(0, self.head().encode())

    def sync(self) -> None:
        """All notes are safe when this returns."""
        with self._lock:
            if self._handle < 0:
                return
            for at, octets in list(self._unwritten.items()):
                self.disk.write(self._handle, at, octets)
                del self._unwritten[at]
            drops = self._drops
        try:
            self.disk.sync(self._handle)
        except OSError:
            with self._lock:
                self._unwritten = self._slots()  # another sync would not write them by itself
            raise
        with self._lock:
            self._drops_synced = max(self._drops_synced, drops)

    def is_there(self) -> bool:
        """Whether the file is where it was: if it is not, the directory has been removed or replaced."""
        return self._handle < 0 or self.disk.is_there(self.path, self._handle)

    def close(self) -> None:
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            self.disk.let_go(handle)

    def _slots(self) -> dict[int, bytes]:
        """The octets of the whole file, by their places."""
        slots = dict.fromkeys(range(0, self._size, SLOT_OCTETS), _FREE)
        slots[0] = self.head().encode()
        for key, place in self._places.items():
            slots[place] = self._notes[key].encode()
        return slots

    def _drop(self, key: tuple[int, int, int]) -> None:
        place = self._places.pop(key)
        del self._notes[key]
        self._gaps.discard(key)
        self._free.append(place)
        self._write(place, _FREE)

    def _grow(self) -> None:
        """Another page of free slots; the first slot of all is the head."""
        at = self._size
        self._size = at + PAGE_OCTETS
        self._free += range(self._size - SLOT_OCTETS, max(at - 1, 0), -SLOT_OCTETS)
        self._write(at, bytes(PAGE_OCTETS))

    def _write(self, at: int, octets: bytes) -> None:
        try:
            self.disk.write(self._handle, at, octets)
        except OSError as failure:
            self._unwritten[at] = octets
            if not self.is_failing:
                log.error(
                    "%s cannot be written: %s; damage at the end of the data may be taken for a torn tail",
                    self.path,
                    failure.strerror,
                )
            self.is_failing = True
            return
        self._unwritten.pop(at, None)
        self.is_failing = False
