"""Playbook: HANDLE QUERY and HANDLE BROWSE, octet by octet."""

from __future__ import annotations

import pytest
from fast.conversation import HEAD, FastClient, framed, octets
from playbook.dialogue import Client, Playbook

from flintmq.server.fast import handle_commands, listings


@pytest.fixture
def client(playbook: Playbook) -> Client:
    client = playbook.client()
    client.declares("q")
    client.publishes("q", b"0", b"1", b"2", headers={"n": 1})
    client.publishes("q", b"3", headers={"n": 2})
    return client


def message(body: bytes, number: int) -> bytes:
    head = octets(HEAD)[:-2] + octets(f"0007 01 'n' 'I' {number:08x}")
    return len(body).to_bytes(4, "big") + head + body


def test_messages_are_listed_and_looked_at(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "24 0001 00000000 00 0000 00"
    fast << "2a 0001 00000000 0003 '0-3'"
    fast >> "25 0001 0000 00000002"
    fast << framed("29 0001 00000002 00000017 00 01 'q'") + message(b"2", 1)
    assert client.gets_all("q") == [b"0", b"1", b"2", b"3"]
    fast >> "25 0001 0009 00000002"
    fast << "30 0001 0009 0136 13 'message 2 not found'"


def test_a_number_that_was_never_listed_is_not_found(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "25 0001 0000 00000000"
    fast << "30 0001 0000 0136 13 'message 0 not found'"


def test_a_selector_chooses(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "24 0001 00000000 00 0005 'n = 2' 00"
    fast << "2a 0001 00000000 0001 '0'"
    fast >> "25 0001 0000 00000000"
    fast << framed("29 0001 00000000 00000017 00 01 'q'") + message(b"3", 2)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("24 0001 00000000 00 0005 'n = 2' 09 'text/html'", "021c"),
        ("24 0001 00000000 00 0003 'n =' 00", "0196"),
        ("24 0001 00000000 02 'no' 0000 00", "0194"),
    ],
)
def test_a_query_that_means_nothing_closes_the_handle(
    fast: FastClient, client: Client, said: str, code: str
) -> None:
    fast.opens_handle("q")
    fast >> said
    assert fast.hears()[2:7] == octets("31 0001" + code)


def test_a_selector_finds_what_is_behind_many_others(fast: FastClient, client: Client) -> None:
    client.publishes("q", *[b"x"] * 5000)
    client.publishes("q", b"y", headers={"n": 9})
    fast.opens_handle("q")
    fast >> "24 0001 00000000 00 0005 'n = 9' 00"
    fast << "2a 0001 00000000 0001 '0'"
    fast >> "25 0001 0000 00000000"
    fast << framed("29 0001 00000000 00000017 00 01 'q'") + message(b"y", 9)


def test_handles_share_the_numbers_of_their_connection(
    fast: FastClient, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle_commands, "NUMBERS_MAX", 10)
    fast.opens_handle("q")
    for handle in (2, 3):
        fast >> f"1e 0001 {handle:04x} 0001 0000 04 01 'q' 00 00 0000"
    for handle in (1, 2, 3):
        fast >> f"24 {handle:04x} 00000000 00 0000 00"
    fast.hears()
    fast >> "25 0001 0009 00000002"
    fast << "30 0001 0009 0136 13 'message 2 not found'"
    fast >> "25 0003 0000 00000002"
    fast << framed("29 0003 00000002 00000017 00 01 'q'") + message(b"2", 1)


def test_who_lists_too_many_messages_is_told_so(
    fast: FastClient, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings, "NUMBERS_MAX", 3)
    fast.opens_handle("q")
    fast >> "24 0001 00000000 00 0000 00"
    assert fast.hears()[2:7] == octets("31 0001 01fa")


def test_topics_hold_no_messages(fast: FastClient) -> None:
    fast.opens_handle("t", service=2)
    fast >> "24 0001 00000000 00 0000 00"
    assert fast.hears()[2:7] == octets("31 0001 021c")


def test_a_long_queue_is_listed_in_portions(fast: FastClient, client: Client) -> None:
    client.publishes("q", *[b"x"] * 1500)
    fast.opens_handle("q")
    fast >> "24 0001 00000000 00 0000 00"
    fast << "2a 0001 000003ff 0006 '0-1023'"
    fast >> "24 0001 00000400 00 0000 00"
    fast << "2a 0001 00000000 0009 '1024-1503'"
