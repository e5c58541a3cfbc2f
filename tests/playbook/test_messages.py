"""The message class of 0-9: transfers in both directions, their answers, references, and what is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook, Request, Response, carrying, frame
from playbook.hourglass import TimedPlaybook
from playbook.paged import PagedPlaybook
from playbook.test_files import settled
from playbook.test_staging import spools, staging

from flintmq.auth import AnswerPending
from flintmq.broker.broker import AGAIN_MS
from flintmq.broker.channels import message_transfers
from flintmq.broker.channels.message_terms import MessageTerms
from flintmq.broker.channels.staged_publish import Outcome, publish_staged
from flintmq.config import PermissionSettings
from flintmq.server.commands import message as message_commands
from flintmq.wire import amqp, methods
from flintmq.wire.fields import Content
from flintmq.wire.methods import (
    BasicDeliver,
    BasicPublish,
    ChannelClose,
    ConnectionClose,
    MessageAppend,
    MessageCancel,
    MessageCheckpoint,
    MessageClose,
    MessageConsume,
    MessageEmpty,
    MessageGet,
    MessageOffset,
    MessageOk,
    MessageOpen,
    MessageQos,
    MessageRecover,
    MessageReject,
    MessageResume,
    MessageTransfer,
    Method,
)
from flintmq.wire.properties import BasicProperties

LARGE = bytes(range(256)) * 12_000  # 3 MB: it does not stay in memory


class Requester:
    """A client with the numbers of its requests and responses."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.asked = 0
        self.responded = 0

    def asks(self, method: Method) -> int:
        self.asked += 1
        self.client >> Request(self.asked, method)
        return self.asked

    def hears(self) -> Any:
        if isinstance(self.client.playbook, PagedPlaybook):
            settled(self.client)
        return self.client.next(1)

    def calls(self, method: Method) -> Method:
        """What the request is answered with, which is all that is heard."""
        asked = self.asks(method)
        found = self.hears()
        assert isinstance(found, Response), found
        assert (found.request_id, found.batch_offset) == (asked, 0), found
        return found.method

    def does(self, method: Method) -> None:
        assert self.calls(method) == MessageOk()

    def answers(self, request_id: int, method: Method, batch_offset: int = 0) -> None:
        self.responded += 1
        self.client >> Response(self.responded, request_id, method, batch_offset)

    def takes(self) -> tuple[int, MessageTransfer]:
        """The next transfer of the broker, and its number."""
        found = self.hears()
        assert isinstance(found, Request), found
        assert isinstance(found.method, MessageTransfer), found
        return found.request_id, found.method

    def channel_close(self) -> ChannelClose:
        return self.client.hears(ChannelClose)

    def connection_close(self) -> ConnectionClose:
        return self.client.hears(ConnectionClose)


def transfer(key: str, body: bytes = b"", **arguments: Any) -> MessageTransfer:
    return MessageTransfer(routing_key=key, body=Content(body), **arguments)


def by_reference(key: str, name: bytes, **arguments: Any) -> MessageTransfer:
    return MessageTransfer(routing_key=key, body=Content(name, True), **arguments)


@pytest.fixture
def playbook() -> Iterator[TimedPlaybook]:
    playbook = TimedPlaybook()
    yield playbook
    playbook.end()


@pytest.fixture
def paged(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path / "data")
    yield playbook
    playbook.end()
    playbook.close()


def user(playbook: Playbook, **options: Any) -> Requester:
    return Requester(playbook.client(amqp.VERSION_0_9, **options))


@pytest.fixture
def client(playbook: TimedPlaybook) -> Requester:
    requester = user(playbook)
    requester.client.declares("q")
    return requester


# Octets


def test_the_octets_of_a_transfer_and_its_answer(client: Requester) -> None:
    method = (
        b"\x00\x78\x00\x0a"  # class 120, method 10
        + b"\x00\x00"  # ticket
        + b"\x00"  # destination: the nameless exchange
        + b"\x00"  # redelivered, immediate
        + (5000).to_bytes(8, "big")  # ttl
        + b"\x04"  # priority
        + bytes(8)  # timestamp
        + b"\x02"  # delivery mode
        + bytes(8)  # expiration
        + b"\x00"  # exchange
        + b"\x01q"  # routing key
        + b"\x02m1\x02c1\x02r1"  # message id, correlation id, reply to
        + b"\x0atext/plain\x04gzip"
        + b"\x00\x03app\x00"  # user id, app id, transaction id
        + bytes(4)  # security token
        + b"\x00\x00\x00\x08\x01kS\x00\x00\x00\x01v"  # headers
        + b"\x00\x00\x00\x00\x05hello"  # inline, five octets
    )
    client.client >> frame(9, 1, struct.pack(">QQI", 1, 0, 0) + method)
    output = client.client.output
    sent = bytes(output.buffer[output.start : output.fill])
    assert sent == frame(10, 1, struct.pack(">QQI", 1, 1, 0) + b"\x00\x78\x01\xf4")
    client.client << Response(1, 1, MessageOk())
    client.client >> methods.BasicGet(queue="q", no_ack=True)
    got = client.client.next(1)
    assert isinstance(got, Carried)
    assert got.body == b"hello"
    assert got.properties == BasicProperties(
        content_type="text/plain",
        content_encoding="gzip",
        headers={"k": "v"},
        delivery_mode=2,
        priority=4,
        correlation_id="c1",
        reply_to="r1",
        expiration="5000",
        message_id="m1",
        app_id="app",
    )


def test_the_octets_of_a_delivery_and_its_answer(playbook: TimedPlaybook, client: Requester) -> None:
    client.does(MessageConsume(queue="q", destination="d"))
    client.client.publishes("q", b"hi", content_type="text/plain", headers={"k": 1}, type="t", timestamp=7)
    output = client.client.output
    sent = bytes(output.buffer[output.start : output.fill])
    assert sent == frame(
        9,
        1,
        struct.pack(">QQI", 1, 0, 0)
        + b"\x00\x78\x00\x0a\x00\x00\x01d\x00"
        + bytes(8)
        + b"\x00"
        + (7).to_bytes(8, "big")
        + b"\x01"  # not persistent
        + bytes(8)
        + b"\x00\x01q"  # exchange, routing key
        + b"\x00\x00\x00\x0atext/plain\x00\x00\x00\x00"
        + bytes(4)
        + b"\x00\x00\x00\x14\x06x-typeS\x00\x00\x00\x01t\x01kI\x00\x00\x00\x01"
        + b"\x00\x00\x00\x00\x02hi",
    )
    client.takes()
    assert playbook.broker.virtual_hosts["/"].queues["q"].unacked == 1
    client.client >> frame(10, 1, struct.pack(">QQI", 1, 1, 0) + b"\x00\x78\x01\xf4")
    assert playbook.broker.virtual_hosts["/"].queues["q"].unacked == 0


@pytest.mark.parametrize(
    ("method", "octets"),
    [
        (MessageCancel(destination="d"), b"\x00\x1e\x01d"),
        (MessageQos(prefetch_count=5, prefetch_size=9, global_=True), b"\x00\x6e\0\0\0\x09\0\x05\x01"),
        (MessageRecover(requeue=True), b"\x00\x32\x01"),
        (MessageOpen(reference=b"r"), b"\x00\x3c\0\0\0\x01r"),
    ],
    ids=lambda each: each.NAME if isinstance(each, Method) else "",
)
def test_the_octets_of_requests(client: Requester, method: Method, octets: bytes) -> None:
    client.client >> frame(9, 1, struct.pack(">QQI", 1, 0, 0) + b"\x00\x78" + octets)
    client.client << Response(1, 1, MessageOk())


def test_the_marks_of_the_broker_follow_the_responses(client: Requester) -> None:
    client.does(MessageConsume(queue="q", destination="d"))
    client.client.publishes("q", b"1")
    first, _ = client.takes()
    client.answers(first, MessageOk())
    client.client.publishes("q", b"2")
    found = client.hears()
    assert (found.request_id, found.response_mark) == (2, 1)


# Publishing


def test_transfers_of_one_pass_are_answered_together(playbook: TimedPlaybook, client: Requester) -> None:
    with playbook.one_pass():
        for number in range(5):
            client.asks(transfer("q", b"%d" % number))
    assert client.hears() == Response(1, 1, MessageOk(), 4)
    with playbook.one_pass():
        client.asks(transfer("q", b"5"))
        client.asks(MessageQos())
        client.asks(transfer("q", b"6"))
        client.asks(transfer("q", b"7"))
    assert [client.hears() for _ in range(3)] == [
        Response(2, 7, MessageOk()),
        Response(3, 6, MessageOk()),
        Response(4, 8, MessageOk(), 1),
    ]
    assert client.client.gets_all("q") == [b"%d" % number for number in range(8)]


def test_a_transfer_is_answered_when_it_is_on_disk(paged: PagedPlaybook) -> None:
    client = user(paged)
    client.client >> methods.QueueDeclare(queue="q", durable=True)
    settled(client.client).hears(methods.QueueDeclareOk)
    client.asks(transfer("q", b"kept", delivery_mode=2))
    client.client.hears_nothing()
    assert client.hears() == Response(1, 1, MessageOk())
    paged.restart()
    client = user(paged)
    assert client.client.gets("q") == b"kept"


def test_what_no_queue_takes_is_dropped_and_answered(client: Requester) -> None:
    client.does(transfer("nowhere", b"m"))


def test_an_immediate_transfer_without_a_consumer_is_rejected(
    playbook: TimedPlaybook, client: Requester
) -> None:
    with playbook.one_pass():
        client.asks(transfer("q", b"1"))
        client.asks(transfer("q", b"2", immediate=True))
        client.asks(transfer("q", b"3"))
    assert [client.hears() for _ in range(3)] == [
        Response(1, 1, MessageOk()),
        Response(2, 2, MessageReject(code=1, text="NO_CONSUMERS")),
        Response(3, 3, MessageOk()),
    ]
    assert client.client.gets_all("q") == [b"1", b"3"]


def test_what_a_full_queue_refuses_is_rejected(client: Requester) -> None:
    client.client.declares("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.does(transfer("full", b"1"))
    answer = client.calls(transfer("full", b"2"))
    assert isinstance(answer, MessageReject)
    assert answer.code == 0
    assert "full" in answer.text


def test_confirms_of_basic_publishes_are_counted_apart(playbook: TimedPlaybook, client: Requester) -> None:
    client.client >> methods.ConfirmSelect()
    client.client << methods.ConfirmSelectOk()
    with playbook.one_pass():
        client.client.publishes("q", b"1")
        client.asks(transfer("q", b"2"))
        client.client.publishes("q", b"3")
    heard = [client.hears(), client.hears()]
    assert Response(1, 1, MessageOk()) in heard
    assert methods.BasicAck(delivery_tag=2, multiple=True) in heard


def test_properties_without_a_place_in_a_basic_header_come_through(client: Requester) -> None:
    client.does(MessageConsume(queue="q", destination="d"))
    sent = transfer(
        "q", b"m", transaction_id="t1", security_token=b"\xff\x00", application_headers={"h": [1, "a"]}
    )
    client.asks(sent)
    _, found = client.takes()
    assert (found.transaction_id, found.security_token) == ("t1", b"\xff\x00")
    assert found.application_headers == {"h": [1, "a"]}
    client.hears()
    client.does(MessageCancel(destination="d"))
    client.does(transfer("q", b"m", transaction_id="t1"))
    client.client >> methods.BasicGet(queue="q", no_ack=True)
    got = client.client.next(1)
    assert isinstance(got, Carried)
    assert got.properties.headers == {"x-transaction-id": "t1"}


def test_a_lifetime_becomes_an_expiration_and_ends(playbook: TimedPlaybook, client: Requester) -> None:
    client.does(transfer("q", b"m", ttl=5000))
    client.asks(MessageGet(queue="q", destination="g"))
    _, found = client.takes()
    assert found.ttl == 5000
    assert found.expiration == (playbook.broker.timetable.now_ms() + 5000) // 1000
    assert client.hears().method == MessageOk()
    client.does(MessageRecover(requeue=True))
    playbook.passes(6000)
    assert client.calls(MessageGet(queue="q")) == MessageEmpty()


def test_a_numeric_client_hears_numeric_types(playbook: TimedPlaybook) -> None:
    stranger = playbook.stranger(amqp.VERSION_0_9)
    stranger >> b"AMQP\x01\x01\x00\x0b"
    stranger.hears(methods.ConnectionStart)
    stranger.log_in()
    stranger.hears(methods.ConnectionTune)
    stranger >> methods.ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
    stranger >> methods.ConnectionOpen(virtual_host="/")
    stranger.hears(methods.ConnectionOpenOk)
    stranger >> methods.ChannelOpen()
    stranger.hears(methods.ChannelOpenOk)
    client = Requester(stranger)
    stranger.declares("q")
    client.does(transfer("q", b"m", application_headers={"k": True}))
    client.asks(MessageGet(queue="q"))
    output = stranger.output
    assert b"\x01k\x08\x01" in bytes(output.buffer[output.start : output.fill])
    stranger.heard().clear()


# Consuming


def test_messages_cross_between_the_classes(playbook: TimedPlaybook, client: Requester) -> None:
    other = playbook.client()
    other.consumes("q", "b")
    client.does(transfer("q", b"from 0-9", message_id="i", reply_to="r"))
    assert other.next(1) == carrying(
        BasicDeliver(consumer_tag="b", delivery_tag=1, routing_key="q"),
        b"from 0-9",
        message_id="i",
        reply_to="r",
    )
    other >> methods.BasicCancel(consumer_tag="b")
    other << methods.BasicCancelOk(consumer_tag="b")
    client.does(MessageConsume(queue="q", destination="d"))
    other >> carrying(BasicPublish(routing_key="q"), b"from 0-9-1", app_id="a", expiration="90000")
    _, found = client.takes()
    assert (found.destination, found.exchange, found.routing_key) == ("d", "", "q")
    assert (found.app_id, found.ttl, found.body) == ("a", 90_000, Content(b"from 0-9-1"))
    assert not found.redelivered


def test_one_response_settles_many(playbook: TimedPlaybook, client: Requester) -> None:
    client.does(MessageConsume(queue="q", destination="d"))
    client.client.publishes("q", b"1", b"2", b"3", b"4")
    assert [client.takes()[0] for _ in range(4)] == [1, 2, 3, 4]
    queue = playbook.broker.virtual_hosts["/"].queues["q"]
    client.answers(2, MessageOk(), 1)
    assert queue.unacked == 2
    client.answers(1, MessageOk())
    client.answers(4, MessageOk())
    assert queue.unacked == 0


def test_a_reject_is_final_unless_somebody_else_is_to_have_it(
    playbook: TimedPlaybook, client: Requester
) -> None:
    client.client.declares("dead")
    client.client.declares(
        "lives", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    )
    client.does(MessageConsume(queue="lives", destination="d"))
    client.client.publishes("lives", b"m")
    first, _ = client.takes()
    client.answers(first, MessageReject(code=1))
    again, found = client.takes()
    assert found.redelivered
    client.answers(again, MessageReject(code=0, text="no"))
    assert client.client.gets("dead") == b"m"


def test_without_acks_a_message_is_gone_when_it_is_sent(playbook: TimedPlaybook, client: Requester) -> None:
    client.does(MessageConsume(queue="q", destination="d", no_ack=True))
    client.client.publishes("q", b"m")
    sent, _ = client.takes()
    assert playbook.broker.virtual_hosts["/"].queues["q"].unacked == 0
    client.answers(sent, MessageOk())


def test_qos_limits_what_is_open(client: Requester) -> None:
    client.does(MessageQos(prefetch_count=2))
    client.does(MessageConsume(queue="q", destination="d"))
    client.client.publishes("q", b"1", b"2", b"3")
    assert [client.takes()[0] for _ in range(2)] == [1, 2]
    client.client.hears_nothing()
    client.answers(1, MessageOk())
    assert client.takes()[1].body.octets == b"3"


def test_requests_without_a_response_are_limited(client: Requester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_transfers, "UNANSWERED_MAX", 3)
    client.does(MessageConsume(queue="q", destination="d", no_ack=True))
    client.client.publishes("q", b"1", b"2", b"3", b"4")
    assert [client.takes()[0] for _ in range(3)] == [1, 2, 3]
    client.client.hears_nothing()
    client.answers(1, MessageOk(), 2)
    assert client.takes()[0] == 4


def test_get_sends_a_transfer_and_then_its_answer(client: Requester) -> None:
    assert client.calls(MessageGet(queue="q")) == MessageEmpty()
    client.client.publishes("q", b"m")
    asked = client.asks(MessageGet(queue="q", destination="g"))
    sent, found = client.takes()
    assert (found.destination, found.body) == ("g", Content(b"m"))
    answer = client.hears()
    assert (answer.request_id, answer.method) == (asked, MessageOk())
    client.answers(sent, MessageOk())
    assert client.calls(MessageGet(queue="q")) == MessageEmpty()


def test_recover_sends_again_what_is_open(client: Requester) -> None:
    client.does(MessageConsume(queue="q", destination="d"))
    client.client.publishes("q", b"m")
    first, _ = client.takes()
    client.asks(MessageRecover(requeue=False))
    again, found = client.takes()
    assert (again, found.redelivered) == (first + 1, True)
    assert client.hears().method == MessageOk()
    client.answers(first, MessageOk())  # that one is over
    client.answers(again, MessageOk())
    assert client.calls(MessageGet(queue="q")) == MessageEmpty()


def test_recover_does_not_pile_up_what_the_client_does_not_answer(
    client: Requester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_transfers, "UNANSWERED_MAX", 5)
    client.does(MessageConsume(queue="q", destination="d"))
    client.client.publishes("q", b"m")
    for _ in range(20):
        client.asks(MessageRecover(requeue=False))
    heard = [each for _, each in client.client.heard()]
    client.client.inbox.clear()
    assert sum(isinstance(each, Request) for each in heard) == 5
    assert sum(isinstance(each, Response) for each in heard) == 20
    client.answers(1, MessageOk(), 4)
    assert client.takes()[1].redelivered


def test_large_bodies_that_are_recovered_wait_for_each_other(playbook: TimedPlaybook) -> None:
    client = user(playbook, frame_max=4096)
    client.client.declares("q")
    client.client.publishes("q", bytes(100_000))
    client.does(MessageConsume(queue="q", destination="d"))
    for _ in range(20):
        client.asks(MessageRecover(requeue=False))
    channel = client.client.session.held_channels()[0]
    assert channel.messages is not None
    assert len(channel.messages.outgoing) <= 1
    client.client.heard().clear()


def test_gets_whose_messages_are_recovered_meanwhile_are_answered(playbook: TimedPlaybook) -> None:
    client = user(playbook, frame_max=4096)
    client.client.declares("q")
    client.client.publishes("q", b"1" * 100_000, b"2" * 100_000)
    gets = [client.asks(MessageGet(queue="q", destination=name)) for name in ("a", "b")]
    parts = [each for _, each in client.client.heard()]  # of the first body, as many as go unanswered
    client.client.inbox.clear()
    assert {type(each.method) for each in parts} == {MessageOpen, MessageAppend}
    assert client.calls(MessageRecover(requeue=True)) == MessageOk()
    client.answers(1, MessageOk())
    closed = client.hears()
    assert isinstance(closed.method, MessageClose)
    answers = [client.hears(), client.hears()]
    assert [(each.request_id, each.method) for each in answers] == [(get, MessageEmpty()) for get in gets]
    client.client.hears_nothing()
    client.client >> methods.BasicGet(queue="q", no_ack=True)
    first = client.client.next(1)
    assert isinstance(first, Carried)
    assert (first.method.redelivered, first.body) == (True, b"1" * 100_000)


def test_cancel_ends_a_consumer_and_an_unknown_one_is_no_error(client: Requester) -> None:
    client.does(MessageConsume(queue="q", destination="d"))
    client.does(MessageCancel(destination="d"))
    client.does(MessageCancel(destination="d"))
    client.client.publishes("q", b"m")
    client.client.hears_nothing()


def test_a_delivery_that_a_bug_meets_is_tried_again_in_a_while_and_not_in_each_pass(
    playbook: TimedPlaybook, client: Requester, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def deliver(*_: object) -> None:
        tries.append(1)
        raise RuntimeError("a bug")

    client.does(MessageConsume(queue="q", destination="d"))
    with monkeypatch.context() as broken:
        broken.setattr(MessageTerms, "deliver", deliver)
        client.client.publishes("q", b"m")
        for _ in range(5):
            playbook.finish_pass()
        client.client.publishes("q", b"n")
        playbook.finish_pass()
        assert len(tries) == 1
    playbook.passes(AGAIN_MS)
    assert [client.takes()[1].body.octets for _ in range(2)] == [b"m", b"n"]


@pytest.mark.parametrize("memory_max", [0, 2])
def test_a_queue_that_a_bug_has_paused_hands_out_nothing_for_the_sake_of_memory(
    paged: PagedPlaybook, memory_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def deliver(*_: object) -> None:
        tries.append(1)
        raise RuntimeError("a bug")

    client = user(paged)
    client.client.declares("q", arguments={"x-max-in-memory-length": memory_max})
    client.does(MessageConsume(queue="q", destination="d"))
    with monkeypatch.context() as broken:
        broken.setattr(MessageTerms, "deliver", deliver)
        client.client.publishes("q", b"0")
        paged.finish_pass()
        before = len(tries)
        assert before
        for number in range(1, 6):
            client.client.publishes("q", b"%d" % number)
            paged.finish_pass()
        assert len(tries) == before
    paged.passes(AGAIN_MS)
    paged.broker.timetable.run()
    paged.finish_pass()
    assert [client.takes()[1].body.octets for _ in range(6)] == [b"%d" % number for number in range(6)]


def test_a_closed_channel_gives_its_messages_back(client: Requester) -> None:
    client.does(MessageConsume(queue="q", destination="d"))
    client.client.publishes("q", b"m")
    client.takes()
    client.client >> methods.ChannelClose(reply_code=200)
    client.client << methods.ChannelCloseOk()
    client.client >> methods.ChannelOpen()
    client.client.hears(methods.ChannelOpenOk)
    assert client.client.gets("q") == b"m"


def test_a_body_larger_than_a_frame_comes_by_reference(playbook: TimedPlaybook) -> None:
    client = user(playbook, frame_max=4096)
    client.client.declares("q")
    body = bytes(range(256)) * 200
    client.client.publishes("q", body, message_id="i")
    client.does(MessageConsume(queue="q", destination="d"))
    opened = client.hears()
    assert isinstance(opened.method, MessageOpen)
    name, number = opened.method.reference, opened.request_id
    client.answers(number, MessageOk())
    received = b""
    while True:
        found = client.hears()
        if not isinstance(found.method, MessageAppend):
            break
        assert found.method.reference == name
        received += found.method.octets
        client.answers(found.request_id, MessageOk())
    assert isinstance(found.method, MessageTransfer)
    assert found.method.body == Content(name, True)
    assert found.method.message_id == "i"
    assert received == body
    closed = client.hears()
    assert closed.method == MessageClose(reference=name)
    client.answers(found.request_id, MessageOk(), 1)
    assert client.calls(MessageGet(queue="q")) == MessageEmpty()


def test_only_some_parts_of_a_body_are_on_their_way_at_once(playbook: TimedPlaybook) -> None:
    client = user(playbook, frame_max=4096)
    client.client.declares("q")
    client.client.publishes("q", bytes(100_000), b"behind")
    client.does(MessageConsume(queue="q", destination="d"))
    assert len(client.client.heard()) == message_transfers.APPENDS_MAX
    client.client.inbox.clear()
    client.does(MessageCancel(destination="d"))
    client.answers(1, MessageOk())
    assert client.hears().method == MessageClose(reference=b"amq.reference-1")
    assert [len(body) for body in client.client.gets_all("q")] == [100_000, 6]


def test_a_large_message_is_got_by_reference(paged: PagedPlaybook) -> None:
    client = user(paged)
    client.client.declares("q")
    client.client.publishes("q", LARGE)
    asked = client.asks(MessageGet(queue="q", destination="g"))
    received = b""
    while isinstance(found := client.hears(), Request):
        if isinstance(found.method, MessageAppend):
            received += found.method.octets
        if isinstance(found.method, MessageTransfer):
            assert found.method.body.is_reference
        client.answers(found.request_id, MessageOk())
        if isinstance(found.method, MessageClose):
            break
    assert client.hears() == Response(1, asked, MessageOk())
    assert received == LARGE


# References


def appends(client: Requester, name: bytes, body: bytes, size: int = 100_000) -> None:
    for at in range(0, len(body), size):
        client.does(MessageAppend(reference=name, octets=body[at : at + size]))


def durable(client: Requester, name: str) -> None:
    client.client >> methods.QueueDeclare(queue=name, durable=True)
    settled(client.client).hears(methods.QueueDeclareOk)


def test_a_reference_is_published_when_it_is_closed(client: Requester) -> None:
    client.does(MessageOpen(reference=b"r"))
    client.does(MessageAppend(reference=b"r", octets=b"one "))
    asked = client.asks(by_reference("q", b"r", content_type="text/plain"))
    client.client.hears_nothing()
    client.does(MessageAppend(reference=b"r", octets=b"two"))
    closing = client.asks(MessageClose(reference=b"r"))
    assert {client.hears().request_id, client.hears().request_id} == {asked, closing}
    client.client >> methods.BasicGet(queue="q", no_ack=True)
    got = client.client.next(1)
    assert isinstance(got, Carried)
    assert (got.body, got.properties) == (b"one two", BasicProperties(content_type="text/plain"))


def test_a_large_reference_is_published_from_the_disk(paged: PagedPlaybook) -> None:
    client = user(paged)
    durable(client, "q")
    client.does(MessageOpen(reference=b"r"))
    appends(client, b"r", LARGE)
    assert len(spools(paged)) == 1
    asked = client.asks(by_reference("q", b"r", delivery_mode=2))
    closing = client.asks(MessageClose(reference=b"r"))
    assert {client.hears().request_id, client.hears().request_id} == {asked, closing}
    paged.restart()
    client = user(paged)
    assert client.client.gets("q") == LARGE


def test_a_reference_that_nobody_transfers_is_dropped(paged: PagedPlaybook) -> None:
    client = user(paged)
    client.does(MessageOpen(reference=b"r"))
    appends(client, b"r", LARGE)
    client.does(MessageClose(reference=b"r"))
    assert staging(paged).contents == {}
    client.does(MessageOpen(reference=b"r"))
    appends(client, b"r", LARGE)
    client.client >> methods.ChannelClose(reply_code=200)
    settled(client.client).hears(methods.ChannelCloseOk)
    assert staging(paged).contents == {}
    assert spools(paged) == []


def test_a_checkpoint_survives_the_connection_and_a_restart(paged: PagedPlaybook) -> None:
    client = user(paged)
    durable(client, "q")
    half = len(LARGE) // 2
    client.does(MessageOpen(reference=b"r"))
    appends(client, b"r", LARGE[:half])
    client.does(MessageCheckpoint(reference=b"r", identifier="one"))
    client.does(MessageAppend(reference=b"r", octets=b"lost"))
    client.client.session.release()
    settled(client.client)
    paged.restart()
    client = user(paged)
    assert client.calls(MessageResume(reference=b"again", identifier="one")) == MessageOffset(value=half)
    appends(client, b"again", LARGE[half:])
    asked = client.asks(by_reference("q", b"again"))
    closing = client.asks(MessageClose(reference=b"again"))
    assert {client.hears().request_id, client.hears().request_id} == {asked, closing}
    assert client.client.gets("q") == LARGE
    # Who did not hear the answer does it all again, and the message is not there twice.
    assert client.calls(MessageResume(reference=b"r", identifier="one")) == MessageOffset(value=len(LARGE))
    client.asks(by_reference("q", b"r"))
    client.asks(MessageClose(reference=b"r"))
    assert [client.hears().method, client.hears().method] == [MessageOk(), MessageOk()]
    assert client.client.gets("q") is None


def test_what_has_no_checkpoint_is_forgotten_by_a_restart(paged: PagedPlaybook) -> None:
    client = user(paged)
    client.does(MessageOpen(reference=b"r"))
    appends(client, b"r", LARGE)
    client.client.heard()
    assert len(staging(paged).contents) == 1
    paged.restart()
    assert staging(paged).contents == {}


def test_a_new_identifier_begins_at_the_start(paged: PagedPlaybook) -> None:
    client = user(paged)
    assert client.calls(MessageResume(reference=b"r", identifier="new")) == MessageOffset(value=0)
    client.does(MessageAppend(reference=b"r", octets=b"abc"))
    client.does(MessageCheckpoint(reference=b"r", identifier="newer"))
    client.does(MessageClose(reference=b"r"))
    assert client.calls(MessageResume(reference=b"r", identifier="newer")) == MessageOffset(value=3)
    assert client.calls(MessageResume(reference=b"s", identifier="new")) == MessageOffset(value=0)


def test_a_checkpoint_does_not_take_the_name_of_another_content(paged: PagedPlaybook) -> None:
    client = user(paged)
    assert client.calls(MessageResume(reference=b"a", identifier="one")) == MessageOffset(value=0)
    client.does(MessageOpen(reference=b"b"))
    client.asks(MessageCheckpoint(reference=b"b", identifier="one"))
    assert settled(client.client) is not None
    close = client.channel_close()
    assert (close.reply_code, close.class_id, close.method_id) == (406, 120, 90)


def test_a_checkpoint_does_not_rename_what_is_published(paged: PagedPlaybook) -> None:
    client = user(paged)
    client.client.declares("q", durable=True)
    client.calls(MessageResume(reference=b"r", identifier="one"))
    client.does(MessageAppend(reference=b"r", octets=b"abc"))
    client.asks(by_reference("q", b"r"))
    client.asks(MessageClose(reference=b"r"))
    settled(client.client)
    client.hears(), client.hears()
    assert client.calls(MessageResume(reference=b"s", identifier="one")) == MessageOffset(value=3)
    client.asks(MessageCheckpoint(reference=b"s", identifier="two"))
    settled(client.client)
    assert client.channel_close().reply_code == 406
    assert list(staging(paged).owned("/", "guest")) == ["one"]


class SlowQuestion:
    """What a back end is asked, which answers when the test says so."""

    what = "whether the user may publish"

    def __init__(self) -> None:
        self.told: list[Callable[[], None]] = []

    def tell(self, callback: Callable[[], None]) -> None:
        self.told.append(callback)


def test_who_resumes_while_a_back_end_is_asked_takes_over(
    paged: PagedPlaybook, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = user(paged), user(paged)
    first.client.declares("q", durable=True)
    assert first.calls(MessageResume(reference=b"r", identifier="one")) == MessageOffset(value=0)
    first.does(MessageAppend(reference=b"r", octets=b"abc"))
    first.does(MessageCheckpoint(reference=b"r", identifier="one"))
    question = SlowQuestion()

    def publish(*arguments: Any, **options: Any) -> Outcome:
        if not question.told:
            raise AnswerPending(question)
        return publish_staged(*arguments, **options)

    monkeypatch.setattr(message_commands, "publish_staged", publish)
    first.asks(by_reference("q", b"r"))
    first.asks(MessageClose(reference=b"r"))
    settled(first.client)
    assert second.calls(MessageResume(reference=b"s", identifier="one")) == MessageOffset(value=3)
    question.told[0]()
    settled(first.client)
    assert first.channel_close().reply_code == 406
    second.does(MessageAppend(reference=b"s", octets=b"def"))
    second.does(MessageClose(reference=b"s"))


def test_who_resumes_takes_over(paged: PagedPlaybook) -> None:
    first, second = user(paged), user(paged)
    assert first.calls(MessageResume(reference=b"r", identifier="one")) == MessageOffset(value=0)
    first.does(MessageAppend(reference=b"r", octets=b"abc"))
    first.does(MessageCheckpoint(reference=b"r", identifier="one"))
    assert second.calls(MessageResume(reference=b"s", identifier="one")) == MessageOffset(value=3)
    first.does(MessageAppend(reference=b"r", octets=b"other"))
    first.asks(MessageCheckpoint(reference=b"r", identifier="one"))
    settled(first.client)
    close = first.channel_close()
    assert (close.reply_code, close.class_id) == (406, 120)
    second.does(MessageAppend(reference=b"s", octets=b"def"))
    second.does(MessageCheckpoint(reference=b"s", identifier="one"))
    assert staging(paged).need("/", "guest", "one").staged == 6


def test_a_content_of_the_file_class_is_not_grown_beyond_its_size(paged: PagedPlaybook) -> None:
    client = user(paged)
    client.client >> methods.FileOpen(identifier="f", content_size=4)
    settled(client.client).hears(methods.FileOpenOk)
    assert client.calls(MessageResume(reference=b"r", identifier="f")) == MessageOffset(value=0)
    client.does(MessageAppend(reference=b"r", octets=b"too much"))
    client.asks(MessageCheckpoint(reference=b"r", identifier="f"))
    settled(client.client)
    assert client.channel_close().reply_code == 406


def test_an_immediate_reference_without_a_consumer_is_rejected(paged: PagedPlaybook) -> None:
    client = user(paged)
    durable(client, "q")
    client.does(MessageOpen(reference=b"r"))
    appends(client, b"r", LARGE)
    client.asks(by_reference("q", b"r", immediate=True))
    client.asks(MessageClose(reference=b"r"))
    assert client.hears().method == MessageReject(code=1, text="NO_CONSUMERS")
    assert client.hears().method == MessageOk()
    assert staging(paged).contents == {}


# Transactions


def begins(client: Requester) -> None:
    client.client >> methods.TxSelect()
    client.client << methods.TxSelectOk()


def test_transfers_and_their_settlements_are_part_of_a_transaction(
    playbook: TimedPlaybook, client: Requester
) -> None:
    begins(client)
    client.does(transfer("q", b"1"))
    assert playbook.broker.virtual_hosts["/"].queues["q"].message_count() == 0
    client.client >> methods.TxRollback()
    client.client << methods.TxRollbackOk()
    client.does(transfer("q", b"2"))
    client.does(MessageOpen(reference=b"r"))
    client.does(MessageAppend(reference=b"r", octets=b"3"))
    client.asks(by_reference("q", b"r"))
    client.asks(MessageClose(reference=b"r"))
    assert [client.hears().method, client.hears().method] == [MessageOk(), MessageOk()]
    client.client >> methods.TxCommit()
    client.client << methods.TxCommitOk()
    client.does(MessageConsume(queue="q", destination="d"))
    sent = [client.takes() for _ in range(2)]
    assert [each.body.octets for _, each in sent] == [b"2", b"3"]
    client.answers(sent[0][0], MessageOk(), 1)
    queue = playbook.broker.virtual_hosts["/"].queues["q"]
    assert queue.unacked == 2
    client.client >> methods.TxCommit()
    client.client << methods.TxCommitOk()
    assert queue.unacked == 0


def test_an_immediate_transfer_is_not_part_of_a_transaction(client: Requester) -> None:
    begins(client)
    client.asks(transfer("q", b"m", immediate=True))
    assert client.connection_close().reply_code == 540


def test_a_staged_reference_is_not_part_of_a_transaction(paged: PagedPlaybook) -> None:
    client = user(paged)
    begins(client)
    client.does(MessageOpen(reference=b"r"))
    client.does(MessageCheckpoint(reference=b"r", identifier="one"))
    client.asks(by_reference("q", b"r"))
    assert client.connection_close().reply_code == 540


def test_recover_on_a_transactional_channel_closes_it(client: Requester) -> None:
    begins(client)
    client.asks(MessageRecover(requeue=True))
    close = client.channel_close()
    assert (close.reply_code, close.class_id, close.method_id) == (406, 120, 50)


# What is refused


def test_in_a_method_frame_the_class_is_refused(client: Requester) -> None:
    client.client >> MessageQos()
    close = client.connection_close()
    assert (close.reply_code, close.class_id, close.method_id) == (503, 120, 110)


@pytest.mark.parametrize("version", [amqp.VERSION_0_8, amqp.VERSION_0_9_1])
@pytest.mark.parametrize("kind", [9, 10])
def test_other_versions_have_no_such_frames(playbook: TimedPlaybook, version: int, kind: int) -> None:
    client = playbook.client(version)
    client >> frame(kind, 1, struct.pack(">QQI", 1, 0, 0) + b"\x00\x78\x01\xf4")
    assert client.hears(ConnectionClose).reply_code == 501


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (Request(2, MessageQos()), 503),
        (Request(0, MessageQos()), 503),
        (Request(1 << 63, MessageQos()), 503),
        (Request(1, MessageQos(), response_mark=1), 503),
        (Request(1, methods.QueueDeclare(queue="q")), 503),
        (Request(1, MessageOk()), 503),
        (Response(1, 1, MessageOk()), 503),
        (Response(1, 0, MessageOk()), 503),
        (Response(1, 1, MessageOk(), 0xFFFFFFFF), 503),
        (Response(1, 1, methods.BasicAck()), 503),
    ],
)
def test_numbers_that_are_not_due(client: Requester, said: Request | Response, code: int) -> None:
    client.client >> said
    assert client.connection_close().reply_code == code


def test_a_response_answers_open_requests_alone(playbook: TimedPlaybook) -> None:
    wrong = [
        (2, 1, MessageOk(), 0),  # response ids begin at 1
        (1, 2, MessageOk(), 1),  # 3 is not open
        (1, 1, MessageOk(), 2),
        (1, 3, MessageOk(), 0),
        (1, 1, MessageEmpty(), 0),  # does not answer a transfer
        (1, 1, MessageOffset(value=1), 0),
    ]
    for response_id, request_id, method, batch_offset in wrong:
        client = user(playbook)
        client.client.declares("shared")
        client.does(MessageConsume(queue="shared", destination="d"))
        client.client.publishes("shared", b"1", b"2")
        client.takes(), client.takes()
        client.client >> Response(response_id, request_id, method, batch_offset)
        assert client.connection_close().reply_code == 503
        client.client >> methods.ConnectionCloseOk()
        emptied = user(playbook)
        emptied.client >> methods.QueueDelete(queue="shared")
        emptied.client.hears(methods.QueueDeleteOk)


def test_an_answer_counts_once(client: Requester) -> None:
    client.does(MessageConsume(queue="q", destination="d"))
    client.client.publishes("q", b"1")
    sent, _ = client.takes()
    client.answers(sent, MessageOk())
    client.answers(sent, MessageOk())
    assert client.connection_close().reply_code == 503


def test_a_reject_has_a_code_of_two(client: Requester) -> None:
    client.does(MessageConsume(queue="q", destination="d"))
    client.client.publishes("q", b"1")
    sent, _ = client.takes()
    client.answers(sent, MessageReject(code=2))
    assert client.connection_close().reply_code == 502


@pytest.mark.parametrize("size", [0, 10, 20, 23])
@pytest.mark.parametrize("kind", [9, 10])
def test_a_frame_that_is_cut_short(client: Requester, kind: int, size: int) -> None:
    client.client >> frame(kind, 1, bytes(size))
    assert client.connection_close().reply_code == 502


def test_a_method_that_is_cut_short(client: Requester) -> None:
    whole = struct.pack(">QQI", 1, 0, 0) + methods.encode_method(9, transfer("q", b"body"))
    client.client >> frame(9, 1, whole[:-1])
    assert client.connection_close().reply_code == 502


def test_a_frame_that_is_too_large(client: Requester) -> None:
    most = client.client.session.connection.frame_bytes_max
    client.client >> frame(9, 1, bytes(most + 1))
    assert client.connection_close().reply_code == 501


@pytest.mark.parametrize("number", [0, 7])
def test_a_channel_that_is_not_open(client: Requester, number: int) -> None:
    client.client >> frame(9, number, struct.pack(">QQI", 1, 0, 0) + b"\x00\x78\x00\x32\x00")
    assert client.connection_close().reply_code == 504


def test_a_request_in_the_middle_of_a_content(client: Requester) -> None:
    client.client >> frame(1, 1, methods.encode_method(9, BasicPublish(routing_key="q")))
    client.asks(MessageQos())
    assert client.connection_close().reply_code == 505


def test_what_comes_on_a_channel_that_is_closing_is_dropped(client: Requester) -> None:
    client.asks(MessageAppend(reference=b"unknown", octets=b"m"))
    client.channel_close()
    client.asks(transfer("q", b"m"))
    client.client >> methods.ChannelCloseOk()
    client.client >> methods.ChannelOpen()
    client.client.hears(methods.ChannelOpenOk)
    Requester(client.client).does(MessageQos())  # numbers begin again with the channel
    assert client.client.gets("q") is None


@pytest.mark.parametrize(
    "method",
    [
        MessageAppend(reference=b"r", octets=b"m"),
        MessageClose(reference=b"r"),
        by_reference("q", b"r"),
    ],
    ids=lambda method: method.NAME,
)
def test_a_reference_that_is_not_open(client: Requester, method: Method) -> None:
    client.asks(method)
    close = client.channel_close()
    assert (close.reply_code, close.class_id, close.method_id) == (404, 120, method.METHOD_ID)


def test_a_checkpoint_of_a_reference_that_is_not_open(paged: PagedPlaybook) -> None:
    client = user(paged)
    client.asks(MessageCheckpoint(reference=b"r", identifier="one"))
    assert client.channel_close().reply_code == 404


def test_a_reference_that_is_open_already(paged: PagedPlaybook) -> None:
    for method in (MessageOpen(reference=b"r"), MessageResume(reference=b"r", identifier="one")):
        client = user(paged)
        client.does(MessageOpen(reference=b"r"))
        client.asks(method)
        close = client.channel_close()
        assert (close.reply_code, close.method_id) == (406, method.METHOD_ID)


def test_a_reference_is_transferred_once(client: Requester) -> None:
    client.does(MessageOpen(reference=b"r"))
    client.asks(by_reference("q", b"r"))
    client.asks(by_reference("q", b"r"))
    assert client.channel_close().reply_code == 406


def test_references_are_limited_in_number_and_name(client: Requester) -> None:
    for number in range(message_commands.REFERENCES_MAX):
        client.does(MessageOpen(reference=b"%d" % number))
    client.asks(MessageOpen(reference=b"more"))
    assert client.channel_close().reply_code == 506
    client.client >> methods.ChannelCloseOk()
    client.client >> methods.ChannelOpen()
    client.client.hears(methods.ChannelOpenOk)
    again = Requester(client.client)
    again.does(MessageOpen(reference=bytes(255)))
    again.asks(MessageOpen(reference=bytes(256)))
    assert again.channel_close().reply_code == 406


def test_a_message_is_limited_in_size(playbook: TimedPlaybook, client: Requester) -> None:
    client.client.session.connection.message_bytes_max = 10
    client.does(transfer("q", bytes(10)))
    client.does(MessageOpen(reference=b"r"))
    client.does(MessageAppend(reference=b"r", octets=bytes(10)))
    client.asks(MessageAppend(reference=b"r", octets=b"m"))
    assert client.channel_close().reply_code == 406
    other = user(playbook)
    other.client.session.connection.message_bytes_max = 10
    other.asks(transfer("q", bytes(11)))
    assert other.channel_close().reply_code == 406


def test_headers_that_no_basic_consumer_could_be_sent(client: Requester) -> None:
    most = client.client.session.connection.frame_bytes_max
    sent = MessageTransfer(routing_key="q", transaction_id="t", ttl=4_294_967_295, timestamp=1, priority=1)
    sent.delivery_mode = 2
    room = most - 20 - len(methods.encode_method(9, sent))
    sent.security_token = bytes(room)  # as large as a frame may be
    client.asks(sent)
    close = client.channel_close()
    assert (close.reply_code, close.method_id) == (311, 10)


def test_without_a_data_directory_there_are_no_checkpoints(client: Requester) -> None:
    client.does(MessageOpen(reference=b"r"))
    client.asks(MessageCheckpoint(reference=b"r", identifier="one"))
    assert client.channel_close().reply_code == 506


@pytest.mark.parametrize(
    ("method", "code"),
    [
        (MessageConsume(queue="nowhere", destination="d"), 404),
        (MessageGet(queue="nowhere"), 404),
        (transfer("q", b"", destination="nowhere"), 404),
        (transfer("q", b"", user_id="somebody else"), 406),
    ],
)
def test_what_is_not_there_closes_the_channel(client: Requester, method: Method, code: int) -> None:
    client.asks(method)
    close = client.channel_close()
    assert (close.reply_code, close.class_id, close.method_id) == (code, 120, method.METHOD_ID)


def test_what_was_published_before_a_fault_is_answered_first(
    playbook: TimedPlaybook, client: Requester
) -> None:
    with playbook.one_pass():
        client.asks(transfer("q", b"m"))
        client.asks(MessageClose(reference=b"unknown"))
    assert client.hears() == Response(1, 1, MessageOk())
    assert client.channel_close().reply_code == 404


def test_a_destination_is_used_once(client: Requester) -> None:
    client.does(MessageConsume(queue="q", destination=""))
    client.asks(MessageConsume(queue="q", destination=""))
    assert client.connection_close().reply_code == 530


def test_exclusive_use_is_refused_where_others_consume(playbook: TimedPlaybook, client: Requester) -> None:
    client.does(MessageConsume(queue="q", destination="d"))
    other = user(playbook)
    other.asks(MessageConsume(queue="q", destination="d", exclusive=True))
    close = other.channel_close()
    assert (close.reply_code, close.class_id, close.method_id) == (403, 120, 20)


@pytest.mark.parametrize(
    ("method", "permissions"),
    [
        (transfer("q", b"m"), PermissionSettings(configure=".*", write="^$", read=".*")),
        (MessageConsume(queue="q"), PermissionSettings(configure=".*", write=".*", read="^$")),
        (MessageGet(queue="q"), PermissionSettings(configure=".*", write=".*", read="^$")),
    ],
    ids=lambda each: each.NAME if isinstance(each, Method) else "",
)
def test_permissions_are_those_of_basic(
    playbook: TimedPlaybook, client: Requester, method: Method, permissions: PermissionSettings
) -> None:
    write = permissions.write if method.NAME != "message.transfer" else "^q$"
    lacking = PermissionSettings(configure=permissions.configure, write=write, read=permissions.read)
    playbook.broker.administration.permissions.set("guest", "/", lacking)
    client.asks(method)
    close = client.channel_close()
    assert (close.reply_code, close.class_id, close.method_id) == (403, 120, method.METHOD_ID)
