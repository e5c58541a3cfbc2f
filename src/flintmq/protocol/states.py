"""The whole legal life of a connection and of its channels, as tables.

A connection, seen from the server:

    HEADER --header--> START --start-ok--> TUNE --tune-ok--> OPENING --open--> OPEN --close--> CLOSED
                         |                   ^                                  |
                         +--> SECURE --------+                               CLOSING --close-ok--> CLOSED
                            (secure-ok)                                   (we sent close)

A channel:

    CLOSED --open--> OPEN --close--> CLOSED
                       |
                    CLOSING --close-ok--> CLOSED      (we sent close; all else is discarded)

Each table names the methods that a server may receive in a state. A method that is not named is
refused with 503; while CLOSING it is dropped unseen. A close is answered at any time.
"""

from __future__ import annotations

from enum import IntEnum


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


_CLOSE = {"connection.close", "connection.close-ok"}

CONNECTION_METHODS: dict[int, frozenset[str]] = {
    ConnectionState.HEADER: frozenset(),
    ConnectionState.START: frozenset({"connection.start-ok", "connection.close"}),
    ConnectionState.SECURE: frozenset({"connection.secure-ok", "connection.close"}),
    ConnectionState.TUNE: frozenset({"connection.tune-ok", "connection.close"}),
    ConnectionState.OPENING: frozenset({"connection.open", "connection.close"}),
    ConnectionState.OPEN: frozenset({"connection.close", "connection.update-secret"}),
    ConnectionState.CLOSING: frozenset(_CLOSE),
    ConnectionState.CLOSED: frozenset(),
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
    message.transfer message.consume message.cancel message.get message.recover message.open message.close
    message.append message.checkpoint message.resume message.qos message.ok message.empty message.reject
    message.offset
    dtx.select dtx.start
    dtx-demarcation.select dtx-demarcation.start dtx-demarcation.end
    dtx-coordination.prepare dtx-coordination.commit dtx-coordination.rollback dtx-coordination.recover
    dtx-coordination.forget dtx-coordination.get-timeout dtx-coordination.set-timeout
    tunnel.request
    test.integer test.string test.table test.content
"""

CHANNEL_METHODS: dict[int, frozenset[str]] = {
    ChannelState.CLOSED: frozenset({"channel.open"}),
    ChannelState.OPEN: frozenset(_CHANNEL_OPEN.split()),
    ChannelState.CLOSING: frozenset({"channel.close", "channel.close-ok"}),
}
