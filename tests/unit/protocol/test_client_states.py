"""The tables of what a server may say, compared with the methods there are."""

from __future__ import annotations

from flintmq.protocol import phases
from flintmq.protocol.client_states import CHANNEL_NOTICES, CONNECTION_NOTICES, ClientState
from flintmq.protocol.states import ChannelState
from flintmq.wire.methods import METHODS

BY_NAME = {method.NAME: method for method in METHODS}
NOTICES = set().union(*CHANNEL_NOTICES.values())
SERVED = ("connection", "channel", "exchange", "queue", "basic", "confirm", "tx")


def test_every_state_has_its_row() -> None:
    assert set(CONNECTION_NOTICES) == set(ClientState)
    assert set(CHANNEL_NOTICES) == set(ChannelState)


def test_every_name_is_a_method_that_servers_send() -> None:
    for name in NOTICES | set().union(*CONNECTION_NOTICES.values()):
        assert BY_NAME[name].FROM_SERVER, name


def test_what_servers_send_is_a_notice_or_the_answer_to_a_call() -> None:
    answers = {name for method in METHODS if method.FROM_CLIENT for name in method.REPLIES}
    for method in METHODS:
        family = method.NAME.split(".")[0]
        if method.FROM_SERVER and family in SERVED[1:] and 91 in method.VERSIONS:
            assert method.NAME in NOTICES | answers, method.NAME


def test_the_numbers_for_compiled_code_are_those_of_the_states() -> None:
    assert ClientState.OPEN == phases.CONNECTION_OPEN
    assert ClientState.CLOSING == phases.CONNECTION_CLOSING
    assert ClientState.CLOSED == phases.CONNECTION_CLOSED
