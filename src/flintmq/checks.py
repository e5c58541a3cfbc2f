"""Checks of values that somebody else has given: settings, arguments, options, the keys of a file.

A check takes a value and returns what the value means. It raises Unfit when the value is not taken; the text
says what would be. Whoever calls the check knows where the value stands, and says so before that text:

    limits.heartbeat_s = "soon": expected a whole number from 0 to 65535
    invalid arg 'x-max-priority' for queue 'a' in vhost '/': expected a whole number from 0 to 255, not '256'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Check = Callable[[Any], Any]

NAME_OCTETS_MAX = 255
"""A name, a key and whatever else travels as an AMQP short string: one octet of length."""
NUMBER_MAX = (1 << 63) - 1
SHOWN_CHARS_MAX = 60
ALIKE = 0.65
"""How much of two names is the same, if one may be meant for the other."""

# Compiled for its first use, as the starts of most brokers have none.
_QUANTITY = r"(\d{1,18}(?:\.\d+)?)\s*([A-Za-z]*)"
_DECIMAL_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SIZE_UNITS: Mapping[str, int] = _DECIMAL_UNITS | _BINARY_UNITS


class Unfit(ValueError):
    """A value that is not taken; the text says what is.

    Where the fault lies inside the value, `within` leads there ("[2]", ".name"), to `value`.
    """

    def __init__(self, text: str, within: str = "", value: object = None) -> None:
        super().__init__(text)
        self.within = within
        self.value = value


def expected(what: str) -> Unfit:
    return Unfit(f"expected {what}")


def shown(value: object) -> str:
    """A value as it was written, cut to what fits on a line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    text = text.encode("unicode_escape").decode("ascii")
    return text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 3] + "..."


def nearest(word: str, known: Iterable[str]) -> str | None:
    """What was meant by a name that is not known; None if no known name is like it."""
    import difflib  # by whoever has made a mistake

    for name in difflib.get_close_matches(word, list(known), n=3, cutoff=ALIKE):
        start = shared_parts(word, name)
        if difflib.SequenceMatcher(None, word[start:], name[start:]).ratio() >= ALIKE:
            return name
    return None


def shared_parts(word: str, name: str) -> int:
    """How many letters the parts have that both begin with. They make nothing alike: each option begins with
    two dashes, and each list of `flintmq ctl` with `list_`."""
    end = 0
    for at, (letter, other) in enumerate(zip(word, name, strict=False), 1):
        if letter != other:
            break
        if letter in "-_.":
            end = at
    return end


def suggestion(word: str, known: Iterable[str], before: str = "; ") -> str:
    """The end of a sentence that tells of an unknown name."""
    near = nearest(word, known)
    return "" if near is None else f"{before}did you mean '{near}'?"


# Numbers


def whole(least: int, most: int) -> Check:
    def check(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise expected(f"a whole number from {least} to {most}")
        return value

    return check


def count(value: object) -> int:
    if type(value) is not int or not 0 < value <= NUMBER_MAX:
        raise expected("a whole number above 0")
    return value


def number(least: float, most: float) -> Check:
    """A decimal of a field table is a number too, a truth value is not."""

    def check(value: Any) -> float:
        if isinstance(value, bool) or not hasattr(value, "__float__") or not least <= value <= most:
            raise expected(f"a number from {least:g} to {most:g}")
        return float(value)

    return check


def quantity(value: object, units: Mapping[str, float]) -> float | None:
    """The number that a text such as "512MiB" or "1.5h" stands for; None if the text is not such."""
    matched = re.fullmatch(_QUANTITY, value.strip()) if isinstance(value, str) else None
    unit = None if matched is None else units.get(matched[2])
    if matched is None or unit is None:
        return None
    return (float(matched[1]) if "." in matched[1] else int(matched[1])) * unit


def size(least: int, most: int) -> Check:
    """Octets: a whole number, or text such as "512MiB" or "2 GB"."""

    def check(value: object) -> int:
        given = quantity(value, SIZE_UNITS) if isinstance(value, str) else value
        if type(given) is not int or not least <= given <= most:
            raise expected(f'a size from {least} to {most} bytes, such as 65536 or "512MiB"')
        return given

    return check


# Text


def any_text(value: object) -> str:
    if not isinstance(value, str):
        raise expected("text")
    return value


def some_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise expected("some text")
    return value


def text(octets_max: int = NAME_OCTETS_MAX) -> Check:
    def check(value: object) -> str:
        if not isinstance(value, str) or not 0 < octets_of(value) <= octets_max:
            raise expected(f"text of 1 to {octets_max} octets")
        return value

    return check


def key(value: object) -> str:
    """A routing key and the like: a short string, which may be empty."""
    if not isinstance(value, str) or octets_of(value) > NAME_OCTETS_MAX:
        raise expected(f"text of at most {NAME_OCTETS_MAX} octets")
    return value


def octets_of(value: str) -> int:
    return len(value.encode("utf-8", "surrogateescape"))


def one_of(*choices: str, quote: str = "") -> Check:
    def check(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise expected("one of " + ", ".join(f"{quote}{choice}{quote}" for choice in choices))
        return value

    return check


def switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise expected("true or false")
    return value


# What holds other values


def texts(each: Check, least: int = 0) -> Check:
    """A list in which each text stands once."""

    def check(value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) < least:
            raise expected("a list of texts" + (" with at least one in it" if least else ""))
        found: list[str] = []
        for index, item in enumerate(value):
            try:
                given = each(item)
                if given in found:
                    raise expected("each value once, this one is there twice")
            except Unfit as unfit:
                raise Unfit(str(unfit), f"[{index}]", item) from None
            found.append(given)
        return tuple(found)

    return check


def table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise expected("a table")
    return value
