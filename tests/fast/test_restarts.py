"""Playbook: restartable transfers of AMQP/Fast, octet by octet."""

from __future__ import annotations

import gc
import hashlib
import weakref
from pathlib import Path

import pytest
from fast.conversation import HEAD, FastClient, framed, octets
from playbook.dialogue import Client, Playbook
from playbook.hourglass import TimedPlaybook
from playbook.paged import PagedPlaybook

from flintmq.broker.store.spooling import HELD_BYTES_MAX
from flintmq.server.fast import restarts
from flintmq.server.fast.session import FastSession

BODY = b"a message of some length"
BLOCK = len(BODY).to_bytes(4, "big") + octets(HEAD)
DIGEST = hashlib.sha1(BODY, usedforsecurity=False).hexdigest()


@pytest.fixture
def client(playbook: Playbook) -> Client:
    client = playbook.client()
    client.declares("q")
    return client


def restartable(playbook: Playbook) -> FastClient:
    fast = FastClient(playbook)
    fast.open()
    fast >> "14 0001 0000 02 0000 00"
    fast >> "1e 0001 0001 0001 0000 07 01 'q' 00 00 0000"
    return fast


def prepare(octets_of_body: int, digest: str = DIGEST, block: bytes = BLOCK) -> bytes:
    size = len(block) + octets_of_body
    return framed(f"2b 0001 {size:08x} {len(digest):02x} '{digest}'") + block + BODY[:octets_of_body]


def rest(start: int, stop: int, flags: str, tag: str = "0000", body: bytes = BODY) -> bytes:
    return framed(f"1f 0001 {tag} {stop - start:08x} {flags} 00") + body[start:stop]


def test_a_new_message_is_prepared_and_the_rest_follows(playbook: Playbook, client: Client) -> None:
    fast = restartable(playbook)
    fast >> prepare(5)
    fast << "2c 0001 00000005"
    fast >> rest(5, 10, "05")
    fast >> rest(10, len(BODY), "04", "0007")
    fast << "30 0001 0007 00c8 02 'Ok'"
    assert client.gets_all("q") == [BODY]


def test_what_broke_off_goes_on_where_it_was(playbook: Playbook, client: Client) -> None:
    fast = restartable(playbook)
    fast >> prepare(5)
    fast >> rest(5, 17, "05")
    fast.hears()
    fast.session.release()  # the socket is gone
    playbook.finish_pass()
    again = restartable(playbook)
    again >> prepare(5)
    again << "2c 0001 00000011"
    again >> rest(17, len(BODY), "04")
    again.hears_nothing()
    assert client.gets_all("q") == [BODY]


def test_another_header_is_another_message(playbook: Playbook, client: Client) -> None:
    fast = restartable(playbook)
    fast >> prepare(5)
    fast >> rest(5, 17, "05")
    fast >> "1d 0001 00c8 00"
    fast.hears()
    again = restartable(playbook)
    other = len(BODY).to_bytes(4, "big") + octets("00 01 00000000 00 00 00 0000")
    again >> prepare(0, block=other)
    again << "2c 0001 00000000"


def test_another_body_than_announced_is_refused(playbook: Playbook, client: Client) -> None:
    fast = restartable(playbook)
    fast >> prepare(5)
    fast.hears()
    fast >> rest(5, len(BODY), "04", body=BODY.upper())
    assert fast.hears()[2:7] == octets("31 0001 021e")
    assert client.gets_all("q") == []


def test_resumed_with_another_body_it_is_refused_and_forgotten(playbook: Playbook, client: Client) -> None:
    fast = restartable(playbook)
    fast >> prepare(5)
    fast >> rest(5, 17, "05", body=BODY.upper())
    fast >> "1d 0001 00c8 00"
    fast.hears()
    again = restartable(playbook)
    again >> prepare(5)
    again << "2c 0001 00000011"
    again >> rest(17, len(BODY), "04")
    assert again.hears()[2:7] == octets("31 0001 021e")
    again >> "31 0001 00c8 00"
    again >> "1e 0001 0001 0001 0000 07 01 'q' 00 00 0000"
    again >> prepare(5)
    again << "2c 0001 00000005"


def test_a_message_that_is_too_large_closes_the_channel(playbook: Playbook, client: Client) -> None:
    fast = restartable(playbook)
    fast >> prepare(0, block=b"\xff\xff\xff\xff" + octets(HEAD))
    assert fast.hears()[2:7] == octets("1d 0001 0137")


def test_a_channel_has_to_be_restartable(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> prepare(5)
    assert fast.hears()[2:7] == octets("31 0001 0212")


@pytest.mark.parametrize(
    "said",
    [
        rest(0, 5, "04"),  # nothing was prepared
        prepare(5) + prepare(5),  # one is not whole yet
        prepare(5) + rest(5, 10, "01"),  # no recovery
    ],
)
def test_parts_out_of_order_end_the_connection(playbook: Playbook, client: Client, said: bytes) -> None:
    fast = restartable(playbook)
    fast >> said
    assert b"\x13\x01\xf9" in fast.hears()


def test_a_handle_that_is_closed_keeps_what_came_and_leaves_the_channel_to_others(
    playbook: Playbook, client: Client
) -> None:
    fast = restartable(playbook)
    fast >> prepare(5)
    fast >> "31 0001 00c8 00"
    fast >> "1e 0001 0001 0001 0000 07 01 'q' 00 00 0000"
    fast.hears()
    block = octets("00000004") + octets(HEAD)
    fast >> framed(f"1f 0001 0000 {len(block) + 2:08x} 01 00") + block + b"fo"
    fast >> framed("1f 0001 0000 00000002 00 00") + b"ur"
    fast.hears_nothing()
    assert client.gets_all("q") == [b"four"]
    fast >> prepare(0)
    fast << "2c 0001 00000005"


def test_what_broke_off_goes_with_its_user(playbook: Playbook, client: Client) -> None:
    fast = restartable(playbook)
    fast >> prepare(5)
    fast >> "13 00c8 00"
    fast.hears()
    assert playbook.broker.clients.kept
    for _ in playbook.broker.administration.contents_forgotten(None, "guest"):
        """There is no more than this."""
    assert not playbook.broker.clients.kept


@pytest.mark.parametrize("digest", ["abc", "x" * 40])
def test_a_hash_has_40_digits(playbook: Playbook, client: Client, digest: str) -> None:
    fast = restartable(playbook)
    fast >> prepare(5, digest)
    assert fast.hears()[2:7] == octets("31 0001 01f6")


def test_no_more_than_some_are_kept(playbook: Playbook, client: Client) -> None:
    for number in range(70):
        fast = restartable(playbook)
        block = len(BODY).to_bytes(4, "big") + octets(f"00 00 {number:08x} 00 00 00 0000")
        fast >> prepare(5, "", block)
        fast >> "13 00c8 00"
        fast.hears()
    assert len(playbook.broker.clients.kept) == 64


def breaks_off(playbook: Playbook, number: int) -> None:
    block = len(BODY).to_bytes(4, "big") + octets(f"00 00 {number:08x} 00 00 00 0000")
    fast = restartable(playbook)
    fast >> prepare(5, block=block)
    fast.hears()
    fast.session.release()
    playbook.finish_pass()


def test_what_broke_off_goes_after_an_hour_though_nobody_asks() -> None:
    playbook = TimedPlaybook()
    playbook.client().declares("q")
    kept = playbook.broker.clients.kept
    breaks_off(playbook, 2**31)
    playbook.passes(restarts.KEPT_MS // 2)
    breaks_off(playbook, 2**31 + 1)
    assert len(kept) == 2
    playbook.passes(restarts.KEPT_MS // 2)
    assert len(kept) == 1
    playbook.passes(restarts.KEPT_MS // 2)
    assert len(kept) == 0
    assert not playbook.broker.clients.is_watching_kept
    playbook.end()


def test_what_is_kept_in_memory_is_limited(
    playbook: Playbook, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "KEPT_MEMORY_BYTES_MAX", 12)
    for number in range(4):
        breaks_off(playbook, 2**31 + number)
    assert [each.octets for each in playbook.broker.clients.kept.values()] == [5, 5]


def test_a_large_body_that_goes_on_elsewhere_has_left_its_first_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends the rest gives others their turn when the body gets its file."""
    told: list[FastSession] = []
    monkeypatch.setattr(FastSession, "file_opened", lambda session: told.append(session))
    playbook = PagedPlaybook(tmp_path / "data")
    playbook.client().declares("q", durable=True)
    body = BODY.ljust(4_194_304, b".")  # the least that is spooled
    block = len(body).to_bytes(4, "big") + octets(HEAD)
    fast = restartable(playbook)
    fast >> prepare(5, "", block)
    fast << "2c 0001 00000005"
    fast.session.release()
    playbook.finish_pass()
    first = weakref.ref(fast.session)
    del fast
    gc.collect()
    assert len(playbook.broker.clients.kept) == 1
    assert first() is None
    again = restartable(playbook)
    again >> prepare(4, "", block)
    again << "2c 0001 00000005"
    assert told == []
    again >> rest(5, 5 + HELD_BYTES_MAX, "05", body=body)
    assert told == [again.session]
    again.session.release()
    playbook.finish_pass()
    playbook.end()
    playbook.close()
