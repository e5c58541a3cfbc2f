"""Logins of more than one step, or without a password: what is said on the wire."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import CAPABILITIES, Client, Playbook

from flintmq.config import Config, parse
from flintmq.scram import ClientExchange, ScramFault
from flintmq.wire import amqp
from flintmq.wire.methods import (
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)

ALL = """
[auth]
mechanisms = ["PLAIN", "EXTERNAL", "SCRAM-SHA-256", "ANONYMOUS"]
anonymous_user = "alice"
[auth.passwords]
scram_iterations = 4096
[users.alice]
password = "secret"
[users.alice.permissions."/"]
"""
CERTIFICATE = {"subject": ((("commonName", "alice"),),)}


@pytest.fixture(scope="module")
def config() -> Config:
    return parse(ALL)


def begins(client: Client, mechanism: str, response: bytes, **properties: Any) -> None:
    properties.setdefault("capabilities", CAPABILITIES)
    client >> ConnectionStartOk(
        client_properties=properties, mechanism=mechanism, response=response, locale="en_US"
    )


def is_in(client: Client) -> None:
    client.hears(ConnectionTune)
    client >> ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
    client >> ConnectionOpen(virtual_host="/")
    client << ConnectionOpenOk()


def is_refused(client: Client, mechanism: str, why: str = ".") -> None:
    client.hears_nothing()  # for a while
    assert client.link.notes[-1] == "refuse_login"
    client.session.login_refused()
    closed = client.hears(ConnectionClose)
    assert closed.reply_code == amqp.ACCESS_REFUSED
    text = f"Login was refused using authentication mechanism {mechanism}{why}"
    assert closed.reply_text == f"ACCESS_REFUSED - {text}"


def test_what_is_configured_is_offered(config: Config) -> None:
    playbook = Playbook(config)
    assert playbook.stranger().greet().mechanisms == b"PLAIN EXTERNAL SCRAM-SHA-256 ANONYMOUS"
    playbook.end()


def test_a_mechanism_that_is_not_configured_ends_the_handshake() -> None:
    playbook = Playbook(parse('[auth]\nmechanisms = ["SCRAM-SHA-256"]'))
    client = playbook.stranger()
    assert client.greet().mechanisms == b"SCRAM-SHA-256"
    client.log_in()
    assert client.link.notes == ["drop"]
    playbook.end()


@pytest.mark.parametrize("version", [amqp.VERSION_0_9_1, amqp.VERSION_0_9, amqp.VERSION_0_8])
def test_scram_takes_two_challenges(config: Config, version: int) -> None:
    playbook = Playbook(config)
    client, exchange = playbook.stranger(version), ClientExchange("alice", "secret")
    client.greet()
    begins(client, "SCRAM-SHA-256", exchange.first(), **({"capabilities": {}} if version == 8 else {}))
    for _ in range(2):
        challenge = client.hears(ConnectionSecure).challenge
        client >> ConnectionSecureOk(response=exchange.answer(challenge))
    assert exchange.is_proven
    is_in(client)
    playbook.end()


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_scram_with_a_wrong_password_is_refused_at_the_second_step(config: Config, user: str) -> None:
    playbook = Playbook(config)
    client, exchange = playbook.stranger(), ClientExchange(user, "wrong")
    client.greet()
    begins(client, "SCRAM-SHA-256", exchange.first())
    client >> ConnectionSecureOk(response=exchange.answer(client.hears(ConnectionSecure).challenge))
    is_refused(client, "SCRAM-SHA-256")
    playbook.end()


def test_the_last_word_of_scram_is_the_clients(config: Config) -> None:
    """Whoever goes on without having looked at the signature of the server is not let in."""
    playbook = Playbook(config)
    client, exchange = playbook.stranger(), ClientExchange("alice", "secret")
    client.greet()
    begins(client, "SCRAM-SHA-256", exchange.first())
    client >> ConnectionSecureOk(response=exchange.answer(client.hears(ConnectionSecure).challenge))
    signature = client.hears(ConnectionSecure).challenge
    with pytest.raises(ScramFault, match="the server does not prove that it knows the password"):
        exchange.answer(signature[:-4] + b"AAA=")
    client >> ConnectionSecureOk(response=b"more")
    is_refused(client, "SCRAM-SHA-256")
    playbook.end()


def test_a_secure_ok_out_of_turn_is_refused(config: Config) -> None:
    playbook = Playbook(config)
    client = playbook.stranger()
    client.greet()
    client >> ConnectionSecureOk(response=b"x")
    assert client.hears(ConnectionClose).reply_code == amqp.COMMAND_INVALID
    playbook.end()


def test_a_certificate_logs_in(config: Config) -> None:
    playbook = Playbook(config)
    client = playbook.stranger(address="192.0.2.1")
    client.link.certificate = CERTIFICATE
    client.greet()
    begins(client, "EXTERNAL", b"")
    is_in(client)
    playbook.end()


def test_without_a_certificate_the_client_hears_why(config: Config) -> None:
    playbook = Playbook(config)
    client = playbook.stranger()
    client.greet()
    begins(client, "EXTERNAL", b"alice")
    is_refused(client, "EXTERNAL", ": the client has shown no certificate")
    playbook.end()


def test_anonymous_is_let_in_as_the_user_of_the_settings(config: Config) -> None:
    playbook = Playbook(config)
    client = playbook.stranger()
    client.greet()
    begins(client, "ANONYMOUS", b"somebody")
    is_in(client)
    assert client.session.user is not None
    assert client.session.user.name == "alice"
    playbook.end()


def test_update_secret_of_a_user_with_a_password_changes_nothing(config: Config) -> None:
    playbook = Playbook(config)
    client = playbook.stranger()
    client.greet()
    client.log_in("alice", "secret")
    is_in(client)
    client >> ConnectionUpdateSecret(new_secret=b"anything", reason="why not")
    client << ConnectionUpdateSecretOk()
    playbook.end()
