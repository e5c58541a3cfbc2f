"""Which kind of feed a queue is: asked of the broker where it answers, found out where it does not."""

from __future__ import annotations

import logging

from flintmq.client import Connection
from flintmq.client.core.errors import AccessRefused, NotFound, PreconditionFailed, ServiceError
from flintmq.spark.errors import AmqpRefused
from flintmq.spark.feeds.feed import Feed
from flintmq.spark.feeds.lease_feed import LeaseFeed
from flintmq.spark.feeds.replay_feed import ReplayFeed
from flintmq.spark.feeds.stream_feed import StreamFeed
from flintmq.spark.feeds.unacked_feed import UnackedFeed
from flintmq.spark.options import ReadOptions

log = logging.getLogger("flintmq.spark")

STREAM = "stream"
CLASSIC = "classic"
_NAMES = {STREAM: "a stream", CLASSIC: "a classic queue"}


def has_services(connection: Connection) -> bool:
    """Whether it is FlintMQ; another broker has no exchange that answers."""
    try:
        connection.request("broker.info")
    except ServiceError:
        return False
    return True


def feed_of(connection: Connection, queue: str, options: ReadOptions, consumer: str) -> Feed:
    if has_services(connection):
        kind = kind_here(connection, queue)
        if options.queue_type not in (None, kind):
            raise AmqpRefused(
                f"Queue {queue!r} is {_NAMES[kind]}, and {_NAMES[options.queue_type]} is wanted: correct its "
                "name, or delete it and declare it anew."
            )
        if kind == STREAM:
            return StreamFeed(queue, options, connection)
        return LeaseFeed(queue, options, connection, consumer)
    product = connection.server_properties.get("product", "this broker")
    log.warning(
        "queue %r: %s has no leases and no stream services, so it is read at least once", queue, product
    )
    if (options.queue_type or kind_elsewhere(connection, queue)) == STREAM:
        return ReplayFeed(queue, options, connection)
    return UnackedFeed(queue, options)


def kind_here(connection: Connection, queue: str) -> str:
    arguments = connection.request("queue.info", {"queue": queue}).results.get("arguments")
    declared = arguments.get("x-queue-type") if isinstance(arguments, dict) else None
    return STREAM if declared == STREAM else CLASSIC


def kind_elsewhere(connection: Connection, queue: str) -> str:
    """By declaring it as a stream: what is there already stays as it is, and the refusal tells."""
    with connection.channel() as channel:
        channel.queue(queue, passive=True)
    channel = connection.channel()
    try:
        channel.queue(queue, durable=True, arguments={"x-queue-type": STREAM})
    except (NotFound, AccessRefused):
        return CLASSIC
    except PreconditionFailed as refused:
        return CLASSIC if "x-queue-type" in refused.text or "durable" in refused.text else STREAM
    channel.close()
    return STREAM
