"""What a client is told of lost publishes: in their order, and in portions where they are many."""

from __future__ import annotations

from flintmq.broker.broker import Broker
from flintmq.broker.channels.confirms import Confirms
from flintmq.broker.scheduling.chores import MESSAGES
from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.protocol.outbox import Output
from flintmq.wire import amqp
from flintmq.wire.methods import BasicAck, BasicNack, decode_method


def spend_credit(broker: Broker) -> None:
    """No chore takes a step before the end of the pass."""
    chores = broker.pass_work.chores
    chores.pass_number = broker.pass_work.passes
    chores.credit = 0


def settlements(output: Output) -> list[tuple[str, int, bool]]:
    """What was written since the last call, as ("ack", tag, multiple)."""
    octets = bytes(output.buffer[output.start : output.fill])
    output.sent(output.pending())
    found = []
    for at in range(0, len(octets), 21):
        method = decode_method(amqp.VERSION_0_9_1, octets[at + 7 : at + 20])
        assert isinstance(method, BasicAck | BasicNack)
        found.append((method.NAME.split(".")[1], method.delivery_tag, method.multiple))
    return found


def confirming() -> tuple[Broker, Confirms, Output]:
    broker = Broker(Config(), Clock())
    output = Output([], None)
    confirms = Confirms(1, 1, broker.virtual_hosts["/"].router, output)
    confirms.active = True
    return broker, confirms, output


def test_neighbours_are_lost_by_one_nack_and_acks_come_in_their_place() -> None:
    _, confirms, output = confirming()
    confirms.published = 12
    for number in (3, 4, 5, 7, 11, 12):
        confirms.lose(number)
    confirms.confirm_through(11)
    assert settlements(output) == [
        ("ack", 2, True),
        ("nack", 5, True),
        ("ack", 6, False),
        ("nack", 7, False),
        ("ack", 10, True),
        ("nack", 11, False),
    ]
    confirms.confirm_through(12)
    assert settlements(output) == [("nack", 12, False)]


def test_a_loss_that_is_known_late_comes_in_its_place() -> None:
    _, confirms, output = confirming()
    confirms.published = 5
    for number in (4, 2, 4, 2):
        confirms.lose(number)
    confirms.confirm_through(5)
    assert [each[:2] for each in settlements(output)] == [
        ("ack", 1),
        ("nack", 2),
        ("ack", 3),
        ("nack", 4),
        ("ack", 5),
    ]


def test_many_nacks_are_told_in_portions() -> None:
    broker, confirms, output = confirming()
    confirms.published = 200 * MESSAGES
    for number in range(2, confirms.published + 1, 2):
        confirms.lose(number)
    spend_credit(broker)
    confirms.confirm_through(confirms.published)
    told = settlements(output)
    assert told == []
    while broker.has_work():
        broker.finish_pass()
        portion = settlements(output)
        assert len(portion) <= 64 * 2 * MESSAGES
        told += portion
    assert [tag for _, tag, _ in told] == list(range(1, confirms.published + 1))
    assert {each[0] for each in told[::2]} == {"ack"}
    assert {each[0] for each in told[1::2]} == {"nack"}


def test_what_becomes_safe_meanwhile_waits_for_its_turn() -> None:
    broker, confirms, output = confirming()
    confirms.published = 20
    for number in (2, 4, 20):
        confirms.lose(number)
    spend_credit(broker)
    confirms.confirm_through(10)
    confirms.confirm_through(15)
    assert settlements(output) == []
    broker.finish_pass()
    assert [each[1] for each in settlements(output)] == [1, 2, 3, 4, 15]


def test_a_close_tells_all_that_is_safe() -> None:
    broker, confirms, output = confirming()
    confirms.published = 5 * MESSAGES
    for number in range(2, confirms.published + 1, 2):
        confirms.lose(number)
    spend_credit(broker)
    confirms.confirm_through(confirms.published)
    confirms.confirm_safe()
    assert [each[1] for each in settlements(output)] == list(range(1, confirms.published + 1))
    confirms.retire(None)
    broker.finish_pass()
    assert settlements(output) == []
    assert not broker.has_work()


def test_a_farewell_follows_the_last_portion() -> None:
    broker, confirms, output = confirming()
    said: list[int] = []
    confirms.published = 2 * MESSAGES
    for number in range(1, confirms.published + 1, 2):
        confirms.lose(number)
    spend_credit(broker)
    confirms.confirm_through(confirms.published)
    confirms.retire(lambda: said.append(len(settlements(output))))
    confirms.part()
    assert said == []
    while broker.has_work():
        broker.finish_pass()
    assert said == [confirms.published]
