"""What a publisher may say in the properties of a message, where the broker has to know."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flintmq.auth import Tag
from flintmq.broker.messages.header_changes import expiration_of
from flintmq.errors import ChannelFault, ConnectionFault, PeerFault
from flintmq.wire import amqp, traits
from flintmq.wire.header_edits import place_of
from flintmq.wire.headers import read_headers, read_property

if TYPE_CHECKING:
    from flintmq.auth import User
    from flintmq.broker.messages.message import Message
    from flintmq.wire.tables import FieldTable

# RabbitMQ's own limit of what a timer may be told: ten years of 365 days.
TIMER_MS_MAX = 10 * 365 * 86_400_000
_NUMBER = re.compile(r"[+-]?[0-9]+")


def refused(found: int, header: bytes) -> PeerFault:
    """What is wrong with a header that survey (wire/content.py) does not accept."""
    if found == traits.WRONG_MODE:
        mode = header[place_of(header, amqp.FLAG_DELIVERY_MODE)[0]]
        return ChannelFault(
            amqp.PRECONDITION_FAILED,
            f"invalid message: delivery mode {mode} is neither 1 nor 2",
            60,
            40,
        )
    return ConnectionFault(amqp.SYNTAX_ERROR, "properties of a content header do not fit its size", 60, 40)


def too_many_headers() -> PeerFault:
    return ChannelFault(
        amqp.PRECONDITION_FAILED,
        f"invalid message: more than {traits.HEADERS_MAX} headers, those in tables and arrays included; "
        "put them into the body",
        60,
        40,
    )


def check_user_id(user: User, whole: bytes, header_size: int) -> None:
    """A message may name its sender, but nobody else, unless the user is an impersonator."""
    named = read_property(whole, header_size, amqp.FLAG_USER_ID)
    if named != user.name and Tag.IMPERSONATOR not in user.tags:
        raise ChannelFault(
            amqp.PRECONDITION_FAILED,
            f"user_id property set to '{named}' but authenticated user was '{user.name}'",
            60,
            40,
        )


def lifetime_ms_of(content: bytes) -> int:
    """How long a message with an expiration may live; 406 unless it is a number, as RabbitMQ reads it."""
    text = expiration_of(content) or ""
    number = _NUMBER.fullmatch(text)
    if number is None or not 0 <= int(number[0]) <= TIMER_MS_MAX:
        raise ChannelFault(
            amqp.PRECONDITION_FAILED,
            f"invalid expiration '{text[:64]}': "
            f"expected milliseconds as a whole number from 0 to {TIMER_MS_MAX}",
            60,
            40,
        )
    return int(text)


def headers_of(message: Message) -> FieldTable:
    """The headers of a message, which fails where they cannot be read."""
    return read_headers(message.content, message.header_size)
