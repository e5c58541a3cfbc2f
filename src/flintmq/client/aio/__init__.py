"""The async client: `await aio.connect("amqp://localhost")`. Begin with connection.py."""

from flintmq.client.aio.channel import Channel, Consumer, Exchange, Queue
from flintmq.client.aio.connection import Connection, connect
from flintmq.client.aio.services import Browser, Lease, Stream

__all__ = ["Browser", "Channel", "Connection", "Consumer", "Exchange", "Lease", "Queue", "Stream", "connect"]
