"""basic.publish of a large message: looked at when its header has come, published when its body has.

begin_body -> IncomingSpool, which takes the body ... -> publish_spooled -> queues
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.auth import AnswerPending
from flintmq.broker.channels import publish_checks
from flintmq.broker.messages.message import new_message
from flintmq.broker.messages.published import lifetime_ms_of, refused
from flintmq.broker.store.spooling import IncomingSpool
from flintmq.errors import PeerFault, ProtocolMisuse
from flintmq.wire import content, traits

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.channels.channel import Channel


def begin_body(
    channel: Channel, route_octets: bytes, header: bytes, opened: Callable[[], None]
) -> IncomingSpool | None:
    """Where a large body is to go. What would refuse the message does so now, not after gigabytes.

    `opened` is called when a file is made for it.
    """
    if channel.store is None:
        return None
    check_body(channel, route_octets, header)
    return new_spool(channel, opened)


def new_spool(channel: Channel, opened: Callable[[], None]) -> IncomingSpool | None:
    return None if channel.store is None else IncomingSpool(channel.store.journal, opened)


def check_body(channel: Channel, route_octets: bytes, header: bytes) -> None:
    """Raises unless the user may publish what has this header."""
    channel.find_route(route_octets)
    check_header(channel, header)


def check_header(channel: Channel, header: bytes) -> int:
    """What the header of a large message says."""
    found = content.traits_of(header)
    if found < 0:
        raise refused(found, header)
    if found & (traits.HAS_USER_ID | traits.HAS_COPIES):
        publish_checks.look_into(channel, header, len(header), found & ~traits.HAS_REPLY_TO)
    if found & traits.HAS_EXPIRATION:
        lifetime_ms_of(header)
    return found


def publish_spooled(
    channel: Channel, route_octets: bytes, flags: int, header: bytes, arrival: IncomingSpool
) -> None:
    """basic.publish whose body has arrived."""
    store = channel.store
    if store is None:
        raise ProtocolMisuse("a body arrived for a broker without a store")
    if channel.confirms.active and channel.transaction is None:
        channel.confirms.count()
    spool = arrival.spool()
    spool.finish()
    try:
        found = check_header(channel, header) | traits.SPOOLED | flags & traits.CONTENT_CLASSES
        if found & (traits.HAS_REPLY_TO | traits.UNPROVEN):
            wanted = found & (traits.HAS_REPLY_TO | traits.UNPROVEN)
            header = publish_checks.look_into(channel, header, len(header), wanted)
            found &= ~traits.UNPROVEN
        route = channel.find_route(route_octets)
    except AnswerPending:
        raise  # it is tried again
    except PeerFault:
        spool.discard()
        raise
    message = new_message(route.octets, header, len(header), found, channel.origin)
    message.arrived_ms = channel.virtual_host.pass_work.now_ms
    if found & traits.HAS_EXPIRATION:
        message.lifetime_ms = lifetime_ms_of(header)
    store.arrived[message] = spool
    if channel.transaction is not None and not found & traits.STREAM_CONTENT:
        try:
            channel.transaction.publish(message, flags)
        except PeerFault:
            store.forget_arrived(message)
            raise
        return
    try:
        channel.forward(message, route, flags)
    finally:
        store.forget_arrived(message)
