"""What follows a fault in the same read must find nothing that is gone."""

from __future__ import annotations

import pytest
from conversation import House, Peer, frame, header_payload, method_frame, publish

from flintmq.wire import amqp, methods


@pytest.fixture
def peer(house: House) -> Peer:
    peer = Peer(house).login(1, 2)
    peer.ask(1, methods.QueueDeclare(queue="q"))
    peer.send(publish(1, "", "q", b"first"))
    peer.say((1, methods.BasicGet(queue="q")))
    return peer


FOLLOWING = {
    "publish": publish(1, "", "q", b"x"),
    "publish in parts": publish(1, "", "q", b"x" * 200_000),
    "ack": method_frame(91, 1, methods.BasicAck(delivery_tag=1)),
    "nack": method_frame(91, 1, methods.BasicNack(delivery_tag=1)),
    "get": method_frame(91, 1, methods.BasicGet(queue="q")),
    "consume": method_frame(91, 2, methods.BasicConsume(queue="q")),
    "open": method_frame(91, 3, methods.ChannelOpen()),
    "close": method_frame(91, 1, methods.ChannelClose()),
    "close-ok": method_frame(91, 1, methods.ChannelCloseOk()),
    "recover": method_frame(91, 1, methods.BasicRecover(requeue=True)),
    "commit": method_frame(91, 1, methods.TxCommit()),
    "header": frame(amqp.FRAME_HEADER, 1, header_payload(5)),
    "body": frame(amqp.FRAME_BODY, 1, b"12345"),
    "short method": frame(amqp.FRAME_METHOD, 1, b"\x00"),
    "header on channel 0": frame(amqp.FRAME_HEADER, 0, header_payload(5)),
}
CONNECTION_FAULTS = {
    "method of no class": frame(amqp.FRAME_METHOD, 1, b"\xff\xff\x00\x01"),
    "not implemented": method_frame(91, 1, methods.ConnectionUpdateSecretOk()),
    "open twice": method_frame(91, 1, methods.ChannelOpen()),
    "body out of turn": frame(amqp.FRAME_BODY, 1, b"x"),
}
REUSED_TAG = method_frame(91, 1, methods.BasicConsume(queue="q", consumer_tag="c")) * 2


@pytest.mark.parametrize("following", FOLLOWING.values(), ids=FOLLOWING)
def test_after_a_fault_of_the_session_the_rest_is_dropped(peer: Peer, following: bytes) -> None:
    peer.send(REUSED_TAG + following + following)
    peer.send(following)
    last = peer.replies()[-1].method
    assert isinstance(last, methods.ConnectionClose)
    assert last.reply_code == amqp.NOT_ALLOWED
    peer.say((0, methods.ConnectionCloseOk()))
    assert peer.wire.is_gone


@pytest.mark.parametrize("fault", CONNECTION_FAULTS.values(), ids=CONNECTION_FAULTS)
@pytest.mark.parametrize("following", FOLLOWING.values(), ids=FOLLOWING)
def test_after_a_fault_of_the_connection_the_rest_is_dropped(
    peer: Peer, fault: bytes, following: bytes
) -> None:
    peer.send(fault + following)
    peer.send(following)
    closes = [each.method for each in peer.replies()]
    assert len(closes) == 1
    assert isinstance(closes[0], methods.ConnectionClose)
    peer.say((0, methods.ConnectionCloseOk()))
    assert peer.wire.is_gone


@pytest.mark.parametrize("following", FOLLOWING.values(), ids=FOLLOWING)
def test_after_a_fault_of_a_channel_others_live_on(peer: Peer, following: bytes) -> None:
    peer.send(method_frame(91, 1, methods.BasicAck(delivery_tag=77)) + following)
    replies = peer.replies()
    closed = [each for each in replies if isinstance(each.method, methods.ChannelClose)]
    assert [each.channel for each in closed] == [1]
    if not any(isinstance(each.method, methods.ConnectionClose) for each in replies):
        answer = peer.ask(2, methods.QueueDeclare(queue="q", passive=True))
        assert isinstance(answer, methods.QueueDeclareOk)


def test_what_a_faulty_connection_held_is_ready_for_others(peer: Peer) -> None:
    peer.send(CONNECTION_FAULTS["open twice"])
    other = Peer(peer.house).login(1)
    answer = other.ask(1, methods.QueueDeclare(queue="q", passive=True))
    assert isinstance(answer, methods.QueueDeclareOk)
    assert answer.message_count == 1


@pytest.mark.parametrize("flags", range(0, 0x10000, 0x0800))
@pytest.mark.parametrize("size", [2**32 - 1, 2**32 - 2, 2**32 - 3, 2**32 - 4, 2**31])
def test_a_table_size_near_the_end_of_its_range_never_fits(peer: Peer, flags: int, size: int) -> None:
    properties = (flags | amqp.FLAG_HEADERS).to_bytes(2, "big") + size.to_bytes(4, "big")
    if flags & amqp.FLAG_CONTENT_TYPE:
        properties = properties[:2] + b"\x00" + properties[2:]
    peer.send(
        method_frame(91, 1, methods.BasicPublish(routing_key="q"))
        + frame(amqp.FRAME_HEADER, 1, header_payload(0, properties))
    )
    answer = peer.replies()[-1].method
    assert isinstance(answer, methods.ConnectionClose)
    assert answer.reply_code == amqp.SYNTAX_ERROR


@pytest.mark.parametrize("excess", range(-2, 12))
@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_body_frame_is_held_to_the_agreed_size_however_it_comes(
    house: House, excess: int, in_pieces: bool
) -> None:
    peer = Peer(house)
    peer.send(b"AMQP\x00\x00\x09\x01")
    peer.say((0, methods.ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest")))
    peer.say((0, methods.ConnectionTuneOk(frame_max=4096)), (0, methods.ConnectionOpen(virtual_host="/")))
    peer.say((1, methods.ChannelOpen()))
    octets = publish(1, "", "nowhere", b"x" * (4088 + excess), frame_bytes_max=10_000)
    if in_pieces:
        for at in range(0, len(octets), 1000):
            peer.send(octets[at : at + 1000])
    else:
        peer.send(octets)
    answers = [each.method for each in peer.replies()]
    if excess <= 8:  # a payload of frame-max itself is taken, as by RabbitMQ
        assert answers == []
    else:
        assert isinstance(answers[0], methods.ConnectionClose)
        assert answers[0].reply_code == amqp.FRAME_ERROR
