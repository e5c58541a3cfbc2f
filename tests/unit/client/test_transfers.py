"""The message class in a client's core: what it answers, and a server that breaks the rules."""

from __future__ import annotations

import struct

import pytest
from unit.client.scripted import Script, frame

from flintmq.client.core.channel import ChannelCore
from flintmq.client.core.errors import ChannelClosed, ClientError, ConnectionLost
from flintmq.client.core.inbox import Inbox
from flintmq.client.core.topology import QueueRecord
from flintmq.client.core.transfers import runs, transfer_of
from flintmq.wire import amqp, methods
from flintmq.wire.fields import Content
from flintmq.wire.methods import (
    MessageAppend,
    MessageClose,
    MessageOk,
    MessageOpen,
    MessageQos,
    MessageReject,
    MessageTransfer,
    Method,
    decode_method,
    encode_method,
)
from flintmq.wire.properties import BasicProperties


def request(number: int, method: Method, mark: int = 0) -> bytes:
    return frame(9, 1, struct.pack(">QQI", number, mark, 0) + encode_method(amqp.VERSION_0_9, method))


def response(number: int, request_id: int, method: Method, more: int = 0) -> bytes:
    head = struct.pack(">QQI", number, request_id, more)
    return frame(10, 1, head + encode_method(amqp.VERSION_0_9, method))


def answers(script: Script) -> list[tuple[int, int, Method]]:
    """The responses of the client: the first request and how many more."""
    octets = script.heard_octets()
    found = []
    at = 0
    while at < len(octets):
        end = at + 7 + int.from_bytes(octets[at + 3 : at + 7], "big")
        if octets[at] == amqp.FRAME_RESPONSE:
            _, first, more = struct.unpack_from(">QQI", octets, at + 7)
            found.append((first, more, decode_method(amqp.VERSION_0_9, octets[at + 27 : end])))
        at = end + 1
    return found


def consuming(no_ack: bool = False) -> tuple[Script, ChannelCore, Inbox]:
    script = Script(message_bytes_max=1000, protocol="0-9", prefetch=0)
    script.shake_hands()
    channel = script.channel()
    steps = channel.consume_messages(QueueRecord("q"), "t", no_ack, False, None)
    pending = next(steps)
    script.says(response(1, 1, MessageOk()))
    with pytest.raises(StopIteration) as done:
        steps.send(pending.outcome())
    script.heard_octets()
    return script, channel, done.value.value.inbox


def test_settlements_are_responses_to_the_transfers() -> None:
    script, _, inbox = consuming()
    for number in range(1, 7):
        body = Content(b"%d" % number)
        script.says(request(number, MessageTransfer(destination="t", routing_key="k", body=body)))
    messages = inbox.take(10)
    assert [message.body for message in messages] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert answers(script) == []
    messages[1].ack()
    messages[3].ack(multiple=True)
    messages[4].nack()
    messages[5].reject()
    assert answers(script) == [
        (2, 0, MessageOk()),
        (1, 0, MessageOk()),
        (3, 1, MessageOk()),
        (5, 0, MessageReject(code=1)),
        (6, 0, MessageReject(code=0)),
    ]
    with pytest.raises(ClientError, match="settled already"):
        messages[0].ack()


def test_without_acks_the_client_answers_itself() -> None:
    script, _, inbox = consuming(no_ack=True)
    script.says(request(1, MessageTransfer(destination="t", body=Content(b"m"))))
    assert answers(script) == [(1, 0, MessageOk())]
    assert [message.body for message in inbox.take(1)] == [b"m"]


@pytest.mark.parametrize("transfer_at", [1, 2, 3])
def test_a_reference_is_a_message_when_it_is_closed(transfer_at: int) -> None:
    script, _, inbox = consuming()
    said: list[Method] = [
        MessageOpen(reference=b"r"),
        MessageAppend(reference=b"r", octets=b"one "),
        MessageAppend(reference=b"r", octets=b"two"),
    ]
    said.insert(transfer_at, MessageTransfer(destination="t", body=Content(b"r", True)))
    for number, method in enumerate(said, 1):
        script.says(request(number, method))
    assert inbox.waiting() == 0
    script.says(request(5, MessageClose(reference=b"r")))
    (message,) = inbox.take(1)
    assert message.body == b"one two"
    assert len(answers(script)) == 4
    message.ack()
    assert answers(script) == [(transfer_at + 1, 0, MessageOk())]


def test_a_reference_without_a_transfer_is_nothing() -> None:
    script, _, inbox = consuming()
    script.says(request(1, MessageOpen(reference=b"r")) + request(2, MessageClose(reference=b"r")))
    assert inbox.waiting() == 0
    assert script.core.is_open


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (request(2, MessageOpen(reference=b"r")), "request 2 where 1 was due"),
        (request(1, MessageOpen(reference=b"r"), 9), "a response mark of 9"),
        (request(1, MessageQos()), "no server asks it"),
        (request(1, MessageTransfer(destination="other")), "a destination that there is not"),
        (request(1, MessageTransfer(destination="t", body=Content(b"r", True))), "is not open"),
        (request(1, MessageAppend(reference=b"r")), "is not open"),
        (request(1, MessageClose(reference=b"r")), "is not open"),
        (
            request(1, MessageOpen(reference=b"r")) + request(2, MessageOpen(reference=b"r")),
            "open already",
        ),
        (
            request(1, MessageOpen(reference=b"r"))
            + request(2, MessageAppend(reference=b"r", octets=bytes(1001))),
            "message_bytes_max is 1000",
        ),
        (response(2, 1, MessageOk()), "and 0 are open"),
        (response(3, 2, MessageOk()), "response 3 where 2 was due"),
        (frame(9, 1, bytes(23)), "cut short"),
        (frame(10, 7, bytes(24)), "which is not open"),
    ],
)
def test_a_broken_rule_is_named(octets: bytes, reason: str) -> None:
    script, _, _ = consuming()
    script.says(octets)
    assert isinstance(script.core.failure, ClientError)
    assert reason in str(script.core.failure)


def test_who_waits_for_a_response_hears_of_the_end() -> None:
    script, channel, _ = consuming()
    lost = channel.call(transfer_of("", "k", BasicProperties(), False), "publishing")
    script.core.lost("gone")
    with pytest.raises(ConnectionLost):
        lost.outcome()
    script, channel, _ = consuming()
    refused = channel.call(transfer_of("x", "k", BasicProperties(), False), "publishing somewhere")
    script.tells(1, methods.ChannelClose(reply_code=404, reply_text="no exchange"))
    with pytest.raises(ChannelClosed, match="publishing somewhere was refused with 404"):
        refused.outcome()


def test_runs() -> None:
    assert list(runs([])) == []
    assert list(runs([1])) == [(1, 1)]
    assert list(runs([7, 2, 3, 1, 9, 8])) == [(1, 3), (7, 9)]


def test_an_expiration_is_a_number() -> None:
    assert transfer_of("", "k", BasicProperties(expiration="5"), False).ttl == 5
    with pytest.raises(ClientError, match="milliseconds"):
        transfer_of("", "k", BasicProperties(expiration="soon"), False)
