"""Leases after a restart: the same numbers stand for the same messages, and nothing else has changed."""

from __future__ import annotations

from typing import Any

from flintmq.broker.queues.leases import TAKEN
from flintmq.wire import methods
from flintmq.wire.columns import Columns
from flintmq.wire.properties import BasicProperties, decode_basic_properties

from .broker_client import Client
from .test_broker_recovery import Bench
from .test_ruled_recovery import bodies, crash, declare, get, passes, publish


def ask(client: Client, service: str, **arguments: Any) -> tuple[dict[str, Any], bytes]:
    client.say(1, methods.QueueDeclare(queue="replies", exclusive=True))
    headers = {name.replace("_", "-"): value for name, value in arguments.items()}
    properties = BasicProperties(reply_to="replies", headers=headers)
    client.publish(1, "amq.system", service, b"", False, properties)
    client.written()
    client.say(1, methods.BasicGet(queue="replies", no_ack=True))
    [event] = client.written()
    results = decode_basic_properties(event.header, 12, len(event.header)).headers or {}
    assert "error-code" not in results, results
    return dict(results), event.body


def lease(client: Client, rows: int, reader: str = "r", **more: Any) -> int:
    epoch: int = ask(client, "queue.lease", queue="q", consumer=reader, max_rows=rows, **more)[0]["epoch"]
    return epoch


def rows(client: Client, epoch: int, reader: str = "r") -> list[tuple[int, bytes]]:
    _, body = ask(client, "lease.read", queue="q", consumer=reader, epoch=epoch)
    return [(row["offset"], row["value"]) for row in Columns(body).rows()]


def test_numbers_stand_for_the_same_messages_whatever_their_order_in_the_queue() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q")
    for body in (b"1", b"2", b"3"):
        publish(client, "q", body)
    get(client, "q", no_ack=False)
    epoch = lease(client, 1, claim=True)
    client.say(1, methods.BasicNack(delivery_tag=1, requeue=True))
    lease(client, 2, epoch=epoch, start=1)
    assert rows(client, epoch) == [(1, b"2"), (2, b"1"), (3, b"3")]
    client = crash(bench)
    assert rows(client, epoch) == [(1, b"2"), (2, b"1"), (3, b"3")]


def test_numbers_stand_for_the_same_messages_in_a_queue_with_priorities() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", max_priority=9)
    publish(client, "q", b"low", priority=1)
    epoch = lease(client, 1, claim=True)
    publish(client, "q", b"high", priority=9)
    lease(client, 1, epoch=epoch, start=1)
    client = crash(bench)
    assert rows(client, epoch) == [(1, b"low"), (2, b"high")]


def test_what_is_leased_does_not_expire_by_a_restart() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="morgue")
    declare(client, "morgue")
    publish(client, "q", b"1")
    epoch = lease(client, 1, claim=True)
    passes(bench, 2000)
    client = crash(bench)
    assert rows(client, epoch) == [(1, b"1")]
    passes(bench, 1)
    assert bodies(client, "morgue") == []
    ask(client, "lease.release", queue="q", consumer="r", epoch=epoch)
    passes(bench, 1)
    assert bodies(client, "morgue") == [b"1"]


def test_what_lies_before_a_lease_has_not_been_handed_out() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", max_priority=9, delivery_limit=1)
    publish(client, "q", b"low", priority=1)
    epoch = lease(client, 1, claim=True)
    publish(client, "q", b"high", priority=9)
    for _ in range(3):
        client = crash(bench)
        assert rows(client, epoch) == [(1, b"low")]
    got = get(client, "q")
    assert got is not None
    assert got[1] == b"high"
    assert not got[0].redelivered


def test_two_leases_of_one_queue_keep_out_of_each_others_way() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", delivery_limit=1)
    for body in (b"1", b"2", b"3"):
        publish(client, "q", body)
    first = lease(client, 1, "a", claim=True)
    second = lease(client, 1, "b", claim=True)
    for _ in range(3):
        client = crash(bench)
    assert rows(client, first, "a") == [(1, b"1")]
    assert rows(client, second, "b") == [(1, b"2")]
    assert bodies(client, "q") == [b"3"]


def test_a_lease_with_a_transient_message_ends_and_leaves_the_others_where_they_are() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", max_length_bytes=100)
    publish(client, "q", b"1")
    client.publish(1, "", "q", b"2", False)
    publish(client, "q", b"3")
    epoch = lease(client, 2, claim=True)
    client = crash(bench)
    results, _ = ask(client, "queue.lease", queue="q", consumer="r", epoch=epoch + 1, max_rows=0)
    assert (results["acked"], results["last"]) == (2, 2)
    queue = bench.broker.virtual_hosts["/"].queues["q"]
    assert queue.unacked == 0
    assert queue.rules is not None
    assert queue.rules.limits is not None
    assert queue.rules.limits.body_bytes == 2
    got = get(client, "q")
    assert got is not None
    assert (got[1], got[0].redelivered) == (b"1", True)
    got = get(client, "q")
    assert got is not None
    assert (got[1], got[0].redelivered) == (b"3", False)


def test_what_was_tried_again_and_leased_stays_leased_when_the_clock_is_set_back() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", delayed_retry_type="all", delayed_retry_min=1000)
    publish(client, "q", b"1")
    get(client, "q", no_ack=False)
    client.say(1, methods.BasicNack(delivery_tag=1, requeue=True))
    passes(bench, 1000)
    epoch = lease(client, 1, claim=True, timeout_ms=86_400_000)
    bench.clock.skew_s -= 7200
    client = crash(bench)
    assert rows(client, epoch) == [(1, b"1")]


def test_a_lease_that_ends_by_a_restart_costs_no_other_its_messages() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", max_length=2)
    publish(client, "q", b"1")
    client.publish(1, "", "q", b"2", False)
    first = lease(client, 2, "a", claim=True)
    publish(client, "q", b"3")
    publish(client, "q", b"4")
    second = lease(client, 2, "b", claim=True)
    client = crash(bench)
    assert rows(client, second, "b") == [(1, b"3"), (2, b"4")]
    assert lease(client, 0, "a", epoch=first + 1) == first + 1
    got = get(client, "q")
    assert got is not None
    assert (got[1], got[0].redelivered) == (b"1", True)


def test_what_was_leased_is_marked_with_the_lease() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q")
    publish(client, "q", b"1")
    client.publish(1, "", "q", b"2", False)
    lease(client, 2, claim=True)
    store = bench.broker.store
    assert store is not None
    store.journal.commit_now()  # the pass has not ended, and never does
    bench.disk.kill()
    bench.open()
    got = get(bench.client(), "q")
    assert got is not None
    assert got[0].redelivered


def test_a_lease_of_many_messages_is_taken_and_acked_in_portions() -> None:
    count = 2 * TAKEN + 100
    bench = Bench()
    client = bench.client()
    declare(client, "q")
    declare(client, "other")
    for number in range(count):
        publish(client, "q", b"%d" % number)
        if number % 3 == 0:
            publish(client, "other", b"x")  # so that entries of the queue do not follow on each other
    epoch = lease(client, count, claim=True)
    queue = bench.broker.virtual_hosts["/"].queues["q"]
    assert (queue.message_count(), queue.unacked) == (0, count)
    client = crash(bench)
    assert [number for number, _ in rows(client, epoch)] == [*range(1, count + 1)]
    through = count - 50
    results, _ = ask(client, "lease.ack", queue="q", consumer="r", epoch=epoch, through=through)
    assert results == {"acked": through, "settled": through}
    client = crash(bench)
    assert rows(client, epoch) == [(number, b"%d" % (number - 1)) for number in range(through + 1, count + 1)]
    ask(client, "lease.release", queue="q", consumer="r", epoch=epoch)
    assert bodies(client, "q") == [b"%d" % number for number in range(through, count)]


def test_a_lease_that_is_claimed_while_it_is_being_filled_gives_everything_back() -> None:
    count = 3 * TAKEN
    bench = Bench()
    client, other = bench.client(), bench.client()
    declare(client, "q")
    for number in range(count):
        publish(client, "q", b"%d" % number)
    lease(client, 0, claim=True)
    queue = bench.broker.virtual_hosts["/"].queues["q"]
    pass_work = bench.broker.pass_work
    pass_work.chores.pass_number, pass_work.chores.credit = pass_work.passes, 0
    for each, asked in ((client, {"epoch": 1}), (other, {"claim": True, "max-rows": 0})):
        each.say(2, methods.ChannelOpen())
        each.say(2, methods.QueueDeclare(queue=f"replies-{id(each)}", exclusive=True))
        headers = {"queue": "q", "consumer": "r", **asked}
        properties = BasicProperties(reply_to=f"replies-{id(each)}", headers=headers)
        each.publish(2, "amq.system", "queue.lease", b"", False, properties)
    pass_work.chores.finish()
    assert (queue.message_count(), queue.unacked) == (count, 0)
    answers = []
    for each in (client, other):
        each.written()
        each.say(2, methods.BasicGet(queue=f"replies-{id(each)}", no_ack=True))
        [event] = each.written()
        answers.append(decode_basic_properties(event.header, 12, len(event.header)).headers or {})
    assert answers[0]["error-code"] == 403
    assert (answers[1]["epoch"], answers[1]["last"]) == (2, 0)
    assert bodies(client, "q") == [b"%d" % number for number in range(count)]


def test_a_duplicate_of_what_is_leased_is_refused_after_a_restart_too() -> None:
    bench = Bench()
    client = bench.client()
    client.say(1, methods.QueueDeclare(queue="q", durable=True, arguments={"x-message-deduplication": True}))

    def send(body: bytes) -> None:
        properties = BasicProperties(headers={"x-deduplication-header": "k"})
        client.publish(1, "", "q", body, True, properties)
        passes(bench, 1)

    send(b"1")
    epoch = lease(client, 1, claim=True)
    send(b"2")
    client = crash(bench)
    send(b"3")
    assert bodies(client, "q") == []
    assert rows(client, epoch) == [(1, b"1")]
    ask(client, "lease.ack", queue="q", consumer="r", epoch=epoch, through=1)
    send(b"4")
    assert bodies(client, "q") == [b"4"]
