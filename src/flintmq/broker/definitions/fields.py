"""One object of a definitions file, read key by key: what is wrong is told, and what nobody has read too."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flintmq import checks
from flintmq.checks import Unfit
from flintmq.definition_parts import KEY_CHARS_MAX
from flintmq.wire.tables import DEPTH_MAX

if TYPE_CHECKING:
    from flintmq.wire.tables import FieldTable, FieldValue

_REQUIRED: Any = object()


class Fields:
    """The keys of one object. A key whose value is null is as good as not there, as RabbitMQ has it."""

    def __init__(self, given: object) -> None:
        if not isinstance(given, dict):
            raise Unfit("expected an object")
        self.given: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        self.unread = dict.fromkeys(self.given)

    def take(self, key: str, check: checks.Check, default: Any = _REQUIRED) -> Any:
        self.unread.pop(key, None)
        if key not in self.given:
            if default is _REQUIRED:
                raise Unfit(f"{key} is missing")
            return default
        try:
            return check(self.given[key])
        except Unfit as unfit:
            raise Unfit(f"{key}: {unfit}") from None

    def name(self, key: str) -> str:
        found: str = self.take(key, checked_text(checks.text()))
        return found

    def text(self, key: str, default: str = _REQUIRED) -> str:
        found: str = self.take(key, checked_text(checks.any_text), default)
        return found

    def key(self, key: str, default: str = _REQUIRED) -> str:
        """A short text, which may be empty."""
        found: str = self.take(key, checked_text(checks.key), default)
        return found

    def flag(self, key: str, default: bool = False) -> bool:
        found: bool = self.take(key, checks.switch, default)
        return found

    def table(self, key: str) -> FieldTable:
        """A field table, empty if it is not there."""
        found: FieldTable = self.take(key, field_table, {})
        return found

    def has(self, key: str) -> bool:
        return key in self.given

    def rest(self) -> list[str]:
        """Keys that nobody has asked for."""
        return [json.dumps(key)[1:-1][:KEY_CHARS_MAX] for key in self.unread]


def checked_text(check: checks.Check) -> Callable[[object], str]:
    """Text that can be written as octets, too."""

    def checked(value: object) -> str:
        if isinstance(value, str):
            field_value(value)
        found: str = check(value)
        return found

    return checked


def field_table(value: object) -> FieldTable:
    """RabbitMQ writes an empty table as an empty array at times."""
    if value == []:
        return {}
    if not isinstance(value, dict):
        raise checks.expected("an object")
    found = field_value(value)
    assert isinstance(found, dict)
    return found


def named_values(value: object) -> FieldTable:
    """An object, or an array of names with their values, as `rabbitmqctl export_definitions` writes limits of
    virtual hosts and definitions of operator policies.
    """
    pairs = isinstance(value, list) and all(isinstance(each, list) and len(each) == 2 for each in value)
    if isinstance(value, list) and pairs and all(isinstance(name, str) for name, _ in value):
        return field_table(dict(value))
    return field_table(value)


def field_value(value: object, depth: int = 0) -> FieldValue:
    """What a JSON value is in a field table."""
    if depth > DEPTH_MAX - 2:
        raise Unfit(f"nested deeper than {DEPTH_MAX - 2} levels")
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        try:
            value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise Unfit("half of a character of two halves, which is no text") from None
        return value
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise checks.expected("a number of 64 bits")
        return value
    if isinstance(value, list):
        return [field_value(each, depth + 1) for each in value]
    if not isinstance(value, dict):
        raise checks.expected("a JSON value")
    table: FieldTable = {}
    for key, each in value.items():
        field_value(key)
        if checks.octets_of(key) > checks.NAME_OCTETS_MAX:
            raise Unfit(f"a key of more than {checks.NAME_OCTETS_MAX} octets")
        table[key] = field_value(each, depth + 1)
    return table
