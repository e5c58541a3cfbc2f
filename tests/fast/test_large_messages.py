"""Playbook: a message that came in parts may be larger than a body size of AMQP/Fast can tell."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fast.conversation import HEAD, FastClient, framed, octets
from playbook.dialogue import Client
from playbook.paged import PagedPlaybook
from playbook.test_staging import ask, asker, durable, settle, staging

from flintmq.broker.channels import spooled_publish
from flintmq.errors import ChannelFault
from flintmq.protocol.fast.outbox import BODY_BYTES_MAX
from flintmq.wire import amqp, methods

CONSUME = "20 0001 0007 0001 00 00 0000"
TOO_LARGE = "31 0001 0137"  # HANDLE CLOSE, 311


@pytest.fixture
def playbook(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path / "data")
    yield playbook
    playbook.end()
    playbook.close()


@pytest.fixture
def client(playbook: PagedPlaybook) -> Client:
    """A queue has a message of 4 GiB, of which the disk has one octet, and a small one."""
    client = asker(playbook)
    durable(client, "q")
    store = staging(playbook)
    content = store.open("/", "guest", "one", -1)
    store.append(content, 0, b"x")
    settle(playbook)
    assert content.spool is not None
    content.spool.octets = BODY_BYTES_MAX + 1
    os.truncate(content.spool.path, content.spool.octets)
    ask(client, "staging.publish", identifier="one", routing_key="q")
    client.publishes("q", b"small")
    return client


def fast_client(playbook: PagedPlaybook) -> FastClient:
    fast = FastClient(playbook)
    fast.open()
    fast.opens_handle("q")
    return fast


def test_the_handle_is_closed_and_the_message_stays_for_others(
    playbook: PagedPlaybook, client: Client
) -> None:
    for _ in range(2):
        fast = fast_client(playbook)
        fast >> CONSUME
        assert octets(TOO_LARGE) in fast.hears()
        assert not playbook.broker.has_work()
    queue = playbook.queue("q")
    assert (queue.message_count(), len(queue.consumers)) == (2, 0)
    client >> methods.QueuePurge(queue="q")
    settle(playbook)
    client << methods.QueuePurgeOk(message_count=2)
    settle(playbook)
    assert list(playbook.directory.glob("*.spool")) == []


def test_it_cannot_be_browsed(playbook: PagedPlaybook, client: Client) -> None:
    fast = fast_client(playbook)
    fast >> "24 0001 00000000 00 0000 00"
    fast << "2a 0001 00000000 0003 '0-1'"
    fast >> "25 0001 0003 00000000"
    assert fast.hears()[2:7] == octets(TOO_LARGE)


class FullDisk:
    """Where a body that comes in fragments goes to."""

    def append(self, octets: bytes) -> None:
        raise ChannelFault(amqp.RESOURCE_ERROR, "the disk is full")

    def discard(self) -> None:
        """Nothing is there."""


def test_a_body_that_memory_has_no_room_for_costs_its_own_handle(
    playbook: PagedPlaybook, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = playbook.client()
    other.declares("q")
    other.declares("r")
    fast = FastClient(playbook)
    fast.open()
    fast.opens_handle("q")
    fast >> "1e 0001 0002 0001 0000 07 01 'r' 00 00 0000"
    block = octets("00020001" + HEAD) + bytes(65_536)
    fast >> framed(f"1f 0001 0000 {len(block):08x} 01 00") + block  # the first fragment of two
    fast >> "22 0002 0003 01"  # another handle is paused meanwhile
    fast << "30 0002 0003 00c8 02 'Ok'"
    monkeypatch.setattr(spooled_publish, "begin_body", lambda *arguments: FullDisk())
    fast.session.spool_contents()
    assert fast.hears()[2:7] == octets("31 0001 01fa"), "HANDLE CLOSE, 506"
    fast >> "31 0001 00c8 00"
    fast.sends(b"on", handle=2, confirm_tag=4)
    fast << "30 0002 0004 00c8 02 'Ok'"
    assert other.gets_all("q") == []
    assert other.gets_all("r") == [b"on"]
