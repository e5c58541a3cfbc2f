"""The legal life of a connection and of its channels, seen from the client: what a server may say when.

    START --start--> LOGIN --tune--> OPENING --open-ok--> OPEN --close--> CLOSED
                     |  ^                                   |
                     +--+ secure                         CLOSING --close-ok--> CLOSED
                                                       (we sent close)

A method of a server is either a notice, which may come at any time in a state, or the answer to the
eldest call of its channel that has none yet. The tables name the notices; answers are named by the
calls (`Method.REPLIES`). Anything else is refused with 503; while CLOSING it is dropped unseen.
"""

from __future__ import annotations

from enum import IntEnum

from flintmq.protocol.states import ChannelState


class ClientState(IntEnum):
    START = 1
    LOGIN = 2
    OPENING = 4
    OPEN = 5
    CLOSING = 6
    CLOSED = 7


_ALWAYS = {"connection.close", "connection.blocked", "connection.unblocked"}

CONNECTION_NOTICES: dict[ClientState, frozenset[str]] = {
    ClientState.START: frozenset({"connection.start", "connection.close"}),
    ClientState.LOGIN: frozenset({"connection.secure", "connection.tune", "connection.close"}),
    ClientState.OPENING: frozenset({"connection.open-ok", "connection.redirect", "connection.close"}),
    ClientState.OPEN: frozenset({*_ALWAYS, "connection.update-secret-ok"}),
    ClientState.CLOSING: frozenset({"connection.close", "connection.close-ok"}),
    ClientState.CLOSED: frozenset(),
}

_CHANNEL_OPEN = """
    channel.close channel.flow channel.alert
    basic.deliver basic.return basic.cancel basic.ack basic.nack
"""

CHANNEL_NOTICES: dict[ChannelState, frozenset[str]] = {
    ChannelState.CLOSED: frozenset(),
    ChannelState.OPEN: frozenset(_CHANNEL_OPEN.split()),
    ChannelState.CLOSING: frozenset({"channel.close"}),
}
