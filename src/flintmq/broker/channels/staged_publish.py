"""A staged content becomes a message: in its queues and noted as published, in one group of the journal."""

from __future__ import annotations

import struct
from enum import Enum
from typing import TYPE_CHECKING

from flintmq.broker.channels import publish_checks
from flintmq.broker.channels.spooled_publish import check_header
from flintmq.broker.messages import cc_bcc
from flintmq.broker.messages.message import new_message
from flintmq.broker.messages.published import lifetime_ms_of
from flintmq.broker.queues import put_flags
from flintmq.broker.streams.stream_arguments import refuse_too_large
from flintmq.errors import ProtocolMisuse, ServiceFault
from flintmq.wire import amqp, traits

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.store.staging import StagedContent, Staging
    from flintmq.storage.spool import Spool

# A smaller content is a message in memory, as if it had come in one piece.
HELD_BYTES_MAX = 65_536

# Class, weight, body size: what a content header has before its properties.
_HEADER_HEAD = struct.Struct(">HHQ")


class Outcome(Enum):
    """What has become of a content that was to be published."""

    PUBLISHED = 0
    UNROUTABLE = 1  # no queue would get it: it stays staged
    FULL = 2  # every queue that would get it refuses: it stays staged
    NO_CONSUMERS = 3  # no queue could hand it on at once: it stays staged


# What a client is told of those that are returned.
RETURNED = {
    Outcome.UNROUTABLE: (amqp.NO_ROUTE, "NO_ROUTE"),
    Outcome.NO_CONSUMERS: (amqp.NO_CONSUMERS, "NO_CONSUMERS"),
}


def publish_staged(
    channel: Channel,
    staging: Staging,
    content: StagedContent,
    route_octets: bytes,
    properties: bytes,
    is_immediate: bool = False,
    content_class: int = 0,
    mandatory: bool | None = None,
) -> Outcome:
    """Publishes what is staged, which has to be whole; `properties` are the octets of a Basic message's.

    What no queue gets is returned to the client if it is mandatory, and stays staged; it is dropped if it is
    not mandatory, and stays staged if nobody has said.
    """
    store = channel.store
    if store is None:
        raise ProtocolMisuse("a staged content needs a store")
    spool = staging.check_whole(content)
    header = _HEADER_HEAD.pack(amqp.CLASS_BASIC, 0, spool.octets) + properties
    route = channel.find_route(route_octets)
    found = check_header(channel, header)
    if found & (traits.HAS_REPLY_TO | traits.UNPROVEN):
        header = publish_checks.look_into(
            channel, header, len(header), found & (traits.HAS_REPLY_TO | traits.UNPROVEN)
        )
        found &= ~traits.UNPROVEN
    is_held = spool.octets < HELD_BYTES_MAX
    whole = header + staged_octets(content, spool, spool.octets if is_held else 0)
    # No consumer gets it before it is noted as published: else a crash could publish it twice.
    found |= content_class | (traits.MOVED if is_held else traits.MOVED | traits.SPOOLED)
    message = new_message(route.octets, whole, len(header), found, channel.origin)
    message.arrived_ms = channel.virtual_host.pass_work.now_ms
    if found & traits.HAS_EXPIRATION:
        message.lifetime_ms = lifetime_ms_of(header)
    if not is_held:
        staging.files.hand_over(spool)
    route.passed += 1
    is_over = False
    try:
        with store.journal.group(), store.sharing(None if is_held else spool, message):
            outcome = put(channel, message, is_immediate)
            is_over = outcome is Outcome.PUBLISHED
            if outcome in RETURNED and mandatory is not None:
                if mandatory or outcome is Outcome.NO_CONSUMERS:
                    channel.give_back(message, *RETURNED[outcome])
                else:
                    is_over = True
            if is_over:
                channel.router.secure_streams()
                staging.finish(content)
    finally:
        if not is_over:
            spool.rest()
    return outcome


def staged_octets(content: StagedContent, spool: Spool, count: int) -> bytes:
    """The first octets of a content, if its file has all that it should have."""
    if not spool.octets:
        return b""
    try:
        handle = spool.open_to_read()
        try:
            is_whole = spool.disk.size(handle) >= spool.octets
            octets = spool.disk.read(handle, 0, count)
        finally:
            spool.disk.let_go(handle)
    except OSError as failure:
        raise lost(content, failure.strerror or str(failure)) from failure
    if not is_whole or len(octets) < count:
        raise lost(content, "it is cut short")
    return octets


def lost(content: StagedContent, why: str) -> ServiceFault:
    return ServiceFault(
        amqp.RESOURCE_ERROR,
        f"the file of content '{content.identifier}' cannot be read, {why}: delete it, and begin anew",
    )


def put(channel: Channel, message: Message, is_immediate: bool) -> Outcome:
    """Gives the message to its queues, if there are some and not all of them refuse it."""
    queues, passage = channel.router.find_way(message, channel)
    if queues is None:
        return Outcome.PUBLISHED  # an exchange has taken it
    try:
        outcome = put_into(channel, message, queues, is_immediate)
    except Exception:
        if passage is not None:
            passage.take_back()
        raise
    if passage is not None and outcome is not Outcome.PUBLISHED:
        passage.take_back(outcome is not Outcome.FULL)
    return outcome


def put_into(channel: Channel, message: Message, queues: list[Queue], is_immediate: bool) -> Outcome:
    """The same where exchanges have led it to these queues."""
    router = channel.router
    if router.is_traced:
        channel.trace_publish(message, router.route_of(message.route), queues)
    if not queues:
        return Outcome.UNROUTABLE
    if is_immediate:
        queues = [queue for queue in queues if queue.can_take_now(message)]
        if not queues:
            return Outcome.NO_CONSUMERS
    refuse_too_large(queues, message.header_size + message.body_size())
    if router.is_refused(message, queues):
        return Outcome.FULL
    happened = 0
    if message.traits & traits.HAS_COPIES:
        shown = cc_bcc.without_blind(message)
        assert channel.store is not None
        with channel.store.sharing(channel.store.arrived.get(message), shown):
            happened = router.enqueue(shown, queues, None, True)
    else:
        happened = router.enqueue(message, queues, None, True)
    if happened & put_flags.IN_STREAM:
        if router.streams is not None:
            router.streams.moved = True
    elif happened & put_flags.REFUSED and all(queue.is_stream for queue in queues):
        return Outcome.FULL  # the disk has not given them the body
    return Outcome.PUBLISHED
