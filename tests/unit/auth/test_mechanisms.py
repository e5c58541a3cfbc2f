"""SASL mechanisms: responses that log in, and the ways they can be wrong."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flintmq.auth import (
    Accepted,
    Refused,
    User,
    Users,
    Verification,
    login_refused,
    mechanism,
    mechanisms_offered,
)
from flintmq.auth.passwords import hash_password_quickly
from flintmq.errors import ConnectionFault


@pytest.fixture(scope="module")
def users() -> Users:
    users = Users()
    users.put(User("alice", hash_password_quickly(b"s\xc3\xa9cret")))
    return users


def log_in(users: Users, name: str, response: bytes) -> Accepted | Refused:
    step = mechanism(name, users, "127.0.0.1").start(response)
    if isinstance(step, Verification):
        return step.now()
    assert isinstance(step, Accepted | Refused)
    return step


def long_string(text: bytes) -> bytes:
    return b"S" + len(text).to_bytes(4, "big") + text


def login_table(login: bytes = b"alice", password: bytes = b"s\xc3\xa9cret") -> bytes:
    return b"\x05LOGIN" + long_string(login) + b"\x08PASSWORD" + long_string(password)


def test_what_is_offered() -> None:
    assert mechanisms_offered() == "PLAIN AMQPLAIN"


@pytest.mark.parametrize("response", [b"\0alice\0s\xc3\xa9cret", b"alice\0alice\0s\xc3\xa9cret"])
def test_plain_logs_in(users: Users, response: bytes) -> None:
    assert log_in(users, "PLAIN", response) == Accepted(users.get("alice"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"\0alice\0wrong", "wrong password for user 'alice'"),
        (b"\0bob\0wrong", "no user 'bob'"),
        (b"", "PLAIN response is not three texts with NUL between them"),
        (b"alice\0secret", "PLAIN response is not three texts with NUL between them"),
        (b"\0alice\0s\0cret", "PLAIN response is not three texts with NUL between them"),
        (b"root\0alice\0s\xc3\xa9cret", "PLAIN response asks to act for another user"),
        (b"\0al\xffice\0secret", "PLAIN user name is not UTF-8"),
        (bytes(4097), "PLAIN response of 4097 octets, 4096 allowed"),
    ],
)
def test_plain_refuses(users: Users, response: bytes, reason: str) -> None:
    assert log_in(users, "PLAIN", response) == Refused(reason)


def test_amqplain_logs_in(users: Users) -> None:
    assert log_in(users, "AMQPLAIN", login_table()) == Accepted(users.get("alice"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (login_table(password=b"wrong"), "wrong password for user 'alice'"),
        (login_table(password=b"\xff\xfe"), "wrong password for user 'alice'"),
        (login_table(login=b"bob"), "no user 'bob'"),
        (login_table(login=b"\xff"), "AMQPLAIN response lacks LOGIN or PASSWORD as text"),
        (b"", "AMQPLAIN response lacks LOGIN or PASSWORD as text"),
        (b"\x05LOGIN" + long_string(b"alice"), "AMQPLAIN response lacks LOGIN or PASSWORD as text"),
        (b"\x05LOGINt\x01\x08PASSWORDt\x01", "AMQPLAIN response lacks LOGIN or PASSWORD as text"),
        (bytes(5000), "AMQPLAIN response of 5000 octets, 4096 allowed"),
    ],
)
def test_amqplain_refuses(users: Users, response: bytes, reason: str) -> None:
    assert log_in(users, "AMQPLAIN", response) == Refused(reason)


@pytest.mark.parametrize(
    "response", [login_table()[:-1], b"\xff", b"\x05LOGIN?", b"\x05LOGINS\xff\xff\xff\xff"]
)
def test_amqplain_refuses_what_is_no_table(users: Users, response: bytes) -> None:
    step = log_in(users, "AMQPLAIN", response)
    assert isinstance(step, Refused)
    assert step.reason.startswith("AMQPLAIN response is no field table: ")


@given(response=st.binary(max_size=64) | st.binary(max_size=32).map(lambda tail: login_table()[:9] + tail))
@example(response=b"\x05LOGINF\x00\x00\x00\x00")
@pytest.mark.parametrize("name", ["PLAIN", "AMQPLAIN"])
def test_no_octets_do_more_than_fail(users: Users, name: str, response: bytes) -> None:
    step = mechanism(name, users, "127.0.0.1").start(response)
    assert isinstance(step, Refused | Verification)


@pytest.mark.parametrize("name", ["PLAIN", "AMQPLAIN"])
def test_there_is_no_second_step(users: Users, name: str) -> None:
    assert mechanism(name, users, "::1").answer(b"") == Refused(f"{name} has no second step")


def test_an_unknown_mechanism_is_told_what_there_is(users: Users) -> None:
    with pytest.raises(ConnectionFault) as caught:
        mechanism("GSSAPI" * 50, users, "::1")
    assert caught.value.code == 403
    assert caught.value.reply_text == (
        "ACCESS_REFUSED - no SASL mechanism 'GSSAPIGSSAPIGSSAPIGSSAPIGSSAPIGS' here, "
        "choose from: PLAIN AMQPLAIN"
    )


def test_the_peer_hears_the_same_of_every_refusal() -> None:
    refusal = login_refused("PLAIN")
    assert refusal.code == 403
    assert (
        refusal.reply_text == "ACCESS_REFUSED - login by PLAIN refused; the log of the broker has the reason"
    )
