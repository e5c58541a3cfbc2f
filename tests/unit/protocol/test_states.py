"""The tables of legal methods, compared with the methods there are."""

from __future__ import annotations

from flintmq.protocol import phases
from flintmq.protocol.states import CHANNEL_METHODS, CONNECTION_METHODS, ChannelState, ConnectionState
from flintmq.server.commands import COMMANDS
from flintmq.server.session import CONNECTION_COMMANDS
from flintmq.wire import methods

BY_NAME = {
    each.NAME: each
    for each in vars(methods).values()
    if isinstance(each, type) and issubclass(each, methods.Method) and each is not methods.Method
}
LEGAL = set().union(*CHANNEL_METHODS.values())


def test_every_state_has_its_row() -> None:
    assert set(CONNECTION_METHODS) == set(ConnectionState)
    assert set(CHANNEL_METHODS) == set(ChannelState)


def test_every_name_is_a_method_that_clients_send() -> None:
    for name in LEGAL | set().union(*CONNECTION_METHODS.values()):
        assert BY_NAME[name].FROM_CLIENT, name


def test_every_method_that_clients_send_is_legal_somewhere() -> None:
    sent = {name for name, method in BY_NAME.items() if method.FROM_CLIENT and method.CLASS_ID != 10}
    # The test class lets a server ask, which ours never does.
    assert {name for name in sent - LEGAL if not name.startswith("test.")} == set()


def test_every_command_can_be_reached() -> None:
    assert set(COMMANDS) <= LEGAL
    assert set(CONNECTION_COMMANDS) == set().union(*CONNECTION_METHODS.values())


def test_numbers_for_compiled_code_are_those_of_the_states() -> None:
    for state in ConnectionState:
        assert getattr(phases, f"CONNECTION_{state.name}", state) == state
    for channel_state in ChannelState:
        assert getattr(phases, f"CHANNEL_{channel_state.name}") == channel_state
