"""Branches of distributed transactions over queues with rules: dead letters, limits, expiry."""

from __future__ import annotations

from flintmq.broker.xid import Xid
from flintmq.wire import amqp, methods

from .broker_client import Client
from .test_broker_recovery import Bench
from .test_ruled_recovery import bodies, crash, declare, get, passes, publish

XID = Xid(1, b"branch", b"1").octets()


def selected(bench: Bench) -> Client:
    client = bench.client()
    client.say(1, methods.DtxDemarcationSelect())
    return client


def prepared(client: Client, tag: int, method: methods.BasicAck | methods.BasicNack) -> None:
    """A branch that settles one delivery."""
    client.say(1, methods.DtxDemarcationStart(xid=XID))
    method.delivery_tag = tag
    client.say(1, method)
    client.say(1, methods.DtxDemarcationEnd(xid=XID))
    client.written()
    client.say(1, methods.DtxCoordinationPrepare(xid=XID))
    [event] = client.written()
    assert isinstance(event.method, methods.DtxCoordinationPrepareOk)
    assert event.method.flags == amqp.XA_OK


def test_an_ack_outside_of_branches_is_no_rejection() -> None:
    bench = Bench()
    client = selected(bench)
    declare(client, "morgue")
    declare(client, "q", dead_letter_exchange="", dead_letter_routing_key="morgue")
    publish(client, "q", b"1")
    assert get(client, "q", no_ack=False) is not None
    client.say(1, methods.BasicAck(delivery_tag=1))
    assert bodies(client, "morgue") == []
    assert bench.broker.virtual_hosts["/"].queues["q"].unacked == 0
