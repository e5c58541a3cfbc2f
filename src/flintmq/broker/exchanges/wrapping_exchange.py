"""Exchanges that do something of their own with a message and have its bindings looked up by another kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flintmq import checks
from flintmq.broker.exchanges import arguments
from flintmq.broker.exchanges.binding import Binding
from flintmq.broker.exchanges.exchange import STANDARD_TYPES, Exchange, Headers
from flintmq.wire.tables import FieldValue

if TYPE_CHECKING:
    from flintmq.broker.exchanges.router import Router


class WrappingExchange(Exchange):
    """What such kinds share: `inner`, of the kind that an argument names, holds what looks bindings up."""

    __slots__ = ("inner",)
    receives = True
    type_argument = "x-routing-type"
    type_default: str | None = "fanout"

    def prepare(self) -> None:
        kind = arguments.checked(
            self.arguments, self.type_argument, checks.one_of(*sorted(STANDARD_TYPES)), self.type_default
        )
        self.inner = STANDARD_TYPES[kind](self.name)

    def enter(self, router: Router) -> None:
        super().enter(router)
        self.inner.router = router

    def validate_binding(self, routing_key: str, arguments: Mapping[str, FieldValue]) -> None:
        self.inner.validate_binding(routing_key, arguments)

    def topic_steps(self, routing_key: str) -> int:
        return self.inner.topic_steps(routing_key)

    def attach(self, binding: Binding) -> None:
        self.inner.attach(binding)

    def detach(self, binding: Binding) -> None:
        self.inner.detach(binding)

    def route(self, routing_key: str, headers: Headers | None, found: dict[Any, Any]) -> None:
        self.inner.route(routing_key, headers, found)
