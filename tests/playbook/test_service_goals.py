"""Goals of queues: how long their messages wait, and what they hand out at least, beside other queues."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Carried, Client
from playbook.hourglass import TimedPlaybook
from playbook.test_services import ask, reply_queue

from flintmq.broker.messages.message import new_message
from flintmq.broker.queues.service_goals import ServiceGoals
from flintmq.broker.scheduling.pass_work import HANDED_OUT_MAX
from flintmq.config import Config, PolicySettings
from flintmq.wire import methods
from flintmq.wire.methods import ChannelClose, ChannelFlow, ChannelFlowOk, QueueDeclare

GOAL = "goal"


@pytest.fixture
def playbook() -> TimedPlaybook:
    return TimedPlaybook()


def furnished(playbook: TimedPlaybook, others: int, **goals: int) -> tuple[Client, Client]:
    """A publisher, and a consumer that takes nothing yet of some queues and of one with goals, the last."""
    publisher, reader = playbook.client(), playbook.client()
    for name in [*(f"q{number}" for number in range(others)), GOAL]:
        arguments = {"x-" + key.replace("_", "-"): value for key, value in goals.items()}
        publisher.declares(name, arguments=arguments if name == GOAL else {})
        reader.consumes(name, name, no_ack=True)
    reader >> ChannelFlow(active=False)
    reader << ChannelFlowOk(active=False)
    return publisher, reader


def served(reader: Client) -> list[str]:
    """The queues in the order in which their messages have come."""
    heard = [each for _, each in reader.heard()]
    reader.inbox.clear()
    return [each.method.consumer_tag for each in heard if isinstance(each, Carried)]


def flows(reader: Client) -> None:
    reader >> ChannelFlow(active=True)
    reader << ChannelFlowOk(active=True)


def test_what_has_waited_for_a_part_of_its_time_comes_first(playbook: TimedPlaybook) -> None:
    publisher, reader = furnished(playbook, 3, max_delivery_time=400)
    for name in ("q0", "q1", "q2", GOAL):
        publisher.publishes(name, b"m")
    playbook.passes(99)
    flows(reader)
    assert served(reader) == ["q0", "q1", "q2", GOAL]
    reader >> ChannelFlow(active=False)
    reader << ChannelFlowOk(active=False)
    for name in ("q0", "q1", "q2", GOAL):
        publisher.publishes(name, b"m")
    playbook.passes(100)
    flows(reader)
    assert served(reader) == [GOAL, "q0", "q1", "q2"]


def test_those_that_are_due_first_come_first_and_in_turns_with_others(playbook: TimedPlaybook) -> None:
    publisher, reader = furnished(playbook, 3, max_delivery_time=400)
    for name, wait_ms in (("slow", 4000), ("soon", 40)):
        publisher.declares(name, arguments={"x-max-delivery-time": wait_ms})
        reader.consumes(name, name, no_ack=True)
    for name in ("q0", "q1", "q2", GOAL, "slow", "soon"):
        publisher.publishes(name, b"m")
    playbook.passes(1000)
    flows(reader)
    assert served(reader) == ["soon", "q0", GOAL, "q1", "slow", "q2"]


def backlog(playbook: TimedPlaybook, publisher: Client, others: int, messages: int) -> dict[str, int]:
    """Each queue has so many messages of ten octets; by queue how many are there."""
    playbook.broker.pass_work.keep_waiting(True)
    for name in [*(f"q{number}" for number in range(others)), GOAL]:
        publisher.publishes(name, *[bytes(10)] * messages)
    return {name: playbook.depth(name) for name in [*(f"q{number}" for number in range(others)), GOAL]}


def passes(playbook: TimedPlaybook, count: int) -> None:
    """So many passes of a millisecond each, and nothing between them."""
    for _ in range(count):
        playbook.clock.now_s += 0.001
        playbook.broker.pass_work.tick()
        playbook.broker.finish_pass()


@pytest.mark.parametrize("bandwidth", [0, 1_000_000])
def test_a_queue_gets_its_bandwidth_and_the_others_theirs(playbook: TimedPlaybook, bandwidth: int) -> None:
    goals = {"min_bandwidth": bandwidth} if bandwidth else {}
    publisher, reader = furnished(playbook, 40, **goals)
    before = backlog(playbook, publisher, 40, 1500)
    passes(playbook, 1)
    reader.session.held_channels()[0].flow(True)
    passes(playbook, 12)
    taken = {name: count - playbook.depth(name) for name, count in before.items()}
    assert min(taken.values()) > 0, taken
    due = 11 * 1000 // 10  # messages; in the last of 12 ms the queue need not have had its turn
    assert (taken[GOAL] >= due) == bool(bandwidth), taken
    served(reader)


def test_a_goal_that_cannot_be_met_starves_nobody(playbook: TimedPlaybook) -> None:
    publisher, reader = furnished(playbook, 5, min_bandwidth=4_294_967_295)
    before = backlog(playbook, publisher, 5, 2 * HANDED_OUT_MAX)
    playbook.passes(10)
    reader.session.held_channels()[0].flow(True)
    passes(playbook, 1)
    taken = {name: count - playbook.depth(name) for name, count in before.items()}
    assert taken[GOAL] > 2 * taken["q0"] > 0, taken
    assert min(taken.values()) > 0, taken
    served(reader)


def test_messages_that_are_late_are_counted(playbook: TimedPlaybook) -> None:
    publisher, reader = furnished(playbook, 0, max_delivery_time=100)
    publisher.publishes(GOAL, b"1", b"2")
    playbook.passes(60)
    playbook.broker.pass_work.tick()
    publisher.publishes(GOAL, b"3")
    playbook.passes(41)
    playbook.broker.pass_work.tick()
    flows(reader)
    assert len(served(reader)) == 3
    reply_queue(publisher)
    assert ask(publisher, "queue.info", queue=GOAL)["messages-late"] == 2
    publisher.declares("plain")
    assert "messages-late" not in ask(publisher, "queue.info", queue="plain")


def test_goals_hold_for_gets_and_for_consumers_that_refuse(playbook: TimedPlaybook) -> None:
    client = playbook.client()
    client.declares(GOAL, arguments={"x-max-delivery-time": 100, "x-max-priority": 3})
    client.publishes(GOAL, b"1", b"2")
    playbook.passes(101)
    playbook.broker.pass_work.tick()
    assert client.gets(GOAL) == b"1"
    client >> methods.BasicConsume(
        queue=GOAL, consumer_tag="c", no_ack=True, arguments={"x-selector": "1 = 1"}
    )
    client << methods.BasicConsumeOk(consumer_tag="c")
    assert client.bodies() == [b"2"]
    goals = playbook.queue(GOAL).rules.goals  # type: ignore[union-attr]
    assert goals is not None
    assert goals.late == 2


def test_a_policy_sets_goals_and_takes_them_away() -> None:
    policy = PolicySettings("goals", "^goal$", {"max-delivery-time": 50, "min-bandwidth": 1000})
    playbook = TimedPlaybook(Config(policies=(policy,)))
    client = playbook.client()
    client.declares(GOAL)
    client.declares("other")
    rules = playbook.queue(GOAL).rules
    assert rules is not None
    assert rules.goals is not None
    assert (rules.goals.wait_ms_max, rules.goals.bandwidth) == (50, 1000)
    assert playbook.queue("other").rules is None


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-max-delivery-time", 0),
        ("x-max-delivery-time", "1"),
        ("x-min-bandwidth", 0),
        ("x-min-bandwidth", 1 << 32),
    ],
)
def test_wrong_goals_are_refused(playbook: TimedPlaybook, argument: str, value: Any) -> None:
    client = playbook.client()
    client >> QueueDeclare(queue="q", arguments={argument: value})
    close = client.hears(ChannelClose)
    assert (close.reply_code, argument in close.reply_text) == (406, True)


def test_a_burst_is_no_debt_of_hours() -> None:
    """What went out while nobody else waited does not keep the queue from its bandwidth later."""
    timetable = TimedPlaybook().broker.timetable
    goals = ServiceGoals(timetable)
    goals.set(-1, 1000)
    now_ms = timetable.now_ms()
    for _ in range(100):
        goals.handed_out(new_message(b"\0\0", bytes(14) + bytes(1_000_000), 14, 0, 1), now_ms)
    assert not goals.is_owed(now_ms)
    assert goals.is_owed(now_ms + 2000)
