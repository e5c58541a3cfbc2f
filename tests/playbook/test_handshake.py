"""From the protocol header to connection.open-ok, in the three versions, and all that may go wrong."""

from __future__ import annotations

import pytest
from playbook.dialogue import CAPABILITIES, HEADERS, Client, Playbook

from flintmq.config import Config, Limits, parse
from flintmq.errors import ConnectionFault
from flintmq.wire import amqp
from flintmq.wire.methods import (
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    QueueDeclare,
)
from flintmq.wire.tables import encode_table

VERSIONS = pytest.mark.parametrize("version", sorted(HEADERS))


def tuned(playbook: Playbook, version: int = amqp.VERSION_0_9_1) -> Client:
    client = playbook.stranger(version)
    client.greet()
    client.log_in()
    client.hears(ConnectionTune)
    return client


def opening(playbook: Playbook, **login: str) -> Client:
    client = playbook.stranger()
    client.greet()
    client.log_in(**login)
    client.hears(ConnectionTune)
    client >> ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
    return client


@VERSIONS
def test_the_whole_of_it(playbook: Playbook, version: int) -> None:
    client = playbook.stranger(version)
    start = client.greet()
    assert (start.version_major, start.version_minor) == ((8, 0) if version == 8 else (0, 9))
    assert start.mechanisms == b"PLAIN AMQPLAIN"
    assert start.locales == b"en_US"
    assert start.server_properties["product"] == "FlintMQ"
    if version == 8:  # its tables have no booleans
        assert "capabilities" not in start.server_properties
    else:
        assert start.server_properties["capabilities"]["publisher_confirms"] is True
    client.log_in()
    client << ConnectionTune(channel_max=2047, frame_max=131_072, heartbeat=60)
    client >> ConnectionTuneOk(channel_max=10, frame_max=8192, heartbeat=7)
    assert client.link.heartbeat_s == 7
    client >> ConnectionOpen(virtual_host="/")
    client << ConnectionOpenOk()
    assert client.link.notes == ["verify", "opened"]
    client >> ConnectionClose(reply_code=200, reply_text="Goodbye")
    client << ConnectionCloseOk()
    assert client.link.notes == ["verify", "opened", "finish"]


@pytest.mark.parametrize(
    ("header", "version"),
    [
        (b"AMQP\x00\x00\x09\x01", amqp.VERSION_0_9_1),
        (b"AMQP\x01\x01\x00\x5b", amqp.VERSION_0_9_1),
        (b"AMQP\x01\x01\x00\x09", amqp.VERSION_0_9),
        (b"AMQP\x01\x01\x08\x00", amqp.VERSION_0_8),
        (b"AMQP\x01\x01\x09\x01", amqp.VERSION_0_8),
    ],
)
def test_every_header_in_use_is_known(playbook: Playbook, header: bytes, version: int) -> None:
    client = playbook.stranger(version)
    for octet in header[:-1]:
        client >> bytes((octet,))
        client.hears_nothing()
    client >> header[-1:]
    assert client.session.connection.version == version
    assert client.heard()
    client.inbox.clear()


@pytest.mark.parametrize("header", [b"AMQP\x00\x01\x00\x00", b"HTTP/1.1", b"AMQP\x02", b"\x16\x03\x01"])
def test_an_unknown_header_is_answered_with_ours(playbook: Playbook, header: bytes) -> None:
    client = playbook.stranger()
    client >> header
    client[0] << b"AMQP\x00\x00\x09\x01"
    assert client.session.connection.state == 7


@VERSIONS
def test_amqplain(playbook: Playbook, version: int) -> None:
    client = playbook.stranger(version)
    client.greet()
    response = encode_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:]
    client >> ConnectionStartOk(mechanism="AMQPLAIN", response=response, locale="en_US")
    client.hears(ConnectionTune)


def test_an_unknown_mechanism_is_refused(playbook: Playbook) -> None:
    client = playbook.stranger()
    client.greet()
    client >> ConnectionStartOk(mechanism="CRAM-MD5", response=b"x", locale="en_US")
    assert client.link.notes == ["drop"]


@pytest.mark.parametrize(("user", "password"), [("guest", "wrong"), ("nobody", "guest"), ("", "")])
def test_a_wrong_login_is_told_after_a_pause(playbook: Playbook, user: str, password: str) -> None:
    client = playbook.stranger()
    client.greet()
    client.log_in(user, password)
    client.hears_nothing()
    assert client.link.notes[-1] == "refuse_login"
    client.session.login_refused()  # the pause is over
    client << ConnectionClose(
        reply_code=403,
        reply_text="ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN.",
    )


def test_clients_that_do_not_know_the_close_are_cut_off(playbook: Playbook) -> None:
    client = playbook.stranger()
    client.greet()
    client.log_in("guest", "wrong", capabilities={"authentication_failure_close": False})
    client.session.login_refused()
    assert client.link.notes == ["verify", "refuse_login", "drop"]


def test_guest_is_for_this_machine_alone(playbook: Playbook) -> None:
    client = playbook.stranger(address="192.0.2.1")
    client.greet()
    client.log_in()
    assert client.link.notes == ["verify", "refuse_login"]


def test_nothing_goes_on_while_a_password_is_verified(playbook: Playbook) -> None:
    client = playbook.stranger()
    client.link.slow_logins = True
    client.greet()
    client.log_in()
    client.hears_nothing()
    (verification,) = client.link.verifying
    client.session.login_step(verification.finish(verification.run()))
    client.hears(ConnectionTune)


def test_a_login_has_one_start_ok(playbook: Playbook) -> None:
    """Else one connection could try thousands of passwords, and keep everybody's verifier busy."""
    client = playbook.stranger()
    client.link.slow_logins = True
    client.greet()
    client.log_in("guest", "one")
    client.log_in("guest", "two")
    assert len(client.link.verifying) == 1
    close = client.hears(ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (503, 10, 11)


def test_a_login_ends_with_its_connection(playbook: Playbook) -> None:
    client = playbook.stranger()
    client.link.slow_logins = True
    client.greet()
    client.log_in()
    client.session.close_connection(ConnectionFault(320, "CONNECTION_FORCED"))
    client.hears(ConnectionClose)
    (verification,) = client.link.verifying
    client.session.login_step(verification.now())
    client.hears_nothing()
    client >> ConnectionCloseOk()
    assert client.link.notes[-1] == "finish"


def test_a_second_login_of_a_user_needs_no_verifying(playbook: Playbook) -> None:
    tuned(playbook)
    client = tuned(playbook)
    assert client.link.notes == []


def test_secure_ok_is_for_those_who_were_asked(playbook: Playbook) -> None:
    client = playbook.stranger()
    client.greet()
    client >> ConnectionSecureOk(response=b"x")
    assert client.hears(ConnectionClose).reply_code == 503


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"frame_max": 4095}, "frame_max=4095"),
        ({"frame_max": 131_073}, "frame_max=131073"),
        ({"channel_max": 2048}, "channel_max=2048"),
    ],
)
def test_tuning_beyond_the_limits_is_refused(
    playbook: Playbook, asked: dict[str, int], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The standard has no close before open: the connection just ends, and the log says why."""
    client = tuned(playbook)
    client >> ConnectionTuneOk(**{"channel_max": 0, "frame_max": 0, "heartbeat": 0, **asked})
    assert client.link.notes[-1] == "drop"
    assert text in caplog.text


def test_zero_means_our_limits() -> None:
    playbook = Playbook(Config()._replace(limits=Limits(channels_per_connection_max=5, frame_bytes_max=5000)))
    client = playbook.stranger()
    client.greet()
    client.log_in()
    client << ConnectionTune(channel_max=5, frame_max=5000, heartbeat=60)
    client >> ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
    assert client.session.connection.channel_max == 5
    assert client.session.connection.frame_bytes_max == 5000
    assert client.output.frame_bytes_max == 5000
    assert client.link.heartbeat_s == 0


def test_an_unknown_virtual_host(playbook: Playbook) -> None:
    client = opening(playbook)
    client >> ConnectionOpen(virtual_host="elsewhere")
    client << ConnectionClose(
        reply_code=530, reply_text="NOT_ALLOWED - vhost elsewhere not found", class_id=10, method_id=40
    )


def test_a_virtual_host_of_others() -> None:
    playbook = Playbook(
        parse('virtual_hosts = ["/", "v"]\n[users.u]\npassword = "p"\npermissions."/" = { read = ".*" }')
    )
    for name in ("v", "nowhere"):  # which of both there is, is for those to know who may list them
        client = opening(playbook, user="u", password="p")
        client >> ConnectionOpen(virtual_host=name)
        text = (
            f"NOT_ALLOWED - access to vhost '{name}' refused for user 'u': "
            "there is none of that name, or no permissions in it"
        )
        client << ConnectionClose(reply_code=530, reply_text=text, class_id=10, method_id=40)


@VERSIONS
def test_methods_out_of_turn(playbook: Playbook, version: int) -> None:
    client = playbook.stranger(version)
    client.greet()
    client >> ConnectionOpen(virtual_host="/")
    assert client.hears(ConnectionClose).reply_code == 503
    client = playbook.stranger(version)
    client.greet()
    client >> ChannelOpen()
    close = client.hears(ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (504, 20, 10)


def test_before_login_frames_are_small(playbook: Playbook) -> None:
    client = playbook.stranger()
    client.greet()
    client >> b"\x01\x00\x00\x00\x00\x20\x01"
    client >> b"\x00"
    close = client.hears(ConnectionClose)
    assert (close.reply_code, close.reply_text) == (
        501,
        "FRAME_ERROR - frame of 8201 octets is larger than the agreed 8192",
    )


def test_what_comes_after_our_close_is_not_answered(playbook: Playbook) -> None:
    client = opening(playbook)
    client >> ConnectionOpen(virtual_host="elsewhere")
    client.hears(ConnectionClose)
    client >> ConnectionOpen(virtual_host="/") >> ChannelOpen()
    client[9] >> QueueDeclare(queue="q")
    client.hears_nothing()
    client >> ConnectionCloseOk()
    assert client.link.notes[-1] == "finish"


def test_closes_that_cross_are_both_answered(playbook: Playbook) -> None:
    client = opening(playbook)
    client >> ConnectionOpen(virtual_host="elsewhere")
    client >> ConnectionClose(reply_code=200)
    client.hears(ConnectionClose)
    client << ConnectionCloseOk()
    assert client.link.notes[-1] == "finish"


def test_a_secret_may_be_updated(client: Client) -> None:
    client >> ConnectionUpdateSecret(new_secret=b"s", reason="r")
    client << ConnectionUpdateSecretOk()


def test_blocked_is_told_to_those_who_know_it(playbook: Playbook) -> None:
    knowing = playbook.client()
    knowing.session.tell_blocked("low on memory " + "x" * 300)
    blocked = knowing.heard().pop()[1]
    assert blocked.reason == ("low on memory " + "x" * 300)[:255]  # type: ignore[attr-defined]
    knowing.session.tell_unblocked()
    knowing.heard().pop()
    unknowing = playbook.client(capabilities={**CAPABILITIES, "connection.blocked": False})
    unknowing.session.tell_blocked("low")
    unknowing.session.tell_unblocked()
    unknowing.hears_nothing()
