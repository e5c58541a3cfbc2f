"""The legal life of a connection and of its channels in the client's role: what a server may say when.

    START --> start-ok--> LOGIN --> tune-ok--> OPENING --open-ok--> OPEN --> close-ok--> CLOSED
                           |  ^                                       |
                           +--+ secure                             CLOSING --close-ok--> CLOSED
                                                                 (we sent close)

Each table says for a state which event leads to which state; states.py has the words. A method of a server is
either a notice, which may come at any time in a state and is in its row, or the answer to the eldest call of
its channel that has none yet: these are named by the calls (`Method.REPLIES`). Anything else is refused with
503; while CLOSING it is dropped unseen. Nobody but ClientConnection and ClientChannel writes a state.
"""

from __future__ import annotations

from enum import IntEnum

from flintmq.protocol.states import END, LOST, ChannelState, Table


class ClientState(IntEnum):
    START = 1
    LOGIN = 2
    OPENING = 4
    OPEN = 5
    CLOSING = 6
    CLOSED = 7


_LOGIN, _OPENING, _OPEN, _CLOSING, _CLOSED = map(int, list(ClientState)[1:])

CONNECTION: Table = {
    ClientState.START: {
        "connection.start": int(ClientState.START),
        "> connection.start-ok": _LOGIN,
        "connection.close": int(ClientState.START),
        "> connection.close-ok": _CLOSED,
        LOST: _CLOSED,
    },
    ClientState.LOGIN: {
        "connection.secure": _LOGIN,
        "> connection.secure-ok": _LOGIN,
        "connection.tune": _LOGIN,
        "> connection.tune-ok": _OPENING,
        "connection.close": _LOGIN,
        "> connection.close-ok": _CLOSED,
        LOST: _CLOSED,
    },
    ClientState.OPENING: {
        "> connection.open": _OPENING,
        "connection.open-ok": _OPEN,
        "connection.redirect": _OPENING,
        "connection.close": _OPENING,
        "> connection.close-ok": _CLOSED,
        LOST: _CLOSED,
    },
    ClientState.OPEN: {
        "connection.blocked": _OPEN,
        "connection.unblocked": _OPEN,
        "> connection.update-secret": _OPEN,
        "connection.update-secret-ok": _OPEN,
        "> connection.close": _CLOSING,
        "connection.close": _OPEN,
        "> connection.close-ok": _CLOSED,
        LOST: _CLOSED,
    },
    ClientState.CLOSING: {
        "> connection.close": _CLOSING,
        "connection.close": _CLOSING,
        "connection.close-ok": _CLOSED,
        "> connection.close-ok": _CLOSED,
        LOST: _CLOSED,
    },
    ClientState.CLOSED: {LOST: _CLOSED},
}

_CHANNEL_OPEN = """
    channel.close channel.flow channel.alert
    basic.deliver basic.return basic.cancel basic.ack basic.nack
    stream.deliver stream.return
"""

_NOTICES = {name: int(ChannelState.OPEN) for name in _CHANNEL_OPEN.split()}

# What comes in a request frame of 0-9 while the channel is open, see requests.py.
SERVER_REQUESTS = frozenset(("message.transfer", "message.open", "message.append", "message.close"))

# The owner ends a channel when it has answered the server's close, or has the answer to its own.
CHANNEL: Table = {
    ChannelState.CLOSED: {"> channel.open": int(ChannelState.OPEN), END: int(ChannelState.CLOSED)},
    ChannelState.OPEN: {
        **_NOTICES,
        "> channel.close": int(ChannelState.CLOSING),
        END: int(ChannelState.CLOSED),
    },
    ChannelState.CLOSING: {"channel.close": int(ChannelState.CLOSING), END: int(ChannelState.CLOSED)},
}
