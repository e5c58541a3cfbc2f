"""What a publisher may say in the properties of a message, where the broker has to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.header_changes import expiration_of
from flintmq.broker.queue_rules import TIMER_MS_MAX
from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.wire import amqp
from flintmq.wire.properties import decode_basic_properties

if TYPE_CHECKING:
    from flintmq.auth import User


def malformed() -> ConnectionFault:
    return ConnectionFault(
        amqp.SYNTAX_ERROR, "SYNTAX_ERROR - properties of a content header do not fit its size", 60, 40
    )


def check_user_id(user: User, whole: bytes, header_size: int) -> None:
    """A message may name its sender, but nobody else."""
    named = decode_basic_properties(whole, 12, header_size).user_id
    if named != user.name:
        raise ChannelFault(
            amqp.PRECONDITION_FAILED,
            f"PRECONDITION_FAILED - user_id property set to '{named}' "
            f"but authenticated user was '{user.name}'",
            60,
            40,
        )


def lifetime_ms_of(content: bytes) -> int:
    """How long a message with an expiration may live; 406 unless it is a number, as in RabbitMQ."""
    text = expiration_of(content) or ""
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > TIMER_MS_MAX:
        raise ChannelFault(
            amqp.PRECONDITION_FAILED,
            f"PRECONDITION_FAILED - invalid expiration '{text[:64]}': "
            f"expected milliseconds as a whole number from 0 to {TIMER_MS_MAX}",
            60,
            40,
        )
    return int(text)
