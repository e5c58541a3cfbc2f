"""The exchange `amq.system`, and others of its type: what is published there is a request to the broker.

`Router.services` answers; that is services/request.py, and nobody in a virtual host without a broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flintmq.broker.exchanges.binding import Binding
from flintmq.broker.exchanges.exchange import REFUSED, TAKEN, Exchange, Headers
from flintmq.errors import ChannelFault
from flintmq.wire import amqp
from flintmq.wire.tables import FieldValue

if TYPE_CHECKING:
    from flintmq.broker.exchanges.route import RoutingContext
    from flintmq.broker.exchanges.router import Services
    from flintmq.broker.messages.message import Message
    from flintmq.broker.store.publisher import Publisher


class SystemExchange(Exchange):
    """Leads nowhere: it answers."""

    __slots__ = ()
    type = "system"
    receives = True

    def check_message(self, message: Message, channel: Publisher) -> None:
        services: Services | None = self.router.services
        if services is not None:
            services.check(message, channel)

    def receive(self, context: RoutingContext) -> int:
        """A request that cannot be answered, as nobody knows the service, is like one without a route.

        Requests are published to this exchange. What comes over another one, by a binding or as its alternate
        exchange, was sent there for a reason of its own: it is not done with the rights of its publisher.
        """
        if context.message.exchange_name() != self.name:
            return REFUSED
        services: Services | None = self.router.services
        return TAKEN if services is not None and services.ask(context) else REFUSED

    def validate_binding(self, routing_key: str, arguments: Mapping[str, FieldValue]) -> None:
        raise ChannelFault(
            amqp.ACCESS_REFUSED,
            f"exchange '{self.name}' answers requests: it has no bindings",
        )

    def prepare(self) -> None:
        """Finds nothing: this exchange has no bindings."""

    def attach(self, binding: Binding) -> None:
        self.validate_binding(binding.routing_key, binding.arguments)

    def detach(self, binding: Binding) -> None:
        """There is none."""

    def route(self, routing_key: str, headers: Headers | None, found: dict[Any, Any]) -> None:
        """Nowhere."""


class FormerSystemExchange(SystemExchange):
    """The one that data directories of earlier versions have beside `amq.system`: nobody has declared it."""

    __slots__ = ()
