"""Definitions of one broker: imports that are being gathered, exports, and a file that is loaded at start."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.broker.definitions.exporting import Export
from flintmq.broker.definitions.importing import Import
from flintmq.checks import Unfit
from flintmq.errors import ConfigFault, ServiceFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from pathlib import Path

    from flintmq.broker.broker import Broker
    from flintmq.broker.scheduling.chores import Chore

log = logging.getLogger("flintmq.definitions")

# One part is parsed in one go: some 2 milliseconds.
PART_OCTETS_MAX = 131_072
# All parts of all imports that are being gathered. What is made of them takes about ten times as much.
GATHERED_OCTETS_MAX = 33_554_432
# How long an import waits for its next part, and how often that is looked at.
GATHERING_MS_MAX = 600_000
LOOK_MS = 10_000
FILE_OCTETS_MAX = 268_435_456


def definitions_of(broker: Broker) -> Definitions:
    found = broker.definitions
    if not isinstance(found, Definitions):
        found = broker.definitions = Definitions(broker)
    return found


class Definitions:
    """Imports and exports of one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.gathering: dict[int, Import] = {}  # by connection
        self.is_watching = False

    def export(self, within: str) -> Export:
        if within:
            self.broker.administration.virtual_hosts.require(within)
        return Export(self.broker, within)

    # Imports in parts

    def import_for(self, origin: int, within: str, part: int) -> Import:
        """The import that the part belongs to: a new one with part 0."""
        if within:
            self.broker.administration.virtual_hosts.require(within)
        gathered = self.gathering.pop(origin, None)
        if part == 0:
            return Import(self.broker, within)
        if gathered is None or gathered.parts != part or gathered.within != within:
            raise ServiceFault(
                amqp.PRECONDITION_FAILED,
                "argument 'part': expected the parts of one import one after the other, from 0 on, over one "
                "connection: begin again with 0",
            )
        return gathered

    def check_room(self, octets: int, gathered: Import) -> None:
        """Raises if the parts that wait would be too much."""
        if octets > PART_OCTETS_MAX:
            raise ServiceFault(
                amqp.CONTENT_TOO_LARGE,
                f"a part of definitions has {PART_OCTETS_MAX} octets at most: send more of them",
            )
        waiting = sum(each.octets for each in self.gathering.values()) + gathered.octets
        if waiting + octets > GATHERED_OCTETS_MAX:
            raise ServiceFault(
                amqp.RESOURCE_ERROR,
                f"{GATHERED_OCTETS_MAX} octets of definitions wait at most: import them one virtual host "
                "after the other",
            )

    def gather(self, origin: int, gathered: Import) -> None:
        """Waits for the next part, as long as the connection is there."""
        gathered.touched_ms = self.broker.timetable.now_ms()
        self.gathering[origin] = gathered
        if not self.is_watching:
            self.is_watching = True
            self.look_later()

    def look_later(self) -> None:
        timetable = self.broker.timetable
        timetable.at(timetable.now_ms() + LOOK_MS, self.look)

    def look(self) -> None:
        """Forgets imports that nobody will finish."""
        oldest_ms = self.broker.timetable.now_ms() - GATHERING_MS_MAX
        for origin, each in list(self.gathering.items()):
            if self.broker.clients.find(origin) is None or each.touched_ms < oldest_ms:
                del self.gathering[origin]
        self.is_watching = bool(self.gathering)
        if self.is_watching:
            self.look_later()

    # A file at the start

    def load(self, file: Path) -> None:
        """Puts a file into force as far as that can be; what cannot is told, item by item."""
        name = f'load_definitions = "{file}"'
        try:
            with file.open("rb") as stream:
                octets = stream.read(FILE_OCTETS_MAX + 1)
        except OSError as error:
            raise ConfigFault(f"{name}: cannot be read: {error.strerror or error}") from None
        if len(octets) > FILE_OCTETS_MAX:
            raise ConfigFault(f"{name}: larger than {FILE_OCTETS_MAX} octets")
        loaded = Import(self.broker, "")
        try:
            at_once(loaded.add_part(octets))
        except Unfit as unfit:
            raise ConfigFault(f"{name}: {unfit}") from None
        at_once(loaded.run(is_dry=False, is_partial=True))
        for finding in loaded.report.noted:
            log.warning("%s: %s", file, finding)
        for finding in loaded.report.refused:
            log.error("%s: not done: %s", file, finding)


def at_once(chore: Chore) -> None:
    """All steps of it, where nobody else is there yet."""
    for wait in chore:
        if wait is not None:
            done: list[bool] = []
            wait(ended(done))
            if not done:
                raise ConfigFault("what the definitions ask for cannot be done before the broker runs")


def ended(done: list[bool]) -> Callable[[], None]:
    return lambda: done.append(True)
