"""How a journal is asked to behave."""

from __future__ import annotations

from enum import Enum

from flintmq.errors import ConfigFault
from flintmq.field_tuple import FieldTuple


class SyncPolicy(Enum):
    """What a promise is worth.

    ALWAYS    synced: survives the loss of power
    INTERVAL  written: survives the death of the process; the loss of power costs up to sync_interval_ms
    NEVER     written: survives the death of the process; the loss of power costs what was not yet on disk
    """

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


class JournalOptions(FieldTuple):
    """Settings of one journal; the defaults suit a broker."""

    sync: SyncPolicy = SyncPolicy.ALWAYS
    sync_interval_ms: int = 100
    # 32 MiB hold some 250,000 small entries; two of them are the fixed part of the disk's use.
    segment_octets: int = 32 << 20
    # Segments of zeros kept ready.
    spare_segments: int = 1
    # Copied by one step of a rewrite, between two batches: about a millisecond.
    rewrite_step_octets: int = 256 << 10
    # How long too much must have been unneeded before a sparse segment is rewritten.
    rewrite_delay_ms: int = 200
    # Below this much free space the journal raises its alarm.
    disk_free_octets_min: int = 0
    # False: no threads, everything happens inside the call. For simulation and tools.
    threaded: bool = True
    # True: what is stored does not outlive the process, so nothing needs to be safe.
    ephemeral: bool = False
    # Written but not synced under INTERVAL; beyond this a sync comes early.
    unsynced_octets_max: int = 64 << 20
    # After a failed write the next attempt waits this long.
    retry_interval_ms: int = 1000

    def check(self) -> None:
        """A ConfigFault tells what no journal can be kept by."""
        if self.segment_octets < 4096 or self.segment_octets % 4096:
            raise ConfigFault("segment_octets must be a multiple of 4096")
        if self.sync_interval_ms < 1 or self.retry_interval_ms < 0:
            raise ConfigFault("sync_interval_ms must be at least 1, retry_interval_ms at least 0")
        if self.spare_segments < 0 or self.rewrite_step_octets < 1:
            raise ConfigFault("spare_segments must not be negative, rewrite_step_octets at least 1")
