"""Rules of the message class, over sockets, on a broker with a data directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from broker_process import BrokerProcess
from conformance.conftest import SETTINGS, Connect
from conformance.rule import rule
from peer import Exchange, Peer

from flintmq.wire import amqp, methods
from flintmq.wire.fields import Content
from flintmq.wire.methods import (
    MessageAppend,
    MessageCancel,
    MessageCheckpoint,
    MessageClose,
    MessageConsume,
    MessageEmpty,
    MessageGet,
    MessageOk,
    MessageOpen,
    MessageQos,
    MessageRecover,
    MessageReject,
    MessageResume,
    MessageTransfer,
    Method,
)


class Speaker:
    """A peer that counts its requests and responses on channel 1."""

    def __init__(self, peer: Peer, channel: int = 1) -> None:
        self.peer = peer
        self.channel = channel
        self.asked = 0
        self.responded = 0

    def asks(self, method: Method) -> int:
        self.asked += 1
        self.peer.request(self.channel, self.asked, method)
        return self.asked

    def calls(self, method: Method) -> Any:
        """The answer to the request; what the broker asks meanwhile is left out."""
        asked = self.asks(method)
        while True:
            found = self.peer.exchange(self.channel)
            if not found.is_request:
                assert found.request_id == asked, found
                return found.method

    def transfers(self, key: str, body: bytes = b"", **arguments: Any) -> Any:
        return self.calls(MessageTransfer(routing_key=key, body=Content(body), **arguments))

    def consumes(self, queue: str, destination: str = "d", **options: Any) -> None:
        self.asks(MessageConsume(queue=queue, destination=destination, **options))
        assert self.peer.exchange(self.channel).method == MessageOk()

    def takes(self) -> Exchange:
        found = self.peer.exchange(self.channel)
        assert isinstance(found.method, MessageTransfer), found
        return found

    def answers(self, request_id: int, method: Method | None = None, more: int = 0) -> None:
        self.responded += 1
        self.peer.respond(self.channel, self.responded, request_id, method or MessageOk(), more)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("messages")
    settings = directory / "flintmq.toml"
    settings.write_text(SETTINGS)
    with BrokerProcess("--config", str(settings), "--data", str(directory / "data")) as running:
        yield running


@pytest.fixture
def speaker(peer: Peer) -> Speaker:
    return Speaker(peer)


@pytest.fixture
def queue(peer: Peer) -> str:
    found: str = peer.call(1, methods.QueueDeclare(exclusive=True)).queue
    return found


@rule(
    "0-9/message/08",
    "0-9/message/10",
    "0-9/message.transfer/01",
    "0-9/message.transfer/destination/01",
    "0-9/message.qos/prefetch-count/01",
)
def test_messages_come_in_order_and_are_settled(speaker: Speaker, queue: str) -> None:
    for number in range(6):
        assert speaker.transfers(queue, b"%d" % number, delivery_mode=1 + number % 2) == MessageOk()
    assert speaker.calls(MessageQos(prefetch_count=4)) == MessageOk()
    speaker.consumes(queue)
    found = [speaker.takes() for _ in range(4)]
    assert [each.method.body.octets for each in found] == [b"0", b"1", b"2", b"3"]
    assert speaker.peer.is_quiet(1)
    speaker.answers(found[0].request_id, more=1)
    assert [speaker.takes().method.body.octets for _ in range(2)] == [b"4", b"5"]
    assert speaker.peer.is_quiet(1)


@rule("0-9/message/01", "0-9/message/02")
def test_persistent_messages_survive_a_crash(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = ("--data", str(tmp_path_factory.mktemp("crash") / "data"))
    running = BrokerProcess(*data)
    try:
        with Peer.connect(running.port, "0-9") as peer:
            peer.open(1)
            peer.call(1, methods.QueueDeclare(queue="kept", durable=True))
            speaker = Speaker(peer)
            for number in range(200):
                body = Content(b"%d" % number)
                speaker.asks(MessageTransfer(routing_key="kept", delivery_mode=2, body=body))
            answered = 0
            while answered < 200:
                found = peer.exchange(1)
                assert (found.method, found.request_id) == (MessageOk(), answered + 1)
                answered += 1 + found.batch_offset
    finally:
        running.process.kill()
        running.process.wait()
        for reader in running.readers:
            reader.join()
    with BrokerProcess(*data) as running, Peer.connect(running.port, "0-9") as peer:
        peer.open(1)
        assert peer.call(1, methods.QueueDeclare(queue="kept", passive=True)).message_count == 200


@rule("0-9/message/06", "0-9/message/07")
def test_a_queue_has_the_priorities_it_asks_for(speaker: Speaker) -> None:
    arguments = {"x-max-priority": 9}
    queue = speaker.peer.call(1, methods.QueueDeclare(exclusive=True, arguments=arguments)).queue
    for priority in (1, 9, 4, 5):
        speaker.transfers(queue, b"%d" % priority, priority=priority)
    speaker.consumes(queue)
    assert [speaker.takes().method.priority for _ in range(4)] == [9, 5, 4, 1]


@rule("0-9/message/09")
def test_without_acks_a_message_is_done_with_when_it_is_sent(speaker: Speaker, queue: str) -> None:
    speaker.transfers(queue, b"m")
    speaker.consumes(queue, no_ack=True)
    assert speaker.takes().method.body == Content(b"m")
    speaker.peer.call(1, methods.ChannelClose(reply_code=200))
    speaker.peer.open(1)
    assert speaker.peer.get(1, queue) is None


@rule("0-9/message.transfer/ticket/01", "0-9/message.consume/ticket/01", "0-9/message.get/ticket/01")
def test_without_permission_no_ticket_helps(connect: Connect, peer: Peer, queue: str) -> None:
    watcher = connect(user="watcher", password="watcher")
    ticket = watcher.call(1, methods.AccessRequest(realm="/data", read=True, write=True)).ticket
    for method in (
        MessageTransfer(ticket=ticket, destination="amq.topic"),
        MessageConsume(ticket=ticket, queue=queue),
        MessageGet(ticket=ticket, queue=queue),
    ):
        Speaker(watcher).asks(method)
        watcher.expect_channel_close(1, amqp.ACCESS_REFUSED)
        watcher.open(1)


@rule("0-9/message.transfer/destination/02")
def test_nothing_is_transferred_to_an_internal_exchange(speaker: Speaker, name: str) -> None:
    speaker.peer.call(1, methods.ExchangeDeclare(exchange=name, type="fanout", internal=True))
    speaker.asks(MessageTransfer(destination=name))
    speaker.peer.expect_channel_close(1, amqp.ACCESS_REFUSED)


@rule("0-9/message.transfer/immediate/01", "0-9/reject-code/01")
def test_an_immediate_message_without_a_taker_is_rejected(speaker: Speaker, queue: str) -> None:
    rejected = speaker.transfers(queue, b"m", immediate=True)
    assert isinstance(rejected, MessageReject)
    assert rejected.code == 1
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    full = speaker.peer.call(1, methods.QueueDeclare(exclusive=True, arguments=arguments)).queue
    speaker.transfers(full, b"1")
    assert speaker.transfers(full, b"2").code == 0


@rule("0-9/message.consume/01")
def test_sixteen_consumers_of_a_queue(speaker: Speaker, queue: str) -> None:
    for number in range(16):
        speaker.consumes(queue, str(number))
    for _ in range(16):
        speaker.asks(MessageTransfer(routing_key=queue))
    found = [speaker.peer.exchange(1) for _ in range(16)]
    destinations = {each.method.destination for each in found if each.is_request}
    while len(destinations) < 16:
        each = speaker.peer.exchange(1)
        if each.is_request:
            destinations.add(each.method.destination)
    assert destinations == set(map(str, range(16)))


@rule("0-9/message.consume/queue/01", "0-9/message.get/queue/01")
def test_an_empty_name_is_the_queue_declared_last(connect: Connect) -> None:
    for method in (MessageConsume(destination="d"), MessageGet()):
        peer = connect()
        Speaker(peer).asks(method)
        peer.expect_connection_close(amqp.NOT_ALLOWED)
    peer = connect()
    peer.call(1, methods.QueueDeclare(exclusive=True))
    assert Speaker(peer).calls(MessageGet()) == MessageEmpty()


@rule("0-9/message.consume/destination/01", "0-9/message.consume/destination/02")
def test_a_destination_is_one_consumer_of_its_channel(speaker: Speaker, queue: str) -> None:
    speaker.peer.open(2)
    speaker.consumes(queue, "same")
    other = Speaker(speaker.peer, 2)
    other.calls(MessageCancel(destination="same"))  # means nothing there
    other.consumes(queue, "same")
    speaker.asks(MessageConsume(queue=queue, destination="same"))
    speaker.peer.expect_connection_close(amqp.NOT_ALLOWED)


@rule("0-9/message.consume/exclusive/01")
def test_nobody_has_a_queue_to_himself_that_others_consume_from(
    peer: Peer, connect: Connect, name: str
) -> None:
    peer.call(1, methods.QueueDeclare(queue=name, auto_delete=True))
    Speaker(peer).consumes(name)
    other = connect()
    Speaker(other).asks(MessageConsume(queue=name, destination="d", exclusive=True))
    other.expect_channel_close(1, amqp.ACCESS_REFUSED)


@rule("0-9/message.cancel/01")
def test_a_consumer_whose_queue_is_gone_can_be_cancelled(connect: Connect) -> None:
    peer = connect(capabilities=())
    queue = peer.call(1, methods.QueueDeclare(exclusive=True)).queue
    speaker = Speaker(peer)
    speaker.consumes(queue)
    peer.call(1, methods.QueueDelete(queue=queue))
    assert speaker.calls(MessageCancel(destination="d")) == MessageOk()


@rule("0-9/message.recover/01")
def test_what_is_sent_again_says_so(speaker: Speaker, queue: str) -> None:
    speaker.transfers(queue, b"m")
    speaker.consumes(queue)
    assert not speaker.takes().method.redelivered
    for requeue in (False, True):
        speaker.asks(MessageRecover(requeue=requeue))
        found = [speaker.peer.exchange(1), speaker.peer.exchange(1)]
        again = next(each for each in found if each.is_request)
        assert again.method.redelivered


@rule("0-9/message.recover/02")
def test_recover_on_a_transacted_channel_closes_it(speaker: Speaker) -> None:
    speaker.peer.call(1, methods.TxSelect())
    speaker.asks(MessageRecover(requeue=True))
    speaker.peer.expect_channel_close(1, amqp.PRECONDITION_FAILED)


@rule("0-9/message.open/reference/01", "0-9/message.resume/reference/01")
def test_a_reference_that_is_open_cannot_be_opened(connect: Connect, name: str) -> None:
    for method in (MessageOpen(reference=b"r"), MessageResume(reference=b"r", identifier=name)):
        speaker = Speaker(connect())
        assert speaker.calls(MessageOpen(reference=b"r")) == MessageOk()
        speaker.asks(method)
        speaker.peer.expect_channel_close(1, amqp.PRECONDITION_FAILED)


@rule("0-9/message.close/01")
def test_what_a_reference_carries_is_answered_when_that_is_closed(speaker: Speaker, queue: str) -> None:
    speaker.calls(MessageOpen(reference=b"r"))
    transfer = speaker.asks(MessageTransfer(routing_key=queue, body=Content(b"r", True)))
    assert speaker.calls(MessageAppend(reference=b"r", octets=b"body")) == MessageOk()
    assert speaker.peer.is_quiet(1)
    close = speaker.asks(MessageClose(reference=b"r"))
    answers = [speaker.peer.exchange(1), speaker.peer.exchange(1)]
    assert {each.request_id for each in answers} == {transfer, close}
    found = speaker.peer.get(1, queue)
    assert found is not None
    assert found[1].body == b"body"


@rule(
    "0-9/message.close/reference/01",
    "0-9/message.append/reference/01",
    "0-9/message.checkpoint/reference/01",
)
def test_a_reference_that_is_not_open_cannot_be_used(peer: Peer, name: str) -> None:
    for method in (
        MessageClose(reference=b"r"),
        MessageAppend(reference=b"r", octets=b"m"),
        MessageCheckpoint(reference=b"r", identifier=name),
    ):
        Speaker(peer).asks(method)
        peer.expect_channel_close(1, amqp.NOT_FOUND)
        peer.open(1)


@rule("0-9/message.qos/prefetch-size/01")
def test_a_message_larger_than_the_window_comes_alone(speaker: Speaker, queue: str) -> None:
    speaker.calls(MessageQos(prefetch_size=10))
    for _ in range(2):
        speaker.transfers(queue, bytes(20))
    speaker.consumes(queue)
    first = speaker.takes()
    assert speaker.peer.is_quiet(1)
    speaker.answers(first.request_id)
    assert speaker.takes().request_id == first.request_id + 1
