"""Arguments of exchanges and queues: each is read by its type and range, and a wrong one is named."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal

from flintmq.errors import ChannelFault
from flintmq.wire import amqp
from flintmq.wire.tables import FieldValue

Arguments = Mapping[str, FieldValue]


def wrong(name: str, expected: str) -> ChannelFault:
    return ChannelFault(amqp.PRECONDITION_FAILED, f"invalid arg '{name}': expected {expected}")


def whole(arguments: Arguments, name: str, default: int | None, least: int, most: int) -> int:
    """A whole number; `default` None: it must be there."""
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise wrong(name, f"a whole number from {least} to {most}")
    return value


def share(arguments: Arguments, name: str) -> float:
    """A number from 0 to 1, which must be there."""
    value = arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not 0 <= value <= 1:
        raise wrong(name, "a number from 0 to 1")
    return float(value)


def text(arguments: Arguments, name: str, default: str) -> str:
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise wrong(name, "text")
    return value


def one_of(arguments: Arguments, name: str, default: str | None, choices: Collection[str]) -> str:
    """One of some words; `default` None: it must be there."""
    value = arguments.get(name, default)
    if not isinstance(value, str) or value not in choices:
        raise wrong(name, f"one of {', '.join(sorted(choices))}")
    return value


def switch(arguments: Arguments, name: str, default: bool) -> bool:
    value = arguments.get(name, default)
    if not isinstance(value, bool):
        raise wrong(name, "true or false")
    return value
