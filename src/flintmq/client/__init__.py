"""The AMQP client: `connect` for blocking code, `flintmq.client.aio.connection` for asyncio.

    API         aio/connection.py, aio/channel.py: Connection, Channel, Queue, Exchange, Consumer;
                sync/ has the same without asyncio, made by tools/generate_sync_client.py
    transport   aio/transport.py (asyncio), sync/transport.py (blocking sockets): by hand, with the same names
    core        core/connection.py, core/channel.py: no sockets; both clients share it
    protocol    flintmq.protocol.client: the state machine
    framing     flintmq.wire: generated

Speaks 0-9-1 (and 0-9) to FlintMQ, RabbitMQ and others. Knows nothing of the broker's inside.
Begin with core/connection.py.
"""

from flintmq.client.core.dtx import Xid
from flintmq.client.core.errors import (
    AccessRefused,
    BadSettings,
    CallTimeout,
    ChannelClosed,
    ClientError,
    CommitUnknown,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    ConsumerCancelled,
    ForkedConnection,
    LoginRefused,
    MessageTooLarge,
    NotFound,
    PreconditionFailed,
    PublishFailed,
    RequestUnknown,
    ResourceLocked,
    ServiceError,
    TransactionFailed,
    TransactionLost,
)
from flintmq.client.core.message import Message
from flintmq.client.core.services import Glance, Leased, Offsets, Reply
from flintmq.client.core.settings import Recovery, Secret, Settings, Tls
from flintmq.client.core.spans import Spans
from flintmq.client.sync.channel import Channel, Consumer, Exchange, Queue
from flintmq.client.sync.connection import Connection, connect
from flintmq.client.sync.services import Browser, Lease, Stream
from flintmq.wire.properties import BasicProperties as Properties
from flintmq.wire.properties import StreamProperties

__all__ = [
    "AccessRefused",
    "BadSettings",
    "Browser",
    "CallTimeout",
    "Channel",
    "ChannelClosed",
    "ClientError",
    "CommitUnknown",
    "ConnectFailed",
    "Connection",
    "ConnectionClosed",
    "ConnectionLost",
    "Consumer",
    "ConsumerCancelled",
    "Exchange",
    "ForkedConnection",
    "Glance",
    "Lease",
    "Leased",
    "LoginRefused",
    "Message",
    "MessageTooLarge",
    "NotFound",
    "Offsets",
    "PreconditionFailed",
    "Properties",
    "PublishFailed",
    "Queue",
    "Recovery",
    "Reply",
    "RequestUnknown",
    "ResourceLocked",
    "Secret",
    "ServiceError",
    "Settings",
    "Spans",
    "Stream",
    "StreamProperties",
    "Tls",
    "TransactionFailed",
    "TransactionLost",
    "Xid",
    "connect",
]
