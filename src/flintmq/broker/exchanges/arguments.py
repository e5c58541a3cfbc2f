"""Arguments of exchanges, queues and bindings: each is read by a check, and a wrong one is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flintmq.checks import Check, Unfit
from flintmq.errors import ChannelFault
from flintmq.wire import amqp
from flintmq.wire.tables import FieldValue


def checked(arguments: Mapping[str, FieldValue], name: str, check: Check, default: FieldValue = None) -> Any:
    """What an argument means. Without a default that the check takes, the argument must be there."""
    try:
        return check(arguments.get(name, default))
    except Unfit as unfit:
        raise refused(name, str(unfit)) from None


def wrong(name: str, expected: str) -> ChannelFault:
    return refused(name, f"expected {expected}")


def refused(name: str, why: str) -> ChannelFault:
    return ChannelFault(amqp.PRECONDITION_FAILED, f"invalid arg '{name}': {why}")
