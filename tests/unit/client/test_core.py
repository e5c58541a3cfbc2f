"""The client's core in conversation with a scripted server."""

from __future__ import annotations

import pytest
from unit.client.scripted import HEADER, Script, StillClock, content_frames, method_frame

from flintmq.client.core import errors
from flintmq.client.core.deadline import Deadline
from flintmq.client.core.message import Message
from flintmq.client.core.pending import Pending
from flintmq.client.core.topology import QueueRecord
from flintmq.wire import amqp, methods
from flintmq.wire.properties import BasicProperties


def test_it_greets_logs_in_tunes_and_opens() -> None:
    script = Script(virtual_host="ours", name="a test")
    assert script.heard_octets() == HEADER
    script.tells(0, methods.ConnectionStart(version_minor=9, mechanisms=b"AMQPLAIN PLAIN"))
    [(_, start_ok)] = script.heard()
    assert isinstance(start_ok, methods.ConnectionStartOk)
    assert (start_ok.mechanism, start_ok.response) == ("PLAIN", b"\0me\0secret-word")
    assert start_ok.client_properties["connection_name"] == "a test"
    script.tells(0, methods.ConnectionTune(channel_max=0, frame_max=0, heartbeat=60))
    (_, tune_ok), (_, opening) = script.heard()
    assert isinstance(tune_ok, methods.ConnectionTuneOk)
    assert (tune_ok.channel_max, tune_ok.frame_max, tune_ok.heartbeat) == (2047, 131_072, 0)
    assert isinstance(opening, methods.ConnectionOpen)
    assert opening.virtual_host == "ours"
    assert not script.core.opened.done
    script.tells(0, methods.ConnectionOpenOk())
    assert script.core.opened.done
    assert script.core.is_open


def test_the_smaller_limit_holds() -> None:
    script = Script(frame_bytes_max=50_000, channel_max=7)
    script.tells(0, methods.ConnectionStart(mechanisms=b"PLAIN"))
    script.heard()
    script.tells(0, methods.ConnectionTune(channel_max=2000, frame_max=131_072, heartbeat=0))
    tune_ok = script.heard()[0][1]
    assert isinstance(tune_ok, methods.ConnectionTuneOk)
    assert (tune_ok.channel_max, tune_ok.frame_max) == (7, 50_000)


def test_a_refused_login_says_who_and_never_the_password() -> None:
    script = Script()
    script.tells(0, methods.ConnectionStart(mechanisms=b"PLAIN"))
    script.tells(0, methods.ConnectionClose(reply_code=403, reply_text="ACCESS_REFUSED"))
    error = script.core.opened.error
    assert isinstance(error, errors.LoginRefused)
    assert "'me'" in str(error)
    assert "secret-word" not in str(error) + repr(error) + repr(script.core.settings)


def test_a_server_of_another_version_is_told_apart() -> None:
    script = Script()
    script.says(b"AMQP\x00\x01\x00\x00")
    assert isinstance(script.core.failure, errors.ConnectFailed)
    assert "0.1.0.0" in str(script.core.failure)


def test_no_login_that_we_have() -> None:
    script = Script()
    script.tells(0, methods.ConnectionStart(mechanisms=b"GSSAPI"))
    assert "GSSAPI" in str(script.core.failure)


def test_answers_go_to_calls_in_order() -> None:
    script = Script()
    script.shake_hands()
    channel = script.channel()
    first = channel.call(methods.QueuePurge(queue="a"), "purging a")
    second = channel.call(methods.QueuePurge(queue="b"), "purging b")
    script.says(
        method_frame(1, methods.QueuePurgeOk(message_count=1))
        + method_frame(1, methods.QueuePurgeOk(message_count=2))
    )
    assert (first.outcome().message_count, second.outcome().message_count) == (1, 2)


def test_an_answer_nobody_asked_for_ends_the_connection() -> None:
    script = Script()
    script.shake_hands()
    script.channel()
    script.tells(1, methods.QueueDeclareOk(queue="x"))
    assert isinstance(script.core.failure, errors.ConnectionClosed)
    [(_, close)] = script.heard()
    assert isinstance(close, methods.ConnectionClose)
    assert close.reply_code == amqp.COMMAND_INVALID


def test_a_refusal_is_the_error_of_the_call_and_ends_the_channel() -> None:
    script = Script()
    script.shake_hands()
    channel = script.channel()
    pending = channel.call(methods.QueuePurge(queue="a"), "purging queue 'a'")
    behind = channel.call(methods.QueuePurge(queue="b"), "purging queue 'b'")
    script.tells(1, methods.ChannelClose(reply_code=404, reply_text="NOT_FOUND - no queue 'a'"))
    with pytest.raises(
        errors.NotFound, match=r"purging queue 'a' was refused with 404: .*; declare it first"
    ):
        pending.outcome()
    assert behind.error is pending.error
    assert [method.NAME for _, method in script.heard()] == [
        "queue.purge",
        "queue.purge",
        "channel.close-ok",
    ]
    with pytest.raises(errors.NotFound):
        channel.call(methods.QueuePurge(queue="a"), "again").outcome()
    assert script.core.is_open
    assert script.channel().number == 1


def test_deliveries_in_pieces_and_in_one() -> None:
    script = Script()
    script.shake_hands()
    channel = script.channel()
    consumer = script.drive(
        channel.consume(QueueRecord("q"), "tag", False, False, None),
        methods.BasicQosOk(),
        methods.BasicConsumeOk(consumer_tag="tag"),
    )
    bodies = [b"small", b"", b"x" * 10_000]
    octets = b"".join(
        content_frames(
            1,
            methods.BasicDeliver(
                consumer_tag="tag", delivery_tag=tag, exchange="e", routing_key="k", redelivered=tag == 2
            ),
            body,
            message_id=str(tag),
        )
        for tag, body in enumerate(bodies, 1)
    )
    left = bytearray()
    for at in range(0, len(octets), 7):
        left += octets[at : at + 7]
        used = script.core.receive(left, len(left))
        del left[:used]
    script.says(octets)
    assert left == b""
    messages = consumer.inbox.take(100)
    assert [message.body for message in messages] == bodies * 2
    assert [message.properties.message_id for message in messages] == ["1", "2", "3"] * 2
    assert [message.redelivered for message in messages[:3]] == [False, True, False]
    message = messages[0]
    assert (message.exchange, message.routing_key, message.consumer_tag) == ("e", "k", "tag")
    script.heard()
    assert messages[2].ack(multiple=True)
    assert messages[1].nack(requeue=False)
    assert messages[0].reject(requeue=True)
    assert [method for _, method in script.heard()] == [
        methods.BasicAck(delivery_tag=3, multiple=True),
        methods.BasicNack(delivery_tag=2, multiple=False, requeue=False),
        methods.BasicReject(delivery_tag=1, requeue=True),
    ]


def test_more_than_may_wait_pauses_until_half_is_read() -> None:
    script = Script(received_bytes_max=10_000)
    script.shake_hands()
    channel = script.channel()
    consumer = script.drive(
        channel.consume(QueueRecord("q"), "t", True, False, None), methods.BasicConsumeOk(consumer_tag="t")
    )
    one = content_frames(
        1, methods.BasicDeliver(consumer_tag="t", delivery_tag=1, routing_key="k"), b"x" * 800
    )
    used = script.says(one * 20)
    assert used == 11 * len(one)
    assert consumer.inbox.waiting() == 11
    consumer.inbox.take(5)
    assert script.core.protocol.paused
    consumer.inbox.next()
    assert not script.core.protocol.paused


def test_the_end_of_a_consumer_by_the_server() -> None:
    script = Script()
    script.shake_hands()
    channel = script.channel()
    consumer = script.drive(
        channel.consume(QueueRecord("q"), "t", True, False, None), methods.BasicConsumeOk(consumer_tag="t")
    )
    script.tells(1, methods.BasicCancel(consumer_tag="t", no_wait=True))
    assert isinstance(consumer.inbox.ended, errors.ConsumerCancelled)
    assert "'q'" in str(consumer.inbox.ended)


def test_a_get_that_was_given_up_gives_its_message_back() -> None:
    script = Script()
    script.shake_hands()
    channel = script.channel()
    steps = channel.get("q", False)
    next(steps)
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt())
    script.heard()
    script.says(content_frames(1, methods.BasicGetOk(delivery_tag=4, routing_key="q"), b"body"))
    assert script.heard() == [(1, methods.BasicNack(delivery_tag=4, multiple=False, requeue=True))]


def test_confirms_returns_and_refusals() -> None:
    script = Script()
    script.shake_hands()
    channel = script.channel(confirm=True)
    assert channel.ledger is not None
    rows = channel.rows([b"a", b"b", b"c"], "", "q", BasicProperties(), True)
    pending = Pending("confirming")
    assert channel.ledger.add(rows, pending) == 1
    script.says(content_frames(1, methods.BasicReturn(reply_code=312, routing_key="q"), b"b"))
    script.tells(1, methods.BasicAck(delivery_tag=2, multiple=True))
    assert not pending.done
    script.tells(1, methods.BasicNack(delivery_tag=3))
    with pytest.raises(errors.PublishFailed) as failed:
        pending.outcome()
    assert failed.value.nacked == [3]
    assert failed.value.rows() == [1, 2]
    assert [message.body for message in failed.value.returned] == [b"b"]
    with pytest.raises(errors.ClientError, match="nothing to settle"):
        failed.value.returned[0].ack()


def test_a_confirm_of_what_was_never_published() -> None:
    script = Script()
    script.shake_hands()
    script.channel(confirm=True)
    script.tells(1, methods.BasicAck(delivery_tag=1))
    assert "not published" in str(script.core.failure)


def test_heartbeats_go_out_and_silence_is_noticed() -> None:
    script = Script(heartbeat_s=10)
    script.shake_hands(heartbeat=60)
    assert script.core.beat() == 5.0
    script.clock.now_s += 5
    assert script.core.beat() == 5.0
    assert script.heard_octets() == b"\x08\0\0\0\0\0\0\xce"
    script.clock.now_s += 10
    script.says(b"\x08\0\0\0\0\0\0\xce")
    script.clock.now_s += 20
    assert script.core.beat() is not None
    script.clock.now_s += 0.5
    assert script.core.beat() is None
    assert isinstance(script.core.failure, errors.ConnectionLost)


def test_blocked_is_told() -> None:
    script = Script()
    script.shake_hands()
    told: list[str | None] = []
    script.core.on_blocked = told.append
    script.tells(0, methods.ConnectionBlocked(reason="low on memory"))
    assert script.core.blocked == "low on memory"
    script.tells(0, methods.ConnectionUnblocked())
    assert told == ["low on memory", None]


def test_flow_is_answered() -> None:
    script = Script()
    script.shake_hands()
    channel = script.channel()
    script.tells(1, methods.ChannelFlow(active=False))
    assert not channel.flowing
    assert script.heard() == [(1, methods.ChannelFlowOk(active=False))]


def test_a_stale_delivery_is_not_settled_on_the_next_connection() -> None:
    script = Script()
    script.shake_hands()
    channel = script.channel()
    script.drive(
        channel.consume(QueueRecord("q"), "t", False, False, None),
        methods.BasicQosOk(),
        methods.BasicConsumeOk(consumer_tag="t"),
    )
    deliver = methods.BasicDeliver(consumer_tag="t", delivery_tag=1, routing_key="q")
    script.says(content_frames(1, deliver, b"read") + content_frames(1, deliver, b"unread"))
    inbox = channel.consumers["t"].inbox
    message = inbox.next()
    assert isinstance(message, Message)
    script.core.lost("gone")
    assert not message.ack()
    script.core.begin()
    script.shake_hands()
    script.drive(
        script.core.recover(),
        methods.ChannelOpenOk(),
        methods.BasicQosOk(),
        methods.BasicConsumeOk(consumer_tag="t"),
    )
    assert inbox.waiting() == 0
    assert script.core.received_bytes == 0
    script.heard()
    assert not message.ack()
    assert script.heard_octets() == b""


@pytest.mark.parametrize("resend", [True, False])
def test_what_was_not_confirmed_is_sent_again_or_reported(resend: bool) -> None:
    from flintmq.client.core.settings import Recovery

    script = Script(recovery=Recovery(unconfirmed="resend" if resend else "report"))
    script.shake_hands()
    channel = script.channel(confirm=True)
    assert channel.ledger is not None
    rows = channel.rows([b"a", b"b", b"c", b"d"], "", "q", BasicProperties(), False)
    pending = Pending("confirming")
    channel.ledger.add(rows, pending)
    script.tells(1, methods.BasicAck(delivery_tag=1))
    script.tells(1, methods.BasicAck(delivery_tag=3))
    script.core.lost("gone")
    script.core.begin()
    script.shake_hands()
    script.drive(script.core.recover(), methods.ChannelOpenOk(), methods.ConfirmSelectOk())
    sent = script.heard_octets()
    if resend:
        assert [octet for octet in b"abcd" if bytes((octet, 0xCE)) in sent] == list(b"bd")
        script.tells(1, methods.BasicAck(delivery_tag=2, multiple=True))
        assert pending.outcome() == 1
    else:
        with pytest.raises(errors.PublishFailed) as failed:
            pending.outcome()
        assert failed.value.unknown == [2, 4]
        assert failed.value.rows() == [1, 3]
    assert channel.ledger.outstanding == 0


def test_a_transaction_that_lost_its_beginning_is_not_committed() -> None:
    script = Script()
    script.shake_hands()
    channel = script.channel(transactional=True)
    channel.check_publishable()
    script.core.lost("gone")
    script.core.begin()
    script.shake_hands()
    script.drive(script.core.recover(), methods.ChannelOpenOk(), methods.TxSelectOk())
    with pytest.raises(errors.TransactionLost):
        channel.check_publishable()
    with pytest.raises(errors.TransactionLost):
        next(channel.commit())
    script.drive(channel.rollback(), methods.TxRollbackOk())
    channel.check_publishable()


def test_a_queue_named_by_the_server_gets_a_new_name_with_its_bindings_and_consumers() -> None:
    from flintmq.client.core.topology import BindingRecord

    script = Script()
    script.shake_hands()
    channel = script.channel()
    record = script.drive(
        channel.declare_queue(methods.QueueDeclare(exclusive=True)), methods.QueueDeclareOk(queue="gen-1")
    )
    script.drive(channel.bind(BindingRecord("amq.topic", "a.#", {}, queue=record)), methods.QueueBindOk())
    script.drive(channel.consume(record, "t", True, False, None), methods.BasicConsumeOk(consumer_tag="t"))
    script.core.lost("gone")
    script.core.begin()
    script.shake_hands()
    script.drive(
        script.core.recover(),
        methods.ChannelOpenOk(),
        methods.QueueDeclareOk(queue="gen-2"),
        methods.QueueBindOk(),
        methods.ChannelCloseOk(),
        methods.ChannelOpenOk(),
        methods.BasicConsumeOk(consumer_tag="t"),
    )
    assert record.name == "gen-2"
    heard = {method.NAME: method for _, method in script.heard()}
    assert heard["queue.declare"] == methods.QueueDeclare(exclusive=True)
    assert heard["queue.bind"].queue == "gen-2"  # type: ignore[attr-defined]
    assert heard["basic.consume"].queue == "gen-2"  # type: ignore[attr-defined]


def test_all_that_comes_after_a_deadline_has_one_limit() -> None:
    """An attempt to connect that began before the deadline, and the goodbye behind the attempt."""
    clock = StillClock()
    began_s = clock.now_s
    deadline = Deadline(clock, 2.0)
    assert deadline.at_least(0.5, 0.8) is deadline
    clock.now_s = began_s + 1.9
    assert deadline.at_least(0.8, 0.8).at_s == pytest.approx(began_s + 2.7)
    clock.now_s = began_s + 2.7
    assert deadline.at_least(0.5, 0.8).at_s == pytest.approx(began_s + 2.8)
