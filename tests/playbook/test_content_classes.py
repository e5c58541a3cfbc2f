"""Contents of several classes in one queue: who gets which, and where the class is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying, frame
from playbook.hourglass import with_morgue
from playbook.paged import PagedPlaybook

from flintmq.wire import amqp, methods, traits
from flintmq.wire.content_class import to_basic
from flintmq.wire.fields import encode_shortstr
from flintmq.wire.methods import BasicConsume, BasicGet, BasicPublish, StreamConsume, StreamPublish
from flintmq.wire.properties import BasicProperties, FileProperties, StreamProperties, encode_properties

EARLY = [amqp.VERSION_0_8, amqp.VERSION_0_9]
ALL = StreamProperties(content_type="t", content_encoding="e", headers={"h": 6}, priority=5, timestamp=9)
AS_BASIC = BasicProperties(content_type="t", content_encoding="e", headers={"h": 6}, priority=5, timestamp=9)


@pytest.fixture
def paged(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path)
    yield playbook
    playbook.end()
    playbook.close()


def streamed(key: str, body: bytes = b"", **properties: Any) -> Carried:
    return Carried(StreamPublish(routing_key=key), body, StreamProperties(**properties))


def consumes_stream(client: Client, queue: str, tag: str = "s", **settings: Any) -> None:
    client >> StreamConsume(queue=queue, consumer_tag=tag, **settings)
    client << methods.StreamConsumeOk(consumer_tag=tag)


def delivered(client: Client) -> list[tuple[str, str, bytes]]:
    """Class, consumer tag and body of all that was delivered."""
    found = []
    for _, each in client.heard():
        assert isinstance(each, Carried), each
        method: Any = each.method
        found.append((method.NAME.partition(".")[0], method.consumer_tag, each.body))
    client.inbox.clear()
    return found


def puts_file(client: Client, key: str, body: bytes, properties: FileProperties) -> None:
    """What file.publish comes to: a content with a basic header, and its class among the flags."""
    head = amqp.CLASS_FILE.to_bytes(2, "big") + bytes(2) + len(body).to_bytes(8, "big")
    header = to_basic(head + encode_properties(properties))
    channel: Any = client.session.connection.channels[1]
    route = encode_shortstr("") + encode_shortstr(key)
    client.session.publish(channel, route, traits.FILE_CONTENT, header + body, len(header))
    client.playbook.finish_pass()


@pytest.mark.parametrize("version", EARLY)
def test_octets_of_a_stream_message_on_its_way(playbook: Playbook, version: int) -> None:
    client = playbook.client(version)
    client.declares("q")
    consumes_stream(client, "q", "tag")
    properties = (
        b"\x01t" + b"\x01e" + b"\x00\x00\x00\x07\x01hI\x00\x00\x00\x06" + b"\x05" + bytes(7) + b"\x09"
    )
    header = b"\x00\x50\x00\x00" + (4).to_bytes(8, "big") + b"\xf8\x00" + properties
    content = frame(amqp.FRAME_HEADER, 1, header) + frame(amqp.FRAME_BODY, 1, b"body")
    (
        client
        >> frame(amqp.FRAME_METHOD, 1, b"\x00\x50\x00\x28" + b"\x00\x00" + b"\x00" + b"\x01q" + b"\x00")
        + content
    )
    output = client.output
    # consumer tag, delivery tag, exchange, queue
    method = b"\x00\x50\x00\x3c" + b"\x03tag" + (1).to_bytes(8, "big") + b"\x00" + b"\x01q"
    assert bytes(output.buffer[output.start : output.fill]) == frame(amqp.FRAME_METHOD, 1, method) + content
    client.heard().clear()


def test_a_client_of_0_9_1_gets_a_stream_message_as_a_basic_one(playbook: Playbook) -> None:
    early, late = playbook.client(amqp.VERSION_0_9), playbook.client()
    late.declares("q")
    (
        early
        >> Carried(StreamPublish(routing_key="q"), b"got", ALL)
        >> Carried(StreamPublish(routing_key="q"), b"consumed", ALL)
    )
    late >> BasicGet(queue="q", no_ack=True)
    found: Any = late.next(1)
    assert (found.body, found.properties) == (b"got", AS_BASIC)
    late.consumes("q")
    found = late.next(1)
    assert (found.method.routing_key, found.body, found.properties) == ("q", b"consumed", AS_BASIC)


def test_each_class_goes_to_its_consumer(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    client.declares("q")
    client >> carrying(BasicPublish(routing_key="q"), b"1") >> streamed("q", b"2")
    consumes_stream(client, "q")
    assert delivered(client) == [("stream", "s", b"2")]
    client.consumes("q", "b", no_ack=True)
    assert delivered(client) == [("basic", "b", b"1")]
    client >> streamed("q", b"3") >> carrying(BasicPublish(routing_key="q"), b"4") >> streamed("q", b"5")
    assert delivered(client) == [("stream", "s", b"3"), ("basic", "b", b"4"), ("stream", "s", b"5")]
    puts_file(client, "q", b"6", FileProperties())
    assert delivered(client) == [("basic", "b", b"6")], "nobody here has a claim to files"


def test_what_a_stream_consumer_leaves_behind_is_for_basic_ones(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    client.declares("q")
    consumes_stream(client, "q")
    client.consumes("q", "b", no_ack=True)
    client >> methods.ChannelFlow(active=False)
    client << methods.ChannelFlowOk(active=False)
    client >> streamed("q", b"waits")
    other = playbook.client()
    other.consumes("q", "o", no_ack=True)
    other.hears_nothing()
    client >> methods.StreamCancel(consumer_tag="s")
    client << methods.StreamCancelOk(consumer_tag="s")
    assert other.bodies() == [b"waits"]


def test_a_lost_connection_gives_up_its_claim(playbook: Playbook) -> None:
    client, other = playbook.client(amqp.VERSION_0_9), playbook.client()
    client.declares("q")
    client >> methods.ChannelFlow(active=False)
    client << methods.ChannelFlowOk(active=False)
    consumes_stream(client, "q")
    other.consumes("q", "o", no_ack=True)
    client >> streamed("q", b"waits")
    other.hears_nothing()
    client.session.release()
    playbook.finish_pass()
    assert other.bodies() == [b"waits"]


def test_with_priorities_each_class_goes_to_its_consumer(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    client.declares("q", arguments={"x-max-priority": 9})
    (
        client
        >> streamed("q", b"low", priority=1)
        >> carrying(BasicPublish(routing_key="q"), b"basic", priority=9)
    )
    client >> streamed("q", b"high", priority=5)
    consumes_stream(client, "q")
    assert delivered(client) == [("stream", "s", b"high"), ("stream", "s", b"low")]
    client.consumes("q", "b", no_ack=True)
    assert delivered(client) == [("basic", "b", b"basic")]


def test_no_local_holds_in_every_class(playbook: Playbook) -> None:
    client, other = playbook.client(amqp.VERSION_0_9), playbook.client(amqp.VERSION_0_9)
    client.declares("q")
    consumes_stream(client, "q", no_local=True)
    client >> streamed("q", b"own")
    client.hears_nothing()
    other >> streamed("q", b"other's")
    assert delivered(client) == [("stream", "s", b"other's")]


def test_the_class_stays_with_a_message_in_the_paged_tail(paged: PagedPlaybook) -> None:
    client = paged.client(amqp.VERSION_0_9)
    client.declares("q")
    for number in range(12):
        client >> streamed("q", b"%d" % number, headers={"n": number})
    assert paged.queue("q").tail.count == 8
    consumes_stream(client, "q")
    assert delivered(client) == [("stream", "s", b"%d" % number) for number in range(12)]


def test_the_class_stays_with_a_message_in_the_journal(paged: PagedPlaybook) -> None:
    client = paged.client(amqp.VERSION_0_9)
    client.declares("q", durable=True)
    puts_file(client, "q", b"file", FileProperties(filename="a.txt"))
    client.publishes("q", b"basic", delivery_mode=2)
    client >> streamed("q", b"never persistent")
    paged.restart()
    client = paged.client()
    found = [message_of(paged, client) for _ in range(2)]
    assert found == [(b"file", traits.FILE_CONTENT, {"x-filename": "a.txt"}), (b"basic", 0, None)]
    assert client.gets("q") is None


def message_of(paged: PagedPlaybook, client: Client) -> tuple[bytes, int, object]:
    head: Any = paged.queue("q").head()
    client >> BasicGet(queue="q", no_ack=True)
    found: Any = client.next(1)
    return found.body, head.traits & traits.CONTENT_CLASSES, found.properties.headers


def test_a_dead_letter_is_of_the_class_of_its_original(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    with_morgue(client)
    client >> Carried(StreamPublish(routing_key="q"), b"dies", ALL)
    client >> BasicGet(queue="q")
    found: Any = client.next(1)
    client >> methods.BasicReject(delivery_tag=found.method.delivery_tag)
    consumes_stream(client, "morgue")
    letter: Any = client.next(1)
    assert letter.method.NAME == "stream.deliver"
    assert letter.body == b"dies"
    assert letter.properties.priority == 5
    assert letter.properties.headers["h"] == 6
    assert letter.properties.headers["x-first-death-reason"] == "rejected"


def test_a_message_that_nobody_takes_comes_back_in_its_class(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    client >> Carried(StreamPublish(routing_key="none", mandatory=True), b"back", ALL)
    client << Carried(
        methods.StreamReturn(reply_code=312, reply_text="NO_ROUTE", exchange="", routing_key="none"),
        b"back",
        ALL,
    )
    client.declares("q")
    client >> Carried(StreamPublish(routing_key="q", immediate=True), b"back", ALL)
    client << Carried(
        methods.StreamReturn(reply_code=313, reply_text="NO_CONSUMERS", exchange="", routing_key="q"),
        b"back",
        ALL,
    )


def test_bits_of_publish_flags_on_the_wire_are_no_class(playbook: Playbook, client: Client) -> None:
    client.declares("q")
    header = b"\x00\x3c\x00\x00" + bytes(8) + b"\x00\x00"
    publish = b"\x00\x3c\x00\x28" + b"\x00\x00" + b"\x00" + b"\x01q" + b"\xfc"
    client >> frame(amqp.FRAME_METHOD, 1, publish) + frame(amqp.FRAME_HEADER, 1, header)
    head = playbook.broker.virtual_hosts["/"].queues["q"].head()
    assert head is not None
    assert head.traits & traits.CONTENT_CLASSES == 0
    assert client.gets("q") == b""


def test_a_basic_consumer_beside_others_gets_basic_messages_in_order(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    client.declares("q")
    consumes_stream(client, "q")
    for number in range(6):
        client >> (
            streamed("q", b"%d" % number)
            if number % 2
            else carrying(BasicPublish(routing_key="q"), b"%d" % number)
        )
    assert delivered(client) == [("stream", "s", b"%d" % number) for number in (1, 3, 5)]
    client >> BasicConsume(queue="q", consumer_tag="b", no_ack=True)
    client << methods.BasicConsumeOk(consumer_tag="b")
    assert delivered(client) == [("basic", "b", b"%d" % number) for number in (0, 2, 4)]


@pytest.mark.parametrize("size", [1, 3, 40])
def test_a_stream_message_that_comes_in_pieces(playbook: Playbook, size: int) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    client.declares("q")
    whole = client.frames(1, Carried(StreamPublish(routing_key="q"), b"in pieces", ALL))
    for at in range(0, len(whole), size):
        client >> whole[at : at + size]
    consumes_stream(client, "q")
    found: Any = client.next(1)
    assert (found.body, found.properties) == (b"in pieces", ALL)


def test_a_body_in_many_frames_and_an_empty_one(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9, frame_max=4096)
    client.declares("q")
    consumes_stream(client, "q")
    client >> streamed("q", bytes(20_000), headers={"h": 1}) >> streamed("q", b"")
    assert delivered(client) == [("stream", "s", bytes(20_000)), ("stream", "s", b"")]


def test_a_large_stream_message_is_spooled(paged: PagedPlaybook) -> None:
    client = paged.client(amqp.VERSION_0_9)
    client.declares("q", durable=True)
    body = bytes(range(256)) * 20_000
    client >> Carried(StreamPublish(routing_key="q"), body, ALL)
    head = paged.queue("q").head()
    assert head is not None
    assert head.traits & traits.SPOOLED
    assert head.traits & traits.CONTENT_CLASSES == traits.STREAM_CONTENT
    consumes_stream(client, "q")
    found: Any = client.next(1)
    assert (found.method.NAME, found.body, found.properties) == ("stream.deliver", body, ALL)


def test_field_types_that_are_numbers_go_out_as_numbers(playbook: Playbook) -> None:
    """The header of the 0-9 text: types of fields are numbers in all that the broker sends."""
    client = playbook.stranger(amqp.VERSION_0_9)
    client >> b"AMQP\x01\x01\x00\x0b"
    client.hears(methods.ConnectionStart)
    client.log_in()
    client.hears(methods.ConnectionTune)
    client >> methods.ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
    client >> methods.ConnectionOpen(virtual_host="/")
    client.hears(methods.ConnectionOpenOk)
    client >> methods.ChannelOpen()
    client.hears(methods.ChannelOpenOk)
    client.declares("q")
    consumes_stream(client, "q")
    client >> streamed("q", b"m", headers={"h": "v"})
    output = client.output
    assert b"\x01hS" not in bytes(output.buffer[output.start : output.fill])
    found: Any = client.next(1)
    assert found.properties.headers == {"h": "v"}
