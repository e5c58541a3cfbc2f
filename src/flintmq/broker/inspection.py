"""What must be looked into before a message is accepted: properties that few messages have.

The survey of the header (wire/content.py) says which; most messages never come here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker import copies, direct_reply
from flintmq.broker.published import check_user_id
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.channel import Channel


def look_into(channel: Channel, whole: bytes, header_size: int, found: int) -> bytes:
    """Raises what is wrong; the content as it goes on, its header perhaps another."""
    if found & traits.HAS_USER_ID:
        check_user_id(channel.user, whole, header_size)
    if found & traits.HAS_COPIES:
        copies.check(whole, header_size)
    if found & traits.HAS_REPLY_TO and whole.find(direct_reply.NAME_OCTETS, 0, header_size) >= 0:
        return direct_reply.rewritten(channel, whole, header_size)
    return whole
