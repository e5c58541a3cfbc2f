"""What a client's connection tells its owner: the owner subclasses ClientEvents.

Calls, not objects, as in events.py. Everything that arrives here is legal in the present state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.errors import ProtocolMisuse

if TYPE_CHECKING:
    from flintmq.protocol.client import ClientChannel
    from flintmq.protocol.requests import Answered
    from flintmq.wire.methods import Method


class ClientEvents:
    """The receiver of one client connection's events."""

    def connection_notice(self, method: Method) -> None:
        """A method of the connection class."""
        raise ProtocolMisuse("connection_notice is not handled")

    def notice(self, channel: ClientChannel, method: Method) -> None:
        """A method that answers nothing."""
        raise ProtocolMisuse("notice is not handled")

    def reply(self, channel: ClientChannel, method: Method, waiter: object) -> None:
        """The answer to the call that was made for `waiter`."""
        raise ProtocolMisuse("reply is not handled")

    def deliver(
        self,
        channel: ClientChannel,
        consumer_tag: bytes,
        tag: int,
        redelivered: bool,
        route: bytes,
        properties: bytes,
        body: bytes,
    ) -> None:
        """A whole basic.deliver. `route` is exchange and routing key as the two short strings came."""
        raise ProtocolMisuse("deliver is not handled")

    def settled(self, channel: ClientChannel, tag: int, multiple: bool, refused: bool) -> None:
        """basic.ack or, refused, basic.nack of what we published."""
        raise ProtocolMisuse("settled is not handled")

    def message_request(self, channel: ClientChannel, request_id: int, method: Method) -> None:
        """A request of the server, which is answered by a response with its id."""
        raise ProtocolMisuse("message_request is not handled")

    def message_response(self, channel: ClientChannel, method: Method, answered: Answered) -> None:
        """The answer to requests of ours, each with its waiter."""
        raise ProtocolMisuse("message_response is not handled")

    def content(
        self, channel: ClientChannel, method: Method, properties: bytes, body: bytes, waiter: object
    ) -> None:
        """Any other method with its content: basic.return, or basic.get-ok for its waiter."""
        raise ProtocolMisuse("content is not handled")
