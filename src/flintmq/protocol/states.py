"""The whole legal life of a connection and of its channels in the server's role, as tables.

A connection:

    HEADER --header--> START --> tune--> TUNE --tune-ok--> OPENING --> open-ok--> OPEN --close--> CLOSED
                         |                 ^                                       |
                         +--> secure--> SECURE                                  CLOSING --close-ok--> CLOSED
                                                                            (we close, for a fault)

A channel:

    CLOSED --open--> OPEN --close--> CLOSED
                       |
                    ENDING --> close--> CLOSING --close-ok--> CLOSED
               (a fault: all is confirmed first)          (all else is discarded)

Each table says for a state which event leads to which state. An event is the name of a method that was
received, or `> ` and the name of one that is sent, or one of the words below. A method that is received and
not in the row is refused with 503; while CLOSING or ENDING it is dropped unseen. An event of our own that is
not in the row is a bug. Nobody but Connection and Channel writes a state. Methods of the message class have
frames of their own, in which they may come while a channel is OPEN: protocol/requests.py.
"""

from __future__ import annotations

from enum import IntEnum

# Events that are no methods: a protocol header that we speak, and any other; the end of the socket; and that
# we are about to close, as the peer was at fault or the broker stops.
HEADER = "header"
OTHER_HEADER = "other header"
LOST = "lost"
END = "end"


class ConnectionState(IntEnum):
    HEADER = 0
    START = 1
    SECURE = 2
    TUNE = 3
    OPENING = 4
    OPEN = 5
    CLOSING = 6
    CLOSED = 7


class ChannelState(IntEnum):
    CLOSED = 0
    OPEN = 1
    CLOSING = 2
    ENDING = 3


# Plain numbers for compiled code: those of the states.
Table = dict[int, dict[str, int]]

_START, _SECURE, _TUNE, _OPENING, _OPEN, _CLOSING, _CLOSED = map(int, list(ConnectionState)[1:])
# In every state between the header and the end.
_TALKING = {"connection.close": _CLOSED, END: _CLOSING, LOST: _CLOSED}

CONNECTION: Table = {
    ConnectionState.HEADER: {HEADER: _START, OTHER_HEADER: _CLOSED, LOST: _CLOSED},
    ConnectionState.START: {
        "connection.start-ok": _START,
        "> connection.secure": _SECURE,
        "> connection.tune": _TUNE,
        **_TALKING,
    },
    ConnectionState.SECURE: {
        "connection.secure-ok": _SECURE,
        "> connection.secure": _SECURE,
        "> connection.tune": _TUNE,
        **_TALKING,
    },
    ConnectionState.TUNE: {"connection.tune-ok": _OPENING, **_TALKING},
    ConnectionState.OPENING: {"connection.open": _OPENING, "> connection.open-ok": _OPEN, **_TALKING},
    ConnectionState.OPEN: {
        "connection.update-secret": _OPEN,
        "> connection.update-secret-ok": _OPEN,
        "> connection.blocked": _OPEN,
        "> connection.unblocked": _OPEN,
        **_TALKING,
    },
    ConnectionState.CLOSING: {
        "> connection.close": _CLOSING,
        "connection.close": _CLOSED,
        "connection.close-ok": _CLOSED,
        END: _CLOSING,
        LOST: _CLOSED,
    },
    ConnectionState.CLOSED: {"> connection.close-ok": _CLOSED, LOST: _CLOSED},
}

_CHANNEL_OPEN = """
    channel.flow channel.flow-ok channel.close channel.ping channel.pong channel.ok channel.resume
    access.request
    exchange.declare exchange.delete exchange.bind exchange.unbind
    queue.declare queue.bind queue.unbind queue.purge queue.delete
    basic.qos basic.consume basic.cancel basic.cancel-ok basic.publish basic.get
    basic.ack basic.reject basic.nack basic.recover basic.recover-async
    confirm.select
    tx.select tx.commit tx.rollback
    file.qos file.consume file.cancel file.open file.open-ok file.stage file.publish file.ack file.reject
    stream.qos stream.consume stream.cancel stream.publish
    dtx.select dtx.start
    dtx-demarcation.select dtx-demarcation.start dtx-demarcation.end
    dtx-coordination.prepare dtx-coordination.commit dtx-coordination.rollback dtx-coordination.recover
    dtx-coordination.forget dtx-coordination.get-timeout dtx-coordination.set-timeout
    tunnel.request
    test.integer test.string test.table test.content
"""

_USED = {name: int(ChannelState.OPEN) for name in _CHANNEL_OPEN.split()}

CHANNEL: Table = {
    ChannelState.CLOSED: {"channel.open": int(ChannelState.OPEN), END: int(ChannelState.CLOSED)},
    ChannelState.OPEN: {
        **_USED,
        "channel.close": int(ChannelState.CLOSED),
        END: int(ChannelState.ENDING),
    },
    # The client closes the channel before we do: that settles it, and our close is not sent.
    ChannelState.ENDING: {
        "channel.close": int(ChannelState.CLOSED),
        "channel.close-ok": int(ChannelState.CLOSED),
        "> channel.close": int(ChannelState.CLOSING),
        END: int(ChannelState.ENDING),
    },
    # A close that crosses ours is answered, and the wait for close-ok goes on.
    ChannelState.CLOSING: {
        "channel.close": int(ChannelState.CLOSING),
        "channel.close-ok": int(ChannelState.CLOSED),
        END: int(ChannelState.CLOSING),
    },
}
