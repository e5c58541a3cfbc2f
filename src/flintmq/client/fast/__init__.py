"""A client for AMQP/Fast 0.8: `connect` for blocking code, `flintmq.client.fast.aio.connection` for asyncio.

API         aio/connection.py; sync/connection.py is made of it by tools/generate_sync_client.py
transport   aio/transport.py (asyncio), sync/transport.py (a blocking socket): by hand, with the same names
core        core.py: no sockets; both clients share it
"""

from flintmq.client.fast.core import FastMessage
from flintmq.client.fast.sync.connection import Channel, Connection, Handle, connect

__all__ = ["Channel", "Connection", "FastMessage", "Handle", "connect"]
