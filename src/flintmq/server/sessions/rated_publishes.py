"""Publishes of a connection whose user or virtual host may publish only so many messages in a second.

    Connection -- publish --> RatedPublishes -- counts, has the link wait --> Session

It takes the place of the session as the one that hears the events of the connection. A connection without
such a limit tells its session directly, and pays nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.protocol.events import Events

if TYPE_CHECKING:
    from flintmq.broker.administration.publish_rate import PublishRate
    from flintmq.errors import ChannelFault
    from flintmq.protocol.channel import Channel, Sink
    from flintmq.protocol.requests import Answered
    from flintmq.server.sessions.session import Session
    from flintmq.wire.methods import Method


class RatedPublishes(Events):
    """Hands all events on to the session, and has the link wait when too much was published."""

    def __init__(self, session: Session, rates: tuple[PublishRate, ...]) -> None:
        self.session = session
        self.rates = rates

    def count(self) -> None:
        """One more was published: nothing more is read for as long as that is ahead of the rate."""
        now_us = self.session.broker.timetable.now_ms() * 1000
        wait_us = max([rate.take(now_us) for rate in self.rates])
        if wait_us > 0:
            self.session.link.wait_for_rate(wait_us / 1_000_000, self)

    def publish(self, channel: Channel, route: bytes, flags: int, content: bytes, header_size: int) -> None:
        self.session.publish(channel, route, flags, content, header_size)
        self.count()

    def publish_spooled(self, channel: Channel, route: bytes, flags: int, header: bytes, sink: Sink) -> None:
        self.session.publish_spooled(channel, route, flags, header, sink)
        self.count()

    def greeted(self, version: int) -> None:
        self.session.greeted(version)

    def method(self, channel: Channel | None, method: Method) -> None:
        self.session.method(channel, method)

    def body_begins(self, channel: Channel, route: bytes, flags: int, header: bytes) -> Sink | None:
        return self.session.body_begins(channel, route, flags, header)

    def is_short(self) -> bool:
        return self.session.is_short()

    def ack(self, channel: Channel, tag: int, multiple: bool) -> None:
        self.session.ack(channel, tag, multiple)

    def content(self, channel: Channel, method: Method, content: bytes, header_size: int) -> None:
        self.session.content(channel, method, content, header_size)

    def content_begins(self, channel: Channel, method: Method, header: bytes) -> None:
        self.session.content_begins(channel, method, header)

    def message_request(self, channel: Channel, request_id: int, method: Method) -> None:
        self.session.message_request(channel, request_id, method)
        if method.NAME == "message.transfer":
            self.count()

    def message_response(self, channel: Channel, method: Method, answered: Answered) -> None:
        self.session.message_response(channel, method, answered)

    def fault(self, channel: Channel, fault: ChannelFault) -> None:
        self.session.fault(channel, fault)
