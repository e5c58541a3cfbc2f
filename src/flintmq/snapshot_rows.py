"""Rows of the snapshots that the broker hands to its management process: names of their fields, in order.

The broker makes plain tuples, which can be marshalled (broker/services/management_services.py), and the
management process gives them these names. Tables are octets as on the wire, empty for an empty table.
"""

from __future__ import annotations

import marshal
from typing import Any, NamedTuple


def rows_in(body: bytes) -> list[tuple[Any, ...]]:
    """The rows of an answer: lists of them, each of which a step of the broker has marshalled by itself."""
    return [row for part in marshal.loads(body) for row in marshal.loads(part)]


class QueueRow(NamedTuple):
    name: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    is_stream: bool
    arguments: bytes
    owner: int  # number of the connection, of an exclusive queue
    number: int  # in the journal; 0 if it is not kept
    consumers: int
    ready: int
    unacked: int
    delayed: int  # messages that wait for a retry; they are neither ready nor unacked
    delayed_returns: int  # how often these have come back, together
    ready_bytes: int  # of what is in memory
    paged: int  # messages that lie on disk only
    paged_bytes: int  # of their bodies
    entered: int  # messages that came
    settled: int  # acked or rejected
    unasked: int  # delivered without acks
    gets: int
    gets_unasked: int
    redeliveries: int
    rejected: int
    requeued: int
    expired: int
    dead_lettered: int  # of all that died those with an exchange for dead letters
    dropped: int  # those without
    refused: int  # publishes, as the queue was full
    overflowed: int  # of all that died those for which there was no room
    lost: int  # that the disk did not give back
    leases: int
    has_active: bool  # a consumer that could take a message now
    oldest_ms: int  # when its first message came; 0 if there is none, or the disk would have to be asked


class ExchangeRow(NamedTuple):
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: bytes
    bindings: int


class BindingRow(NamedTuple):
    source: str
    destination: str
    destination_type: str
    routing_key: str
    arguments: bytes


class ConnectionRow(NamedTuple):
    number: int
    vhost: str
    user: str
    peer_address: str
    protocol: str
    since_ms: int
    blocked: str
    channels: int
    client_properties: bytes
    described: dict[str, Any]  # by its link: ports, octets, agreed limits
    name: str  # that the client has given it; empty if it has none


class ChannelRow(NamedTuple):
    connection: int
    number: int
    vhost: str
    user: str
    consumers: int
    unacked: int
    unconfirmed: int
    prefetch_count: int
    global_prefetch_count: int
    confirm: bool
    transactional: bool
    flowing: bool
    oldest_unacked: int  # its delivery tag; 0 if there is none
    oldest_unacked_queue: str
    publishes: int
    confirmed: int
    returns: int
    unrouted: int
    delivery_tag: int
    unasked: int
    gets: int
    gets_unasked: int
    gets_empty: int
    acks: int
    redeliveries: int


# Counts that a channel keeps: the end of its row, as broker/channels/host_tally.py has them.
COUNTED = ChannelRow._fields[ChannelRow._fields.index("publishes") :]


class ConsumerRow(NamedTuple):
    connection: int
    channel: int
    vhost: str
    user: str
    tag: str
    queue: str
    no_ack: bool
    exclusive: bool
    prefetch_count: int
    unacked: int
    arguments: bytes
    is_active: bool
    priority: int
    oldest_unacked: int  # its delivery tag, of a consumer whose prefetch is full; 0 of others


class OctetsRow(NamedTuple):
    """Of a connection what its rates are counted from."""

    number: int
    received: int
    sent: int
