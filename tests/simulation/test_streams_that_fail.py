"""What goes from the journal to a stream that cannot be written stays in the journal until it can.

The disk fails the stream at that moment, and works for the journal: that has to wait all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from flintmq.broker.store.store import Store
from flintmq.broker.streams.streams import Streams
from flintmq.errors import StorageFault
from flintmq.wire import methods
from flintmq.wire.properties import BasicProperties

from .broker_client import Client
from .test_broker_recovery import Bench
from .test_lease_recovery import ask
from .test_ruled_recovery import bodies, declare, get, publish
from .test_streams_beside_queues import XID, come_to_rest, count

Move = Callable[[Bench, Client], None]


def store_of(bench: Bench) -> Store:
    assert bench.broker.store is not None
    return bench.broker.store


def streams_of(bench: Bench) -> Streams:
    assert bench.broker.streams is not None
    return bench.broker.streams


def fail_streams(bench: Bench) -> None:
    """The next write to a stream fails, and so does the second attempt."""
    bench.disk.sync_failures_left = 2


def reject(bench: Bench, client: Client) -> None:
    publish(client, "q", b"1")
    come_to_rest(bench)
    get(client, "q", no_ack=False)
    fail_streams(bench)
    client.say(1, methods.BasicReject(delivery_tag=1))


def release_delayed(bench: Bench, client: Client) -> None:
    arguments = {"x-delayed-type": "fanout"}
    exchange = methods.ExchangeDeclare(
        exchange="later", type="x-delayed-message", durable=True, arguments=arguments
    )
    client.say(1, exchange)
    client.say(1, methods.QueueBind(exchange="later", queue="s"))
    client.publish(1, "later", "", b"1", True, BasicProperties(headers={"x-delay": 60_000}))
    come_to_rest(bench)
    bench.clock.now_s += 60
    fail_streams(bench)
    bench.broker.timetable.run()


def take_in_transaction(bench: Bench, client: Client) -> None:
    publish(client, "q", b"1")
    come_to_rest(bench)
    client.say(1, methods.TxSelect())
    get(client, "q", no_ack=False)
    client.say(1, methods.BasicAck(delivery_tag=1))
    publish(client, "s", b"1")
    fail_streams(bench)
    client.say(1, methods.TxCommit())


def push_out_in_transaction(bench: Bench, client: Client) -> None:
    """The commit fills a queue, whose oldest message dies of it."""
    publish(client, "full", b"1")
    come_to_rest(bench)
    client.say(1, methods.TxSelect())
    publish(client, "full", b"2")
    fail_streams(bench)
    client.say(1, methods.TxCommit())


def commit_branch(bench: Bench, client: Client) -> None:
    client.say(1, methods.DtxDemarcationSelect())
    client.say(1, methods.DtxDemarcationStart(xid=XID))
    publish(client, "s", b"1")
    client.say(1, methods.DtxDemarcationEnd(xid=XID))
    client.say(1, methods.DtxCoordinationPrepare(xid=XID))
    come_to_rest(bench)
    fail_streams(bench)
    client.say(1, methods.DtxCoordinationCommit(xid=XID))


def move(bench: Bench, client: Client) -> None:
    publish(client, "q", b"1")
    come_to_rest(bench)
    fail_streams(bench)
    ask(client, "queue.move", queue="q", to="s")


def push_out_by_copy(bench: Bench, client: Client) -> None:
    publish(client, "full", b"1")
    publish(client, "plain", b"2")
    come_to_rest(bench)
    fail_streams(bench)
    ask(client, "queue.copy", queue="plain", to="full")


MOVES = (
    reject,
    release_delayed,
    take_in_transaction,
    push_out_in_transaction,
    commit_branch,
    move,
    push_out_by_copy,
)


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    client = bench.client()
    declare(client, "s", queue_type="stream")
    declare(client, "plain")
    declare(client, "q", dead_letter_exchange="", dead_letter_routing_key="s")
    declare(client, "full", max_length=1, dead_letter_exchange="", dead_letter_routing_key="s")
    come_to_rest(bench)
    return bench


def in_journal(bench: Bench, client: Client) -> int:
    """How many messages wait where they were before: in a queue, for their time, or for an outcome."""
    host = bench.broker.virtual_hosts["/"]
    later = host.exchanges.get("later")
    delayed = 0 if later is None else len(later.waiting)  # type: ignore[attr-defined]
    in_branches = sum(branch.published() for branch in host.branches.branches.values())
    return bodies(client, "q").count(b"1") + bodies(client, "full").count(b"1") + delayed + in_branches


@pytest.mark.parametrize("has_power", [True, False])
@pytest.mark.parametrize("act", MOVES, ids=[each.__name__ for each in MOVES])
def test_a_crash_finds_it_where_it_was(bench: Bench, act: Move, has_power: bool) -> None:
    act(bench, bench.client())
    assert not bench.disk.sync_failures_left
    bench.broker.finish_pass()
    store_of(bench).collect()
    store_of(bench).tick()
    if has_power:
        bench.disk.kill()
    else:
        bench.disk.crash()
    bench.open()
    assert count(bench, "s") + in_journal(bench, bench.client()) >= 1


@pytest.mark.parametrize("act", MOVES, ids=[each.__name__ for each in MOVES])
def test_it_is_in_the_stream_as_soon_as_the_disk_works(bench: Bench, act: Move) -> None:
    act(bench, bench.client())
    come_to_rest(bench)
    assert streams_of(bench).alarm == ""
    assert store_of(bench).synced == store_of(bench).last()
    bench.disk.crash()
    bench.open()
    assert count(bench, "s") == 1
    assert in_journal(bench, bench.client()) == 0


@pytest.mark.parametrize("act", MOVES, ids=[each.__name__ for each in MOVES])
def test_a_stop_says_what_is_not_on_disk_and_the_next_start_has_it(
    bench: Bench, act: Move, caplog: pytest.LogCaptureFixture
) -> None:
    act(bench, bench.client())
    bench.broker.finish_pass()
    bench.disk.sync_failures_left = 100
    with caplog.at_level(logging.ERROR):
        caplog.clear()
        streams_of(bench).close()
        store_of(bench).close()
    of_streams, of_journal = [record.getMessage() for record in caplog.records]
    assert of_streams.startswith("not everything in streams is on disk: cannot write to /data/streams: ")
    assert of_journal.startswith("not everything is on disk: ")
    assert of_journal.endswith("simulated sync failure")
    bench.disk.sync_failures_left = 0
    bench.disk.crash()
    bench.open()
    assert count(bench, "s") + in_journal(bench, bench.client()) >= 1


@pytest.mark.parametrize("act", MOVES, ids=[each.__name__ for each in MOVES])
def test_a_stop_writes_it_all_if_the_disk_works_by_then(bench: Bench, act: Move) -> None:
    act(bench, bench.client())
    bench.broker.finish_pass()
    streams_of(bench).close()
    store_of(bench).close()
    bench.disk.crash()
    bench.open()
    assert count(bench, "s") == 1
    assert in_journal(bench, bench.client()) == 0


def told(client: Client) -> list[type]:
    """Of what the broker has written, that which may leave."""
    client.output.waiting = False
    return [] if client.output.barrier else [type(event.method) for event in client.written()]


def test_nobody_is_told_that_something_is_safe_meanwhile(bench: Bench) -> None:
    publisher, committer, declarer = bench.client(), bench.client(), bench.client()
    publisher.say(1, methods.ConfirmSelect())
    committer.say(1, methods.TxSelect())
    publish(committer, "plain", b"3")
    reject(bench, bench.client())
    for client in (publisher, committer, declarer):
        client.written()
    publish(publisher, "plain", b"2")
    committer.say(1, methods.TxCommit())
    declarer.say(1, methods.QueueDeclare(queue="new", durable=True))
    for _ in range(3):
        bench.broker.finish_pass()
        store_of(bench).tick()
    assert [told(client) for client in (publisher, committer, declarer)] == [[], [], []]
    come_to_rest(bench)
    assert [told(client) for client in (publisher, committer, declarer)] == [
        [methods.BasicAck],
        [methods.TxCommitOk],
        [methods.QueueDeclareOk],
    ]


def test_the_journal_waits_for_the_newest_of_several(bench: Bench) -> None:
    reject(bench, bench.client())
    streams_of(bench).tick()  # not yet due
    awaited = streams_of(bench).awaited
    client = bench.client()
    reject(bench, client)
    assert streams_of(bench).awaited >= awaited > 0
    with pytest.raises(StorageFault, match="the journal waits for its streams"):
        store_of(bench).journal.commit_now()
    come_to_rest(bench)
    assert streams_of(bench).awaited == 0
    assert count(bench, "s") == 2


def test_the_journal_does_not_wait_for_a_stream_that_is_gone(bench: Bench) -> None:
    client = bench.client()
    reject(bench, client)
    client.say(1, methods.QueueDelete(queue="s"))
    come_to_rest(bench)
    assert store_of(bench).synced == store_of(bench).last()
    bench.disk.crash()
    bench.open()
    assert "s" not in bench.broker.virtual_hosts["/"].queues
    assert bodies(bench.client(), "q") == []


def test_consumers_are_served_meanwhile(bench: Bench) -> None:
    client = bench.client()
    publish(client, "plain", b"2")
    reject(bench, client)
    publish(client, "plain", b"3")
    assert bodies(client, "plain") == [b"2", b"3"]
    come_to_rest(bench)
    bench.disk.crash()
    bench.open()
    assert bodies(bench.client(), "plain") == []


def test_a_later_confirm_does_not_wait_for_a_batch_that_nobody_fills(bench: Bench) -> None:
    client = bench.client()
    client.say(1, methods.ConfirmSelect())
    release_delayed(bench, client)
    come_to_rest(bench)
    client.written()
    publish(client, "plain", b"2")
    come_to_rest(bench)
    assert told(client) == [methods.BasicAck]
