"""What a loss of power tore apart, or a change of configuration, is found again as it should be."""

from __future__ import annotations

import random

from flintmq.broker.broker import Broker
from flintmq.broker.store.topology_records import handed_out_key
from flintmq.config import Config
from flintmq.server.data_directory import recovered_broker
from flintmq.storage.options import JournalOptions
from flintmq.wire import methods

from .broker_client import Client
from .journal_history import DIRECTORY, SimulatedClock
from .simulated_disk import SimulatedDisk


class Bench:
    """A broker on a simulated disk, which can be had again as the disk has it."""

    def __init__(self) -> None:
        chance = random.Random(1)
        self.disk = SimulatedDisk(chance)
        self.clock = SimulatedClock(chance)
        self.open()

    def open(self, *virtual_hosts: str) -> Broker:
        config = Config(virtual_hosts=virtual_hosts or ("/",))
        options = JournalOptions(threaded=False, segment_octets=8192)
        self.broker, _ = recovered_broker(config, self.clock, lambda: None, DIRECTORY, self.disk, options)
        return self.broker

    def client(self) -> Client:
        client = Client(self.broker, [])
        client.say(1, methods.ChannelOpen())
        return client

    def reopen(self, *virtual_hosts: str) -> Broker:
        assert self.broker.store is not None
        self.broker.finish_pass()
        self.broker.store.close()
        self.disk.kill()
        return self.open(*virtual_hosts)


def wired(bench: Bench) -> Client:
    client = bench.client()
    client.say(1, methods.ExchangeDeclare(exchange="x", type="direct", durable=True))
    client.say(1, methods.QueueDeclare(queue="q", durable=True))
    client.say(1, methods.QueueBind(exchange="x", queue="q", routing_key="k"))
    return client


def test_a_binding_that_has_lost_an_end_is_not_back_with_it() -> None:
    bench = Bench()
    wired(bench)
    assert bench.broker.store is not None
    journal = bench.broker.store.journal
    for key in [key for key in journal.values if key.startswith(b"q")]:
        journal.delete_value(key)
    bench.reopen()
    bench.client().say(1, methods.QueueDeclare(queue="q", durable=True))
    host = bench.reopen().virtual_hosts["/"]
    assert set(host.queues) == {"q"}
    assert not host.exchanges["x"].bindings


def test_a_mark_without_its_queue_goes() -> None:
    bench = Bench()
    assert bench.broker.store is not None
    bench.broker.store.journal.put_value(handed_out_key(7), bytes(8))
    bench.reopen()
    bench.reopen()
    assert bench.broker.store is not None
    assert handed_out_key(7) not in bench.broker.store.journal.values


def test_a_virtual_host_that_is_not_configured_keeps_what_it_holds() -> None:
    bench = Bench()
    wired(bench).publish(1, "x", "k", b"1.", persistent=True)
    number = bench.broker.virtual_hosts["/"].queues["q"].number
    other = bench.reopen("other").virtual_hosts["other"]
    assert not other.queues
    assert other.add_queue("fresh", True, False, False, {}, 0).number > number
    host = bench.reopen("/", "other").virtual_hosts["/"]
    assert host.queues["q"].message_count() == 1
    assert len(host.exchanges["x"].bindings) == 1


def test_what_was_handed_out_before_goes_to_a_consumer_that_may_refuse() -> None:
    bench = Bench()
    client = wired(bench)
    for number in range(100):
        client.publish(1, "x", "k", b"%d." % number, persistent=True)
    client.say(1, methods.BasicConsume(queue="q", consumer_tag="c"))
    bench.broker.finish_pass()
    for number in range(100, 120):
        client.publish(1, "x", "k", b"%d." % number, persistent=True)
    client.drop()
    bench.reopen()
    assert bench.broker.store is not None
    bench.broker.store.loaded_messages = 7
    client = bench.client()
    client.written()
    client.say(1, methods.BasicConsume(queue="q", consumer_tag="c", no_local=True))
    heard = []
    while bench.broker.pass_work.has_work():
        bench.broker.finish_pass()
        heard += [
            (event.method.redelivered, int(event.body[:-1]))
            for event in client.written()
            if isinstance(event.method, methods.BasicDeliver)
        ]
    assert heard == [(number < 100, number) for number in range(120)]


def test_the_number_of_what_was_deleted_is_not_given_again() -> None:
    """Damage may bring back messages that it had, which are not those of something new."""
    bench = Bench()
    given: list[int] = []
    for _ in range(3):
        client = bench.client()
        delayed = {"x-delayed-type": "direct"}
        declare = methods.ExchangeDeclare(
            exchange="later", type="x-delayed-message", durable=True, arguments=delayed
        )
        client.say(1, methods.QueueDeclare(queue="q", durable=True))
        client.say(1, declare)
        host = bench.broker.virtual_hosts["/"]
        given += [host.queues["q"].number, host.exchanges["later"].number]
        client.say(1, methods.QueueDelete(queue="q"))
        client.say(1, methods.ExchangeDelete(exchange="later"))
        bench.reopen()
    assert len(set(given)) == 6
    assert given == sorted(given)
