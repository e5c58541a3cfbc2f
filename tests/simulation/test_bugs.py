"""A bug inside a commit, a dead letter or a release: who asked is told, and nobody loses anything by it.

The bug is an exchange that raises, so both builds have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flintmq.broker.broker import Broker
from flintmq.broker.exchanges.exchange import DirectExchange
from flintmq.broker.exchanges.exchange_types import EXCHANGE_TYPES
from flintmq.broker.exchanges.route import RoutingContext
from flintmq.broker.queues.queue import Queue
from flintmq.broker.queues.retries import Retries
from flintmq.broker.transactions.xid import Xid
from flintmq.errors import ConnectionFault
from flintmq.wire import amqp, methods

from .agreement import check_agreement
from .broker_client import Client
from .test_broker_recovery import Bench

XID = Xid(1, b"bug", b"1").octets()


class Bug(Exception):
    pass


class Raising(DirectExchange):
    """Takes nothing while `is_broken`."""

    type = "x-raising"

    receives = True
    is_broken = True

    def receive(self, context: RoutingContext) -> int:
        if Raising.is_broken:
            raise Bug("for once")
        return 0

    def route_message(self, routing_key: str, context: RoutingContext, found: dict[object, object]) -> None:
        self.route(routing_key, None, found)


@pytest.fixture
def bench() -> Iterator[Bench]:
    EXCHANGE_TYPES["x-raising"] = Raising
    Raising.is_broken = True
    bench = Bench()
    client = bench.client()
    client.say(1, methods.ExchangeDeclare(exchange="bug", type="x-raising", durable=True))
    client.say(1, methods.QueueDeclare(queue="q", durable=True))
    client.say(1, methods.QueueBind(exchange="bug", queue="q", routing_key="k"))
    client.drop()
    yield bench
    del EXCHANGE_TYPES["x-raising"]


def fail(client: Client, method: methods.Method) -> None:
    """What a link does: the connection ends."""
    with pytest.raises(Bug):
        client.say(1, method)
    client.session.close_connection(ConnectionFault(amqp.INTERNAL_ERROR, "INTERNAL_ERROR"))
    assert isinstance(client.written()[-1].method, methods.ConnectionClose)


def confirmed(bench: Bench) -> int:
    """Somebody else publishes three messages; how many are confirmed."""
    client = bench.client()
    client.say(1, methods.ConfirmSelect())
    for body in (b"7.", b"8.", b"9."):
        client.publish(1, "", "q", body, persistent=True)
    rest(bench.broker)
    acks = [each.method for each in client.written() if isinstance(each.method, methods.BasicAck)]
    client.drop()
    return acks[-1].delivery_tag if acks else 0


def rest(broker: Broker) -> None:
    assert broker.store is not None
    for _ in range(4):
        broker.finish_pass()
        broker.store.collect()


def bodies(bench: Bench, name: str = "q") -> list[bytes]:
    client = bench.client()
    client.written()
    found = []
    while True:
        client.say(1, methods.BasicGet(queue=name))
        event = client.written()[-1]
        if not isinstance(event.method, methods.BasicGetOk):
            client.drop()
            return found
        found.append(event.body)


def test_a_commit_that_fails_half_way(bench: Bench) -> None:
    client = bench.client()
    client.say(1, methods.TxSelect())
    client.publish(1, "", "q", b"1.", persistent=True)
    client.publish(1, "bug", "k", b"2.", persistent=True)
    client.publish(1, "", "q", b"3.", persistent=True)
    fail(client, methods.TxCommit())
    assert bench.broker.store is not None
    assert not bench.broker.store.journal.in_group()
    check_agreement(bench.broker, [])
    assert confirmed(bench) == 3
    bench.reopen()
    assert bodies(bench) == [b"1.", b"7.", b"8.", b"9."], "what shows stays, what did not is not there"


def test_a_branch_whose_commit_fails_half_way_is_handed_over_later(bench: Bench) -> None:
    client = bench.client()
    client.say(1, methods.DtxDemarcationSelect())
    client.say(1, methods.DtxDemarcationStart(xid=XID))
    client.publish(1, "", "q", b"1.", persistent=True)
    client.publish(1, "bug", "k", b"2.", persistent=True)
    client.publish(1, "", "q", b"3.", persistent=True)
    client.say(1, methods.DtxDemarcationEnd(xid=XID))
    client.say(1, methods.DtxCoordinationPrepare(xid=XID))
    rest(bench.broker)
    fail(client, methods.DtxCoordinationCommit(xid=XID))
    check_agreement(bench.broker, [])
    assert confirmed(bench) == 3
    bench.reopen()
    assert bodies(bench) == [b"1.", b"7.", b"8.", b"9."]
    for _ in range(3):
        bench.clock.now_s += 2
        bench.broker.timetable.run()
        rest(bench.broker)
    assert bodies(bench) == [b"1.", b"7.", b"8.", b"9."], "the bug is there still"
    Raising.is_broken = False
    for _ in range(3):
        bench.clock.now_s += 2
        bench.broker.timetable.run()
        rest(bench.broker)
    assert bodies(bench) == [b"1.", b"7.", b"8.", b"9.", b"2.", b"3."]
    assert not bench.broker.virtual_hosts["/"].branches.branches
    check_agreement(bench.broker, [])


def test_a_dead_letter_that_cannot_leave_is_sent_later(bench: Bench) -> None:
    arguments = {"x-dead-letter-exchange": "bug", "x-dead-letter-routing-key": "k", "x-max-length": 1}
    client = bench.client()
    client.say(1, methods.QueueDeclare(queue="short", durable=True, arguments=arguments))
    client.publish(1, "", "short", b"1.", persistent=True)
    client.publish(1, "", "short", b"2.", persistent=True)
    client.drop()
    check_agreement(bench.broker, [])
    assert confirmed(bench) == 3
    Raising.is_broken = False
    bench.clock.now_s += 2
    bench.broker.timetable.run()
    rest(bench.broker)
    assert bodies(bench) == [b"7.", b"8.", b"9.", b"1."]
    check_agreement(bench.broker, [])


def test_a_dead_letter_that_can_never_leave_is_back_in_its_queue_after_a_restart(bench: Bench) -> None:
    arguments = {"x-dead-letter-exchange": "bug", "x-max-length": 1}
    client = bench.client()
    client.say(1, methods.QueueDeclare(queue="short", durable=True, arguments=arguments))
    client.publish(1, "", "short", b"1.", persistent=True)
    client.publish(1, "", "short", b"2.", persistent=True)
    client.drop()
    for _ in range(20):
        bench.clock.now_s += 2
        bench.broker.timetable.run()
    letters = bench.broker.virtual_hosts["/"].router.dead_letters
    assert not letters.failed
    assert not letters.dead
    bench.reopen()
    queue = bench.broker.virtual_hosts["/"].queues["short"]
    assert queue.message_count() == 2
    Raising.is_broken = False


def test_a_queue_whose_alarm_raises_keeps_no_other_from_ringing(bench: Bench) -> None:
    rung = []

    def ring() -> None:
        raise Bug

    timetable = bench.broker.timetable
    timetable.at(timetable.now_ms(), ring)
    timetable.at(timetable.now_ms(), lambda: rung.append(1))
    timetable.run()
    assert rung == [1]


def test_a_group_that_was_left_open_is_closed_with_the_pass(
    bench: Bench, groups_left_open: list[str]
) -> None:
    store = bench.broker.store
    assert store is not None
    store.journal.begin_group()
    assert confirmed(bench) == 3
    assert len(groups_left_open) == 1
    groups_left_open.clear()
    assert not store.journal.in_group()
    bench.reopen()
    assert bodies(bench) == [b"7.", b"8.", b"9."]


class RaisingRules:
    """The rules of a queue, of which the n-th look at how messages are retried raises."""

    def __init__(self, rules: Any, looks: int) -> None:
        self.rules = rules
        self.looks = looks

    def __getattr__(self, name: str) -> Any:
        if name == "retry_type":
            self.looks -= 1
            if not self.looks:
                raise Bug("for once")
        return getattr(self.rules, name)


def returning(bench: Bench, looks: int, count: int = 2, **arguments: object) -> tuple[Queue, Retries]:
    """A queue of so many messages, which raises as they come back."""
    client = bench.client()
    known = {"x-delivery-limit": 1, **arguments}
    client.say(1, methods.QueueDeclare(queue="limited", durable=True, arguments=known))
    for number in range(count):
        client.publish(1, "", "limited", b"%d." % (number + 1), persistent=True)
    client.drop()
    queue: Queue = bench.broker.virtual_hosts["/"].queues["limited"]
    assert queue.rules is not None
    retries = queue.rules.retries
    assert retries is not None
    retries.set(RaisingRules(queue.rules.settings, looks))
    return queue, retries


def test_what_a_bug_keeps_from_coming_back_has_come_back_once(bench: Bench) -> None:
    """Else it would reach its delivery limit for the bug."""
    queue, _ = returning(bench, 2)
    taken = [queue.take(), queue.take()]
    deliveries = [each for each in taken if each is not None]
    queue.take_out(2)
    with pytest.raises(Bug):
        queue.requeue(deliveries)
    queue.requeue(deliveries)
    assert queue.unacked == 0
    assert bodies(bench, "limited") == [b"1.", b"2."]


def test_a_bug_in_a_portion_of_what_comes_back_keeps_none_of_it(bench: Bench) -> None:
    count = 5000
    queue, _ = returning(bench, 3000, count)
    deliveries = [each for each in (queue.take() for _ in range(count)) if each is not None]
    queue.take_out(count)
    queue.requeue(deliveries)
    rest(bench.broker)
    assert (queue.message_count(), queue.unacked, queue.returning) == (count, 0, 0)


def test_what_a_bug_keeps_from_coming_back_waits_for_its_retry_once(bench: Bench) -> None:
    arguments = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1000}
    queue, retries = returning(bench, 2, **arguments)
    client = bench.client()
    for _ in range(2):
        client.say(1, methods.BasicGet(queue="limited"))
    fail(client, methods.BasicNack(delivery_tag=2, multiple=True, requeue=True))
    client.drop()
    rest(bench.broker)
    assert len(retries.waiting) == 2
    bench.clock.now_s += 2
    bench.broker.timetable.run()
    assert queue.unacked == 0
    assert bodies(bench, "limited") == [b"1.", b"2."]
