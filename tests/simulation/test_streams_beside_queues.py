"""What goes from the journal to a stream is in the stream before the journal lets go of it.

The journal is synced here and then everything ends, before the pass in which the stream would be written.
"""

from __future__ import annotations

import pytest

from flintmq.broker.streams.stream_queue import StreamQueue
from flintmq.broker.transactions.xid import Xid
from flintmq.wire import methods
from flintmq.wire.properties import BasicProperties

from .broker_client import Client
from .test_broker_recovery import Bench
from .test_lease_recovery import ask
from .test_ruled_recovery import bodies, declare, get, passes, publish

XID = Xid(1, b"branch", b"1").octets()


def cut_off(bench: Bench) -> Client:
    """The journal is on disk as it is now, streams as they were."""
    store = bench.broker.store
    assert store is not None
    store.journal.commit_now()
    bench.disk.kill()
    bench.open()
    return bench.client()


def count(bench: Bench, name: str) -> int:
    queue = bench.broker.virtual_hosts["/"].queues[name]
    assert isinstance(queue, StreamQueue)
    return queue.log.end


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    client = bench.client()
    declare(client, "s", queue_type="stream")
    declare(client, "q", dead_letter_exchange="", dead_letter_routing_key="s")
    return bench


def test_a_message_whose_time_has_come(bench: Bench) -> None:
    client = bench.client()
    arguments = {"x-delayed-type": "fanout"}
    exchange = methods.ExchangeDeclare(
        exchange="later", type="x-delayed-message", durable=True, arguments=arguments
    )
    client.say(1, exchange)
    client.say(1, methods.QueueBind(exchange="later", queue="s"))
    client.publish(1, "later", "", b"1", True, BasicProperties(headers={"x-delay": 10}))
    bench.broker.finish_pass()
    bench.clock.now_s += 1
    bench.broker.timetable.run()
    cut_off(bench)
    assert count(bench, "s") == 1


def test_a_dead_letter(bench: Bench) -> None:
    client = bench.client()
    publish(client, "q", b"1")
    bench.broker.finish_pass()
    get(client, "q", no_ack=False)
    client.say(1, methods.BasicReject(delivery_tag=1))
    client = cut_off(bench)
    assert bodies(client, "q") == []
    assert count(bench, "s") == 1


def test_a_transaction_that_takes_from_a_queue(bench: Bench) -> None:
    client = bench.client()
    publish(client, "q", b"1")
    client.say(1, methods.TxSelect())
    get(client, "q", no_ack=False)
    client.say(1, methods.BasicAck(delivery_tag=1))
    publish(client, "s", b"2")
    client.say(1, methods.TxCommit())
    client = cut_off(bench)
    assert bodies(client, "q") == []
    assert count(bench, "s") == 1


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_branch(bench: Bench, is_prepared: bool) -> None:
    client = bench.client()
    client.say(1, methods.DtxDemarcationSelect())
    client.say(1, methods.DtxDemarcationStart(xid=XID))
    publish(client, "s", b"1")
    client.say(1, methods.DtxDemarcationEnd(xid=XID))
    if is_prepared:
        client.say(1, methods.DtxCoordinationPrepare(xid=XID))
        bench.broker.finish_pass()
    client.say(1, methods.DtxCoordinationCommit(xid=XID, one_phase=not is_prepared))
    cut_off(bench)
    assert not bench.broker.virtual_hosts["/"].branches.branches
    assert count(bench, "s") == 1


def test_what_is_moved(bench: Bench) -> None:
    client = bench.client()
    publish(client, "q", b"1")
    bench.broker.finish_pass()
    results, _ = ask(client, "queue.move", queue="q", to="s")
    assert results == {"moved": 1, "left": 0}
    client = cut_off(bench)
    assert bodies(client, "q") == []
    assert count(bench, "s") == 1


def test_a_dead_letter_of_a_queue_that_a_transaction_fills(bench: Bench) -> None:
    client = bench.client()
    declare(client, "full", max_length=1, dead_letter_exchange="", dead_letter_routing_key="s")
    publish(client, "full", b"1")
    client.say(1, methods.TxSelect())
    publish(client, "full", b"2")
    client.say(1, methods.TxCommit())
    client = cut_off(bench)
    assert bodies(client, "full") == [b"2"]
    assert count(bench, "s") == 1


def test_a_dead_letter_of_a_queue_that_copies_fill(bench: Bench) -> None:
    client = bench.client()
    declare(client, "full", max_length=1, dead_letter_exchange="", dead_letter_routing_key="s")
    publish(client, "full", b"1")
    publish(client, "q", b"2")
    results, _ = ask(client, "queue.copy", queue="q", to="full")
    assert results["copied"] == 1
    client = cut_off(bench)
    assert bodies(client, "full") == [b"2"]
    assert count(bench, "s") == 1


def test_a_move_passes_over_what_has_expired() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "morgue")
    declare(client, "target")
    declare(client, "q", dead_letter_exchange="", dead_letter_routing_key="morgue")
    publish(client, "q", b"1", expiration="10")
    publish(client, "q", b"2")
    bench.clock.now_s += 1
    results, _ = ask(client, "queue.move", queue="q", to="target")
    assert results == {"moved": 1, "left": 0}
    assert bodies(client, "target") == [b"2"]
    assert bodies(client, "morgue") == [b"1"]
    passes(bench, 10)
    assert bench.broker.virtual_hosts["/"].queues["q"].unacked == 0


def test_a_confirm_does_not_wait_for_a_stream_that_is_gone(bench: Bench) -> None:
    client = bench.client()
    client.say(1, methods.ConfirmSelect())
    publish(client, "s", b"1")
    client.say(1, methods.QueueDelete(queue="s"))
    client.written()
    bench.broker.finish_pass()
    assert bench.broker.streams is not None
    bench.broker.streams.collect()
    assert [type(event.method) for event in client.written()] == [methods.BasicAck]


def test_setting_the_clock_ahead_makes_nothing_old(bench: Bench) -> None:
    client = bench.client()
    declare(client, "aged", queue_type="stream", max_age="1h")
    for _ in range(3):
        publish(client, "aged", b"1")
        bench.broker.finish_pass()
        bench.clock.now_s += 1000  # a quarter of the age is a segment
    assert bench.broker.streams is not None
    bench.clock.skew_s += 86_400
    bench.broker.streams.tick()
    queue = bench.broker.virtual_hosts["/"].queues["aged"]
    assert queue.message_count() == 3
    bench.clock.now_s += 86_400
    bench.broker.streams.tick()
    assert queue.message_count() < 3


def come_to_rest(bench: Bench) -> None:
    """Whatever is on its way to the disk gets there."""
    broker = bench.broker
    assert broker.store is not None
    assert broker.streams is not None
    for _ in range(10):
        broker.finish_pass()
        for each in (broker.store, broker.streams):
            each.tick()
            each.collect()
        bench.clock.now_s += 1


def test_a_confirm_waits_for_a_stream_whose_disk_failed_meanwhile(bench: Bench) -> None:
    """The message goes to the stream and to a full queue, whose oldest one dies: a letter is secured then."""
    client = bench.client()
    declare(client, "full", max_length=1, dead_letter_exchange="", dead_letter_routing_key="q")
    for queue in ("s", "full"):
        client.say(1, methods.QueueBind(exchange="amq.fanout", queue=queue))
    client.say(1, methods.ConfirmSelect())
    client.publish(1, "amq.fanout", "", b"1", True)
    come_to_rest(bench)
    client.written()
    bench.disk.sync_failures_left = 2
    client.publish(1, "amq.fanout", "", b"2", True)
    bench.broker.finish_pass()
    assert bench.broker.store is not None
    bench.broker.store.collect()
    assert count(bench, "s") == 1
    assert [event.method for event in client.written()] == []
    come_to_rest(bench)
    assert count(bench, "s") == 2
    assert [event.method for event in client.written()] == [methods.BasicAck(delivery_tag=2)]


def test_the_files_of_a_deleted_stream_go_when_the_journal_knows(bench: Bench) -> None:
    client = bench.client()
    publish(client, "s", b"1")
    come_to_rest(bench)
    streams = bench.broker.streams
    assert streams is not None
    [number] = streams.storage.numbers()
    bench.disk.sync_failures_left = 1
    client.say(1, methods.QueueDelete(queue="s"))
    bench.broker.finish_pass()
    streams.collect()
    assert streams.storage.numbers() == [number]
    come_to_rest(bench)
    assert streams.storage.numbers() == []


def test_readers_of_a_stream_are_fed_by_the_pass_alone(bench: Bench) -> None:
    """Else each consumer that comes would have all before it fed at once, however much there is."""
    client = bench.client()
    declare(client, "s", queue_type="stream")
    for number in range(3):
        publish(client, "s", b"%d" % number)
    come_to_rest(bench)
    readers = [bench.client(), bench.client()]
    for reader in readers:
        reader.say(1, methods.BasicQos(prefetch_count=10))
        offset = {"x-stream-offset": "first"}
        reader.say(1, methods.BasicConsume(queue="s", consumer_tag="c", arguments=offset))
    client.say(1, methods.QueueDeclare(queue="s", passive=True))
    for reader in readers:
        assert [each for each in reader.written() if isinstance(each.method, methods.BasicDeliver)] == []
    bench.broker.finish_pass()
    for reader in readers:
        assert [each.body for each in reader.written()] == [b"0", b"1", b"2"]
