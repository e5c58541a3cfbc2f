"""Every state of a connection and of a channel, against every method of every version.

The outcome is what protocol/states.py says: a legal method is an event, any other is a fault with the
documented code, and nothing else happens.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.protocol import phases
from flintmq.protocol.channel import Channel
from flintmq.protocol.connection import Connection
from flintmq.protocol.events import Events
from flintmq.protocol.outbox import Output
from flintmq.protocol.states import CHANNEL, CONNECTION, END, LOST, ChannelState, ConnectionState
from flintmq.wire import amqp
from flintmq.wire.methods import METHODS, Method, encode_method

GREETINGS = {8: b"AMQP\x01\x01\x08\x00", 9: b"AMQP\x01\x01\x00\x09", 91: b"AMQP\x00\x00\x09\x01"}
EVERY_METHOD = [(version, method) for method in METHODS for version in method.VERSIONS]
IDS = [f"{method.NAME}-{version}" for version, method in EVERY_METHOD]
every_method = pytest.mark.parametrize(("version", "kind"), EVERY_METHOD, ids=IDS)
TALKING = [state for state in ConnectionState if ConnectionState.HEADER < state < ConnectionState.CLOSING]


# From the protocol header, and from channel.open, on.
WAYS = {
    ConnectionState.START: (),
    ConnectionState.SECURE: ("> connection.secure",),
    ConnectionState.TUNE: ("> connection.tune",),
    ConnectionState.OPENING: ("> connection.tune", "connection.tune-ok"),
    ConnectionState.OPEN: ("> connection.tune", "connection.tune-ok", "> connection.open-ok"),
    ConnectionState.CLOSING: (END,),
    ConnectionState.CLOSED: (LOST,),
}
CHANNEL_WAYS = {
    ChannelState.OPEN: (),
    ChannelState.ENDING: (END,),
    ChannelState.CLOSING: (END, "> channel.close"),
}


class Notes(Events):
    """Writes down what the connection tells."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def greeted(self, version: int) -> None:
        self.told.append(("greeted", version))

    def method(self, channel: Channel | None, method: Method) -> None:
        self.told.append(("method", None if channel is None else channel.number, method.NAME))

    def publish(self, channel: Channel, route: bytes, flags: int, content: bytes, header_size: int) -> None:
        self.told.append(("publish", channel.number, route, flags, content, header_size))

    def ack(self, channel: Channel, tag: int, multiple: bool) -> None:
        self.told.append(("ack", channel.number, tag, bool(multiple)))

    def content(self, channel: Channel, method: Method, content: bytes, header_size: int) -> None:
        self.told.append(("content", channel.number, method.NAME, content, header_size))

    def fault(self, channel: Channel, fault: ChannelFault) -> None:
        self.told.append(("fault", channel.number, fault.code))


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return bytes((kind,)) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"


def greeted(version: int, state: ConnectionState) -> tuple[Connection, Notes]:
    notes = Notes()
    connection = Connection(notes, Output([], None), 1_000_000)
    receive(connection, GREETINGS[version])
    for event in WAYS[state]:
        connection.follow(event)
    assert connection.state == state
    connection.channel_max = 2047
    notes.told.clear()
    return connection, notes


def receive(connection: Connection, octets: bytes) -> int:
    return connection.receive(bytearray(octets), len(octets))


def with_channel(version: int, state: ChannelState) -> tuple[Connection, Notes]:
    connection, notes = greeted(version, ConnectionState.OPEN)
    if state != ChannelState.CLOSED:
        opening = next(kind for kind in METHODS if kind.NAME == "channel.open")
        receive(connection, frame(1, 1, encode_method(version, opening())))
        channel = connection.channels[1]
        assert channel is not None
        for event in CHANNEL_WAYS[state]:
            channel.follow(event)
        assert channel.state == state
        notes.told.clear()
    return connection, notes


def outcome(connection: Connection, notes: Notes, octets: bytes) -> tuple[list[tuple[Any, ...]], int]:
    """What was told, and the code of the fault, or 0. Faults of a method name the method."""
    try:
        used = receive(connection, octets)
    except ConnectionFault as fault:
        return notes.told, fault.code
    assert used == len(octets) or connection.state == ConnectionState.CLOSED
    assert connection.output.pending() == 0
    return notes.told, 0


@pytest.mark.parametrize("state", [*TALKING, ConnectionState.CLOSING, ConnectionState.CLOSED])
@every_method
def test_on_channel_0(version: int, kind: type[Method], state: ConnectionState) -> None:
    connection, notes = greeted(version, state)
    told, code = outcome(connection, notes, frame(1, 0, encode_method(version, kind())))
    if kind.NAME in CONNECTION[state]:
        assert (told, code) == ([("method", None, kind.NAME)], 0)
    elif state in (ConnectionState.CLOSING, ConnectionState.CLOSED):
        assert (told, code) == ([], 0)
    else:
        assert (told, code) == ([], amqp.COMMAND_INVALID)
    assert connection.state == CONNECTION[state].get(kind.NAME, state)


@pytest.mark.parametrize("state", list(ConnectionState)[1:])
@every_method
def test_on_a_channel_of_a_connection_that_is_not_open(
    version: int, kind: type[Method], state: ConnectionState
) -> None:
    if state == ConnectionState.OPEN:
        state = ConnectionState.CLOSING
    connection, notes = greeted(version, state)
    told, code = outcome(connection, notes, frame(1, 1, encode_method(version, kind())))
    assert told == []
    assert code == (amqp.CHANNEL_ERROR if state in TALKING else 0)


@pytest.mark.parametrize("state", list(ChannelState))
@every_method
def test_on_a_channel(version: int, kind: type[Method], state: ChannelState) -> None:
    connection, notes = with_channel(version, state)
    told, code = outcome(connection, notes, frame(1, 1, encode_method(version, kind())))
    channel = connection.channels[1] if len(connection.channels) > 1 else None
    if kind.NAME in CHANNEL[state]:
        assert code == 0
        assert channel is not None
        assert channel.state == CHANNEL[state][kind.NAME]
        if kind.CONTENT:
            assert told == []
            assert channel.expects == phases.EXPECTS_HEADER
        elif kind.NAME == "basic.ack":
            assert told == [("ack", 1, 0, False)]
        else:
            assert told == [("method", 1, kind.NAME)]
        return
    assert told == []
    if state in (ChannelState.CLOSING, ChannelState.ENDING):
        assert code == 0
    elif state == ChannelState.CLOSED:
        assert code == (0 if kind.NAME == "channel.close-ok" else amqp.CHANNEL_ERROR)
    else:
        assert code == (amqp.CHANNEL_ERROR if kind.NAME == "channel.open" else amqp.COMMAND_INVALID)


@every_method
@pytest.mark.parametrize("expects", ["header", "body"])
def test_in_the_middle_of_a_content(version: int, kind: type[Method], expects: str) -> None:
    connection, notes = with_channel(version, ChannelState.OPEN)
    receive(connection, frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x00\x00\x00"))
    if expects == "body":
        receive(connection, frame(2, 1, b"\x00\x3c\x00\x00" + bytes(7) + b"\x05" + b"\x00\x00"))
    told, code = outcome(connection, notes, frame(1, 1, encode_method(version, kind())))
    assert (told, code) == ([], amqp.UNEXPECTED_FRAME)


@every_method
def test_above_the_agreed_channels(version: int, kind: type[Method]) -> None:
    for number in (2048, 65535):
        connection, notes = with_channel(version, ChannelState.OPEN)
        told, code = outcome(connection, notes, frame(1, number, encode_method(version, kind())))
        if kind.NAME == "channel.open":
            # The limit is on how many there are, as in RabbitMQ.
            assert told == [("method", number, "channel.open")]
            continue
        assert told == []
        assert code == (0 if kind.NAME == "channel.close-ok" else amqp.CHANNEL_ERROR)
        assert len(connection.channels) == 2


@given(st.sampled_from([8, 9, 91]), st.integers(0, 2**32 - 1), st.binary(max_size=40))
def test_a_method_that_is_none_is_a_fault(version: int, code: int, arguments: bytes) -> None:
    known = {
        int.from_bytes(encode_method(version, kind())[:4], "big")
        for kind in METHODS
        if version in kind.VERSIONS
    }
    if code in known:
        return
    connection, notes = with_channel(version, ChannelState.OPEN)
    told, fault = outcome(connection, notes, frame(1, 1, code.to_bytes(4, "big") + arguments))
    assert told == []
    assert fault in (amqp.NOT_IMPLEMENTED, amqp.COMMAND_INVALID, amqp.SYNTAX_ERROR)


@given(st.binary(min_size=1, max_size=40))
def test_what_is_no_greeting_is_told_the_version_and_closed(octets: bytes) -> None:
    if any(greeting.startswith(octets[:8]) for greeting in (*GREETINGS.values(), b"AMQP\x01\x01")):
        return
    if octets.startswith((b"AMQP\x01\x01", b"AMQP\x00\x00\x09\x01")):
        return
    notes = Notes()
    connection = Connection(notes, Output([], None), 1000)
    receive(connection, octets)
    assert notes.told == []
    assert connection.state == ConnectionState.CLOSED
    output = connection.output
    assert bytes(output.buffer[output.start : output.fill]) == b"AMQP\x00\x00\x09\x01"
