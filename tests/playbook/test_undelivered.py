"""Publishers that are told what became of messages that nobody has taken: x-return-undelivered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook, Response, carrying
from playbook.hourglass import TimedPlaybook
from playbook.paged import PagedPlaybook
from playbook.test_messages import Requester, transfer

from flintmq.wire import amqp, methods
from flintmq.wire.methods import BasicGet, BasicPublish, BasicReject, BasicReturn, MessageOk

TELLS = {"x-return-undelivered": True}
ASKS = {"x-return-undelivered": 1}


def says(client: Client, *bodies: bytes, **properties: Any) -> None:
    for body in bodies:
        client >> carrying(BasicPublish(routing_key="q", mandatory=True), body, **properties)


def returned(client: Client) -> list[tuple[int, str, bytes]]:
    found = []
    for channel, each in client.heard():
        assert isinstance(each, Carried), each
        assert isinstance(each.method, BasicReturn), each
        assert (channel, each.method.exchange, each.method.routing_key) == (1, "", "q")
        found.append((each.method.reply_code, each.method.reply_text, each.body))
    client.inbox.clear()
    return found


def test_a_message_that_expires_comes_back() -> None:
    playbook = TimedPlaybook()
    client, other = playbook.client(), playbook.client()
    client.declares("q", arguments=TELLS)
    says(client, b"1", headers=ASKS, expiration="100")
    says(client, b"2", expiration="100")
    says(client, b"3", headers={"x-return-undelivered": True}, expiration="100")
    says(client, b"4", headers={"x-return-undelivered": 7}, expiration="100")
    says(other, b"5", headers=ASKS, expiration="100")
    playbook.passes(99)
    client.hears_nothing()
    playbook.passes(1)
    assert returned(client) == [(313, "EXPIRED", b"1")]
    assert returned(other) == [(313, "EXPIRED", b"5")]
    assert playbook.depth("q") == 0


def test_nothing_comes_back_where_the_queue_does_not_tell() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q")
    says(client, b"1", headers=ASKS, expiration="100")
    playbook.passes(100)
    client.hears_nothing()


def test_messages_that_are_rejected_or_dropped_come_back() -> None:
    playbook = TimedPlaybook()
    client, reader = playbook.client(), playbook.client()
    client.declares("q", arguments={**TELLS, "x-max-length": 1})
    says(client, b"1", b"2", headers=ASKS)
    assert returned(client) == [(313, "MAXLEN", b"1")]
    reader >> BasicGet(queue="q")
    reader.next(1)
    reader >> BasicReject(delivery_tag=1, requeue=False)
    assert returned(client) == [(313, "REJECTED", b"2")]


def test_a_dead_letter_goes_on_and_does_not_come_back() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("morgue")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "morgue"}
    client.declares("q", arguments={**TELLS, **dead})
    says(client, b"1", headers=ASKS, expiration="100")
    playbook.passes(100)
    client.hears_nothing()
    assert client.gets_all("morgue") == [b"1"]


def test_who_has_gone_is_told_nothing() -> None:
    playbook = TimedPlaybook()
    client, gone = playbook.client(), playbook.client()
    client.declares("q", arguments=TELLS)
    says(gone, b"1", headers=ASKS, expiration="100")
    says(client, b"2", headers=ASKS, expiration="100")
    gone.session.release()
    playbook.passes(100)
    assert returned(client) == [(313, "EXPIRED", b"2")]


@pytest.fixture
def paged(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path)
    yield playbook
    playbook.close()


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 2}])
def test_messages_of_a_deleted_queue_come_back(paged: PagedPlaybook, arguments: Any) -> None:
    client, other = paged.client(), paged.client()
    other.declares("q", durable=True, arguments={**TELLS, **arguments})
    bodies = [b"%d" % number for number in range(600)]
    says(client, *bodies, headers=ASKS, delivery_mode=2)
    says(client, b"of no interest")
    other >> methods.QueueDelete(queue="q")
    other << methods.QueueDeleteOk(message_count=601)
    assert returned(client) == [(312, "QUEUE_DELETED", body) for body in bodies]
    paged.restart()
    client = paged.client()
    client.declares("q", durable=True)
    assert client.gets_all("q") == []


def test_what_is_purged_does_not_come_back() -> None:
    playbook = Playbook()
    client = playbook.client()
    client.declares("q", arguments=TELLS)
    says(client, b"1", headers=ASKS)
    client >> methods.QueuePurge(queue="q")
    client << methods.QueuePurgeOk(message_count=1)
    client.hears_nothing()


def test_a_transfer_is_not_answered_for_another_message() -> None:
    playbook = TimedPlaybook()
    requester = Requester(playbook.client(amqp.VERSION_0_9))
    client = requester.client
    client.declares("q", arguments={**TELLS, "x-max-length": 1})
    requester.does(transfer("q", b"1", application_headers=ASKS))
    requester.asks(transfer("q", b"2", application_headers=ASKS))
    came_back, answer = client.next(1), client.next(1)
    assert isinstance(came_back, Carried), came_back
    assert isinstance(came_back.method, BasicReturn), came_back
    assert (came_back.method.reply_text, came_back.body) == ("MAXLEN", b"1")
    assert isinstance(answer, Response), answer
    assert (answer.request_id, answer.method) == (2, MessageOk())
    assert client.gets_all("q") == [b"2"]
