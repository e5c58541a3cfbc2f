"""How far each durable queue was handed out: a small file that knows it before any client does.

The journal has these marks too, but its records are still on their way to the disk when the messages have
reached their consumers. What is written here is written before anything is sent. So a message that a client
had says `redelivered` when it comes again, however the process ended. The loss of power may cost what
was written here; then the marks of the journal are what is left.

    0               8               16
    +---------------+---------------+
    | "FlintHO\\n"   | version, 1    |
    +---------------+---------------+
    | queue         | entry         |    the newest entry of the journal that the queue has handed out
    +---------------+---------------+
    | 0             | 0             |    free
    +---------------+---------------+

All numbers are u64, little endian. There is no checksum, as a mark is written over while the process may die:
a wrong one costs a `redelivered` too many or too few, nothing else.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.storage.disk import Disk

log = logging.getLogger("flintmq.storage")

VERSION = 1
HEAD = struct.Struct("<8sQ").pack(b"FlintHO\n", VERSION)
SLOT = struct.Struct("<QQ")
PAGE_OCTETS = 4096


class DeliveredMarks:
    """The file of one data directory, and all of it in memory."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.handle = disk.open(path, create=True)
        octets = self.read()
        if octets[: len(HEAD)] != HEAD:
            if any(octets):
                log.warning("%s is of another version or damaged: it is written anew", path)
            octets = b""
        whole_pages = -(-max(len(octets), 1) // PAGE_OCTETS) * PAGE_OCTETS
        self.octets = bytearray(octets.ljust(whole_pages, b"\0"))
        self.octets[: len(HEAD)] = HEAD
        self.pages = {0}  # to be written
        self.places: dict[int, int] = {}  # of queues, by number
        self.free: list[int] = []
        self.is_failing = False
        self.take_up(len(HEAD))

    def read(self) -> bytes:
        """What an earlier life has left; if the disk does not give it, no start waits for it."""
        try:
            return self.disk.read(self.handle, 0, self.disk.size(self.handle))
        except OSError as failure:
            log.error(
                "%s cannot be read: %s; messages that consumers had before the stop may come again "
                "and not say so",
                self.path,
                failure.strerror,
            )
            return b""

    def take_up(self, at: int) -> None:
        """From here on slots are used or free as their octets say."""
        for place in range(len(self.octets) - SLOT.size, at - 1, -SLOT.size):
            number, _ = SLOT.unpack_from(self.octets, place)
            if number and number not in self.places:
                self.places[number] = place
            else:
                self.free.append(place)

    def recover(self, last: int) -> dict[int, int]:
        """What an earlier life has left, by queue; `last` is the last entry that is still there.

        Those beyond it were lost with the power, and their numbers are given again.
        """
        found: dict[int, int] = {}
        for number, place in self.places.items():
            _, entry = SLOT.unpack_from(self.octets, place)
            found[number] = min(entry, last)
            if entry > last:
                self.put(number, last)
        return found

    def put(self, number: int, entry: int) -> None:
        """To be written by the next `write`."""
        place = self.places.get(number)
        if place is None:
            if not self.free:
                end = len(self.octets)
                self.octets.extend(bytes(PAGE_OCTETS))
                self.take_up(end)
            place = self.places[number] = self.free.pop()
        SLOT.pack_into(self.octets, place, number, entry)
        self.pages.add(place // PAGE_OCTETS)

    def forget(self, number: int) -> None:
        """The queue is gone, and the disk knows it."""
        place = self.places.pop(number, None)
        if place is not None:
            SLOT.pack_into(self.octets, place, 0, 0)
            self.free.append(place)
            self.pages.add(place // PAGE_OCTETS)

    def write(self) -> None:
        """To be called before anything is sent."""
        if not self.pages:
            return
        try:
            with memoryview(self.octets) as octets:
                for page in sorted(self.pages):
                    at = page * PAGE_OCTETS
                    self.disk.write(self.handle, at, octets[at : at + PAGE_OCTETS])
        except OSError as failure:
            if not self.is_failing:
                log.error(
                    "%s cannot be written: %s; what is handed out now may come again after a crash "
                    "and not say so",
                    self.path,
                    failure.strerror,
                )
            self.is_failing = True
            return
        self.is_failing = False
        self.pages.clear()

    def close(self) -> None:
        self.disk.let_go(self.handle)
