"""A crash while something is taken apart: what was deleted stays deleted, and what is new stays."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.broker.topology_journal import TopologyJournal
from flintmq.wire import methods

from .broker_client import Client
from .test_broker_recovery import Bench
from .test_ruled_recovery import bodies, crash, declare, publish

# More than is done where it begins, and in the pass of the crash: 64 and 64 steps of 32.
BINDINGS = 6000


def bound(client: Client) -> None:
    client.say(1, methods.ExchangeDeclare(exchange="x", type="direct", durable=True))
    declare(client, "q")
    for number in range(BINDINGS):
        client.say(1, methods.QueueBind(queue="q", exchange="x", routing_key=f"k{number}", no_wait=True))


def test_bindings_of_an_exchange_that_was_declared_anew() -> None:
    bench = Bench()
    client = bench.client()
    bound(client)
    bench.broker.finish_pass()
    client.say(1, methods.ExchangeDelete(exchange="x"))
    client.say(1, methods.ExchangeDeclare(exchange="x", type="direct", durable=True))
    client.say(1, methods.QueueBind(queue="q", exchange="x", routing_key="k0"))
    client.say(1, methods.QueueBind(queue="q", exchange="x", routing_key="new"))
    host = bench.broker.virtual_hosts["/"]
    assert host.binding_count > 1000
    client = crash(bench)
    host = bench.broker.virtual_hosts["/"]
    assert sorted(each.routing_key for each in host.exchanges["x"].bindings.values()) == ["k0", "new"]
    for key in ("k0", "k1", f"k{BINDINGS - 1}", "new"):
        publish(client, key, key.encode(), "x")
    assert bodies(client, "q") == [b"k0", b"new"]
    # What was left of the first one is not in the journal any more.
    store = bench.broker.store
    assert store is not None
    assert sum(key[:1] == b"b" for key in store.journal.values) == 2


def test_bindings_of_a_queue_that_was_declared_anew() -> None:
    bench = Bench()
    client = bench.client()
    bound(client)
    publish(client, "q", b"old")
    bench.broker.finish_pass()
    client.say(1, methods.QueueDelete(queue="q"))
    declare(client, "q")
    client.say(1, methods.QueueBind(queue="q", exchange="x", routing_key="k0"))
    publish(client, "k0", b"0", "x")
    client = crash(bench)
    host = bench.broker.virtual_hosts["/"]
    assert [each.routing_key for each in host.exchanges["x"].bindings.values()] == ["k0"]
    publish(client, "k1", b"1", "x")
    assert bodies(client, "q") == [b"0"]
    # It goes on in the next life, and in the one after.
    client.say(1, methods.QueueUnbind(queue="q", exchange="x", routing_key="k0"))
    client = crash(bench)
    assert not bench.broker.virtual_hosts["/"].exchanges["x"].bindings


@pytest.mark.parametrize("is_queue", [False, True])
def test_bindings_that_a_bug_has_left_are_not_those_of_something_new(
    monkeypatch: pytest.MonkeyPatch, is_queue: bool
) -> None:
    bench = Bench()
    client = bench.client()
    bound(client)
    bench.broker.finish_pass()
    delete_binding = TopologyJournal.delete_binding
    failures = [RuntimeError("a bug")]

    def failing(self: TopologyJournal, *arguments: Any) -> None:
        if failures and bench.broker.pass_work.chores.fresh is not None:
            raise failures.pop()
        delete_binding(self, *arguments)

    monkeypatch.setattr(TopologyJournal, "delete_binding", failing)
    with pytest.raises(RuntimeError, match="a bug"):
        client.say(1, methods.QueueDelete(queue="q") if is_queue else methods.ExchangeDelete(exchange="x"))
    assert not failures
    client = bench.client()
    client.say(1, methods.ExchangeDeclare(exchange="x", type="direct", durable=True))
    publish(client, "k1", b"to nobody", "x")
    declare(client, "q")
    assert bodies(client, "q") == []
    client = crash(bench)
    assert not bench.broker.virtual_hosts["/"].exchanges["x"].bindings
    publish(client, "k1", b"to nobody", "x")
    assert bodies(client, "q") == []


def test_a_long_queue_that_was_deleted_does_not_come_back() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q")
    for number in range(2000):
        publish(client, "q", str(number).encode())
    bench.broker.finish_pass()
    client.say(1, methods.QueueDelete(queue="q"))
    client = crash(bench)
    assert "q" not in bench.broker.virtual_hosts["/"].queues
    declare(client, "q")
    assert bodies(client, "q") == []
