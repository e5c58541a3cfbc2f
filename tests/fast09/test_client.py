"""The client's half of AMQP/Fast 0.9 without sockets, against octets written by hand."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from fast09.conversation import framed, octets, table

from flintmq.client import ConnectionClosed, LoginRefused, NotFound
from flintmq.client.fast09.aio.connection import Channel, Connection
from flintmq.client.fast09.core import Fast09Core, Place
from flintmq.wire.fast09.content_header import ContentHeader
from flintmq.wire.fast09.methods import CLASS_JMS, method


@pytest.fixture
def core() -> Fast09Core:
    """A client that has logged in."""
    core = Fast09Core("guest", "secret", "/", "me", 0)
    assert core.take_output() == octets("'AMQP' 01 01 00 09")
    core.receive(framed("01 00 | 01 01 00 0000 | 00 09 0005 'PLAIN' 0005 'en_US'"))
    assert core.take_output() == framed("01 00 | 01 02 00 0000 | 05 'PLAIN' 05 'en_US'")
    core.receive(framed("01 00 | 01 03 00 0000 | 0000"))
    assert core.take_output() == framed("01 00 | 01 04 00 0000 | 000d 00 'guest' 00 'secret'")
    core.receive(framed("01 00 | 01 05 00 0000 | 00001000 0010 0040 2710 003c 0000 07"))
    assert core.take_output() == framed(
        "01 00 | 01 06 00 0000 | 00001000 0010 0040 0000 07 00000000\n01 00 | 01 07 00 0000 | 01 '/' 02 'me'"
    )
    core.receive(framed("01 00 | 01 08 00 0000 | 02 'me'"))
    assert core.is_open
    return core


@pytest.fixture
def place(core: Fast09Core) -> Place:
    return core.open_place()


def hears(core: Fast09Core, said: str) -> bytes:
    """What the client says in return."""
    core.receive(framed(said))
    return core.take_output()


def test_a_message_is_published(core: Fast09Core, place: Place) -> None:
    header = ContentHeader(CLASS_JMS, 0, {"destination": "q", "headers": {"n": 1}})
    core.publish(place, method("jms.publish", proxy="p"), header, b"x" * 5000, 0x80, 3)
    said = core.take_output()
    assert (
        said
        == framed(
            "01 01 | 06 05 80 0003 | 0000 01 'p' 00\n"
            "02 01 | 06 00 0000000000001388 0204 01 'q' " + table("01 'n' 'I' 00000001")
        )
        + octets("03 01 1000")
        + b"x" * 4096
        + octets("03 01 0388")
        + b"x" * 904
    )


def test_a_message_is_delivered(core: Fast09Core, place: Place) -> None:
    inbox = place.inboxes.setdefault(("jms", "ns", "q"), deque())
    hears(
        core,
        "01 01 | 06 06 20 0000 | 0000000000000007 01 01 'p' 02 'ns' 01 'q'\n"
        "02 01 | 06 00 0000000000000003 0200 01 'd'\n03 01 | 'a'\n03 01 |\n03 01 | 'bc'",
    )
    (message,) = inbox
    assert (message.body, message.tag, message.proxy, message.destination) == (b"abc", 7, "p", "d")
    assert message.is_redelivered
    assert message.is_traced


def test_octets_may_come_one_by_one(core: Fast09Core, place: Place) -> None:
    core.next_tag(place)
    for octet in octets("09 00 0000 | 01 00 0001 0000000000000005 | 02 06 00 0001"):
        core.receive(bytes((octet,)))
    assert place.replies[1] == method("channel.synch")


@pytest.mark.parametrize(
    "said",
    [
        "01 01 | 06 05 00 0000 | 0000 00 00",  # Publish is for servers
        "01 01 | 05 02 00 0009 | 00 00 00000000 00000000",  # an answer to nothing
        "01 02 | 05 02 00 0009 | 00 00 00000000 00000000",  # on no channel
        "02 01 | 06 00 0000000000000000 0000",
        "03 01 | 'a'",
        "01 01 | 06 06 00 0000 | 0000000000000007 00 00 00 00\n01 01 | 02 03 00 0000 | 00",
        "01 01 | 06 06 00 0000 | 0000000000000007 00 00 00 00\n"
        "02 01 | 06 00 0000000000000001 0000\n03 01 | 'ab'",
        "01 01 | 06 06 00 0000 | 0000000000000007 00 00 00 00\n02 01 | 06 01 0000000000000001 0000",
        "01 01 | 06 06 00 0000 | 00",
        "04 01 | 00",
        "0a 01 | 00",
    ],
)
def test_a_server_that_breaks_the_rules_ends_the_connection(
    core: Fast09Core, place: Place, said: str
) -> None:
    assert hears(core, said)[4:6] == octets("01 0a")
    with pytest.raises(ConnectionClosed, match="broke the protocol"):
        core.check()


def test_a_server_that_wants_a_synchpoint_is_at_fault(core: Fast09Core, place: Place) -> None:
    assert hears(core, "01 01 | 02 03 80 0000 | 00")[4:6] == octets("01 0a")


def test_a_server_may_ask_what_there_is(core: Fast09Core, place: Place) -> None:
    assert hears(core, "01 01 | 0b 01 40 0005 | 00 0000 00000000 0000000000000000 00") == framed(
        "01 01 | 0b 02 40 0005 | 0000000000000000"
    )
    assert hears(core, "01 01 | 06 05 40 0006 | 0000 00 00") == framed(
        "01 00 | 01 09 00 0006 | 06 05 0006 021c 22 'a client does not have this method'"
    )


def test_the_test_class_is_answered(core: Fast09Core, place: Place) -> None:
    assert hears(core, "01 01 | 0b 01 00 0001 | 01 0002 00000003 0000000000000004 03") == framed(
        "01 01 | 0b 02 00 0001 | 0000000000000004"
    )
    assert hears(core, "01 01 | 0b 03 00 0002 | 02 'ab' 0003 'cde' 01") == framed(
        "01 01 | 0b 04 00 0002 | 0005 'abcde'"
    )
    assert hears(
        core, f"01 01 | 0b 05 00 0003 | {table('01 #a# #S# 01 #x#'.replace('#', chr(39)))} 01 01"
    ) == framed("01 01 | 0b 06 00 0003 | 0000000000000000 0001 'x'")
    assert hears(core, "01 01 | 0b 07 00 0004\n02 01 | 0b 00 0000000000000002 0000\n03 01 | 01 02") == framed(
        "01 01 | 0b 08 00 0004 | 00000003\n02 01 | 0b 00 0000000000000002 0000\n03 01 | 01 02"
    )


def test_a_file_is_staged_from_where_it_is(core: Fast09Core, place: Place) -> None:
    core.files["f"] = bytearray(b"01")
    inbox = place.inboxes.setdefault(("file", "", "q"), deque())
    assert hears(core, "01 01 | 07 05 00 0000 | 01 'f' 0000000000000004") == framed(
        "01 01 | 07 06 00 0000 | 0000000000000002"
    )
    hears(core, "01 01 | 07 07 00 0000\n02 01 | 07 00 0000000000000002 0200 02 'nm'\n03 01 | '23'")
    hears(core, "01 01 | 07 09 00 0000 | 0000000000000001 00 00 00 01 'q' 01 'f'")
    (message,) = inbox
    assert (message.body, message.properties, message.tag) == (b"0123", {"file_name": "nm"}, 1)
    assert not core.files


def test_a_closed_channel_says_why(core: Fast09Core, place: Place) -> None:
    assert hears(core, "01 01 | 02 04 00 0000 | 0194 04 'none' 05 05 0008") == framed("01 01 | 02 05 00 0000")
    with pytest.raises(NotFound, match="none"):
        core.check_place(place)


def test_a_refused_login_says_why() -> None:
    core = Fast09Core("guest", "wrong", "/", "", 0)
    core.receive(framed("01 00 | 01 0a 00 0000 | 0193 02 'no' 01 04 0000"))
    with pytest.raises(LoginRefused, match="no"):
        core.check()


def test_a_heartbeat_is_answered(core: Fast09Core) -> None:
    assert hears(core, "08 00 |") == octets("08 00 0000")


def test_a_client_does_not_publish_while_it_is_paused(core: Fast09Core, place: Place) -> None:
    hears(core, "01 01 | 02 03 00 0000 | 01")

    class Resuming:
        """A transport whose server lets the client go on when somebody waits."""

        def __init__(self) -> None:
            self.sent_before = b""

        async def wait(self, is_there: object, timeout_s: float | None, what: str) -> None:
            self.sent_before = core.take_output()
            core.receive(framed("01 01 | 02 03 00 0000 | 00"))

        async def flush(self) -> None:
            """What is written stays there to be looked at."""

    transport = Resuming()
    connection = Connection(core, transport, 1.0)  # type: ignore[arg-type]
    asyncio.run(Channel(connection, place).publish(b"a", "q"))
    assert transport.sent_before == b""
    assert core.take_output().endswith(octets("03 01 0001 'a'"))
