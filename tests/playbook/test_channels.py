"""Channels: opening, closing from either side or both, flow, and what is not served."""

from __future__ import annotations

import pytest
from playbook.dialogue import Client, Heartbeat, Playbook, carrying, frame

from flintmq.config import Config, Limits
from flintmq.errors import ConnectionFault
from flintmq.reply_codes import REPLY_NAMES
from flintmq.wire import amqp
from flintmq.wire.methods import (
    BasicAck,
    BasicCancelOk,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOk,
    ChannelOpen,
    ChannelOpenOk,
    ChannelPing,
    ChannelPong,
    ChannelResume,
    ConnectionClose,
    ConnectionCloseOk,
    QueueDeclare,
    QueueDeclareOk,
    TxSelect,
    encode_method,
)

GONE = ChannelClose(
    reply_code=404, reply_text="NOT_FOUND - no queue 'none' in vhost '/'", class_id=50, method_id=10
)


def failed(client: Client) -> Client:
    client >> QueueDeclare(queue="none", passive=True)
    client << GONE
    return client


def test_a_channel_opens_once(client: Client) -> None:
    client >> ChannelOpen()
    close = client.hears(ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (504, 20, 10)
    assert "channel 1 is open already" in close.reply_text


def test_channels_are_apart(client: Client) -> None:
    client[7] >> ChannelOpen()
    client[7] << ChannelOpenOk()
    failed(client)
    client[7] >> QueueDeclare(queue="q")
    client[7] << QueueDeclareOk(queue="q")


def test_a_channel_that_was_never_opened(client: Client) -> None:
    client[2] >> QueueDeclare(queue="q")
    close = client.hears(ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (504, 50, 10)
    assert close.reply_text == "CHANNEL_ERROR - queue.declare: channel 2 is not open"


def test_close_and_open_again(client: Client) -> None:
    for _ in range(3):
        client >> ChannelClose(reply_code=200)
        client << ChannelCloseOk()
        client >> ChannelOpen()
        client << ChannelOpenOk()
    assert client.session.connection.open_channels == 1


def test_after_a_fault_all_is_discarded_until_close_ok(client: Client) -> None:
    failed(client)
    client >> QueueDeclare(queue="q") >> BasicAck(delivery_tag=9) >> TxSelect()
    client.publishes("q", b"discarded")
    client >> frame(amqp.FRAME_METHOD, 1, b"\x00\x32\x00\x0a rubbish")  # not even decoded
    client.hears_nothing()
    client >> ChannelCloseOk()
    client >> ChannelOpen()
    client << ChannelOpenOk()
    client >> QueueDeclare(queue="q", passive=True)
    assert client.hears(ChannelClose).reply_code == 404


def test_closes_that_cross(client: Client) -> None:
    """The client closed before it saw ours: it gets its close-ok, and ours is still waited for."""
    failed(client)
    client >> ChannelClose(reply_code=200)
    client << ChannelCloseOk()
    client >> ChannelCloseOk()
    client >> ChannelOpen()
    client << ChannelOpenOk()
    assert client.session.connection.open_channels == 1


def test_a_close_ok_nobody_waits_for_is_ignored(client: Client) -> None:
    client[5] >> ChannelCloseOk()
    client.hears_nothing()


def test_channel_methods_on_channel_0(client: Client) -> None:
    client[0] >> QueueDeclare(queue="q")
    close = client.hears(ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (503, 50, 10)


def test_connection_methods_on_a_channel(client: Client) -> None:
    client >> frame(amqp.FRAME_METHOD, 1, encode_method(amqp.VERSION_0_9_1, ConnectionCloseOk()))
    assert client.hears(ConnectionClose).reply_code == 503


def test_flow_stops_and_starts_deliveries(client: Client) -> None:
    client.declares("q")
    client.consumes("q", no_ack=True)
    client >> ChannelFlow(active=False)
    client << ChannelFlowOk(active=False)
    client.publishes("q", b"1", b"2")
    client.hears_nothing()
    assert client.gets("q") == b"1"  # basic.get is not a matter of flow
    client >> ChannelFlow(active=True)
    client << ChannelFlowOk(active=True)
    assert client.bodies() == [b"2"]


def test_an_answer_to_what_was_not_asked_does_no_harm(client: Client) -> None:
    client >> ChannelFlowOk(active=True) >> BasicCancelOk(consumer_tag="c")
    client.hears_nothing()


def test_a_ping_is_answered_and_followed_by_a_pong(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    client >> ChannelPing()
    client << ChannelOk()
    client << ChannelPong()
    client >> ChannelOk()
    client >> ChannelPong()
    client << ChannelOk()


def test_a_channel_is_resumed_by_its_own_id(playbook: Playbook) -> None:
    client = playbook.stranger(amqp.VERSION_0_9)
    client.open()
    client[1] >> ChannelOpen()
    opened = client.hears(ChannelOpenOk)
    client[2] >> ChannelOpen()
    other = client.hears(ChannelOpenOk, 2)
    assert opened.channel_id != other.channel_id
    client >> ChannelFlow(active=False)
    client << ChannelFlowOk(active=False)
    client >> QueueDeclare(queue="q")
    client.hears(QueueDeclareOk)
    client.consumes("q")
    client.publishes("q", b"waits for the channel")
    client.hears_nothing()
    client >> ChannelResume(channel_id=opened.channel_id)
    client << ChannelOk()
    assert client.bodies() == [b"waits for the channel"]
    client >> ChannelResume(channel_id=other.channel_id)
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 20, 50)
    assert "back in its queues" in close.reply_text


@pytest.mark.parametrize("octets", [b"", b"1", b"1.1.1", b"\xff" * 100])
def test_an_id_that_was_never_told_resumes_nothing(playbook: Playbook, octets: bytes) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    client >> ChannelResume(channel_id=octets)
    assert client.hears(ChannelClose).reply_code == 404


@pytest.mark.parametrize(
    ("octets", "code", "text"),
    [
        (b"\x01\x00\x01\x00\x00\x00\x04\x00\x5a\x00\x0a\xcd", 501, "does not end with 0xCE"),
        (frame(9, 1, b"x"), 501, "unknown frame type 9"),
        (frame(8, 1, b""), 501, "a heartbeat is empty and on channel 0"),
        (frame(8, 0, b"x"), 501, "a heartbeat is empty and on channel 0"),
        (frame(1, 1, b"\x00\x5a"), 502, "a method frame is cut short"),
        (frame(1, 1, b"\x00\x3c\x00\x28"), 502, "basic.publish is cut short"),
        (frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x05a"), 502, "basic.publish is cut short"),
        (frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x00\x09a"), 502, "basic.publish is cut short"),
        (frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x00\x00"), 502, "basic.publish is cut short"),
        (frame(2, 1, bytes(14)), 505, "got a content header on channel 1 where a method was due"),
        (frame(3, 1, b"x"), 505, "got a content body on channel 1 where a method was due"),
        (frame(2, 9, bytes(14)), 504, "content header on channel 9, which is not open"),
        (frame(3, 9, b"x"), 504, "content body on channel 9, which is not open"),
        (b"\x01\x00\x01\x00\x02\x00\x01\x00", 501, "frame of 131081 octets is larger than the agreed 131072"),
    ],
)
def test_frames_that_are_wrong(client: Client, octets: bytes, code: int, text: str) -> None:
    client >> octets
    close = client.hears(ConnectionClose)
    assert close.reply_code == code
    assert text in close.reply_text
    assert close.reply_text.startswith(REPLY_NAMES[code])


def publish_frames(
    client: Client, number: int = 1, body: bytes = b"body", **properties: str
) -> tuple[bytes, bytes, bytes]:
    whole = client.frames(number, carrying(BasicPublish(routing_key="q"), body, **properties))
    head_at = whole.index(b"\xce\x02\x00") + 1
    body_at = whole.index(b"\xce\x03\x00") + 1
    return whole[:head_at], whole[head_at:body_at], whole[body_at:]


def test_content_arrives_however_it_is_cut(client: Client) -> None:
    client.declares("q")
    whole = b"".join(publish_frames(client, content_type="text/plain"))
    for cut in range(1, len(whole)):
        client >> whole[:cut] >> whole[cut:]
        assert client.gets("q") == b"body", cut
    for octet in whole:
        client >> bytes((octet,))
    assert client.gets("q") == b"body"


def test_content_of_two_channels_may_be_interleaved(client: Client) -> None:
    client.declares("q")
    client[2] >> ChannelOpen()
    client[2] << ChannelOpenOk()
    first, second = publish_frames(client), publish_frames(client, 2, b"other")
    client >> first[0] >> second[0] >> first[1] >> second[1] >> second[2] >> frame(8, 0, b"") >> first[2]
    assert client.gets_all("q") == [b"other", b"body"]


def test_a_content_in_the_wrong_order(playbook: Playbook) -> None:
    wrong = {
        "a content body on channel 1 where a content header": (0, 2),
        "a content header on channel 1 where a content body": (0, 1, 1),
        "a method on channel 1 where a content header": (0, 0),
        "a method on channel 1 where a content body": (0, 1, 0),
    }
    for text, order in wrong.items():
        client = playbook.client()
        frames = publish_frames(client)
        for index in order:
            client >> frames[index]
        close = client.hears(ConnectionClose)
        assert close.reply_code == 505
        assert text in close.reply_text


def test_a_body_larger_than_announced(client: Client) -> None:
    method, header, _ = publish_frames(client)
    client >> method + header + frame(3, 1, b"too long")
    close = client.hears(ConnectionClose)
    assert close.reply_code == 501
    assert "larger than its header announced" in close.reply_text


def test_a_header_of_another_class(client: Client) -> None:
    method, header, _ = publish_frames(client)
    client >> method + header[:7] + b"\x00\x46" + header[9:]
    close = client.hears(ConnectionClose)
    assert close.reply_code == 505
    assert "class 70 after a method of class 60" in close.reply_text


def test_a_message_too_large_costs_the_channel(playbook: Playbook) -> None:
    playbook = Playbook(Config()._replace(limits=Limits(message_bytes_max=10)))
    client = playbook.client()
    client.declares("q")
    client.publishes("q", b"x" * 10)
    client.publishes("q", b"x" * 11)
    client << ChannelClose(
        reply_code=406,
        reply_text="PRECONDITION_FAILED - message size 11 is above the maximum of 10",
        class_id=60,
        method_id=40,
    )
    client >> ChannelCloseOk() >> ChannelOpen()
    client << ChannelOpenOk()
    assert client.gets_all("q") == [b"x" * 10]
    playbook.end()


def test_heartbeats_are_swallowed(client: Client) -> None:
    client >> frame(8, 0, b"")
    client.hears_nothing()
    client.output.write(frame(8, 0, b""))
    client[0] << Heartbeat()


def test_publishes_and_acks_that_cross_our_connection_close(playbook: Playbook) -> None:
    client, other = playbook.client(), playbook.client()
    client.declares("q")
    client.consumes("q")
    client.publishes("q", b"1")
    assert client.bodies() == [b"1"]
    client.session.close_connection(ConnectionFault(320, "CONNECTION_FORCED - the broker is shutting down"))
    assert client.hears(ConnectionClose).reply_code == 320
    client >> BasicAck(delivery_tag=1)
    client.publishes("q", b"2")
    method, header, body = publish_frames(client)
    client >> method >> header >> body
    client >> ChannelClose(reply_code=200)
    client.hears_nothing()
    client >> ConnectionCloseOk()
    assert client.link.notes[-1] == "finish"
    assert other.gets_all("q") == [b"1"]
