"""Playbook: connections and channels of AMQP/Fast in use: pipelining, heartbeats, confirms, rollbacks."""

from __future__ import annotations

import pytest
from fast.conversation import HEAD, FastClient, framed, octets, table
from playbook.dialogue import Client, Playbook

from flintmq.client.fast.core import FastCore
from flintmq.config import Config, Limits
from flintmq.protocol import phases

LOGIN = framed("0b 05 'PLAIN' 001f 05 'LOGIN' 'S' 0005 'guest' 08 'PASSWORD' 'S' 0005 'guest'")


@pytest.fixture
def client(playbook: Playbook) -> Client:
    """One who speaks 0-9-1."""
    client = playbook.client()
    client.declares("q")
    return client


def message(body: str) -> bytes:
    block = octets(body)
    return len(block).to_bytes(4, "big") + octets(HEAD) + block


SEND = framed("1f 0001 0000 00000010 00 00") + message("'1'")


def test_a_client_waits_for_nothing_after_its_login(playbook: Playbook, client: Client) -> None:
    """It numbers channels and handles itself, and so says everything at once."""
    fast = FastClient(playbook)
    fast >> octets("80 01") + LOGIN
    fast.hears()
    said = framed("0d 0000 01 '/' 00 0000") + framed("14 0001 0000 00 0000 00")
    said += framed("1e 0001 0001 0001 0000 07 01 'q' 00 00 0000") + SEND + framed("13 00c8 00")
    fast >> said
    fast << "13 00c8 02 'Ok'"
    assert client.gets_all("q") == [b"1"]


def test_a_ping_is_answered_in_the_middle_of_a_message(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> framed("1f 0001 0000 00000010 01 00") + message("'ab'")[:16]
    fast >> "0e 01"
    fast << "0e 00"
    fast >> framed("1f 0001 0000 00000001 00 00") + b"b"
    assert client.gets_all("q") == [b"ab"]


def test_an_error_of_one_channel_leaves_the_others_alone(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast.opens_handle("q", channel=2, handle=2)
    fast >> "16 0002 0000 0000"  # COMMIT, and the channel has no transactions
    assert fast.hears()[2:7] == octets("1d 0002 0196")
    fast >> SEND
    fast.hears_nothing()
    assert client.gets_all("q") == [b"1"]


def test_replies_come_in_the_order_of_their_commands(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    client.publishes("q", b"1")
    fast >> (
        framed("20 0001 0007 0009 00 00 0000")
        + framed("22 0001 0008 01")
        + framed("1f 0001 0009 00000010 00 00")
        + message("'2'")
        + framed("15 0001 000a 00000000")
    )
    heard = fast.hears()
    places = [
        heard.index(framed(each))
        for each in (
            "30 0001 0007 00c8 02 'Ok'",
            "30 0001 0008 00c8 02 'Ok'",
            "30 0001 0009 00c8 02 'Ok'",
            "1c 0001 000a 00c8 02 'Ok'",
        )
    ]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("options", "interval_s"),
    [("", 60), ("09 'HEARTBEAT' 'I' 00000007", 7), ("09 'HEARTBEAT' 'I' 00000000", 0)],
)
def test_the_server_pings_in_the_interval_that_the_client_names(
    playbook: Playbook, options: str, interval_s: int
) -> None:
    fast = FastClient(playbook)
    fast >> octets("80 01") + LOGIN
    if options:
        fast >> ("0c " + table(options) + " 0000")
    fast >> "0d 0000 01 '/' 00 0000"
    fast.hears()
    assert fast.link.heartbeat_s == interval_s
    assert fast.session.heartbeat() == framed("0e 01")


def test_several_tunes_of_the_client_hold_together(playbook: Playbook, client: Client) -> None:
    fast = FastClient(playbook)
    fast >> octets("80 01") + LOGIN
    fast >> ("0c " + table("09 'FRAME_MAX' 'I' 00000400") + " 0000")
    fast >> ("0c " + table("09 'HEARTBEAT' 'I' 00000009") + " 0000")
    fast >> "0d 0000 01 '/' 00 0000"
    fast.hears()
    assert (fast.output.frame_bytes_max, fast.link.heartbeat_s) == (1024, 9)


@pytest.mark.parametrize("code", ["0b", "0c"])
def test_commands_before_the_open_have_4096_octets(playbook: Playbook, code: str) -> None:
    fast = FastClient(playbook)
    fast >> octets("80 01")
    if code == "0c":
        fast >> LOGIN
    fast.hears()
    fast >> octets(f"1001 {code}")
    assert fast.hears()[2:5] == octets("13 01f5")
    assert fast.session.connection.state == phases.CONNECTION_CLOSING


@pytest.mark.parametrize(
    "said", ["1d 0001 00c8 00", "13 00c8 00", ""], ids=["channel close", "connection close", "a lost socket"]
)
def test_the_end_of_a_channel_rolls_its_transaction_back(fast: FastClient, client: Client, said: str) -> None:
    client.publishes("q", b"old")
    fast >> "14 0001 0000 01 0000 00"
    fast >> "1e 0001 0001 0001 0000 07 01 'q' 00 00 0000"
    fast >> "20 0001 0000 0009 00 00 0000"
    fast.hears()
    fast >> "22 0001 0000 01"
    fast >> "15 0001 0000 00000001"  # the ack of the old one
    fast >> SEND
    if said:
        fast >> said
        fast.hears()
    else:
        fast.session.release()
        fast.playbook.finish_pass()
    assert client.gets_all("q") == [b"old"]


@pytest.mark.parametrize("said", ["17 0001 0000 0000", "16 0001 0000 0000"], ids=["rollback", "commit"])
def test_channels_without_transactions_have_neither(fast: FastClient, said: str) -> None:
    fast >> "14 0001 0000 00 0000 00"
    fast >> said
    assert fast.hears()[2:7] == octets("1d 0001 0196")


def test_a_commit_covers_all_handles_of_the_channel(fast: FastClient, client: Client) -> None:
    client.declares("r")
    client.declares("t")
    client.binds("t", "amq.topic", "news")
    fast >> "14 0001 0000 01 0000 00"
    for handle, service, name in ((1, 1, "01 'q'"), (2, 1, "01 'r'"), (3, 2, "04 'news'")):
        fast >> f"1e 0001 {handle:04x} {service:04x} 0000 07 {name} 00 00 0000"
        fast >> framed(f"1f {handle:04x} 0000 00000010 00 00") + message("'1'")
    assert [client.gets(name) for name in ("q", "r", "t")] == [None] * 3
    fast >> "16 0001 0000 0000"
    fast.hears_nothing()
    assert [client.gets(name) for name in ("q", "r", "t")] == [b"1"] * 3


def test_an_ack_covers_all_handles_of_the_channel(fast: FastClient, client: Client) -> None:
    client.declares("r")
    fast.opens_handle("q")
    fast >> "1e 0001 0002 0001 0000 07 01 'r' 00 00 0000"
    for handle in (1, 2):
        fast >> f"20 {handle:04x} 0000 0009 00 00 0000"
    client.publishes("q", b"1")
    client.publishes("r", b"2")
    fast.hears()
    fast >> "15 0001 0000 00000002"
    fast >> "1d 0001 00c8 00"
    fast << "1d 0001 00c8 02 'Ok'"
    assert client.gets_all("q") == client.gets_all("r") == []


def test_a_rollback_takes_an_ack_back(fast: FastClient, client: Client) -> None:
    fast >> "14 0001 0000 01 0000 00"
    fast >> "1e 0001 0001 0001 0000 07 01 'q' 00 00 0000"
    fast >> "20 0001 0000 0009 00 00 0000"
    client.publishes("q", b"1")
    fast.hears()
    fast >> "15 0001 0000 00000001"
    fast >> "17 0001 0000 0000"
    fast << framed("29 0001 00000002 00000010 18 01 'q'") + message("'1'")


@pytest.mark.parametrize("number", ["0000", "0007"])
def test_an_ack_needs_a_channel(fast: FastClient, number: str) -> None:
    fast >> f"15 {number} 0000 00000001"
    assert fast.hears()[2:5] == octets("13 01f8")


def test_there_is_no_channel_0(fast: FastClient) -> None:
    fast >> "14 0000 0001 00 0000 00"
    assert fast.hears()[2:5] == octets("13 01f8")


def test_there_are_no_more_channels_than_were_told() -> None:
    playbook = Playbook(Config(limits=Limits(channels_per_connection_max=2)))
    fast = FastClient(playbook)
    fast >> octets("80 01") + LOGIN
    assert octets("0b 'CHANNEL_MAX' 'I' 00000002") in fast.hears()
    fast >> "0d 0000 01 '/' 00 0000"
    for number in (1, 2):
        fast >> f"14 {number:04x} 0000 00 0000 00"
    fast.hears_nothing()
    fast >> "14 0003 0000 00 0000 00"
    assert fast.hears()[2:3] == b"\x13"


def test_a_mechanism_that_was_not_offered_is_refused(playbook: Playbook) -> None:
    fast = FastClient(playbook)
    fast >> octets("80 01")
    fast.hears()
    fast >> "0b 03 'TLS' 0000"
    assert fast.hears()[2:5] == octets("13 0212")


@pytest.mark.parametrize("said", ["0b 03 'TLS' 0000", "0b 05 'PLAIN' 0000", "14 0001 0000 00 0000 00", "63"])
def test_a_failure_before_the_open_is_logged(
    playbook: Playbook, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    fast = FastClient(playbook, "192.0.2.7")
    fast >> octets("80 01")
    fast >> said
    fast.hears()
    assert [record for record in caplog.records if "192.0.2.7" in record.getMessage()]


def test_names_of_fields_differ_by_case(playbook: Playbook) -> None:
    fast = FastClient(playbook)
    fast >> octets("80 01")
    fast.hears()
    fast >> ("0b 05 'PLAIN' " + table("05 'Login' 'S' 0005 'guest'", "08 'Password' 'S' 0005 'guest'"))
    assert fast.hears()[2:5] == octets("13 01f6")


@pytest.mark.parametrize(
    "said",
    [
        "0b 05 'PLAIN' 0000",  # RESPONSE
        "0d 0000 01 '/' 00 0000",  # OPEN
        "14 0001 0000 00 0000 00",  # CHANNEL OPEN
        "15 0001 0000 00000001",  # ACK
        "16 0001 0000 0000",  # COMMIT
        "17 0001 0000 0000",  # ROLLBACK
        "1e 0001 0001 0001 0000 07 01 'q' 00 00 0000",  # HANDLE OPEN
        "1f 0001 0000 00000000 00 00",  # SEND
        "20 0001 0000 0001 00 00 0000",  # CONSUME
        "22 0001 0000 00",  # FLOW
        "23 0001 0000 00000001",  # UNGET
        "24 0001 00000000 00 0000 00",  # QUERY
        "25 0001 0000 00000001",  # BROWSE
    ],
)
def test_a_client_closes_when_a_command_for_servers_comes(said: str) -> None:
    core = FastCore("guest", "guest", "/", "", 0)
    core.receive(framed("0c " + table("09 'FRAME_MAX' 'I' 00000400") + " 0000"))
    core.receive(framed("12 0001 00c8 02 'Ok'"))
    core.open_place(core.handles, 1)
    core.take_output()
    core.receive(framed(said))
    assert core.take_output()[2:5] == octets("13 01f7")
    assert core.is_over


def test_a_prepared_message_without_a_hash_is_taken_as_it_comes(fast: FastClient, client: Client) -> None:
    fast >> "14 0001 0000 02 0000 00"  # restartable
    fast >> "1e 0001 0001 0001 0000 07 01 'q' 00 00 0000"
    fast >> framed("2b 0001 00000010 00") + message("'abc'")[:16]
    fast << "2c 0001 00000001"
    fast >> framed("1f 0001 0000 00000002 04 00") + b"xy"
    fast.hears_nothing()
    assert client.gets_all("q") == [b"axy"]
