"""How much peers may ask for: [limits], [dtx] and [staging]."""

from __future__ import annotations

from typing import Annotated

from flintmq import checks
from flintmq.config.tables import Section


class Limits(Section):
    """[limits]: how much a peer, or all of them together, may ask for."""

    connections_max: Annotated[int, checks.whole(1, 1_000_000)] = 65_536
    channels_per_connection_max: Annotated[int, checks.whole(1, 65_535)] = 2047
    consumers_per_channel_max: Annotated[int, checks.whole(1, 100_000_000)] = 10_000
    consumers_per_connection_max: Annotated[int, checks.whole(1, 100_000_000)] = 100_000
    queues_per_virtual_host_max: Annotated[int, checks.whole(1, 100_000_000)] = 100_000
    exchanges_per_virtual_host_max: Annotated[int, checks.whole(1, 100_000_000)] = 100_000
    bindings_per_virtual_host_max: Annotated[int, checks.whole(1, 100_000_000)] = 1_000_000
    # Nodes of the trie of a topic exchange that one message may visit: some 50 ms.
    topic_steps_max: Annotated[int, checks.whole(1000, 1_000_000_000)] = 500_000
    settlements_per_transaction_max: Annotated[int, checks.whole(1, 100_000_000)] = 100_000
    # 4096 is the least that every peer must accept (0-9-1, frame-min-size).
    frame_bytes_max: Annotated[int, checks.size(4096, 128 * 2**20)] = 131_072
    message_bytes_max: Annotated[int, checks.size(1, 2**40)] = 512 * 2**20
    # Connections whose handshake is not done yet: some 6 KiB each, 40 KiB when TLS has begun.
    handshakes_max: Annotated[int, checks.whole(1, 1_000_000)] = 2048
    handshakes_per_address_max: Annotated[int, checks.whole(1, 1_000_000)] = 1024
    handshake_timeout_s: Annotated[float, checks.number(0.1, 3600)] = 10.0
    heartbeat_s: Annotated[int, checks.whole(0, 65_535)] = 60  # 0: none wanted
    memory_high_share: Annotated[float, checks.number(0.01, 1.0)] = 0.4
    memory_high_bytes: Annotated[int | None, checks.size(2**20, 2**60)] = None
    disk_free_bytes_min: Annotated[int, checks.size(0, 2**60)] = 256 * 2**20

    def memory_bytes_high(self, machine_bytes: int) -> int:
        """The mark above which publishers wait: the absolute one if set, else a share of the machine."""
        if self.memory_high_bytes is not None:
            return self.memory_high_bytes
        return int(machine_bytes * self.memory_high_share)


class Dtx(Section):
    """[dtx]: how much distributed transactions may hold, in each virtual host, and for how long."""

    branches_max: Annotated[int, checks.whole(1, 1_000_000)] = 10_000
    operations_per_branch_max: Annotated[int, checks.whole(1, 100_000_000)] = 1_000_000
    branch_bytes_max: Annotated[int, checks.size(1, 2**40)] = 2**30
    timeout_s: Annotated[int, checks.whole(0, 2**31)] = 0  # of a branch that is not prepared; 0: none
    heuristic_timeout_s: Annotated[int, checks.whole(0, 2**31)] = 0  # of one that is; 0: none
    markers_max: Annotated[int, checks.whole(1, 1_000_000)] = 10_000
    marker_age_s: Annotated[int, checks.whole(60, 1_000_000_000)] = 31_536_000


class Staging(Section):
    """[staging]: how much contents that come in parts may hold, and for how long.

    A record of a content takes some 500 octets of memory and of the journal, published or not.
    """

    contents_per_user_max: Annotated[int, checks.whole(1, 1_000_000)] = 1000
    published_per_user_max: Annotated[int, checks.whole(1, 1_000_000)] = 10_000
    content_bytes_max: Annotated[int, checks.size(1, 2**50)] = 64 * 2**30
    user_bytes_max: Annotated[int, checks.size(1, 2**50)] = 64 * 2**30
    virtual_host_bytes_max: Annotated[int, checks.size(1, 2**50)] = 256 * 2**30
    expiry_s: Annotated[int, checks.whole(1, 2**31)] = (
        604_800  # since the last part, or since it was published
    )
