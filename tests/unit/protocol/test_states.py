"""The tables of states, compared with the methods there are and with who keeps to them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import flintmq
from flintmq.errors import ProtocolMisuse
from flintmq.protocol import phases
from flintmq.protocol.channel import Channel
from flintmq.protocol.connection import Connection
from flintmq.protocol.events import Events
from flintmq.protocol.outbox import Output
from flintmq.protocol.requests import REQUESTS
from flintmq.protocol.states import (
    CHANNEL,
    CONNECTION,
    END,
    HEADER,
    LOST,
    OTHER_HEADER,
    ChannelState,
    ConnectionState,
    Table,
)
from flintmq.server.commands import message as message_commands
from flintmq.server.commands.command import COMMANDS
from flintmq.server.sessions.session import CONNECTION_COMMANDS
from flintmq.wire import methods

BY_NAME = {
    each.NAME: each
    for each in vars(methods).values()
    if isinstance(each, type) and issubclass(each, methods.Method) and each is not methods.Method
}
WORDS = {HEADER, OTHER_HEADER, LOST, END}


def received(table: Table) -> set[str]:
    """The methods that a peer may send in some state."""
    return {event for row in table.values() for event in row if not event.startswith("> ")} - WORDS


def sent(table: Table) -> set[str]:
    return {event[2:] for row in table.values() for event in row if event.startswith("> ")}


def test_every_state_has_its_row_and_a_way_to_it() -> None:
    for table, states in ((CONNECTION, ConnectionState), (CHANNEL, ChannelState)):
        assert set(table) == set(states)
        assert {state for row in table.values() for state in row.values()} | {0} == set(states)


def test_every_name_is_a_method_of_the_right_side() -> None:
    for table in (CONNECTION, CHANNEL):
        for name in received(table):
            assert BY_NAME[name].FROM_CLIENT, name
        for name in sent(table):
            assert BY_NAME[name].FROM_SERVER, name


def test_every_method_that_clients_send_is_legal_somewhere() -> None:
    from_clients = {name for name, method in BY_NAME.items() if method.FROM_CLIENT and method.CLASS_ID != 10}
    # The test class lets a server ask, which ours never does.
    requested = REQUESTS | {reply for name in REQUESTS for reply in BY_NAME[name].REPLIES}
    missing = from_clients - received(CHANNEL) - requested
    assert {name for name in missing if not name.startswith("test.")} == set()


def test_every_command_can_be_reached() -> None:
    assert set(message_commands.REQUESTS) == REQUESTS
    assert set(COMMANDS) <= received(CHANNEL)
    assert set(CONNECTION_COMMANDS) == received(CONNECTION)


def test_numbers_for_compiled_code_are_those_of_the_states() -> None:
    for state in ConnectionState:
        assert getattr(phases, f"CONNECTION_{state.name}", state) == state
    for channel_state in ChannelState:
        assert getattr(phases, f"CHANNEL_{channel_state.name}") == channel_state


def test_what_is_not_in_the_table_is_a_bug_of_ours() -> None:
    connection = Connection(Events(), Output([], None), 1000)
    with pytest.raises(ProtocolMisuse, match=r"'> connection.tune' in state header"):
        connection.send(methods.ConnectionTune())
    assert (connection.state, connection.output.pending()) == (ConnectionState.HEADER, 0)
    channel = Channel(1)
    with pytest.raises(ProtocolMisuse, match="on a channel that is closed"):
        channel.follow("> channel.close")


def test_nobody_else_writes_a_state() -> None:
    """In the compiled build they could not; the pure one would let them."""
    package = Path(flintmq.__file__).parent
    writers = {
        file.relative_to(package).as_posix()
        for room in ("protocol", "server", "client")
        for file in (package / room).rglob("*.py")
        if re.search(r"\.state(: int)? = ", file.read_text())
    }
    assert writers == {"protocol/channel.py", "protocol/client.py", "protocol/connection.py"}
