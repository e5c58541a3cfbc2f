"""The arguments that services take: one table for each service, written as a signature.

    "user text, password? secret, tags? array"

An argument has a name and a kind; `?` marks one that may be left out. A request with an argument that its
service does not take is refused, so that a slip (`vhost` for `virtual-host`) does not change something else
than was meant. Values of secrets are for the service alone: they are never told to anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flintmq.checks import nearest
from flintmq.errors import ProtocolMisuse
from flintmq.field_tuple import FieldTuple

KINDS = frozenset(("any", "array", "flag", "number", "secret", "table", "text", "time"))
# What a page of a list is asked for with.
PAGE = "limit? number, after? text"
# Headers that a request may have beside its arguments: those of answers.py, and what libraries that trace
# messages add by themselves.
BESIDE = frozenset(("baggage", "traceparent", "tracestate", "x-memory", "x-repeat"))
# What others call it.
KNOWN_AS = {
    "component-name": "component",
    "host": "virtual-host",
    "offset": "after",
    "tag": "tags",
    "username": "user",
    "vhost": "virtual-host",
}

Table = Mapping[str, "Argument"]


class Argument(FieldTuple):
    """One argument of a service."""

    name: str
    kind: str
    is_required: bool


def table_of(signature: str) -> Table:
    """The arguments of a signature by name."""
    found: dict[str, Argument] = {}
    for each in signature.split(","):
        if not each.strip():
            continue
        name, _, kind = each.strip().partition(" ")
        if kind not in KINDS:
            raise ProtocolMisuse(f"argument {name!r} of a service is of no kind there is: {kind!r}")
        found[name.removesuffix("?")] = Argument(name.removesuffix("?"), kind, not name.endswith("?"))
    return found


def unknown_among(given: Iterable[str], known: Table) -> str | None:
    """The first of the names given that is no argument."""
    return next((name for name in given if name not in known and name not in BESIDE), None)


def advice(name: str, known: Table) -> str:
    """What is probably meant by a name that is no argument."""
    plain = name.replace("_", "-").lower()
    meant = KNOWN_AS.get(plain, plain)
    if meant not in known:
        meant = nearest(plain, known) or ""
    if meant:
        return f"did you mean '{meant}'?"
    return f"known are {', '.join(sorted(known))}" if known else "the service takes none"
