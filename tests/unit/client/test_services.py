"""Requests to services, and how their replies are read, with a scripted broker."""

from __future__ import annotations

from typing import Any

import pytest
from unit.client.scripted import Script, content_frames

from flintmq.client.core import services
from flintmq.client.core.errors import ClientError, ServiceError
from flintmq.client.core.services import Ask, Leased, Offsets, Reply, Request, ServiceCalls
from flintmq.wire import columns, methods
from flintmq.wire.methods import Method
from flintmq.wire.tables import FieldTable


def asking() -> tuple[Script, ServiceCalls]:
    script = Script()
    script.shake_hands()
    calls = ServiceCalls(script.core)
    script.drive(calls.open(), methods.ChannelOpenOk(), methods.BasicConsumeOk(consumer_tag="c1.1"))
    script.heard()
    return script, calls


def reply(script: Script, correlation_id: str, results: FieldTable, body: bytes = b"") -> None:
    deliver = methods.BasicDeliver(consumer_tag="c1.1", delivery_tag=1, routing_key="x")
    script.says(content_frames(1, deliver, body, headers=results, correlation_id=correlation_id))


def answered(ask: Ask[Any], results: FieldTable, body: bytes = b"") -> Any:
    script, calls = asking()
    steps = calls.ask(Request(ask))
    pending = next(steps)
    [(_, publish)] = script.heard()
    assert isinstance(publish, methods.BasicPublish)
    assert (publish.exchange, publish.routing_key) == ("amq.system", ask.service)
    reply(script, "1", results, body)
    with pytest.raises(StopIteration) as stop:
        steps.send(pending.outcome())
    return ask.read(stop.value.value)


def test_replies_find_their_requests_in_any_order() -> None:
    script, calls = asking()
    ask = Ask[Reply]("x", {}, b"", lambda found: found)
    first, second = calls.ask(Request(ask)), calls.ask(Request(ask))
    pendings = [next(first), next(second)]
    reply(script, "2", {"n": 2})
    reply(script, "1", {"n": 1})
    reply(script, "77", {"n": 77})
    assert [pending.outcome().headers["n"] for pending in pendings] == [1, 2]


def test_a_failure_is_raised_with_its_code() -> None:
    with pytest.raises(ServiceError, match="x was refused with 404: NOT_FOUND - no queue 'q'") as refused:
        answered(
            Ask("x", {}, b"", lambda found: found),
            {"error-code": 404, "error-text": "NOT_FOUND - no queue 'q'"},
        )
    assert (refused.value.code, refused.value.text) == (404, "NOT_FOUND - no queue 'q'")


def test_a_broker_without_services() -> None:
    script, calls = asking()
    steps = calls.ask(Request(Ask("x", {}, b"", lambda found: found)))
    pending = next(steps)
    closed: Method = methods.ChannelClose(reply_code=404, reply_text="NOT_FOUND - no exchange 'amq.system'")
    script.tells(1, closed)
    with pytest.raises(ServiceError, match="this broker has no services"):
        pending.outcome()
    assert calls.is_over()


def test_a_broker_without_direct_reply_to() -> None:
    script = Script()
    script.shake_hands()
    calls = ServiceCalls(script.core)
    steps = calls.open()
    pending = next(steps)
    script.tells(1, methods.ChannelOpenOk())
    pending = steps.send(pending.outcome())
    script.tells(1, methods.ChannelClose(reply_code=404, reply_text="NOT_FOUND"))
    assert pending.error is not None
    pending = steps.throw(pending.error)
    for answer in (
        methods.ChannelOpenOk(),
        methods.QueueDeclareOk(queue="gen"),
        methods.BasicConsumeOk(consumer_tag="c1.1"),
    ):
        script.tells(1, answer)
        try:
            pending = steps.send(pending.outcome())
        except StopIteration:
            break
    assert calls.reply_to.name == "gen"


def test_streams() -> None:
    found = answered(services.stream_offsets("s", 5, 100), {"first": 1, "end": 9, "octets": 1000})
    assert found == Offsets(1, 9, 1000)
    assert answered(services.stream_offset_for_time("s", 1), {"offset": 4}) == 4
    assert answered(services.stream_bytes("s", 1, 4), {"octets": 77}) == 77
    body = columns.encode(1, 3, 4, [columns.Column(columns.OFFSET, (3).to_bytes(8, "little"))])
    fetched = answered(services.stream_fetch("s", 3, 4, 1000, ("offset",)), {"next": 4}, body)
    assert (list(fetched.numbers("offset")), fetched.next_offset) == ([3], 4)
    with pytest.raises(ClientError, match="no number 'offset'"):
        answered(services.stream_offset_for_time("s", 1), {})
    with pytest.raises(ClientError, match="cannot be read"):
        answered(services.stream_fetch("s", 3, 4, 1000, None), {}, b"rubbish")


def test_leases() -> None:
    asked = services.queue_lease("q", "me", 0, None, 100, 1000, 60_000, 200)
    limits = {"max-rows": 100, "max-bytes": 1000, "timeout-ms": 60_000, "wait-ms": 200}
    assert asked.arguments == {"queue": "q", "consumer": "me", "claim": True, **limits}
    assert answered(asked, {"epoch": 2, "first": 11, "last": 15, "octets": 500}) == Leased(2, 10, 15, 500)
    again = services.queue_lease("q", "me", 2, 10, 100, 1000, 60_000, 200)
    assert again.arguments == {"queue": "q", "consumer": "me", "epoch": 2, "start": 10, **limits}
    assert answered(services.lease_ack("q", "me", 2, 15), {"settled": 5}) == 5
    assert answered(services.lease_renew("q", "me", 2, 1000), {}) is None
    assert answered(services.lease_release("q", "me", 2), {"returned": 0}) == 0
    body = columns.encode(0, 10, 10, [])
    assert len(answered(services.lease_read("q", "me", 2, 10, 15, 1000, ("value",)), {}, body)) == 0
