"""A binding leads from an exchange to a queue or to another exchange.

This module owns what makes two bindings the same: their ends, the key, and the arguments as
matching/field_equality.py compares them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Protocol

from flintmq.broker.matching.field_equality import table_form
from flintmq.wire.tables import FieldValue

if TYPE_CHECKING:
    from flintmq.broker.exchanges.exchange import Exchange


# The argument of a chained binding, see chains.py.
VIA = "x-via"
# 16 octets of digest are 22 letters of base64, the length RabbitMQ's names have.
DIGEST_BYTES = 16


class Destination(Protocol):
    """What a binding leads to: a queue or an exchange. Compared by object identity."""

    @property
    def name(self) -> str: ...


class Binding:
    """One way out of an exchange; made by Exchange alone, which finds it by what it is equal to."""

    # `older` and `newer` chain the bindings of one destination, so that a deleted queue takes
    # its own bindings along without a search and without a container for each destination.
    __slots__ = ("_arguments", "destination", "form", "newer", "number", "older", "routing_key", "source")

    def __init__(
        self,
        source: Exchange,
        destination: Destination,
        routing_key: str,
        arguments: Mapping[str, FieldValue],
        number: int = 0,
    ) -> None:
        self.source = source
        self.number = number  # its place among those of its source
        self.destination = destination
        self.routing_key = routing_key
        self.form: tuple[Hashable, ...] = table_form(arguments)  # what arguments are compared by
        self._arguments: dict[str, FieldValue] | None = dict(arguments) if arguments else None
        self.older: Binding | None = None
        self.newer: Binding | None = None

    @property
    def arguments(self) -> dict[str, FieldValue]:
        # Most bindings have none, and an empty dict for each of 100,000 would be 6 MB.
        return {} if self._arguments is None else self._arguments

    # A key of its own for each of a million bindings would be 80 MB.

    def __hash__(self) -> int:
        return hash((self.destination, self.routing_key, self.form))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Binding) and self.is_same(other)

    def is_same(self, other: Binding) -> bool:
        return (
            self.destination is other.destination
            and self.routing_key == other.routing_key
            and self.form == other.form
            and self.source is other.source
        )

    def is_chained(self) -> bool:
        return self._arguments is not None and VIA in self._arguments

    @property
    def properties_key(self) -> str:
        """The name of this binding among those of its two ends, as the management API spells it."""
        from urllib.parse import quote_plus  # for management: it takes a millisecond to load

        key = quote_plus(self.routing_key).replace("~", "%7E")
        if self._arguments is None:
            return key or "~"
        form = repr(self.form).encode("utf-8", "backslashreplace")
        digest = hashlib.blake2b(form, digest_size=DIGEST_BYTES).digest()
        return f"{key}~{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"

    def __repr__(self) -> str:
        return f"<Binding {self.source.name!r} -> {self.destination.name!r} {self.properties_key}>"
