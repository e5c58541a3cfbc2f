"""Topology that changes under the feet of publishers."""

from __future__ import annotations

import pytest
from conversation import House, Peer, publish

from flintmq.broker.exchanges.router import ROUTES_MAX
from flintmq.wire import methods


@pytest.fixture
def peer(house: House) -> Peer:
    peer = Peer(house).login(1, 2)
    peer.ask(1, methods.QueueDeclare(queue="q"))
    return peer


def count(peer: Peer) -> int:
    return peer.house.broker.virtual_hosts["/"].queues["q"].message_count()


def test_a_route_dropped_from_a_full_cache_is_not_used_on(peer: Peer) -> None:
    """The channel that used it last would send to the queue of that name that was deleted."""
    peer.send(publish(1, "", "q", b"1"))
    octets = bytearray()
    for number in range(ROUTES_MAX + 1):
        octets += publish(2, "", f"k{number}", b"")
    peer.send(bytes(octets))
    peer.say((2, methods.QueueDelete(queue="q")), (2, methods.QueueDeclare(queue="q")))
    peer.send(publish(1, "", "q", b"2"))
    assert count(peer) == 1


@pytest.mark.parametrize("exchange", ["", "amq.fanout", "amq.direct"])
def test_a_queue_made_anew_gets_what_the_old_one_got(peer: Peer, exchange: str) -> None:
    def make() -> None:
        peer.say((2, methods.QueueDeclare(queue="q")))
        if exchange:
            peer.say((2, methods.QueueBind(queue="q", exchange=exchange, routing_key="q")))

    make()
    for _ in range(3):
        peer.send(publish(1, exchange, "q", b"x"))
        assert count(peer) == 1
        peer.say((2, methods.QueueDelete(queue="q")))
        peer.send(publish(1, exchange, "q", b"to nobody"))
        make()
        assert count(peer) == 0


def test_exchanges_bound_in_a_circle_route_once_and_can_be_deleted(peer: Peer) -> None:
    for name in "abc":
        peer.say((1, methods.ExchangeDeclare(exchange=name, type="fanout", auto_delete=True)))
    for source, destination in ("ab", "bc", "ca", "aa"):
        peer.say((1, methods.ExchangeBind(source=source, destination=destination)))
    peer.say((1, methods.QueueBind(queue="q", exchange="c")))
    peer.send(publish(1, "a", "", b"x"))
    assert count(peer) == 1
    assert isinstance(peer.ask(1, methods.ExchangeDelete(exchange="b")), methods.ExchangeDeleteOk)
    peer.send(publish(1, "", "q", b"y"))
    assert count(peer) == 2
    for name in "ac":
        assert isinstance(peer.ask(1, methods.ExchangeDelete(exchange=name)), methods.ExchangeDeleteOk)
    host = peer.house.broker.virtual_hosts["/"]
    assert not host.queues["q"].sources
    assert not {"a", "b", "c"} & set(host.exchanges)


@pytest.mark.parametrize("name", ["\x00", " ", "é" * 127, "x" * 255, "%s{}"])
def test_a_name_of_any_octets_comes_back_as_it_was(peer: Peer, name: str) -> None:
    answer = peer.ask(1, methods.QueueDeclare(queue=name))
    assert isinstance(answer, methods.QueueDeclareOk)
    assert answer.queue == name
    peer.send(publish(1, "", name, b"x"))
    got = peer.ask(1, methods.BasicGet(queue=name))
    assert isinstance(got, methods.BasicGetOk)
    assert got.routing_key == name
    refused = peer.ask(1, methods.QueueDeclare(queue=name, exclusive=True))
    assert isinstance(refused, methods.ChannelClose)
