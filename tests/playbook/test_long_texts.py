"""Patterns and long texts: what it takes to hold a message against conditions is bounded, and counted."""

from __future__ import annotations

import random
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying

from flintmq.broker.matching.lookup import lookup_of
from flintmq.broker.matching.wildcard import Wildcard
from flintmq.wire import methods
from flintmq.wire.methods import BasicConsume, BasicConsumeOk, BasicPublish, ChannelClose

# Signs for any letter are looked for letter by letter.
LIKES = " OR ".join(f"a LIKE '%b{letter}_c%'" for letter in "defghijklmnopqrst" * 8)
# Whatever letters were read before decides where the machine is: each further one leads to a new place.
DEAR = "(a|b)*a(a|b){200}c"
CHANCE = random.Random(1)
LONG = "".join(CHANCE.choice("ab") for _ in range(100_000))

DEAR_BINDINGS: dict[str, dict[str, Any]] = {
    "x-selector": {"x-selector": LIKES},
    "x-regexp": {"x-pattern": DEAR, "x-header": "a"},
}


def send(client: Client, text: str, exchange: str = "", key: str = "") -> None:
    method = BasicPublish(exchange=exchange, routing_key=key)
    client >> carrying(method, b"body", headers={"a": text})


def bound(client: Client, kind: str, **arguments: Any) -> None:
    client.declares("q")
    client >> methods.ExchangeDeclare(exchange="x", type=kind)
    client << methods.ExchangeDeclareOk()
    client >> methods.QueueBind(queue="q", exchange="x", arguments=arguments)
    client << methods.QueueBindOk()


@pytest.mark.parametrize("kind", list(DEAR_BINDINGS))
def test_a_message_that_takes_too_long_is_refused(playbook: Playbook, kind: str) -> None:
    """One message of 100,000 letters kept everybody waiting for seconds."""
    client = playbook.client()
    bound(client, kind, **DEAR_BINDINGS[kind])
    send(client, LONG, "x")
    closed = client.hears(ChannelClose)
    assert (closed.reply_code, closed.class_id, closed.method_id) == (506, 60, 40)
    assert "its texts are long" in closed.reply_text
    client = playbook.client()
    send(client, LONG[:500], "x")
    assert client.gets_all("q") == []


def test_a_dead_letter_that_takes_too_long_goes_to_what_was_found(playbook: Playbook) -> None:
    """Nobody is there to be told, and the message was accepted."""
    client = playbook.client()
    bound(client, "x-selector", **{"x-selector": "a IS NOT NULL"})
    client.declares("late")
    client >> methods.QueueBind(queue="late", exchange="x", arguments=DEAR_BINDINGS["x-selector"])
    client << methods.QueueBindOk()
    client.declares("dying", arguments={"x-dead-letter-exchange": "x"})
    send(client, LONG, key="dying")
    client >> methods.BasicGet(queue="dying")
    assert isinstance(client.next(1), Carried)
    client >> methods.BasicReject(delivery_tag=1, requeue=False)
    assert (client.gets_all("q"), client.gets_all("late")) == ([b"body"], [])


@pytest.mark.parametrize("kind", list(DEAR_BINDINGS))
def test_what_it_takes_counts_in_the_work_of_the_read(client: Client, kind: str) -> None:
    bound(client, kind, **DEAR_BINDINGS[kind])
    with client.playbook.one_pass():
        send(client, LONG[:40], "x")
        assert client.playbook.broker.pass_work.copies >= 500


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-selector": f"({LIKES}) OR TRUE"},
        {"x-filter": {"type": "x-regexp", "arguments": {"x-pattern": f"{DEAR}|c", "x-header": "a"}}},
    ],
    ids=["selector", "regexp"],
)
def test_a_consumer_does_not_take_what_takes_it_too_long(playbook: Playbook, arguments: Any) -> None:
    """Others do, and it gets what it can be asked about."""
    client, other = playbook.client(), playbook.client()
    client.declares("q")
    client >> BasicConsume(queue="q", consumer_tag="c", no_ack=True, arguments=arguments)
    client << BasicConsumeOk(consumer_tag="c")
    send(other, LONG, key="q")
    client.hears_nothing()
    send(other, "abc", key="q")
    delivered = client.next(1)
    assert isinstance(delivered, Carried)
    assert delivered.properties.headers == {"a": "abc"}
    assert other.gets_all("q") == [b"body"]


def test_letters_that_a_wild_card_looks_at() -> None:
    asked = lookup_of(None, "")
    for pattern, least in (("a%", 0), ("%c%", 3000), ("%b_c%", 30_000), ("%" + "b_" * 500 + "c%", 100_000)):
        asked.steps = 0
        Wildcard(pattern, "_", "%").matches("a" + LONG, asked)
        assert least <= asked.steps <= 2 * least
