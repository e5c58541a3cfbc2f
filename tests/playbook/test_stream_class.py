"""The stream class of 0-8 and 0-9: rates, windows, and what is dropped when its consumer is behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, carrying, frame
from playbook.hourglass import TimedPlaybook, with_morgue
from playbook.paged import PagedPlaybook
from playbook.test_content_classes import consumes_stream, delivered, streamed
from playbook.test_services import ask, reply_queue
from playbook.test_staging import settle

from flintmq.broker.queues import stream_backlog
from flintmq.wire import amqp, methods
from flintmq.wire.methods import BasicPublish, ChannelClose, ConnectionClose, StreamConsume, StreamPublish
from flintmq.wire.properties import StreamProperties

EARLY = [amqp.VERSION_0_8, amqp.VERSION_0_9]
BACKLOG = stream_backlog.MESSAGES_MAX


@pytest.fixture
def playbook() -> Iterator[TimedPlaybook]:
    playbook = TimedPlaybook()
    yield playbook
    playbook.end()


@pytest.fixture
def client(playbook: TimedPlaybook) -> Client:
    return playbook.client(amqp.VERSION_0_9)


def limits(client: Client, rate: int = 0, size: int = 0, count: int = 0, everywhere: bool = False) -> None:
    client >> methods.StreamQos(
        consume_rate=rate, prefetch_size=size, prefetch_count=count, global_=everywhere
    )
    client << methods.StreamQosOk()


def halts(client: Client) -> None:
    client >> methods.ChannelFlow(active=False)
    client << methods.ChannelFlowOk(active=False)


def goes_on(client: Client) -> list[bytes]:
    client >> methods.ChannelFlow(active=True)
    client << methods.ChannelFlowOk(active=True)
    return bodies(client)


def bodies(client: Client) -> list[bytes]:
    return [body for _, _, body in delivered(client)]


# Methods


@pytest.mark.parametrize("version", EARLY)
def test_octets_of_all_methods(playbook: TimedPlaybook, version: int) -> None:
    client = playbook.client(version)
    client.declares("q")
    dialogue = [
        # qos: prefetch-size, prefetch-count, consume-rate, global; qos-ok
        (b"\x00\x50\x00\x0a" + bytes(4) + bytes(2) + b"\x00\x00\x10\x00" + b"\x00", b"\x00\x50\x00\x0b"),
        # consume: ticket, queue, tag, no-local exclusive no-wait, filter; consume-ok
        (
            b"\x00\x50\x00\x14"
            + b"\x00\x00"
            + b"\x01q"
            + b"\x01c"
            + b"\x02"
            + (b"" if version == 8 else bytes(4)),
            b"\x00\x50\x00\x15" + b"\x01c",
        ),
        # cancel: tag, no-wait; cancel-ok
        (b"\x00\x50\x00\x1e" + b"\x01c" + b"\x00", b"\x00\x50\x00\x1f" + b"\x01c"),
    ]
    for said, heard in dialogue:
        client >> frame(amqp.FRAME_METHOD, 1, said)
        output = client.output
        assert bytes(output.buffer[output.start : output.fill]) == frame(amqp.FRAME_METHOD, 1, heard)
        client.heard().clear()


def test_no_wait_is_not_answered(client: Client) -> None:
    client.declares("q")
    client >> StreamConsume(queue="q", consumer_tag="s", no_wait=True)
    client >> streamed("q", b"m")
    assert bodies(client) == [b"m"]
    client >> methods.StreamCancel(consumer_tag="s", no_wait=True)
    client >> streamed("q", b"m")
    client.hears_nothing()


def test_a_tag_is_found_for_a_consumer_without_one(client: Client) -> None:
    client.declares("q")
    client >> StreamConsume(queue="q")
    assert client.hears(methods.StreamConsumeOk).consumer_tag.startswith("amq.ctag-")


def test_a_second_consumer_of_the_class_is_refused(playbook: TimedPlaybook, client: Client) -> None:
    client.declares("q")
    consumes_stream(client, "q")
    other = playbook.client(amqp.VERSION_0_8)
    other >> StreamConsume(queue="q")
    close = other.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (405, 80, 20)
    assert "bind a queue for each" in close.reply_text


def test_exclusive_use_is_refused_where_others_consume(playbook: TimedPlaybook, client: Client) -> None:
    client.declares("q")
    client.consumes("q", "b")
    other = playbook.client(amqp.VERSION_0_9)
    other >> StreamConsume(queue="q", exclusive=True)
    close = other.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (405, 80, 20)


def test_a_tag_in_use_ends_the_connection(client: Client) -> None:
    client.declares("q")
    client.consumes("q", "t")
    client >> StreamConsume(queue="q", consumer_tag="t")
    assert client.hears(ConnectionClose).reply_code == 530


def test_no_queue_named_and_none_declared(client: Client) -> None:
    client >> StreamConsume()
    assert client.hears(ConnectionClose).reply_code == 530


def test_a_queue_that_is_not_there(client: Client) -> None:
    client >> StreamConsume(queue="none")
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 80, 20)


def test_an_exchange_that_is_not_there(client: Client) -> None:
    client >> Carried(StreamPublish(exchange="none"), b"", StreamProperties())
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 80, 40)


def test_an_internal_exchange(client: Client) -> None:
    client >> Carried(StreamPublish(exchange="amq.rabbitmq.trace"), b"", StreamProperties())
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (403, 80, 40)


def test_cancelling_leaves_consumers_of_other_classes_alone(client: Client) -> None:
    client.declares("q")
    client.consumes("q", "b", no_ack=True)
    client >> methods.StreamCancel(consumer_tag="b")
    client << methods.StreamCancelOk(consumer_tag="b")
    client.publishes("q", b"m")
    assert client.bodies() == [b"m"]


def test_a_transaction_does_not_hold_back_a_stream(client: Client) -> None:
    client.declares("q")
    client >> methods.TxSelect()
    client << methods.TxSelectOk()
    client >> streamed("q", b"at once") >> carrying(BasicPublish(routing_key="q"), b"at commit")
    assert client.gets("q") == b"at once"
    assert client.gets("q") is None
    client >> methods.TxCommit()
    client << methods.TxCommitOk()
    assert client.gets("q") == b"at commit"


def test_a_stream_message_is_confirmed(client: Client) -> None:
    client.declares("q")
    client >> methods.ConfirmSelect()
    client << methods.ConfirmSelectOk()
    client >> streamed("q", b"m")
    client << methods.BasicAck(delivery_tag=1)


def test_the_class_is_not_in_0_9_1(playbook: TimedPlaybook) -> None:
    client = playbook.client()
    client >> frame(amqp.FRAME_METHOD, 1, b"\x00\x50\x00\x0a" + bytes(11))
    assert client.hears(ConnectionClose).reply_code in (503, 540)


# Hostile


@pytest.mark.parametrize("size", range(14, 34, 2))
def test_a_header_that_is_cut_short_ends_the_connection(client: Client, size: int) -> None:
    properties = b"\x01t" + b"\x01e" + b"\x00\x00\x00\x07\x01hI\x00\x00\x00\x06" + b"\x05" + bytes(8)
    header = b"\x00\x50\x00\x00" + bytes(8) + b"\xf8\x00" + properties
    assert size < len(header)
    client >> frame(1, 1, b"\x00\x50\x00\x28" + bytes(5)) + frame(2, 1, header[:size])
    close = client.hears(ConnectionClose)
    assert close.reply_code in (501, 502)


def test_flags_of_another_class_end_the_connection(client: Client) -> None:
    header = b"\x00\x50\x00\x00" + bytes(8) + b"\x00\x40" + bytes(8)
    client >> frame(1, 1, b"\x00\x50\x00\x28" + bytes(5)) + frame(2, 1, header)
    assert client.hears(ConnectionClose).reply_code in (501, 502)


def test_a_basic_header_after_stream_publish_ends_the_connection(client: Client) -> None:
    header = b"\x00\x3c\x00\x00" + bytes(8) + b"\x00\x00"
    client >> frame(1, 1, b"\x00\x50\x00\x28" + bytes(5)) + frame(2, 1, header)
    assert client.hears(ConnectionClose).reply_code in (501, 505)


def test_a_stream_header_after_basic_publish_ends_the_connection(client: Client) -> None:
    header = b"\x00\x50\x00\x00" + bytes(8) + b"\x00\x00"
    client >> frame(1, 1, b"\x00\x3c\x00\x28" + bytes(5)) + frame(2, 1, header)
    assert client.hears(ConnectionClose).reply_code in (501, 505)


@pytest.mark.parametrize("method", [40, 50, 60], ids=["publish", "return", "deliver"])
def test_a_method_that_is_cut_short_or_not_for_clients(client: Client, method: int) -> None:
    client >> frame(1, 1, b"\x00\x50\x00" + bytes((method,)))
    assert client.hears(ConnectionClose).reply_code in (501, 502, 503)


def test_a_body_that_is_longer_than_announced(client: Client) -> None:
    header = b"\x00\x50\x00\x00" + (1).to_bytes(8, "big") + b"\x00\x00"
    client >> frame(1, 1, b"\x00\x50\x00\x28" + bytes(5)) + frame(2, 1, header) + frame(3, 1, b"ab")
    assert client.hears(ConnectionClose).reply_code == 501


def test_a_body_above_the_limit_of_all_messages(client: Client) -> None:
    header = b"\x00\x50\x00\x00" + b"\xff" * 8 + b"\x00\x00"
    client >> frame(1, 1, b"\x00\x50\x00\x28" + bytes(5)) + frame(2, 1, header)
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id) == (406, 80)


def test_a_method_between_header_and_body(client: Client) -> None:
    header = b"\x00\x50\x00\x00" + (1).to_bytes(8, "big") + b"\x00\x00"
    client >> frame(1, 1, b"\x00\x50\x00\x28" + bytes(5)) + frame(2, 1, header)
    client >> methods.StreamCancel(consumer_tag="s")
    assert client.hears(ConnectionClose).reply_code in (501, 505)


# Rates


def test_a_consumer_gets_as_much_as_its_rate_allows(playbook: TimedPlaybook, client: Client) -> None:
    client.declares("q")
    limits(client, rate=1000)
    consumes_stream(client, "q")
    for _ in range(100):
        client >> streamed("q", bytes(10))
    got = len(bodies(client))
    assert got == 10, "a tenth of a second at once"
    for _ in range(50):
        playbook.passes(20)
        got += len(bodies(client))
    assert got == 100
    playbook.passes(5000)
    client.hears_nothing()


def test_a_rate_holds_over_a_long_time_however_passes_fall(playbook: TimedPlaybook, client: Client) -> None:
    client.declares("q", arguments={"x-max-length": 10_000})
    limits(client, rate=7777)
    consumes_stream(client, "q")
    for _ in range(2000):
        client >> streamed("q", bytes(100))
    octets = 100 * len(bodies(client))
    for step in range(400):
        playbook.passes((7, 13, 1, 29)[step % 4])
        octets += 100 * len(bodies(client))
    # 5 seconds, and the tenth of one that it may begin with; never more than one message over it.
    assert 7777 * 5 <= octets <= 7777 * 5.1 + 100


def test_a_message_larger_than_the_rate_goes_whole_and_is_paid_for(
    playbook: TimedPlaybook, client: Client
) -> None:
    client.declares("q")
    limits(client, rate=100)
    consumes_stream(client, "q")
    client >> streamed("q", bytes(1010)) >> streamed("q", b"next")
    assert bodies(client) == [bytes(1010)]
    playbook.passes(9_900)
    client.hears_nothing()
    playbook.passes(200)
    assert bodies(client) == [b"next"]


def test_empty_bodies_count_too(playbook: TimedPlaybook, client: Client) -> None:
    client.declares("q")
    limits(client, rate=10)
    consumes_stream(client, "q")
    for _ in range(5):
        client >> streamed("q")
    assert len(bodies(client)) == 1
    playbook.passes(200)
    assert len(bodies(client)) in (1, 2)


def test_another_rate_holds_at_once(playbook: TimedPlaybook, client: Client) -> None:
    client.declares("q")
    limits(client, rate=1)
    consumes_stream(client, "q")
    for _ in range(5):
        client >> streamed("q", bytes(1000))
    assert len(bodies(client)) == 1
    limits(client)
    assert len(bodies(client)) == 4


def test_qos_for_all_channels(playbook: TimedPlaybook, client: Client) -> None:
    client[2] >> methods.ChannelOpen()
    client.hears(methods.ChannelOpenOk, 2)
    client.declares("q")
    client[2] >> StreamConsume(queue="q", consumer_tag="s")
    client[2] << methods.StreamConsumeOk(consumer_tag="s")
    limits(client, rate=1, everywhere=True)
    client >> streamed("q", b"1") >> streamed("q", b"2")
    assert bodies(client) == [b"1"]


def test_a_cancelled_consumer_is_not_woken(playbook: TimedPlaybook, client: Client) -> None:
    client.declares("q")
    limits(client, rate=1)
    consumes_stream(client, "q")
    client >> streamed("q", bytes(10)) >> streamed("q", bytes(10))
    assert len(bodies(client)) == 1
    client >> methods.StreamCancel(consumer_tag="s")
    client << methods.StreamCancelOk(consumer_tag="s")
    assert playbook.broker.timetable.next_due_ms() is None
    playbook.passes(60_000)
    client.hears_nothing()


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_basic_consumer_with_a_rate(playbook: TimedPlaybook, no_ack: bool) -> None:
    client = playbook.client()
    client.declares("q")
    client.consumes("q", no_ack=no_ack, arguments={"x-consume-rate": 1000})
    client.publishes("q", *[bytes(50)] * 10)
    assert len(client.bodies()) == 2
    playbook.passes(100)
    assert len(client.bodies()) == 2
    playbook.passes(100)
    assert len(client.bodies()) == 2


@pytest.mark.parametrize("rate", [0, -1, "fast", True, 2**32])
def test_a_rate_that_is_none(playbook: TimedPlaybook, rate: Any) -> None:
    client = playbook.client()
    client.declares("q")
    client >> methods.BasicConsume(queue="q", arguments={"x-consume-rate": rate})
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 20)
    assert "'x-consume-rate'" in close.reply_text


# Windows


def test_a_window_of_messages_limits_what_waits_for_the_socket(client: Client) -> None:
    client.declares("q")
    halts(client)
    limits(client, count=2)
    consumes_stream(client, "q")
    for number in range(5):
        client >> streamed("q", b"%d" % number)
    client >> methods.ChannelFlow(active=True)
    output = client.output
    assert bytes(output.buffer[output.start : output.fill]).count(b"\x00\x50\x00\x3c") == 2
    assert client.hears(methods.ChannelFlowOk).active
    assert bodies(client) == [b"%d" % number for number in range(5)], "all of them, as the client reads"


def test_a_window_of_octets_lets_one_message_pass_in_any_case(client: Client) -> None:
    client.declares("q")
    halts(client)
    limits(client, size=10)
    consumes_stream(client, "q")
    for _ in range(3):
        client >> streamed("q", bytes(100))
    client >> methods.ChannelFlow(active=True)
    output = client.output
    assert bytes(output.buffer[output.start : output.fill]).count(b"\x00\x50\x00\x3c") == 1
    assert client.hears(methods.ChannelFlowOk).active
    assert bodies(client) == [bytes(100)] * 3


# What is dropped


def counts(client: Client, queue: str = "q") -> tuple[object, object]:
    info = ask(client, "queue.info", queue=queue)
    return info["messages-ready"], info["messages-dropped"]


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 9}], ids=["plain", "priorities"])
def test_past_the_limit_the_lowest_priority_goes_first(
    playbook: TimedPlaybook, client: Client, arguments: dict[str, Any]
) -> None:
    reply_queue(client)
    client.declares("q", arguments={"x-max-length": 4, **arguments})
    halts(client)
    consumes_stream(client, "q")
    for number, priority in enumerate((5, 1, 9, 1, 5, 9, 0)):
        client >> streamed("q", b"%d:%d" % (number, priority), priority=priority)
    client >> methods.ChannelFlow(active=True)
    client << methods.ChannelFlowOk(active=True)
    found = bodies(client)
    assert sorted(found) == [b"0:5", b"2:9", b"4:5", b"5:9"]
    assert counts(client) == (0, 3)


def test_of_one_priority_the_oldest_goes_first(client: Client) -> None:
    reply_queue(client)
    client.declares("q", arguments={"x-max-length": 3})
    for number in range(10):
        client >> streamed("q", b"%d" % number)
    assert counts(client) == (3, 7)
    assert client.gets_all("q") == [b"7", b"8", b"9"]
    assert counts(client) == (0, 7)


def test_a_queue_without_limits_has_one_for_streams(playbook: TimedPlaybook, client: Client) -> None:
    reply_queue(client)
    client.declares("q")
    client.publishes("q", b"basic")
    with playbook.one_pass():
        for number in range(BACKLOG + 5):
            client >> streamed("q", b"%d" % number)
    assert counts(client) == (BACKLOG + 1, 5), "what is basic stays"
    consumes_stream(client, "q")
    assert bodies(client) == [b"%d" % number for number in range(5, BACKLOG + 5)]


def test_octets_are_limited_too(client: Client) -> None:
    reply_queue(client)
    client.declares("q", arguments={"x-max-length-bytes": 100})
    for number in range(5):
        client >> streamed("q", b"%d" % number * 30)
    assert counts(client) == (3, 2)


def test_every_message_is_delivered_or_counted(playbook: TimedPlaybook, client: Client) -> None:
    """A consumer with a rate, priorities at random, and passes of any length: nothing is lost uncounted."""
    reply_queue(client)
    client.declares("q", arguments={"x-max-length": 20})
    limits(client, rate=5000)
    consumes_stream(client, "q")
    chance = playbook.clock.random
    published, got = 0, 0
    for _ in range(300):
        for _ in range(chance.randrange(8)):
            client >> streamed("q", bytes(chance.randrange(120)), priority=chance.randrange(10))
            published += 1
        playbook.passes(chance.randrange(40))
        got += len(bodies(client))
    ready, dropped = counts(client)
    assert isinstance(dropped, int)
    assert isinstance(ready, int)
    assert dropped > 0
    assert published == got + dropped + ready
    assert ready <= 20


def test_holes_behind_what_is_important_are_done_away_with(playbook: TimedPlaybook, client: Client) -> None:
    client.declares("q", arguments={"x-max-length": 10})
    for _ in range(5):
        client >> streamed("q", b"important", priority=9)
    with playbook.one_pass():
        for number in range(20_000):
            client >> streamed("q", b"%d" % number)
    queue = playbook.queue("q")
    assert queue.ready.count < 10_000
    assert queue.message_count() == 10
    found = client.gets_all("q")
    assert found == [b"important"] * 5 + [b"%d" % number for number in range(19_995, 20_000)]


def test_no_memory_is_kept_of_what_has_passed_a_message_that_stays(
    playbook: TimedPlaybook, client: Client
) -> None:
    client.declares("q")
    client >> carrying(BasicPublish(routing_key="q"), b"stays")
    consumes_stream(client, "q")
    for _ in range(4 * BACKLOG // 64):
        for _ in range(64):
            client >> streamed("q", b"x")
        playbook.finish_pass()
        assert len(bodies(client)) == 64
    rules = playbook.broker.virtual_hosts["/"].queues["q"].rules
    assert rules is not None
    backlog = rules.need_limits().need_backlog()
    assert (backlog.count, len(backlog.noted(0)) <= BACKLOG + 1) == (0, True)


def test_what_is_dropped_has_a_dead_letter(client: Client) -> None:
    with_morgue(client, max_length=1)
    client >> streamed("q", b"low", priority=1) >> streamed("q", b"high", priority=2)
    assert client.gets_all("morgue") == [b"low"]
    assert client.gets_all("q") == [b"high"]


def test_purging_forgets_the_backlog(client: Client) -> None:
    reply_queue(client)
    client.declares("q", arguments={"x-max-length": 3})
    for number in range(3):
        client >> streamed("q", b"%d" % number)
    client >> methods.QueuePurge(queue="q")
    client << methods.QueuePurgeOk(message_count=3)
    for number in range(3):
        client >> streamed("q", b"%d" % number)
    assert counts(client) == (3, 0)
    client.gets_all("q")


def test_a_message_that_came_back_is_dropped_in_its_turn(client: Client) -> None:
    client.declares("q", arguments={"x-max-length": 2})
    client >> streamed("q", b"low", priority=0) >> streamed("q", b"high", priority=5)
    client >> methods.BasicGet(queue="q")
    found: Any = client.next(1)
    client >> methods.BasicReject(delivery_tag=found.method.delivery_tag, requeue=True)
    client >> streamed("q", b"high", priority=5)
    assert client.gets_all("q") == [b"high", b"high"]


# For all clients


def test_drop_lowest_of_a_queue_with_priorities(playbook: TimedPlaybook) -> None:
    client = playbook.client()
    reply_queue(client)
    arguments = {"x-max-priority": 9, "x-max-length": 3, "x-overflow": "drop-lowest"}
    client.declares("q", arguments=arguments)
    for number, priority in enumerate((5, 1, 9, 1, 5, 9, 0)):
        client.publishes("q", b"%d:%d" % (number, priority), priority=priority)
    assert client.gets_all("q") == [b"2:9", b"5:9", b"4:5"]
    assert counts(client) == (0, 4)


def test_drop_lowest_needs_priorities(playbook: TimedPlaybook) -> None:
    client = playbook.client()
    client >> methods.QueueDeclare(queue="q", arguments={"x-max-length": 3, "x-overflow": "drop-lowest"})
    close = client.hears(ChannelClose)
    assert close.reply_code == 406
    assert "x-max-priority" in close.reply_text


def test_expired_messages_are_counted(playbook: TimedPlaybook) -> None:
    client = playbook.client()
    reply_queue(client)
    client.declares("q")
    client.publishes("q", b"1", b"2", expiration="10")
    playbook.passes(20)
    info = ask(client, "queue.info", queue="q")
    assert (info["messages-expired"], info["messages-dropped"], info["messages-lost"]) == (2, 0, 0)


def test_a_queue_of_the_type_stream_has_no_consumers_of_the_class(tmp_path: Any) -> None:
    from playbook.paged import PagedPlaybook

    playbook = PagedPlaybook(tmp_path)
    client = playbook.client(amqp.VERSION_0_9)
    client.declares("log", durable=True, arguments={"x-queue-type": "stream"})
    client >> streamed("log", b"is kept there as a basic message is")
    client >> StreamConsume(queue="log")
    close = client.hears(ConnectionClose)
    assert close.reply_code == 540
    assert "use basic.consume" in close.reply_text
    playbook.close()


def test_what_a_consumer_took_from_behind_a_long_queue_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of another class lie on disk before the stream, and nobody takes them."""
    monkeypatch.setattr(stream_backlog, "MESSAGES_MAX", 8)
    playbook = PagedPlaybook(tmp_path / "data")
    client = playbook.client(amqp.VERSION_0_9)
    client.declares("q")
    client.publishes("q", *[b"basic"] * 10)
    consumes_stream(client, "q")
    for at in range(30):
        client >> streamed("q", b"%d" % at)
        settle(playbook)
        assert bodies(client) == [b"%d" % at]
    queue = playbook.queue("q")
    assert queue.tail.count > 0
    assert queue.rules is not None
    assert queue.rules.limits is not None
    backlog = queue.rules.limits.backlog
    assert backlog is not None
    assert (backlog.count, len(backlog.noted(0)) <= 9) == (0, True)
    playbook.end()
    playbook.close()
