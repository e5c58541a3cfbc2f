"""URIs and options; what they may be, and that no password is ever shown."""

from __future__ import annotations

import pickle
import traceback

import pytest

from flintmq.client import BadSettings, Recovery, Settings
from flintmq.client.core.settings import Secret


def test_a_full_uri() -> None:
    found = Settings.of(
        "amqps://a%40b:p%2Fw@example.org:1234/v%2F1?heartbeat=7&connection_timeout=2.5&name=me"
        "&cacertfile=ca.pem&certfile=c.pem&keyfile=k.pem&verify=verify_none&channel_max=9&frame_max=8192"
    )
    assert (found.host, found.port, found.user, found.virtual_host) == ("example.org", 1234, "a@b", "v/1")
    assert found.password.reveal() == "p/w"
    assert (found.heartbeat_s, found.connection_timeout_s, found.name) == (7, 2.5, "me")
    assert (found.channel_max, found.frame_bytes_max) == (9, 8192)
    assert found.tls is not None
    assert (found.tls.authority, found.tls.certificate, found.tls.key) == ("ca.pem", "c.pem", "k.pem")
    assert not found.tls.verify


@pytest.mark.parametrize(
    ("uri", "host", "port", "virtual_host"),
    [
        ("amqp://", "localhost", 5672, "/"),
        ("amqp://host", "host", 5672, "/"),
        ("amqp://host/", "host", 5672, "/"),
        ("amqp://host/%2f", "host", 5672, "/"),
        ("amqps://host/x", "host", 5671, "x"),
        ("amqp://[::1]:99", "::1", 99, "/"),
    ],
)
def test_what_may_be_left_out(uri: str, host: str, port: int, virtual_host: str) -> None:
    found = Settings.of(uri)
    assert (found.host, found.port, found.virtual_host) == (host, port, virtual_host)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("http://host", "must begin with amqp://"),
        ("amqp://me:hidden@host:port", "is not one"),
        ("amqp://me:hidden@host:99999", "its port is above 65535"),
        ("amqp://me:hid#den@host", "write it as %23"),
        ("amqp://me:hidden@host/a/b", "write it as %2F"),
        ("amqp://me:hidden@host?heartbeet=1", "no URI option 'heartbeet'"),
        ("amqp://me:hidden@host?heartbeat=x", "not a whole number"),
        ("amqp://me:hidden@host?heartbeat=-1", "not in 0..65535"),
        ("amqp://me:hidden@host?connection_timeout=0", "must be above 0"),
        ("amqp://me:hidden@host?frame_max=100", "not in 4096.."),
        ("amqp://me:hidden@host?cacertfile=x", "need amqps://"),
        ("amqps://me:hidden@host?verify=maybe", "expected verify_peer or verify_none"),
        ("amqp://me:hidden@host?protocol=1.0", "expected 0-9-1 or 0-9"),
    ],
)
def test_a_bad_uri_is_told_without_its_password(uri: str, reason: str) -> None:
    with pytest.raises(BadSettings) as bad:
        Settings.of(uri)
    assert reason in str(bad.value)
    lines = traceback.format_exception(bad.value)
    assert "hidden" not in "".join(lines)
    assert "hid#den" not in "".join(lines)


def test_options_win_and_unknown_ones_are_refused() -> None:
    found = Settings.of("amqp://me:one@host", password="two", prefetch=3)
    assert found.password == Secret("two")
    assert found.prefetch == 3
    assert Settings.of(found, name="x").user == "me"
    with pytest.raises(BadSettings, match="no option 'pasword'"):
        Settings.of("amqp://host", pasword="x")


def test_settings_pickle_and_never_show_the_password() -> None:
    found = Settings.of("amqp://me:hidden@host", recovery=Recovery(unconfirmed="report"))
    assert pickle.loads(pickle.dumps(found)) == found
    for shown in (repr(found), str(found), found.address, f"{found.password}"):
        assert "hidden" not in shown


def test_delays_grow_to_their_limit_with_chance() -> None:
    recovery = Recovery(delay_s_min=0.5, delay_s_max=8.0)
    assert [recovery.delay_s(attempt, 1.0) for attempt in range(6)] == [0.5, 1, 2, 4, 8, 8]
    assert recovery.delay_s(2, 0.0) == 1.0
    assert recovery.delay_s(1_000_000, 1.0) == 8.0


def test_settings_are_keys_of_pools() -> None:
    assert hash(Settings(client_properties={"a": 1})) == hash(Settings(client_properties={"a": 1}))
