"""Playbook: the connection of AMQP/Fast, octet by octet, as the document has it."""

from __future__ import annotations

import pytest
from fast.conversation import FastClient, framed, octets, table
from playbook.dialogue import Playbook

from flintmq.config import Config, Limits
from flintmq.protocol import phases


@pytest.fixture
def stranger(playbook: Playbook) -> FastClient:
    return FastClient(playbook)


def test_a_connection_from_its_first_octet_to_its_last(stranger: FastClient) -> None:
    stranger >> octets("80 01")
    stranger << "0a 01 05 'PLAIN' 0000"  # CHALLENGE
    stranger >> "0b 05 'PLAIN' 001f 05 'LOGIN' 'S' 0005 'guest' 08 'PASSWORD' 'S' 0005 'guest'"
    stranger << (
        "0c "
        + table(
            "09 'FRAME_MAX' 'I' 00020000",
            "0b 'CHANNEL_MAX' 'I' 000007ff",
            "0a 'HANDLE_MAX' 'I' 00001000",
            "09 'HEARTBEAT' 'I' 0000003c",
        )
        + " 0000"
    )
    stranger >> "0c 000f 09 'FRAME_MAX' 'I' 00004000 0000"
    stranger.hears_nothing()
    stranger >> "0d 0007 01 '/' 03 'me1' 0000"  # OPEN
    stranger << "12 0007 00c8 02 'Ok'"  # REPLY
    stranger >> "0e 01"  # PING, respond
    stranger << "0e 00"
    stranger >> "0e 00"
    stranger.hears_nothing()
    stranger >> "13 00c8 03 'Bye'"
    stranger << "13 00c8 02 'Ok'"
    assert stranger.link.notes[-1] == "finish"


def test_without_a_confirm_tag_nothing_is_confirmed(stranger: FastClient) -> None:
    stranger >> octets("80 01")
    stranger >> "0b 05 'PLAIN' 001f 05 'LOGIN' 'S' 0005 'guest' 08 'PASSWORD' 'S' 0005 'guest'"
    stranger.hears()
    stranger >> "0d 0000 01 '/' 00 0000"
    stranger.hears_nothing()
    assert stranger.session.connection.state == phases.CONNECTION_OPEN


def test_the_server_answers_with_the_highest_version_that_it_knows(stranger: FastClient) -> None:
    stranger >> octets("80 05")
    stranger << "0a 01 05 'PLAIN' 0000"


def test_a_version_of_0_is_no_initiation(stranger: FastClient) -> None:
    stranger >> octets("80 00")
    stranger.hears_nothing()
    assert stranger.session.connection.state == phases.CONNECTION_CLOSED


def test_octets_may_come_one_by_one(stranger: FastClient) -> None:
    said = octets("80 01") + framed(
        "0b 05 'PLAIN' 001f 05 'LOGIN' 'S' 0005 'guest' 08 'PASSWORD' 'S' 0005 'guest'"
    )
    for octet in said + framed("0d 0001 01 '/' 00 0000"):
        stranger >> bytes((octet,))
    assert stranger.hears().endswith(framed("12 0001 00c8 02 'Ok'"))


def test_a_size_of_four_octets_is_understood(fast: FastClient) -> None:
    fast >> octets("ffff 00000003 0e 01 ce")
    fast << "0e 00"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("001f 05 'LOGIN' 'S' 0005 'guest' 08 'PASSWORD' 'S' 0005 'wrong'", "0193"),
        ("0010 05 'LOGIN' 'S' 0005 'guest'", "01f6"),
        ("000a 05 'LOGIN' 'I' 00000001", "01f6"),
    ],
)
def test_a_login_that_is_not_right_is_refused(stranger: FastClient, said: str, code: str) -> None:
    stranger >> octets("80 01")
    stranger.hears()
    stranger >> f"0b 05 'PLAIN' {said}"
    if "refuse_login" in stranger.link.notes:
        stranger.session.login_refused()  # the pause is over
    heard = stranger.hears()
    assert heard[2:5] == octets("13" + code)
    stranger >> "13 00c8 02 'Ok'"
    assert stranger.link.notes[-1] == "finish"


def test_of_a_field_that_stands_twice_the_first_counts(stranger: FastClient) -> None:
    stranger >> octets("80 01")
    stranger.hears()
    stranger >> (
        "0b 05 'PLAIN' "
        + table(
            "05 'LOGIN' 'S' 0005 'guest'",
            "05 'LOGIN' 'S' 0005 'other'",
            "08 'PASSWORD' 'S' 0005 'guest'",
        )
    )
    assert stranger.hears()[2:3] == b"\x0c"  # TUNE


@pytest.mark.parametrize(
    "options",
    [
        "09 'FRAME_MAX' 'I' 000003ff",
        "09 'FRAME_MAX' 'I' 00020001",
        "09 'FRAME_MAX' 'S' 0001 '9'",
        "09 'HEARTBEAT' 'I' ffffffff",
    ],
)
def test_what_is_tuned_out_of_bounds_closes_the_connection(stranger: FastClient, options: str) -> None:
    stranger >> octets("80 01")
    stranger >> "0b 05 'PLAIN' 001f 05 'LOGIN' 'S' 0005 'guest' 08 'PASSWORD' 'S' 0005 'guest'"
    stranger.hears()
    stranger >> ("0c " + table(options) + " 0000")
    assert stranger.hears()[2:5] == octets("13 0212")


def test_a_client_name_is_active_in_one_connection(playbook: Playbook) -> None:
    first, second = FastClient(playbook), FastClient(playbook)
    first.open(name="till-1")
    second >> octets("80 01")
    second >> "0b 05 'PLAIN' 001f 05 'LOGIN' 'S' 0005 'guest' 08 'PASSWORD' 'S' 0005 'guest'"
    second.hears()
    second >> "0d 0001 01 '/' 06 'till-1' 0000"
    assert second.hears()[2:5] == octets("13 0212")
    first >> "13 00c8 00"
    first << "13 00c8 02 'Ok'"
    FastClient(playbook).open(name="till-1")


@pytest.mark.parametrize(("path", "code"), [("'/nowhere'", "0212"), ("'/'", "")])
def test_the_virtual_path(stranger: FastClient, path: str, code: str) -> None:
    stranger >> octets("80 01")
    stranger >> "0b 05 'PLAIN' 001f 05 'LOGIN' 'S' 0005 'guest' 08 'PASSWORD' 'S' 0005 'guest'"
    stranger.hears()
    stranger >> f"0d 0000 {len(octets(path)):02x} {path} 00 0000"
    heard = stranger.hears()
    assert heard[2:5] == octets("13" + code) if code else heard == b""


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("000b 14 0001 0000 00 0000 00 00 ce", "01f6"),  # a field more than CHANNEL OPEN has
        ("0002 14 ce", "01f6"),  # none of its fields
        ("0003 0e 01 00", "01f5"),  # no end octet
        ("0001 ce", "01f5"),  # no command at all
        ("0002 63 ce", "01f7"),  # an unknown command
        ("0002 21 ce", "01f7"),  # HANDLE CANCEL, which was removed
        ("ffff 00020001", "01f5"),  # larger than FRAME_MAX
        ("0006 12 0001 00c8 02 'Ok' ce", "01f5"),
    ],
)
def test_octets_that_are_no_command_close_the_connection(fast: FastClient, said: str, code: str) -> None:
    fast >> octets(said)
    assert fast.hears()[2:5] == octets("13" + code)


@pytest.mark.parametrize(
    "said",
    [
        "0a 01 00 0000",  # CHALLENGE
        "0b 05 'PLAIN' 0000",  # RESPONSE, a second time
        "0c 0000 0000",  # TUNE, when it is open
        "0d 0000 01 '/' 00 0000",  # OPEN, a second time
        "12 0001 00c8 02 'Ok'",  # CONNECTION REPLY
        "1c 0001 0001 00c8 02 'Ok'",  # CHANNEL REPLY
        "28 0001 01 'x'",  # CREATED
        "2a 0001 00000000 0000",  # INDEX
        "30 0001 0001 00c8 02 'Ok'",  # HANDLE REPLY
        "2c 0001 00000000",  # READY, where nothing was prepared
    ],
)
def test_what_a_server_never_expects_is_fatal(fast: FastClient, said: str) -> None:
    fast >> said
    assert fast.hears()[2:5] == octets("13 01f7")


def test_notify_of_a_client_is_fatal(fast: FastClient) -> None:
    fast >> "29 0001 00000000 00000000 00 00"
    assert fast.hears()[2:5] == octets("13 01f7")


@pytest.mark.parametrize("said", ["14 0001 0000 00 0000 00", "0d 0000 01 '/' 00 0000", "0e"])
def test_a_stranger_may_answer_the_challenge_and_no_more(stranger: FastClient, said: str) -> None:
    stranger >> octets("80 01")
    stranger.hears()
    stranger >> said
    assert stranger.hears()[2:3] == b"\x13"


def test_a_stranger_has_4096_octets(stranger: FastClient) -> None:
    stranger >> octets("80 01 1001 0b")
    stranger.hears()
    assert stranger.session.connection.state == phases.CONNECTION_CLOSING


def test_while_the_server_closes_all_is_discarded_and_its_close_said_again_once(fast: FastClient) -> None:
    fast >> "12 0001 00c8 02 'Ok'"
    fast.hears()
    fast >> "0e 01"
    assert fast.hears()[2:3] == b"\x13"
    fast >> "14 0001 0001 00 0000 00"
    fast.hears_nothing()
    fast >> "13 00c8 02 'Ok'"
    fast.hears_nothing()
    assert fast.link.notes[-1] == "finish"


def dictionary(*names: str) -> str:
    entries = [f"02 '{short:02d}' 'S' {len(name):04x} '{name}'" for short, name in enumerate(names)]
    return "0c 0000 " + table(*[entry.replace("02 '", "03 'n", 1) for entry in entries])


def test_names_of_dictionaries_are_limited_though_short_names_come_again(stranger: FastClient) -> None:
    stranger >> octets("80 01")
    stranger >> "0b 05 'PLAIN' 001f 05 'LOGIN' 'S' 0005 'guest' 08 'PASSWORD' 'S' 0005 'guest'"
    stranger.hears()
    for number in range(1024):
        stranger >> dictionary(f"name-{number}")
    stranger.hears_nothing()
    stranger >> dictionary("one-more")
    assert stranger.hears()[2:5] == octets("13 01fa")


def test_a_header_that_is_too_long_with_its_full_names_is_refused(stranger: FastClient) -> None:
    """Clients of AMQP get a header in one frame."""
    stranger >> octets("80 01")
    stranger >> "0b 05 'PLAIN' 001f 05 'LOGIN' 'S' 0005 'guest' 08 'PASSWORD' 'S' 0005 'guest'"
    for first in range(0, 1000, 20):
        entries = [f"04 'n{number:03d}' 'S' 0080 '{number:128d}'" for number in range(first, first + 20)]
        stranger >> ("0c 0000 " + table(*entries))
    stranger >> "0d 0000 01 '/' 00 0000"
    stranger.hears()
    stranger.playbook.broker.virtual_hosts["/"].declare_queue("q", False, False, False, {}, 0)
    stranger.opens_handle("q")
    fields = table(*[f"04 'n{number:03d}' 'S' 0000" for number in range(1000)])
    stranger.sends(b"1", head="00 00 00000000 00 00 00 " + fields)
    assert stranger.hears()[2:5] == octets("13 01f5")


@pytest.mark.parametrize("said", ["0e 00", "0e 01"])
def test_after_some_pings_others_have_their_turn(fast: FastClient, said: str) -> None:
    fast.playbook.broker.pass_work.copies = 0
    pings = bytearray(framed(said) * 100)
    assert fast.session.connection.receive(pings, len(pings)) < len(pings)


def test_after_some_fragments_others_have_their_turn(fast: FastClient) -> None:
    fast.playbook.broker.virtual_hosts["/"].declare_queue("q", False, False, False, {}, 0)
    fast.opens_handle("q")
    fast >> framed("1f 0001 0000 0000000f 01 00") + octets("00000004 00 00 00000000 00 00 00 0000")
    fast.playbook.broker.pass_work.copies = 0
    fragments = bytearray(framed("1f 0001 0000 00000000 01 00") * 1000)
    assert fast.session.connection.receive(fragments, len(fragments)) < len(fragments)


def test_the_frame_limit_is_the_servers(playbook: Playbook) -> None:
    small = Playbook(Config(limits=Limits(frame_bytes_max=4096)))
    client = FastClient(small)
    client.open()
    client.opens_handle("q")
    client >> "1f 0001 0000 00001001 00 00"
    assert client.hears()[2:3] == b"\x13"
