"""Messages that consumers may refuse: a pass asks as much as its portion, and the next one goes on there."""

from __future__ import annotations

from typing import Any

from playbook.dialogue import Client, Playbook

from flintmq.wire.methods import BasicConsume, BasicConsumeOk, BasicNack, QueueDeclare, QueueDeclareOk


def filled(messages: int, **properties: Any) -> tuple[Playbook, Client]:
    playbook = Playbook()
    client = playbook.client()
    client.declares("q")
    with playbook.one_pass():
        client.publishes("q", *[b"%d" % number for number in range(messages)], **properties)
    return playbook, client


def passes_of(playbook: Playbook, client: Client, consumes: BasicConsume) -> int:
    """Passes that it takes until the consumer has been offered all there is."""
    with playbook.one_pass():
        client >> consumes
        before = playbook.broker.pass_work.passes
        while playbook.broker.has_work():
            playbook.broker.finish_pass()
        passes = playbook.broker.pass_work.passes - before
    client << BasicConsumeOk(consumer_tag="c")
    return passes


def selecting(text: str) -> BasicConsume:
    return BasicConsume(queue="q", consumer_tag="c", no_ack=True, arguments={"x-selector": text})


def test_a_long_selector_looks_at_a_portion_in_each_pass() -> None:
    playbook, client = filled(2000)
    playbook.broker.pass_work.keep_waiting(True)
    text = " OR ".join(f"h{number} = 'v{number}'" for number in range(200))
    # Each evaluation counts as some 80 messages, and a pass may hand out 512 and those that have come.
    assert passes_of(playbook, client, selecting(text)) > 100
    client.hears_nothing()


def test_a_short_one_looks_at_many() -> None:
    playbook, client = filled(2000)
    playbook.broker.pass_work.keep_waiting(False)
    assert passes_of(playbook, client, selecting("h = 1")) <= 2
    client.hears_nothing()


def test_many_consumers_are_asked_about_few_messages_in_a_pass() -> None:
    playbook, client = filled(0)
    playbook.broker.pass_work.keep_waiting(True)
    for number in range(1000):
        client.consumes("q", f"c{number}", no_ack=True, arguments={"x-selector": f"h = {number}"})
    with playbook.one_pass():
        client.publishes("q", *[b"m"] * 100)
        before = playbook.broker.pass_work.passes
        while playbook.broker.has_work():
            playbook.broker.finish_pass()
        assert playbook.broker.pass_work.passes - before >= 40
    client.hears_nothing()


def test_those_that_came_back_among_others_are_offered_in_their_order() -> None:
    playbook, client = filled(0)
    pass_work = playbook.broker.pass_work
    with playbook.one_pass():
        for number in range(600):
            client.publishes("q", b"%d" % number, headers={"odd": number % 2})
    odd = {"x-selector": "odd = 1"}
    client >> BasicConsume(queue="q", consumer_tag="first", arguments=odd)
    client << BasicConsumeOk(consumer_tag="first")
    taken = [client.next(1) for _ in range(300)]
    assert len(taken) == 300
    client >> BasicNack(delivery_tag=300, multiple=True, requeue=True)
    pass_work.keep_waiting(True)
    again = [client.next(1) for _ in range(300)]
    assert [each.body for each in again] == [each.body for each in taken]
    text = "odd = 0 AND (" + " OR ".join(f"odd = {number}" for number in range(200)) + ")"
    client >> BasicConsume(queue="q", consumer_tag="rest", no_ack=True, arguments={"x-selector": text})
    client << BasicConsumeOk(consumer_tag="rest")
    rest = [client.next(1) for _ in range(300)]
    assert [each.body for each in rest] == [b"%d" % number for number in range(0, 600, 2)]
    client.hears_nothing()


def test_a_declare_asks_them_no_more_than_a_pass_would() -> None:
    playbook, client = filled(0)
    for number in range(1000):
        client.consumes("q", f"c{number}", no_ack=True, arguments={"x-selector": f"h = {number}"})
    with playbook.one_pass():
        client.publishes("q", *[b"m"] * 200)
        client >> QueueDeclare(queue="q", passive=True)
        assert playbook.broker.virtual_hosts["/"].queues["q"].dirty  # there is more to offer
    client << QueueDeclareOk(queue="q", message_count=200, consumer_count=1000)
