"""The tables of what a server may say, compared with the methods there are."""

from __future__ import annotations

from flintmq.protocol import phases
from flintmq.protocol.client_states import CHANNEL, CONNECTION, ClientState
from flintmq.protocol.states import END, LOST, ChannelState
from flintmq.wire.methods import METHODS

BY_NAME = {method.NAME: method for method in METHODS}
NOTICES = {event for row in CHANNEL.values() for event in row if event[:2] != "> "} - {END}
SAID = {event for row in CONNECTION.values() for event in row if event[:2] != "> "} - {LOST}
SENT = {
    event[2:]
    for table in (CHANNEL, CONNECTION)
    for row in table.values()
    for event in row
    if event[:2] == "> "
}
SERVED = ("connection", "channel", "exchange", "queue", "basic", "confirm", "tx")


def test_every_state_has_its_row() -> None:
    assert set(CONNECTION) == set(ClientState)
    # What the client closes it closes at once: no channel of its own is ending.
    assert set(CHANNEL) == set(ChannelState) - {ChannelState.ENDING}


def test_every_name_is_a_method_of_the_right_side() -> None:
    for name in NOTICES | SAID:
        assert BY_NAME[name].FROM_SERVER, name
    for name in SENT:
        assert BY_NAME[name].FROM_CLIENT, name


def test_what_servers_send_is_a_notice_or_the_answer_to_a_call() -> None:
    answers = {name for method in METHODS if method.FROM_CLIENT for name in method.REPLIES}
    for method in METHODS:
        family = method.NAME.split(".")[0]
        if method.FROM_SERVER and family in SERVED[1:] and 91 in method.VERSIONS:
            assert method.NAME in NOTICES | answers, method.NAME


def test_the_numbers_for_compiled_code_are_those_of_the_states() -> None:
    assert ClientState.START == phases.CONNECTION_START
    assert ClientState.OPEN == phases.CONNECTION_OPEN
    assert ClientState.CLOSING == phases.CONNECTION_CLOSING
    assert ClientState.CLOSED == phases.CONNECTION_CLOSED
