"""A client for AMQP/Fast 0.9: `connect` for blocking code; aio.connection has the same for asyncio.

API         aio/connection.py; sync/connection.py is made of it by tools/generate_sync_client.py
transport   those of flintmq.client.fast
core        core.py: no sockets; both clients share it
"""

from flintmq.client.fast09.core import Message
from flintmq.client.fast09.sync.connection import Channel, Connection, Consumer, connect

__all__ = ["Channel", "Connection", "Consumer", "Message", "connect"]
