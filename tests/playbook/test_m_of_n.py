"""The exchange type x-m-of-n: each message goes to so many of its destinations."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Client, Playbook

from flintmq.wire.methods import ChannelClose, ExchangeDeclare, ExchangeDeclareOk

QUEUES = ("a", "b", "c", "d")


def spreading(client: Client, **arguments: Any) -> None:
    client >> ExchangeDeclare(exchange="x", type="x-m-of-n", arguments=arguments)
    client << ExchangeDeclareOk()
    for queue in QUEUES:
        client.declares(queue)
        client.binds(queue, "x", "work")


@pytest.mark.parametrize("copies", [1, 2, 3, 4, 9])
def test_each_message_goes_to_so_many(copies: int) -> None:
    playbook = Playbook()
    client = playbook.client()
    spreading(client, **{"x-copies": copies})
    client.binds("a", "x", "also work")  # it counts once all the same
    bodies = [b"%d" % number for number in range(12)]
    for body in bodies:
        client.publishes("work", body, exchange="x")
    got = [client.gets_all(queue) for queue in QUEUES]
    reached = min(copies, len(QUEUES))
    assert sorted(body for each in got for body in each) == sorted(bodies * reached)
    assert {len(each) for each in got} == {12 * reached // len(QUEUES)}, "the load is even"


def test_only_those_count_whose_binding_fits() -> None:
    playbook = Playbook()
    client = playbook.client()
    client >> ExchangeDeclare(
        exchange="x", type="x-m-of-n", arguments={"x-copies": 2, "x-routing-type": "topic"}
    )
    client << ExchangeDeclareOk()
    for queue, pattern in zip(QUEUES, ("eu.#", "eu.*", "eu.nl", "us.#"), strict=True):
        client.declares(queue)
        client.binds(queue, "x", pattern)
    for _ in range(6):
        client.publishes("eu.nl", b"job", exchange="x")
    assert [len(client.gets_all(queue)) for queue in QUEUES] == [4, 4, 4, 0]


def test_it_goes_on_with_those_that_are_left() -> None:
    playbook = Playbook()
    client = playbook.client()
    spreading(client, **{"x-copies": 2})
    for queue in ("a", "b"):
        playbook.broker.virtual_hosts["/"].delete_queue(playbook.broker.virtual_hosts["/"].queues[queue])
    playbook.finish_pass()
    client.publishes("work", b"job", exchange="x")
    assert client.gets_all("c") == client.gets_all("d") == [b"job"]


@pytest.mark.parametrize("copies", [None, 0, -1, "two", 1001])
def test_how_many_must_be_said(copies: Any) -> None:
    client = Playbook().client()
    arguments = {} if copies is None else {"x-copies": copies}
    client >> ExchangeDeclare(exchange="x", type="x-m-of-n", arguments=arguments)
    close = client.hears(ChannelClose)
    assert close.reply_code == 406
    assert "x-copies" in close.reply_text
