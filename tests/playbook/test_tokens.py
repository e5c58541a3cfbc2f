"""Identities that end: renewed by connection.update-secret, or closed in time."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from playbook.dialogue import Client
from playbook.hourglass import Hourglass, TimedPlaybook

from flintmq.auth import Permissions, authentication
from flintmq.auth.backend import BackendFault, Identity, Login
from flintmq.config import PermissionSettings, parse
from flintmq.errors import ConfigFault
from flintmq.wire import amqp
from flintmq.wire.methods import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    QueueDeclare,
    QueueDeclareOk,
)


class Tokens:
    """A token is a text: the user, the pattern of names, and for how many seconds."""

    timeout_s, cache_s, can_renew = 1.0, 60.0, True

    def __init__(self, clock: Hourglass) -> None:
        self.clock = clock

    def authenticate(self, login: Login) -> Identity | None:
        name, pattern, seconds = (login.password or b"").decode().split()
        if float(seconds) <= 0:
            raise BackendFault("the token has expired")
        patterns = PermissionSettings(pattern, pattern, pattern)
        allowed = {"/": Permissions(patterns)} if pattern != "nowhere" else {}
        expires_ms = self.clock.wall_ms() + int(float(seconds) * 1000)
        return Identity(name, permissions=MappingProxyType(allowed), expires_ms=expires_ms)


@pytest.fixture
def playbook(monkeypatch: pytest.MonkeyPatch) -> TimedPlaybook:
    monkeypatch.setattr(authentication, "backend", lambda name, auth, clock: Tokens(clock))
    return TimedPlaybook(parse('[auth]\nbackends = ["tokens"]\n[auth.tokens]\n'))


def ada(playbook: TimedPlaybook) -> Client:
    return playbook.client(user="whoever", password="ada ^a 60")


def renews(client: Client, token: str) -> None:
    client >> ConnectionUpdateSecret(new_secret=token.encode(), reason="renewed")


def test_a_connection_ends_with_its_token(playbook: TimedPlaybook) -> None:
    client, gone = ada(playbook), ada(playbook)
    gone >> ConnectionClose(reply_code=200, reply_text="bye") << ConnectionCloseOk()
    assert len(playbook.broker.authentication.expiries) == 1, "who has gone is forgotten"
    playbook.passes(59_000)
    client.declares("a1")
    playbook.passes(2_000)
    closed = client.hears(ConnectionClose)
    assert (closed.reply_code, closed.reply_text) == (
        amqp.ACCESS_REFUSED,
        "ACCESS_REFUSED - the token of the connection has expired",
    )
    assert len(playbook.broker.authentication.expiries) == 0
    playbook.end()


def test_a_new_token_brings_its_own_permissions_and_time(playbook: TimedPlaybook) -> None:
    client = ada(playbook)
    playbook.passes(50_000)
    renews(client, "ada ^b 60")
    client << ConnectionUpdateSecretOk()
    playbook.passes(50_000)
    client >> QueueDeclare(queue="b1")
    client.hears(QueueDeclareOk)
    client >> QueueDeclare(queue="a1")
    assert client.hears(ChannelClose).reply_code == amqp.ACCESS_REFUSED
    client >> ChannelCloseOk()
    client >> ChannelOpen() << ChannelOpenOk()
    playbook.passes(11_000)
    assert client.hears(ConnectionClose).reply_code == amqp.ACCESS_REFUSED
    playbook.end()


def test_publishes_meet_the_new_permissions_at_once(playbook: TimedPlaybook) -> None:
    client = playbook.client(user="", password="ada .* 60")
    client.declares("a1")
    client.publishes("a1", b"before")
    renews(client, "ada ^b 60")
    client << ConnectionUpdateSecretOk()
    client.publishes("a1", b"after")
    assert "may not write to exchange 'amq.default'" in client.hears(ChannelClose).reply_text
    playbook.end()


@pytest.mark.parametrize("token", ["eve ^a 60", "ada nowhere 60", "ada ^a 0", "nonsense"])
def test_a_token_of_others_or_of_yesterday_closes_the_connection(playbook: TimedPlaybook, token: str) -> None:
    client = ada(playbook)
    renews(client, token)
    closed = client.hears(ConnectionClose)
    assert closed.reply_code == amqp.NOT_ALLOWED
    assert "New secret was refused" in closed.reply_text
    playbook.end()


def test_tokens_of_one_second_end_in_portions(playbook: TimedPlaybook) -> None:
    """So many that no pass takes them all."""
    ended: list[int] = []
    expiries = playbook.broker.authentication.expiries
    for number in range(2000):
        expiries.add(number, playbook.clock.wall_ms() + 1000, lambda number=number: ended.append(number))  # type: ignore[misc]
    playbook.clock.now_s += 2
    playbook.broker.timetable.run()
    assert 0 < len(ended) < 2000
    playbook.passes(0)
    while len(ended) < 2000:
        before = len(ended)
        playbook.finish_pass()
        assert len(ended) > before
    playbook.end()


@pytest.mark.parametrize("chain", ["tokens/internal", "internal/tokens"])
def test_a_back_end_of_tokens_is_joined_with_no_other(playbook: TimedPlaybook, chain: str) -> None:
    """The other would say what is allowed, and nothing of when the token ends."""
    with pytest.raises(ConfigFault, match=f'auth.backends: "{chain}": tokens takes tokens'):
        TimedPlaybook(parse(f'[auth]\nbackends = ["internal", "{chain}"]\n[auth.tokens]\n'))


def test_a_token_is_asked_about_at_each_login(playbook: TimedPlaybook) -> None:
    ada(playbook)
    playbook.passes(61_000)
    playbook.clients[0].hears(ConnectionClose)
    refused = playbook.stranger()
    refused.greet()
    refused.log_in("x", "ada ^a 0")
    assert refused.link.notes[-1] == "refuse_login"
    playbook.end()
