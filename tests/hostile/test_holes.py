"""Messages taken from the middle of a queue, and what becomes of the places they leave."""

from __future__ import annotations

import pytest
from conversation import Frame, House, Peer, method_frame, publish

from flintmq.wire import amqp, methods


class Two:
    """Two connections and a queue; `own` consumes with no-local, so it refuses what it published."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.own = Peer(self.house).login(1)
        self.other = Peer(self.house).login(1)
        self.own.ask(1, methods.QueueDeclare(queue="q"))
        self.queue = self.house.broker.virtual_hosts["/"].queues["q"]

    def publish(self, *bodies: bytes) -> None:
        """Bodies that begin with o are from `own`."""
        for body in bodies:
            (self.own if body[:1] == b"o" else self.other).send(publish(1, "", "q", body))


@pytest.fixture
def two(house: House) -> Two:
    return Two(house)


def bodies(frames: list[Frame]) -> list[bytes]:
    return [each.payload for each in frames if each.kind == amqp.FRAME_BODY]


def consume(tag: str = "c", **arguments: bool) -> tuple[int, methods.BasicConsume]:
    return 1, methods.BasicConsume(queue="q", consumer_tag=tag, **arguments)


def get_all(peer: Peer) -> list[tuple[bytes, bool]]:
    """Every message, and whether it was handed out before."""
    found: list[tuple[bytes, bool]] = []
    while True:
        frames = peer.say((1, methods.BasicGet(queue="q", no_ack=True)))
        method = frames[0].method
        if not isinstance(method, methods.BasicGetOk):
            return found
        found.append((frames[-1].payload, method.redelivered))


def test_a_message_that_comes_back_to_a_hole_is_behind_those_before_it(two: Two) -> None:
    two.publish(b"o1", b"2", b"o3", b"4", b"o5")
    assert bodies(two.own.say(consume(no_local=True))) == [b"2", b"4"]
    back = methods.BasicNack(delivery_tag=2, multiple=True, requeue=True)
    two.own.say((1, methods.BasicCancel(consumer_tag="c")), (1, back))
    assert two.queue.message_count() == 5
    assert get_all(two.other) == [(b"o1", False), (b"2", True), (b"o3", False), (b"4", True), (b"o5", False)]


def test_one_of_two_comes_back(two: Two) -> None:
    two.publish(b"o1", b"2", b"o3", b"4", b"o5")
    two.own.say(consume(no_local=True))
    two.own.say((1, methods.BasicCancel(consumer_tag="c")))
    two.own.say((1, methods.BasicAck(delivery_tag=1)), (1, methods.BasicReject(delivery_tag=2, requeue=True)))
    assert get_all(two.other) == [(b"o1", False), (b"o3", False), (b"4", True), (b"o5", False)]


def test_what_flows_past_a_refused_message_leaves_no_memory_behind(two: Two) -> None:
    two.publish(b"o1")
    two.own.say(consume(no_local=True, no_ack=True))
    for _ in range(20):
        two.other.send(publish(1, "", "q", b"x") * 1000)
        two.own.replies()
    assert two.queue.ready.count < 10_000
    assert two.queue.message_count() == 1
    two.own.say((1, methods.BasicCancel(consumer_tag="c")))
    assert get_all(two.other) == [(b"o1", False)]


def test_a_message_that_came_back_while_nobody_could_refuse_finds_its_taker(two: Two) -> None:
    """Consumers note how far they have looked only while one of them may refuse."""
    two.publish(b"o1", b"o2", b"o3")
    assert bodies(two.other.say(consume("a"))) == [b"o1", b"o2", b"o3"]
    two.own.say(consume("b", no_local=True))
    two.publish(b"o4")
    two.own.say((1, methods.BasicCancel(consumer_tag="b")))
    two.other.replies()
    octets = method_frame(91, 1, methods.BasicNack(delivery_tag=1, requeue=True))
    two.other.wire.feed(octets)
    two.own.wire.feed(method_frame(91, 1, consume("b", no_local=True)[1]))
    two.house.finish_pass()
    assert bodies(two.other.replies()) == [b"o1"]


def test_nacks_one_by_one_keep_the_order(two: Two) -> None:
    count = 300
    two.publish(*(b"%d" % number for number in range(count)))
    for _ in range(count):
        two.own.say((1, methods.BasicGet(queue="q")))
    odd = [number for number in range(count) if number % 2]
    even = [number for number in range(count) if not number % 2]
    two.own.say(*((1, methods.BasicNack(delivery_tag=n + 1, requeue=True)) for n in (*odd, *reversed(even))))
    assert get_all(two.other) == [(b"%d" % number, True) for number in range(count)]
