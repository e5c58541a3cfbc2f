"""How much peers may ask for: [limits], [dtx] and [staging]."""

from __future__ import annotations

from dataclasses import dataclass

from flintmq import checks
from flintmq.config.tables import setting


@dataclass(frozen=True, slots=True)
class Limits:
    """[limits]: how much a peer, or all of them together, may ask for."""

    connections_max: int = setting(65_536, checks.whole(1, 1_000_000))
    channels_per_connection_max: int = setting(2047, checks.whole(1, 65_535))
    consumers_per_channel_max: int = setting(10_000, checks.whole(1, 100_000_000))
    consumers_per_connection_max: int = setting(100_000, checks.whole(1, 100_000_000))
    queues_per_virtual_host_max: int = setting(100_000, checks.whole(1, 100_000_000))
    exchanges_per_virtual_host_max: int = setting(100_000, checks.whole(1, 100_000_000))
    bindings_per_virtual_host_max: int = setting(1_000_000, checks.whole(1, 100_000_000))
    settlements_per_transaction_max: int = setting(100_000, checks.whole(1, 100_000_000))
    # 4096 is the least that every peer must accept (0-9-1, frame-min-size).
    frame_bytes_max: int = setting(131_072, checks.size(4096, 128 * 2**20))
    message_bytes_max: int = setting(512 * 2**20, checks.size(1, 2**40))
    # Connections whose handshake is not done yet: some 6 KiB each, 40 KiB when TLS has begun.
    handshakes_max: int = setting(2048, checks.whole(1, 1_000_000))
    handshakes_per_address_max: int = setting(1024, checks.whole(1, 1_000_000))
    handshake_timeout_s: float = setting(10.0, checks.number(0.1, 3600))
    heartbeat_s: int = setting(60, checks.whole(0, 65_535))  # 0: none wanted
    memory_high_share: float = setting(0.4, checks.number(0.01, 1.0))
    memory_high_bytes: int | None = setting(None, checks.size(2**20, 2**60))
    disk_free_bytes_min: int = setting(256 * 2**20, checks.size(0, 2**60))

    def memory_bytes_high(self, machine_bytes: int) -> int:
        """The mark above which publishers wait: the absolute one if set, else a share of the machine."""
        if self.memory_high_bytes is not None:
            return self.memory_high_bytes
        return int(machine_bytes * self.memory_high_share)


@dataclass(frozen=True, slots=True)
class Dtx:
    """[dtx]: how much distributed transactions may hold, in each virtual host, and for how long."""

    branches_max: int = setting(10_000, checks.whole(1, 1_000_000))
    operations_per_branch_max: int = setting(1_000_000, checks.whole(1, 100_000_000))
    branch_bytes_max: int = setting(2**30, checks.size(1, 2**40))
    timeout_s: int = setting(0, checks.whole(0, 2**31))  # of a branch that is not prepared; 0: none
    heuristic_timeout_s: int = setting(0, checks.whole(0, 2**31))  # of one that is; 0: none
    markers_max: int = setting(10_000, checks.whole(1, 1_000_000))
    marker_age_s: int = setting(31_536_000, checks.whole(60, 1_000_000_000))


@dataclass(frozen=True, slots=True)
class Staging:
    """[staging]: how much contents that come in parts may hold, and for how long.

    A record of a content takes some 500 octets of memory and of the journal, published or not.
    """

    contents_per_user_max: int = setting(1000, checks.whole(1, 1_000_000))
    published_per_user_max: int = setting(10_000, checks.whole(1, 1_000_000))
    content_bytes_max: int = setting(64 * 2**30, checks.size(1, 2**50))
    user_bytes_max: int = setting(64 * 2**30, checks.size(1, 2**50))
    virtual_host_bytes_max: int = setting(256 * 2**30, checks.size(1, 2**50))
    expiry_s: int = setting(604_800, checks.whole(1, 2**31))  # since the last part, or since it was published
