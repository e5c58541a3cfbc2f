"""An example of an exchange type of one's own: x-length routes by the length of the routing key.

A binding key is a whole number; a message goes where that is the length of its routing key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flintmq.broker.exchanges.binding import Binding, Destination
from flintmq.broker.exchanges.exchange import Exchange
from flintmq.errors import ChannelFault


class LengthExchange(Exchange):
    """Routes by the length of the routing key."""

    type = "x-length"

    def prepare(self) -> None:
        self.lengths: dict[int, list[Destination]] = {}

    def validate_binding(self, routing_key: str, arguments: Mapping[str, Any]) -> None:
        if not routing_key.isdigit():
            raise ChannelFault(406, f"binding key '{routing_key}': expected a length")

    def attach(self, binding: Binding) -> None:
        self.lengths.setdefault(int(binding.routing_key), []).append(binding.destination)

    def detach(self, binding: Binding) -> None:
        self.lengths[int(binding.routing_key)].remove(binding.destination)

    def route(self, routing_key: str, headers: Any, found: dict[Any, Any]) -> None:
        for destination in self.lengths.get(len(routing_key), []):
            found[destination] = None


class ShakyExchange(LengthExchange):
    """Fails at work, for the tests."""

    type = "x-shaky"

    def attach(self, binding: Binding) -> None:
        if binding.routing_key == "13":
            raise ZeroDivisionError("unlucky")
        super().attach(binding)

    def route(self, routing_key: str, headers: Any, found: dict[Any, Any]) -> None:
        raise RuntimeError("not today")


class Direct(LengthExchange):
    """Wants a name that is taken."""

    type = "direct"


class Incomplete(Exchange):
    type = "x-incomplete"


not_an_exchange = 5
