"""What the broker itself sends to a full queue that refuses: nothing is let go that was not taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, carrying
from playbook.hourglass import TimedPlaybook, with_morgue

from flintmq.wire.methods import BasicPublish, ExchangeDeclare, ExchangeDeclareOk

FULL = {"x-max-length": 2, "x-overflow": "reject-publish"}


@pytest.fixture
def playbook() -> Iterator[TimedPlaybook]:
    playbook = TimedPlaybook()
    yield playbook
    playbook.end()


@pytest.fixture
def client(playbook: TimedPlaybook) -> Client:
    client = playbook.client()
    client.declares("replies", exclusive=True)
    client.consumes("replies", "replies", no_ack=True)
    return client


def ask(client: Client, name: str, **arguments: Any) -> Any:
    client >> carrying(
        BasicPublish(exchange="amq.system", routing_key=name), b"", headers=arguments, reply_to="replies"
    )
    heard = client.next(1)
    assert isinstance(heard, Carried), heard
    return heard.properties.headers


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_move_stops_at_a_full_queue(client: Client, playbook: TimedPlaybook, overflow: str) -> None:
    client.declares("from")
    with_morgue(client, "to", max_length=2, overflow=overflow)
    client.publishes("from", *[b"%d" % number for number in range(5)])
    assert ask(client, "queue.move", queue="from", to="to") == {
        "moved": 2,
        "left": 3,
        "stopped": "queue 'to' is full",
    }
    assert (playbook.depth("from"), playbook.depth("to"), playbook.depth("morgue")) == (3, 2, 0)
    assert not [delivery.redeliveries for delivery in playbook.queue("from").returned]
    assert client.gets_all("from") == [b"2", b"3", b"4"]


def test_a_copy_stops_at_a_full_queue(client: Client, playbook: TimedPlaybook) -> None:
    client.declares("from")
    client.declares("to", arguments=FULL)
    client.publishes("from", b"0", b"1", b"2")
    answer = ask(client, "queue.copy", queue="from", to="to")
    assert (answer["copied"], answer["last"], answer["stopped"]) == (2, 1, "queue 'to' is full")


def test_a_message_behind_expired_ones_goes_back_where_the_target_is_full(
    client: Client, playbook: TimedPlaybook
) -> None:
    client.declares("from")
    client.declares("to", arguments={"x-max-length-bytes": 2, "x-overflow": "reject-publish"})
    client.publishes("from", b"0", expiration="5")
    client.publishes("from", b"large")
    playbook.clock.now_s += 1  # no alarm has rung yet
    answer = ask(client, "queue.move", queue="from", to="to")
    assert (answer["moved"], answer["stopped"]) == (0, "queue 'to' is full")
    assert client.gets_all("from") == [b"large"]


def delayed(client: Client, *queues: str, **arguments: Any) -> None:
    client >> ExchangeDeclare(
        exchange="x", type="x-delayed-message", arguments={"x-delayed-type": "fanout", **arguments}
    )
    client << ExchangeDeclareOk()
    for queue in queues:
        client.binds(queue, "x")


def test_a_delayed_message_waits_for_room(
    client: Client, playbook: TimedPlaybook, caplog: pytest.LogCaptureFixture
) -> None:
    client.declares("q", arguments=FULL)
    client.declares("other")
    delayed(client, "q", "other")
    client.publishes("", *[b"%d" % number for number in range(6)], exchange="x", headers={"x-delay": 10})
    playbook.passes(10)
    playbook.passes(2000)
    assert (playbook.depth("q"), playbook.depth("other")) == (2, 6)
    assert [record.message for record in caplog.records] == [
        "exchange 'x': queue 'q' is full and refuses what is due: it is tried again each second"
    ]
    assert client.gets_all("q") == [b"0", b"1"]
    playbook.passes(2000)
    assert client.gets_all("q") == [b"2", b"3"]
    playbook.passes(2000)
    assert client.gets_all("q") == [b"4", b"5"]
    assert playbook.depth("other") == 6, "others get it once"
    playbook.passes(5000)
    assert playbook.depth("q") == 0
    exchange: Any = playbook.broker.virtual_hosts["/"].exchanges["x"]
    assert (exchange.waiting, exchange.given, exchange.kept_here) == ([], {}, {})


def test_a_delayed_message_that_is_refused_with_a_dead_letter_exchange_is_a_dead_letter(
    client: Client, playbook: TimedPlaybook
) -> None:
    with_morgue(client, "q", max_length=2, overflow="reject-publish-dlx")
    delayed(client, "q")
    client.publishes("", b"0", b"1", b"2", exchange="x", headers={"x-delay": 10})
    playbook.passes(10)
    assert (playbook.depth("q"), playbook.depth("morgue")) == (2, 1)


@pytest.mark.parametrize(("strategy", "taken"), [("at-most-once", 2), ("at-least-once", 4)])
def test_dead_letters_go_over_the_limit_if_they_are_to_arrive_at_least_once(
    client: Client, playbook: TimedPlaybook, strategy: str, taken: int
) -> None:
    client.declares("full", arguments=FULL)
    with_morgue(client, "q", "unused", dead_letter_routing_key="full", dead_letter_strategy=strategy)
    client.publishes("q", b"0", b"1", b"2", b"3", expiration="5")
    playbook.passes(10)
    assert (playbook.depth("q"), playbook.depth("full")) == (0, taken)
    client.publishes("full", b"refused")
    assert playbook.depth("full") == taken
