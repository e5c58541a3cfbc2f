"""What answers of services take of memory while nobody reads them."""

from __future__ import annotations

import tracemalloc

import pytest
from playbook.dialogue import Carried, Client, carrying
from playbook.hourglass import TimedPlaybook

from flintmq.broker.services import answer_room
from flintmq.wire import methods
from flintmq.wire.methods import BasicConsume, BasicConsumeOk, BasicPublish
from flintmq.wire.tables import FieldTable

NAME = "amq.rabbitmq.reply-to"
BODY_BYTES = 300_000
MESSAGES = 4


@pytest.fixture
def timed() -> TimedPlaybook:
    playbook = TimedPlaybook()
    owner = playbook.client()
    owner.declares("big")
    for _ in range(MESSAGES):
        owner.publishes("big", bytes(BODY_BYTES))
    return playbook


def asker(playbook: TimedPlaybook) -> Client:
    client = playbook.client()
    client >> BasicConsume(queue=NAME, no_ack=True, consumer_tag="answers")
    client << BasicConsumeOk(consumer_tag="answers")
    return client


def peek(client: Client, count: int = 1, reply_to: str = NAME, service: str = "queue.peek") -> None:
    """Asks for all of the queue so many times, in one go."""
    with client.playbook.one_pass():
        for _ in range(count):
            client >> carrying(
                BasicPublish(exchange="amq.system", routing_key=service),
                b"",
                headers={"queue": "big"},
                reply_to=reply_to,
            )


def answer(client: Client) -> tuple[FieldTable, int]:
    found = client.next(1)
    assert isinstance(found, Carried), found
    assert found.properties.headers is not None
    return found.properties.headers, len(found.body)


def waiting(client: Client) -> int:
    return len(client.playbook.broker.pass_work.asking.get(client.session.number, ()))


def test_requests_wait_until_the_answers_before_are_read(timed: TimedPlaybook) -> None:
    client = asker(timed)
    peek(client, 20)
    assert waiting(client) == 19, "one answer is more than a connection may have waiting"
    assert client.output.pending() < 2 * MESSAGES * BODY_BYTES
    for _ in range(20):
        headers, octets = answer(client)
        assert (headers["count"], octets > MESSAGES * BODY_BYTES) == (MESSAGES, True)
    assert not timed.broker.pass_work.asking
    assert not timed.broker.answer_room.pauses


def test_small_answers_wait_for_the_reading_of_large_ones(timed: TimedPlaybook) -> None:
    client = asker(timed)
    peek(client)
    peek(client, service="queue.info")
    assert waiting(client) == 1
    assert answer(client)[0]["count"] == MESSAGES
    assert answer(client)[0]["messages-ready"] == MESSAGES


def test_requests_of_a_connection_that_ends_are_done(timed: TimedPlaybook) -> None:
    client = asker(timed)
    peek(client, 20)
    client.session.release()
    timed.passes(answer_room.LOOK_MS)
    timed.finish_pass()
    assert not timed.broker.pass_work.asking
    assert not timed.broker.answer_room.pauses
    assert timed.broker.answer_room.made_bytes == 0


def test_a_client_whose_acks_are_behind_its_requests_does_not_wait_for_itself(timed: TimedPlaybook) -> None:
    """It consumes its answers with a prefetch of 1: the next one is delivered when it has acked."""
    client = timed.client()
    client.declares("mine", exclusive=True)
    client >> methods.BasicQos(prefetch_count=1)
    client << methods.BasicQosOk()
    client >> BasicConsume(queue="mine", consumer_tag="answers")
    client << BasicConsumeOk(consumer_tag="answers")
    peek(client, 5, reply_to="mine")
    for number in range(5):
        assert answer(client)[0]["count"] == MESSAGES
        client >> methods.BasicAck(delivery_tag=number + 1)
    assert not timed.broker.pass_work.asking


def test_a_client_that_has_stopped_the_flow_does_not_wait_for_itself(timed: TimedPlaybook) -> None:
    client = asker(timed)
    client >> methods.ChannelFlow(active=False)
    client << methods.ChannelFlowOk(active=False)
    peek(client, 5)
    assert not waiting(client)
    client >> methods.ChannelFlow(active=True)
    client << methods.ChannelFlowOk(active=True)
    for _ in range(5):
        assert answer(client)[0]["count"] == MESSAGES


def test_all_connections_share_room_for_answers(timed: TimedPlaybook) -> None:
    clients = [asker(timed) for _ in range(6)]
    timed.broker.answer_room.take_share(16 * MESSAGES * BODY_BYTES)  # for two
    for client in clients:
        peek(client)
    assert [waiting(client) for client in clients] == [0, 0, 1, 1, 1, 1]
    for client in clients:
        timed.passes(answer_room.LOOK_MS)
        headers, octets = answer(client)
        assert (headers["count"], headers["more"]) == (MESSAGES - 1, True), "one answer has its share"
        assert octets < MESSAGES * BODY_BYTES
    timed.passes(answer_room.LOOK_MS)
    assert timed.broker.answer_room.unread_bytes() == 0
    assert not timed.broker.answer_room.line


def test_who_does_not_read_ends_when_others_wait(timed: TimedPlaybook) -> None:
    deaf, other = asker(timed), asker(timed)
    timed.broker.answer_room.take_share(16 * MESSAGES * BODY_BYTES)
    timed.broker.answer_room.budget_bytes = MESSAGES * BODY_BYTES  # for one
    peek(deaf)
    timed.passes(10 * answer_room.STALLED_MS)
    assert not timed.broker.answer_room.line
    peek(other)
    assert waiting(other) == 1
    timed.passes(answer_room.LOOK_MS)
    timed.passes(answer_room.LOOK_MS)
    assert answer(other)[0]["count"] == MESSAGES - 1
    assert answer(deaf)[0]["count"] == MESSAGES - 1  # what it had
    closed = deaf.next(0)
    assert isinstance(closed, methods.ConnectionClose)
    assert (closed.reply_code, closed.reply_text) == (
        506,
        "RESOURCE_ERROR - answers are not read, and others wait for the memory that they take",
    )


def deaf_crowd(timed: TimedPlaybook, count: int) -> list[Client]:
    """So many who do not read one answer of a message, and another one whose request waits for them."""
    timed.broker.answer_room.take_share(16 * MESSAGES * BODY_BYTES)
    timed.broker.answer_room.answer_bytes = BODY_BYTES
    timed.broker.answer_room.budget_bytes = (count + 1) * BODY_BYTES
    crowd = [asker(timed) for _ in range(count)]
    for client in crowd:
        peek(client)
    timed.passes(10 * answer_room.STALLED_MS)
    other = asker(timed)
    peek(other)
    assert waiting(other) == 1
    return [*crowd, other]


def test_a_crowd_that_does_not_read_is_looked_at_once(
    timed: TimedPlaybook, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    held_bytes = answer_room.Unread.held_bytes

    def noted(self: answer_room.Unread) -> int:
        looks.append(1)
        return held_bytes(self)

    crowd = deaf_crowd(timed, 40)
    timed.broker.answer_room.budget_bytes = 20 * BODY_BYTES
    monkeypatch.setattr(answer_room.Unread, "held_bytes", noted)
    timed.passes(answer_room.LOOK_MS)
    timed.passes(answer_room.LOOK_MS)
    assert not waiting(crowd[-1])
    assert len(timed.broker.answer_room.unread) < 20
    assert len(looks) < 10 * len(crowd), "not all of them again for each that ends"


def test_a_bug_in_ending_one_that_does_not_read_does_not_keep_others_waiting(
    timed: TimedPlaybook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    crowd = deaf_crowd(timed, 4)

    def fails(number: int) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(timed.broker.answer_room, "end", fails)
    for _ in range(2 * answer_room.ROOM_WAIT_MS // answer_room.LOOK_MS):
        timed.passes(answer_room.LOOK_MS)
    assert not waiting(crowd[-1])
    assert "a bug in ending connection" in caplog.text


def test_large_answers_are_refused_while_memory_is_critical(timed: TimedPlaybook) -> None:
    client = asker(timed)
    timed.broker.pass_work.is_critical = True
    peek(client)
    assert waiting(client) == 1, "it may be over soon"
    for _ in range(answer_room.ROOM_WAIT_MS // answer_room.LOOK_MS):
        timed.passes(answer_room.LOOK_MS)
    headers, _ = answer(client)
    assert headers["error-code"] == 506
    assert "memory is short" in str(headers["error-text"])
    peek(client, service="queue.info")
    assert answer(client)[0]["messages-ready"] == MESSAGES
    peek(client)
    timed.passes(answer_room.LOOK_MS)
    timed.broker.pass_work.is_critical = False
    timed.passes(answer_room.LOOK_MS)
    assert answer(client)[0]["count"] == MESSAGES


def test_answers_are_smaller_while_memory_is_short(timed: TimedPlaybook) -> None:
    client = asker(timed)
    timed.broker.answer_room.take_share(16 * MESSAGES * BODY_BYTES)
    timed.broker.pass_work.is_short = True
    peek(client)
    headers, octets = answer(client)
    assert (headers["count"], headers["more"]) == (1, True), "a message is never too large"
    assert octets > BODY_BYTES


def test_an_answer_is_in_memory_once_beside_its_messages() -> None:
    playbook = TimedPlaybook()
    client = asker(playbook)
    client.declares("big")
    for _ in range(7):
        client.publishes("big", bytes(1_000_000))
    peek(client)  # what is loaded for the first one
    answer(client)
    tracemalloc.start()
    try:
        peek(client)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 7_000_000 < peak < 9_500_000
    assert answer(client)[0]["count"] == 7


def test_who_waits_is_looked_after_again_when_a_look_fails(
    timed: TimedPlaybook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looked any more, and what waited for the end of a client that reads nothing waited for ever."""
    room = timed.broker.answer_room
    room.budget_bytes = room.answer_bytes = MESSAGES * BODY_BYTES
    lazy, client = asker(timed), asker(timed)
    peek(lazy)
    peek(client)
    assert waiting(client) == 1

    def broken(*_: int) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as bug:
        bug.setattr(answer_room.Unread, "look", broken)
        timed.passes(answer_room.LOOK_MS)
    for _ in range(2 * answer_room.STALLED_MS // answer_room.LOOK_MS):
        timed.passes(answer_room.LOOK_MS)
    assert answer(client)[1] >= BODY_BYTES
    lazy.inbox.clear()
