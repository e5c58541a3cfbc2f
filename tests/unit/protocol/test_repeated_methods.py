"""Methods that clients say in the same octets each time are decoded once; nothing secret is kept."""

from __future__ import annotations

import pytest

from flintmq.errors import ConnectionFault
from flintmq.protocol.connection import SAID, SAID_MAX, SAID_OCTETS_MAX, decoded
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, encode_method

VERSION = amqp.VERSION_0_9_1


def octets(method: Method, version: int = VERSION) -> bytes:
    return encode_method(version, method)


@pytest.fixture(autouse=True)
def nothing_said() -> None:
    for said in SAID.values():
        said.clear()


@pytest.mark.parametrize(
    "method",
    [
        methods.ConnectionTuneOk(channel_max=2047, frame_max=131_072, heartbeat=60),
        methods.ConnectionOpen(virtual_host="/"),
        methods.ConnectionClose(reply_code=200, reply_text="bye"),
        methods.ChannelOpen(),
        methods.ChannelClose(reply_code=200),
        methods.BasicQos(prefetch_count=10),
        methods.ConfirmSelect(),
    ],
    ids=lambda method: str(method.NAME),
)
def test_a_method_that_is_said_again_is_the_same_one(method: Method) -> None:
    first = decoded(VERSION, octets(method))
    assert first == method
    assert decoded(VERSION, octets(method)) is first


def test_other_octets_are_another_method() -> None:
    decoded(VERSION, octets(methods.BasicQos(prefetch_count=10)))
    another = methods.BasicQos(prefetch_count=11)
    assert decoded(VERSION, octets(another)) == another


def test_versions_share_nothing() -> None:
    opening = methods.ChannelOpen()
    early = decoded(amqp.VERSION_0_9, octets(opening, amqp.VERSION_0_9))
    assert decoded(VERSION, octets(opening)) is not early


def test_no_password_is_kept() -> None:
    login = methods.ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US")
    assert decoded(VERSION, octets(login)) == login
    renewed = methods.ConnectionUpdateSecret(new_secret=b"token", reason="")
    assert decoded(VERSION, octets(renewed)) == renewed
    assert not any(SAID.values())


def test_what_is_long_is_not_kept() -> None:
    opening = methods.ConnectionOpen(virtual_host="v" * SAID_OCTETS_MAX)
    assert decoded(VERSION, octets(opening)) == opening
    assert not any(SAID.values())


def test_what_is_kept_is_bounded() -> None:
    for count in range(3 * SAID_MAX):
        decoded(VERSION, octets(methods.BasicQos(prefetch_count=count)))
        assert len(SAID[VERSION]) <= SAID_MAX


def test_octets_that_are_no_method_are_a_fault_each_time() -> None:
    for _ in range(2):
        with pytest.raises(ConnectionFault, match="cut short"):
            decoded(VERSION, octets(methods.ConnectionTuneOk())[:-1])
    assert not any(SAID.values())
