"""The channel class: open, close, flow, and ping and resume of 0-9."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.errors import ChannelFault
from flintmq.protocol import phases
from flintmq.server.commands.command import broker_channel, command
from flintmq.wire import amqp, methods

if TYPE_CHECKING:
    from flintmq.protocol.channel import Channel
    from flintmq.server.commands.command import Session

# The same for every channel, but for 0-9.
OPEN_OK = methods.ChannelOpenOk()
CLOSE_OK = methods.ChannelCloseOk()


@command("channel.open")
def channel_open(session: Session, channel: Channel, method: methods.ChannelOpen) -> None:
    session.open_channel(channel)
    opened = OPEN_OK
    if session.connection.version == amqp.VERSION_0_9:
        opened = methods.ChannelOpenOk(channel_id=channel_id(session, channel))
    session.send(channel.number, opened)


@command("channel.close")
def channel_close(session: Session, channel: Channel, method: methods.ChannelClose) -> None:
    """While we wait for a close-ok of our own, a crossing close is answered and the wait goes on."""
    if channel.state == phases.CHANNEL_CLOSED:
        if channel.owner is not None:
            broker_channel(channel).confirm_safe()
        if not session.wants_whole_contents():
            session.output.drop_streams(channel.number)
        session.release_channel(channel)
        session.connection.forget_channel(channel)
    session.send(channel.number, CLOSE_OK)


@command("channel.close-ok")
def channel_close_ok(session: Session, channel: Channel, method: methods.ChannelCloseOk) -> None:
    """A close-ok may come before our close, which then is not sent."""
    if channel.owner is not None:
        session.release_channel(channel)
    session.connection.forget_channel(channel)


@command("channel.flow")
def channel_flow(session: Session, channel: Channel, method: methods.ChannelFlow) -> None:
    broker_channel(channel).flow(method.active)
    session.send(channel.number, methods.ChannelFlowOk(active=method.active))


@command("channel.flow-ok")
def channel_flow_ok(session: Session, channel: Channel, method: methods.ChannelFlowOk) -> None:
    """Flow is never asked of a client, so an answer to it means nothing."""


@command("channel.ping")
def channel_ping(session: Session, channel: Channel, method: methods.ChannelPing) -> None:
    """What it asks for is a pong of our own, which the client answers in turn."""
    session.send(channel.number, methods.ChannelOk())
    session.send(channel.number, methods.ChannelPong())


@command("channel.pong")
def channel_pong(session: Session, channel: Channel, method: methods.ChannelPong) -> None:
    session.send(channel.number, methods.ChannelOk())


@command("channel.ok")
def channel_ok(session: Session, channel: Channel, method: methods.ChannelOk) -> None:
    """The answer to our pong, which asks for nothing more."""


@command("channel.resume")
def channel_resume(session: Session, channel: Channel, method: methods.ChannelResume) -> None:
    """Goes on with the channel of this id, which channel.open-ok has told.

    A channel is not kept when its connection ends: what it held is in its queues again, and comes from there.
    """
    if method.channel_id != channel_id(session, channel):
        raise ChannelFault(
            amqp.NOT_FOUND,
            "no channel of this id is open on this connection: what an interrupted channel held is back in "
            "its queues, consume from these again",
        )
    broker_channel(channel).flow(True)
    session.send(channel.number, methods.ChannelOk())


def channel_id(session: Session, channel: Channel) -> bytes:
    """What channel.open-ok of 0-9 calls the channel: nothing else of this broker has the same name."""
    return b"%d.%d" % (session.number, channel.number)
