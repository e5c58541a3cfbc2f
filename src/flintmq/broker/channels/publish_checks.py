"""Checks of a message before it is accepted: user-id, CC and BCC, reply-to, the field types of headers.

The survey of the header (wire/content.py) says which checks a message needs; most need none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.channels import direct_reply
from flintmq.broker.messages import cc_bcc
from flintmq.broker.messages.published import check_user_id, too_many_headers
from flintmq.errors import ChannelFault
from flintmq.wire import amqp, traits
from flintmq.wire.header_edits import with_letters

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel


def proven(channel: Channel, whole: bytes, header_size: int) -> tuple[bytes, int]:
    """The content with headers that every client can read, and the size of its header; 502 if none can.

    Numbers in place of letters, as 0-9 has them, become letters, some of them with more octets.
    """
    header = with_letters(whole[:header_size])
    frame_bytes_max = channel.output.frame_bytes_max
    if len(header) != header_size and len(header) > frame_bytes_max - 8:
        raise ChannelFault(
            amqp.PRECONDITION_FAILED,
            f"a content header of {len(header)} octets, with the field types of 0-9-1, "
            f"does not fit into a frame of {frame_bytes_max}",
            60,
            40,
        )
    return header + whole[header_size:], len(header)


def look_into(channel: Channel, whole: bytes, header_size: int, found: int) -> bytes:
    """Raises what is wrong; the content as it goes on, its header perhaps another."""
    if found & traits.TOO_MANY:
        raise too_many_headers()
    if found & traits.UNPROVEN:
        whole, header_size = proven(channel, whole, header_size)
    if found & traits.HAS_USER_ID:
        check_user_id(channel.user, whole, header_size)
    if found & traits.HAS_COPIES:
        channel.check_copies(cc_bcc.check(whole, header_size))
    if found & traits.HAS_REPLY_TO and whole.find(direct_reply.NAME_OCTETS, 0, header_size) >= 0:
        return direct_reply.rewritten(channel, whole, header_size)
    return whole
