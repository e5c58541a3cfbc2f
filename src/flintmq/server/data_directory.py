"""Opens the data directory: journal, overflow, and the broker that recovery makes of them."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from flintmq.broker import static_topology
from flintmq.broker.broker import Broker
from flintmq.broker.exchanges import exchange_plugins, transform_plugins
from flintmq.broker.services import request, service_plugins
from flintmq.broker.store.store import Store
from flintmq.config.auth import INTERNAL
from flintmq.storage.disk import Disk, SystemDisk
from flintmq.storage.journal.journal import Journal
from flintmq.storage.journal.report import RecoveryReport
from flintmq.storage.options import JournalOptions, SyncPolicy
from flintmq.storage.streams.store import StreamStore

if TYPE_CHECKING:
    from flintmq.broker.recovery import Recovery
    from flintmq.clock import Clock
    from flintmq.config import Config
    from flintmq.storage.staging_files import StagingFiles

log = logging.getLogger("flintmq.storage")

request.LATER.append("flintmq.broker.definitions.definition_services")

# Progress is told when another tenth of at least this much has been read: some seconds of work.
PROGRESS_BYTES_MIN = 536_870_912
# Files of the journal, of which it prepares one ahead: two of them are a quarter of the room that is to be
# left free, at most. In smaller ones the journal would end a file several times in a sync of a fast disk.
SEGMENT_OCTETS_MIN = 4_194_304
SEGMENT_SHARE = 8
# A clock that is behind by more than this was set; by less, it was trimmed.
CLOCK_BEHIND_MS = 1000


def open_broker(config: Config, clock: Clock, wake: Callable[[], None]) -> Broker:
    """A broker with what its data directory holds, or an empty one that lives in memory."""
    exchange_plugins.load(config.plugins.exchanges)
    transform_plugins.load(config.plugins.transforms)
    service_plugins.load(config.plugins.services)
    directory = config.storage.directory
    if directory is None:
        broker = Broker(config, clock)
        broker.attach_streams(StreamStore(None, Disk(), JournalOptions(), clock, wake))
        static_topology.declare_all(broker)
        load_definitions(broker)
        return broker
    options = JournalOptions(
        sync=SyncPolicy(config.storage.sync),
        sync_interval_ms=config.storage.sync_interval_ms,
        disk_free_octets_min=config.limits.disk_free_bytes_min,
        segment_octets=segment_octets(config.limits.disk_free_bytes_min),
    )
    # Millions of objects come to stay: looking for garbage among them, again and again, takes long.
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return recovered_broker(config, clock, wake, str(directory), SystemDisk(), options)[0]
    finally:
        if is_collecting:
            gc.enable()


def segment_octets(free_bytes_min: int) -> int:
    """The size of the journal's files, so that a limit on free space means what it says.

    The limit is reached before a file finds no room, and the room for two, which the journal asks for before
    an alarm ends, is less than the limit. Where nothing has to be left free the files are of the usual size.
    """
    usual = JournalOptions().segment_octets
    if not free_bytes_min:
        return usual
    return min(usual, max(SEGMENT_OCTETS_MIN, free_bytes_min // SEGMENT_SHARE)) & ~4095


def recovered_broker(
    config: Config,
    clock: Clock,
    wake: Callable[[], None],
    directory: str,
    disk: Disk,
    options: JournalOptions,
) -> tuple[Broker, RecoveryReport]:
    """The broker that lies on a disk, and what was found there."""
    # A broker in memory does without these, which take a millisecond to load.
    from flintmq.broker.recovery import Recovery
    from flintmq.storage.journal.delivered_marks import DeliveredMarks
    from flintmq.storage.journal.overflow import Overflow
    from flintmq.storage.staging_files import StagingFiles

    with ExitStack() as opened:  # a start that fails leaves the directory to another one
        journal = Journal.open(directory, disk, options, clock, wake)
        opened.callback(journal.abandon)
        recovery = Recovery(Progress().tell)
        report = journal.recover(recovery)
        overflow = Overflow.open(os.path.join(directory, "overflow"), disk, options, clock, wake)
        opened.callback(overflow.journal.abandon)
        delivered_marks = DeliveredMarks(disk, os.path.join(directory, "hand-outs"))
        opened.callback(delivered_marks.close)
        stream_store = StreamStore(os.path.join(directory, "streams"), disk, options, clock, wake)
        opened.callback(stream_store.abandon)
        recovery.delivered_marks(delivered_marks.recover(journal.synced_sequence))
        store = Store(journal, overflow, delivered_marks)
        store.lost = len(report.entries_unreadable)
        broker = Broker(config, clock, store)
        build_broker(broker, journal, recovery, report, stream_store, StagingFiles(journal, wake))
        tell(report)
        if report.is_incomplete:
            store.when_synced(store.last(), journal.forget_damage)
        opened.pop_all()
    return broker, report


def tell(report: RecoveryReport) -> None:
    losses = report.losses()
    for line in report.lines():
        log.log(logging.ERROR if line in losses else logging.INFO, "recovery: %s", line)


def build_broker(
    broker: Broker,
    journal: Journal,
    recovery: Recovery,
    report: RecoveryReport,
    stream_store: StreamStore,
    staging_files: StagingFiles,
) -> None:
    """Everything that the journal and the settings define, in a broker that has nothing yet."""
    store = broker.store
    if store is None:
        raise AssertionError("a broker that lies on a disk has a store")
    go_on_in_time(broker, journal)
    broker.administration.restore(recovery.administered)
    is_incomplete = report.is_incomplete
    recovery.found_branches.is_incomplete = is_incomplete or bool(report.entries_unreadable)
    streams = broker.attach_streams(stream_store)
    # Users of back ends are not known here, and those that a damaged journal has lost may come back.
    is_anybody = is_incomplete or broker.config.auth.backend_names() != (INTERNAL,)
    broker.attach_staging(staging_files).restore(
        recovery.staged, lambda name: is_anybody or broker.users.get(name) is not None
    )
    store.numbers = recovery.build(broker.virtual_hosts, store, is_incomplete)
    if is_incomplete:
        recovery.rescue_streams(broker.virtual_hosts, streams.storage.numbers())
    left = streams.drop_leftovers(recovery.queue_numbers())
    store.numbers = max(store.numbers, left)
    broker.administration.virtual_hosts.unserved |= recovery.unserved
    broker.administration.resume()
    static_topology.declare_all(broker)
    load_definitions(broker)
    store.end_pass()


def load_definitions(broker: Broker) -> None:
    """What the file that the settings name defines, after all that the settings themselves say."""
    file = broker.config.load_definitions
    if file is not None:
        from flintmq.broker.definitions.definitions import definitions_of

        definitions_of(broker).load(file)


def go_on_in_time(broker: Broker, journal: Journal) -> None:
    """The broker's time goes on from that of its last life, though the machine's clock was set back since."""
    noted_ms = 0 if journal.promises is None else journal.promises.time_ms
    behind_ms = broker.timetable.go_on_from(noted_ms)
    if behind_ms > CLOCK_BEHIND_MS:
        log.warning(
            "the clock is %d s behind the time of the last stop: delays and lifetimes go on from there, "
            "and what is stamped with a time is ahead of the clock by as much",
            behind_ms // 1000,
        )
    journal.now_ms = broker.timetable.now_ms


class Progress:
    """Tells how far recovery has come, ten times at the most."""

    def __init__(self) -> None:
        self.tenths = 0

    def tell(self, done: int, total: int) -> None:
        if total < PROGRESS_BYTES_MIN:
            return
        tenths = 10 * done // total
        if tenths > self.tenths:
            self.tenths = tenths
            log.info("recovery: %d %% of %d MiB", 10 * tenths, total >> 21)
