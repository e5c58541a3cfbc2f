"""What a connection tells its owner: the owner subclasses Events.

Events are calls, not objects: a busy connection has millions of them a second. Everything that
arrives here is legal in the present state and well framed; what it means is the owner's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.errors import ChannelFault, ProtocolMisuse

if TYPE_CHECKING:
    from flintmq.protocol.channel import Channel, Sink
    from flintmq.protocol.requests import Answered
    from flintmq.wire.methods import Method


class Events:
    """The receiver of one connection's events."""

    def greeted(self, version: int) -> None:
        """The peer sent a protocol header we speak."""
        raise ProtocolMisuse("greeted is not handled")

    def method(self, channel: Channel | None, method: Method) -> None:
        """A method without content; `channel` is None for those of the connection class."""
        raise ProtocolMisuse("method is not handled")

    def publish(self, channel: Channel, route: bytes, flags: int, content: bytes, header_size: int) -> None:
        """A whole basic.publish. `route` is exchange and routing key as the two short strings came."""
        raise ProtocolMisuse("publish is not handled")

    def body_begins(self, channel: Channel, route: bytes, flags: int, header: bytes) -> Sink | None:
        """A large body is about to come for a basic.publish: where it goes, None for into memory."""
        raise ProtocolMisuse("body_begins is not handled")

    def is_short(self) -> bool:
        """Whether memory is short, so that bodies are large sooner."""
        return False

    def publish_spooled(self, channel: Channel, route: bytes, flags: int, header: bytes, sink: Sink) -> None:
        """A whole basic.publish whose body went into the sink."""
        raise ProtocolMisuse("publish_spooled is not handled")

    def ack(self, channel: Channel, tag: int, multiple: bool) -> None:
        """basic.ack."""
        raise ProtocolMisuse("ack is not handled")

    def content(self, channel: Channel, method: Method, content: bytes, header_size: int) -> None:
        """Any other method with its content."""
        raise ProtocolMisuse("content is not handled")

    def content_begins(self, channel: Channel, method: Method, header: bytes) -> None:
        """A large body is about to come for any other method; see Channel.becomes_publish."""
        raise ProtocolMisuse("content_begins is not handled")

    def message_request(self, channel: Channel, request_id: int, method: Method) -> None:
        """A request of 0-9, which is answered by a response with its id."""
        raise ProtocolMisuse("message_request is not handled")

    def message_response(self, channel: Channel, method: Method, answered: Answered) -> None:
        """The answer to requests of ours, each with who waits for it."""
        raise ProtocolMisuse("message_response is not handled")

    def fault(self, channel: Channel, fault: ChannelFault) -> None:
        """The peer broke a rule that costs it the channel."""
        raise ProtocolMisuse("fault is not handled")
