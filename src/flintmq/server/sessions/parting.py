"""How a connection ends: what it holds in the broker goes back in portions, and then comes the last answer.

    depart --> portions of broker/channels/connection_teardown.py --> all is confirmed --> the answer

At once the consumers of the connection get nothing more, and its exclusive queues are gone for everybody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from flintmq.broker import topology_teardown
from flintmq.broker.channels import teardown
from flintmq.broker.channels.channel import Channel as BrokerChannel
from flintmq.protocol.states import END

if TYPE_CHECKING:
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.protocol.channel import Channel
    from flintmq.server.sessions.session import Session

log = logging.getLogger("flintmq.session")

# Lost: nobody hears anything more. Closed by its client: what is safe already is confirmed before close-ok.
# Closed by the broker: before close all publishes are confirmed, as they get safe.
PARTS_LOST = 0
PARTS_CLOSED = 1
PARTS_REFUSED = 2
# Channels that one step gives up: some 20 microseconds each.
CHANNELS_LEFT = 16


class Parting:
    """The end of one connection. It may begin a second time, when the socket is lost meanwhile."""

    __slots__ = ("answer", "is_to_leave_again", "kind", "session", "unconfirmed")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.kind = PARTS_LOST
        self.answer: Callable[[], None] | None = None  # to be said when all is given back and confirmed
        self.is_to_leave_again = False
        self.unconfirmed: dict[Channel, None] = {}  # those that have left but for publishes to confirm

    def __str__(self) -> str:
        return str(self.session)

    def begin(self, kind: int, answer: Callable[[], None] | None) -> None:
        session, output = self.session, self.session.output
        self.kind = kind
        self.answer = answer
        output.ended = True
        try:
            output.end_streams()  # nobody reads what follows, but for the answer to a close
        except Exception:
            log.exception("a bug leaves a body that was being sent to %s behind", session)
        broker = session.broker
        client = broker.connections.get(session.number)
        broker.clients.leave(session.number)
        if client is not None:
            broker.events.connection_changed("connection.closed", client)
        broker.authentication.expiries.discard(session)
        if session.virtual_host is not None:
            session.virtual_host.disown_exclusive(session.number)
            if client is not None:  # nobody counts those of the management process
                session.virtual_host.tally.connection_closed(*session.octets())
        if session.is_leaving:
            self.is_to_leave_again = True  # some channels may have left in another way
        else:
            session.is_leaving = True
            broker.teardowns.begin(self)

    # What broker/channels/connection_teardown.py asks of a connection that has ended

    def held_channels(self) -> list[BrokerChannel]:
        return self.session.held_channels()

    def leave(self) -> Chore:
        """Channel by channel, and then its exclusive queues.

        The last channel is the first: its consumers are the last of their queue, where taking them is cheap.
        """
        session = self.session
        for count, channel in enumerate(reversed(session.connection.all_channels()), 1):
            channel.follow(END)  # what still comes on it is discarded
            try:
                channel.abandon_content()
            except Exception:
                log.exception("a bug leaves a content of channel %d of %s behind", channel.number, self)
            try:
                yield from self.leave_channel(channel)
            except Exception:  # the other channels of the connection are to go as well
                log.exception("a bug leaves something of channel %d of %s behind", channel.number, self)
                self.channel_left(channel)
            if count % CHANNELS_LEFT == 0:
                yield None
        host = session.virtual_host
        if host is not None and session.number in host.falling.departed:
            yield from topology_teardown.of_connection(host, session.number)

    def leave_channel(self, channel: Channel) -> Chore:
        owner = channel.owner
        if not isinstance(owner, BrokerChannel):
            return
        if self.kind == PARTS_REFUSED:
            self.unconfirmed[channel] = None
            owner.retire(partial(self.channel_left, channel))
        else:
            if self.kind == PARTS_CLOSED:
                owner.confirm_safe()
            self.unconfirmed.pop(channel, None)
            channel.owner = None
            owner.retire(None)
        yield from teardown.of_channel(owner)
        owner.part()

    def channel_left(self, channel: Channel) -> None:
        """All that was published on the channel is confirmed."""
        channel.owner = None
        self.unconfirmed.pop(channel, None)
        self.say_answer()

    def has_left(self) -> None:
        """All is given back; some of it may have been written to nobody meanwhile."""
        session = self.session
        session.is_leaving = False
        if self.is_to_leave_again:
            self.is_to_leave_again = False
            session.is_leaving = True
            session.broker.teardowns.begin(self)
        elif self.answer is None:
            session.output.release()
        else:
            self.say_answer()

    def say_answer(self) -> None:
        if self.answer is not None and not self.session.is_leaving and not self.unconfirmed:
            answer, self.answer = self.answer, None
            answer()
