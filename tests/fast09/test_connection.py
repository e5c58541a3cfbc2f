"""Playbook: the connection of AMQP/Fast 0.9, octet by octet, as sections 3.10 to 3.14 and 3.17.3 have it."""

from __future__ import annotations

import pytest
from fast09.conversation import OPENING, Peer, framed, octets
from playbook.dialogue import Playbook

from flintmq.config import Auth, Config, Limits
from flintmq.protocol import phases


def test_a_connection_from_its_first_octet_to_its_last(stranger: Peer) -> None:
    stranger >> octets("'AMQP' 01 01 00 09")
    mechanisms = stranger.session.broker.authentication.mechanisms_offered()
    stranger << f"01 00 | 01 01 00 0000 | 00 09 {len(mechanisms):04x} '{mechanisms}' 0005 'en_US'"  # Start
    stranger >> "01 00 | 01 02 00 0001 | 05 'PLAIN' 05 'en_US'"  # Start-Ok, which has no response
    stranger << "01 00 | 01 03 00 0000 | 0000"  # Secure asks for it
    stranger >> "01 00 | 01 04 00 0002 | 000c 00 'guest' 00 'guest'"  # Secure-Ok
    # Tune: frames, channels, tickets, consumers, heartbeat, transactions; jms and stream, but no files.
    stranger << "01 00 | 01 05 00 0000 | 00020000 07ff 0040 2710 003c 0000 05"
    stranger >> "01 00 | 01 06 00 0003 | 00010000 0010 0000 000a 07 00000000"  # Tune-Ok
    stranger.hears_nothing()
    assert stranger.link.heartbeat_s == 10
    stranger >> "01 00 | 01 07 00 0004 | 01 '/' 03 'me1'"  # Open
    stranger << "01 00 | 01 08 00 0004 | 03 'me1'"  # Open-Ok
    stranger >> "08 00 |"  # Heartbeat
    stranger >> "01 ff | 02 01 00 0005 | 00000000 00 00"  # Channel.Open
    stranger << "01 ff | 02 02 00 0005"
    stranger >> "01 ff | 02 04 00 0006 | 00c8 02 'Ok' 00 00 0000"  # Channel.Close
    stranger << "01 ff | 02 05 00 0006"
    stranger >> "01 00 | 01 0a 00 0007 | 00c8 03 'Bye' 00 00 0000"  # Connection.Close
    stranger << "01 00 | 01 0b 00 0007"
    assert stranger.link.notes[-1] == "finish"


def test_a_trace_follows_the_connection_too(stranger: Peer) -> None:
    stranger >> OPENING
    stranger.hears()
    stranger >> "01 00 | 01 02 20 0001 | 05 'PLAIN' 05 'en_US'"
    stranger << "01 00 | 01 03 20 0000 | 0000"  # Secure
    stranger >> "01 00 | 01 04 20 0002 | 000c 00 'guest' 00 'guest'"
    assert stranger.hears()[4:9] == octets("01 05 20 0000")  # Tune
    stranger >> "01 00 | 01 06 00 0003 | 00010000 0010 0000 0000 07 00000000"
    stranger >> "01 00 | 01 07 20 0004 | 01 '/' 02 'me'"
    stranger << "01 00 | 01 08 20 0004 | 02 'me'"  # Open-Ok
    stranger >> "01 01 | 02 01 20 0005 | 00000000 00 00"
    stranger << "01 01 | 02 02 20 0005"
    stranger >> "01 01 | 05 05 20 0006 | 0000 00 04 'none'"  # Queue.Purge of none
    assert stranger.hears()[4:11] == octets("02 04 20 0000 | 0194")  # Channel.Close
    stranger >> "01 02 | 02 01 00 0005 | 00000000 00 00"
    stranger << "01 02 | 02 02 00 0005"
    stranger >> "01 02 | 05 05 00 0006 | 0000 00 04 'none'"
    assert stranger.hears()[4:11] == octets("02 04 00 0000 | 0194")
    stranger >> "01 03 | 02 01 00 0007 | 00000000 00 00"
    stranger << "01 03 | 02 02 00 0007"
    stranger >> "01 03 | 05 01 20 0008 | 0000 00 09 'q' 00 00"  # a string that is cut short
    assert stranger.hears()[4:11] == octets("01 0a 20 0000 | 01f6")  # Connection.Close


def test_the_trace_of_a_close_is_that_of_its_own_method(peer: Peer) -> None:
    peer >> "01 01 | 05 01 20 0002 | 0000 00 01 'q' 00 00"
    peer.hears()
    peer >> "01 00 | 01 0a 20 0007 | 00c8 03 'Bye' 00 00 0000"
    peer << "01 00 | 01 0b 20 0007"


def test_octets_may_come_one_by_one(stranger: Peer) -> None:
    said = OPENING + framed(
        "01 00 | 01 02 00 0001 | 05 'PLAIN' 05 'en_US'\n"
        "01 00 | 01 04 00 0002 | 000c 00 'guest' 00 'guest'\n"
        "01 00 | 01 06 00 0003 | 00010000 0010 0000 0000 07 00000000\n"
        "01 00 | 01 07 00 0004 | 01 '/' 02 'me'"
    )
    for octet in said:
        stranger >> bytes((octet,))
    assert stranger.hears().endswith(framed("01 00 | 01 08 00 0004 | 02 'me'"))
    said = octets("09 00 0000 | 01 00 0001 000000000000000b") + octets("02 01 00 0005 | 00000000 00 00")
    for octet in said:
        stranger >> bytes((octet,))
    stranger << "01 01 | 02 02 00 0005"


@pytest.mark.parametrize("said", ["'AMQP' 01 01 00 08", "'AMQP' 01 01 09 01", "'AMQP' 01 01 01 00"])
def test_another_version_is_closed_without_a_word_or_a_pause(stranger: Peer, said: str) -> None:
    stranger >> octets(said)
    stranger.hears_nothing()
    assert stranger.session.connection.state == phases.CONNECTION_CLOSED
    assert stranger.session.connection.version  # so the link does not take it for a failed login


@pytest.mark.parametrize("said", ["'AMQP' 00 00 09 01", "'GET /' 20", "80 01", "'AMQP' 02"])
def test_another_protocol_is_closed_without_a_word(stranger: Peer, said: str) -> None:
    stranger >> octets(said)
    stranger.hears_nothing()
    assert stranger.session.connection.state == phases.CONNECTION_CLOSED
    assert not stranger.session.connection.version


def test_a_wrong_password_is_told_after_a_pause(stranger: Peer) -> None:
    stranger.logs_in(password="wrong")
    stranger.hears()
    assert "refuse_login" in stranger.link.notes
    stranger.session.login_refused()  # the pause is over
    heard = stranger.hears()
    assert heard[4:11] == octets("01 0a 00 0000 | 0193")
    stranger >> "01 00 | 01 0b 00 0000"
    assert stranger.link.notes[-1] == "finish"


def test_a_challenge_may_follow_the_first() -> None:
    playbook = Playbook(Config(auth=Auth(mechanisms=("PLAIN", "SCRAM-SHA-256"))))
    stranger = Peer(playbook)
    stranger >> OPENING
    stranger >> "01 00 | 01 02 00 0001 | 0d 'SCRAM-SHA-256' 00"
    stranger.hears()
    first = "n,,n=guest,r=abcdefghij"
    stranger >> f"01 00 | 01 04 00 0002 | {len(first):04x} '{first}'"
    heard = stranger.hears()
    assert heard[4:9] == octets("01 03 00 0000")
    assert b"r=abcdefghij" in heard
    playbook.end()


@pytest.mark.parametrize(
    "said",
    [
        "01 00 | 01 07 00 0001 | 01 '/' 00",  # Open before Start-Ok
        "01 00 | 01 06 00 0001 | 00010000 0010 0000 0000 07 00000000",
        "01 01 | 02 01 00 0001 | 00000000 00 00",  # a channel before the connection is open
        "01 00 | 01 02 00 0001 | 05 'PLA'",  # cut short
        "01 00 | 01 02 00 0001 | 05 'PLAIN' 00 ff",  # and too long
        "01 00 | 01 02 00 0001 | 05 'PLAI' 00 00",  # with a NUL
        "01 00 | 01 02 00 0001 | 05 'PLAI' ff 00",  # no UTF-8
        "01 00 | 01 02",
        "02 00 | 06 00 0000000000000000 0000",
        "01 00 | 01 02 01 0001 | 05 'PLAIN' 00",  # a revision
        "09 00 | 00",  # a meta frame with a body
        "08 01 |",  # a heartbeat on a channel
        "08 00 | 00",
        "04 01 | 00",  # out of band
    ],
)
def test_a_stranger_who_breaks_the_rules_is_told_so(stranger: Peer, said: str) -> None:
    stranger >> OPENING
    stranger.hears()
    stranger >> said
    heard = stranger.hears()
    assert heard[:2] == b"\x01\x00"
    assert heard[4:6] == octets("01 0a")
    assert "closing" in stranger.link.notes


def test_a_stranger_has_small_frames(stranger: Peer) -> None:
    stranger >> OPENING
    stranger.hears()
    stranger >> octets("09 00 0000 | 01 00 0000 0000000000002001")
    assert stranger.hears()[4:11] == octets("01 0a 00 0000 | 01f5")


@pytest.mark.parametrize("kind", [0, 10, 0x41, 0xFF])
def test_a_frame_of_no_known_type_ends_all_without_a_word(peer: Peer, kind: int) -> None:
    peer >> bytes((kind, 0, 0, 0))
    peer.hears_nothing()
    assert peer.link.notes[-1] == "drop"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("09 00 0000 | 09 00 0000 0000000000000000", "01f5"),  # a meta frame behind a meta frame
        ("09 00 0000 | 08 01 0000 0000000000000000", "01f5"),  # flags
        ("09 01 0000", "01f5"),
        ("09 00 0000 | 03 00 0001 ffffffffffffffff", "01f5"),  # more than was agreed on
        ("09 00 0000 | 03 00 0001 0000000000020001", "01f5"),
    ],
)
def test_extended_frames_keep_their_rules(peer: Peer, said: str, code: str) -> None:
    peer >> octets(said)
    assert peer.hears()[4:11] == octets(f"01 0a 00 0000 | {code}")


def test_channels_above_255_have_extended_frames(peer: Peer) -> None:
    peer >> octets("09 00 0000 | 01 00 0100 000000000000000b | 02 01 00 0005 | 00000000 00 00")
    peer << octets("09 00 0000 | 01 00 0100 0000000000000005 | 02 02 00 0005")


def test_any_frame_may_be_extended(peer: Peer) -> None:
    peer >> octets("09 00 0000 | 08 00 0000 0000000000000000")
    peer >> octets("09 00 0000 | 01 00 0001 0000000000000006 | 02 03 80 0009 | 00")
    peer << "01 01 | 02 06 00 0009"


def test_trace_frames_are_discarded(peer: Peer) -> None:
    peer >> "07 00 | 'whatever'"
    peer >> "07 09 | ff 00 ff"
    peer >> "01 01 | 02 03 80 0009 | 00"
    peer << "01 01 | 02 06 00 0009"


def test_a_trace_frame_may_come_before_the_login(stranger: Peer) -> None:
    stranger >> OPENING
    stranger.hears()
    stranger >> "07 00 | 'whatever'"
    stranger.hears_nothing()
    stranger >> "01 00 | 01 02 00 0001 | 05 'PLAIN' 05 'en_US'"
    stranger << "01 00 | 01 03 00 0000 | 0000"


def test_heartbeats_of_the_broker_are_on_channel_0(peer: Peer) -> None:
    assert peer.session.heartbeat() == octets("08 00 0000")


def test_limits_are_what_the_client_has_lowered(stranger: Peer) -> None:
    stranger.logs_in()
    stranger >> "01 00 | 01 06 00 0003 | 00020001 0000 0000 0000 07 00000000"  # more than was offered
    assert stranger.link.notes[-1] == "drop"


def test_a_client_may_lower_the_number_of_channels(stranger: Peer) -> None:
    stranger.logs_in()
    stranger >> "01 00 | 01 06 00 0003 | 00010000 0002 0000 0000 07 00000000"
    stranger >> "01 00 | 01 07 00 0004 | 01 '/' 00"
    stranger.hears()
    stranger.opens_channel(1)
    stranger.opens_channel(2)
    stranger >> "01 03 | 02 01 00 0006 | 00000000 00 00"
    assert stranger.hears()[4:11] == octets("01 0a 00 0000 | 0212")


def test_the_limit_of_channels_holds(playbook: Playbook) -> None:
    peer = Peer(Playbook(Config(limits=Limits(channels_per_connection_max=1))))
    peer.open()
    peer.opens_channel(1)
    peer >> "01 02 | 02 01 00 0006 | 00000000 00 00"
    assert peer.hears()[4:11] == octets("01 0a 00 0000 | 0212")
    peer.playbook.end()


def test_a_client_id_is_active_once(playbook: Playbook, peer: Peer) -> None:
    first, second = Peer(playbook), Peer(playbook)
    first.open(name="till")
    second.logs_in()
    second >> "01 00 | 01 06 00 0003 | 00010000 0000 0000 0000 07 00000000"
    second.hears()
    second >> "01 00 | 01 07 00 0004 | 01 '/' 04 'till'"
    # It names what failed: class 1, method 7, synctag 4.
    heard = second.hears()
    assert heard[4:11] == octets("01 0a 00 0000 | 0212")
    assert heard.endswith(octets("01 07 0004"))


def test_a_client_without_an_id_is_given_one(stranger: Peer) -> None:
    stranger.logs_in()
    stranger >> "01 00 | 01 06 00 0003 | 00010000 0000 0000 0000 07 00000000"
    stranger.hears()
    stranger >> "01 00 | 01 07 00 0004 | 00 00"  # and without a path
    heard = stranger.hears()
    assert heard[4:9] == octets("01 08 00 0004")
    assert heard[10:].startswith(b"amq.client-")


def test_a_host_that_is_not_there(stranger: Peer) -> None:
    stranger.logs_in()
    stranger >> "01 00 | 01 06 00 0003 | 00010000 0000 0000 0000 07 00000000"
    stranger.hears()
    stranger >> "01 00 | 01 07 00 0004 | 05 '/none' 00"
    assert stranger.hears()[4:11] == octets("01 0a 00 0000 | 0212")


def test_what_comes_while_the_broker_closes_is_dropped(peer: Peer) -> None:
    peer >> "01 00 | 01 07 00 0004 | 01 '/' 00"  # not expected
    peer.hears()
    peer >> "01 01 | 05 01 00 0006 | 0000 00 01 'q' 00 00"
    peer >> "01 00 | 01 07 00 0004 | 01 '/' 00"
    peer.hears_nothing()
    peer >> "01 00 | 01 0b 00 0000"
    assert peer.link.notes[-1] == "finish"
