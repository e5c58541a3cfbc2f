"""What queues with rules know after a restart."""

from __future__ import annotations

from typing import Any

from flintmq.wire import amqp, methods
from flintmq.wire.properties import BasicProperties, decode_basic_properties, encode_properties

from .broker_client import Client, frame
from .journal_history import DIRECTORY
from .test_broker_recovery import Bench


def declare(client: Client, name: str, **arguments: Any) -> None:
    chosen = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    client.say(1, methods.QueueDeclare(queue=name, durable=True, arguments=chosen))


def publish(client: Client, key: str, body: bytes, exchange: str = "", **properties: Any) -> None:
    encoded = encode_properties(BasicProperties(delivery_mode=2, **properties))
    header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + encoded
    method = methods.encode_method(
        amqp.VERSION_0_9_1, methods.BasicPublish(exchange=exchange, routing_key=key)
    )
    client.receive(frame(1, 1, method) + frame(2, 1, header) + frame(3, 1, body))


def get(client: Client, queue: str, no_ack: bool = True) -> tuple[Any, bytes] | None:
    client.written()
    client.say(1, methods.BasicGet(queue=queue, no_ack=no_ack))
    [event] = client.written()
    return None if isinstance(event.method, methods.BasicGetEmpty) else (event.method, event.body)


def bodies(client: Client, queue: str) -> list[bytes]:
    found = []
    while (got := get(client, queue)) is not None:
        found.append(got[1])
    return found


def passes(bench: Bench, milliseconds: int) -> None:
    bench.clock.now_s += milliseconds / 1000
    for _ in range(10):
        bench.broker.timetable.run()
        bench.broker.finish_pass()
        bench.clock.now_s += 0.001


def crash(bench: Bench) -> Client:
    """As after kill -9: what was handed to the journal's writer is there."""
    bench.broker.finish_pass()
    store = bench.broker.store
    assert store is not None
    store.journal.commit_now()
    bench.disk.kill()
    bench.open()
    return bench.client()


def test_messages_expire_by_the_time_they_came() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "ttl", message_ttl=1000)
    declare(client, "plain")
    publish(client, "ttl", b"1")
    publish(client, "plain", b"2", expiration="1000")
    publish(client, "plain", b"3")
    bench.clock.now_s += 0.6
    client = crash(bench)
    queues = bench.broker.virtual_hosts["/"].queues
    passes(bench, 1)
    assert (queues["ttl"].message_count(), queues["plain"].message_count()) == (1, 2)
    passes(bench, 400)
    assert (queues["ttl"].message_count(), queues["plain"].message_count()) == (0, 1)
    assert bodies(client, "plain") == [b"3"]


def test_a_clock_that_was_set_back_makes_no_message_immortal() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", message_ttl=1000)
    publish(client, "q", b"1")
    bench.clock.now_s -= 500
    crash(bench)
    passes(bench, 1)
    passes(bench, 1000)
    assert bench.broker.virtual_hosts["/"].queues["q"].message_count() == 0


def test_a_clock_that_leapt_ahead_is_believed() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", message_ttl=100_000, dead_letter_exchange="", dead_letter_routing_key="morgue")
    declare(client, "morgue")
    publish(client, "q", b"1")
    bench.clock.now_s += 500
    client = crash(bench)
    passes(bench, 1)
    assert bodies(client, "morgue") == [b"1"]


def test_lanes_and_limits() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", max_priority=9)
    declare(client, "none", max_priority=0)
    for number, priority in enumerate((1, 5, 0, 5, 200)):
        publish(client, "q", b"%d" % number, priority=priority)
        publish(client, "none", b"%d" % number, priority=priority)
    client = crash(bench)
    assert bench.broker.virtual_hosts["/"].queues["q"].message_count() == 5
    assert bodies(client, "q") == [b"4", b"1", b"3", b"0", b"2"]
    assert bodies(client, "none") == [b"0", b"1", b"2", b"3", b"4"]


def test_octets_of_what_is_on_disk_count() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", max_length_bytes=10)
    publish(client, "q", b"aaaa")
    publish(client, "q", b"bbbb")
    client = crash(bench)
    publish(client, "q", b"cccc")
    assert bodies(client, "q") == [b"bbbb", b"cccc"]


def test_returns_are_counted_over_restarts() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", queue_type="quorum", delivery_limit=2)
    publish(client, "q", b"1")
    publish(client, "q", b"2")
    for count in (0, 1, 2):
        got = get(client, "q", no_ack=False)
        assert got is not None
        assert got[1] == b"1"
        client.say(1, methods.BasicNack(delivery_tag=got[0].delivery_tag, requeue=True))
        store = bench.broker.store
        assert store is not None
        assert any(key.startswith(b"r") for key in store.journal.values) == (count < 2)
        client = crash(bench)
    assert bodies(client, "q") == [b"2"]


def test_what_waits_for_its_next_try_waits_on() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", delayed_retry_type="all", delayed_retry_min=1000)
    publish(client, "q", b"1")
    publish(client, "q", b"2")
    get(client, "q", no_ack=False)
    client.say(1, methods.BasicNack(delivery_tag=1, requeue=True))
    client = crash(bench)
    queue = bench.broker.virtual_hosts["/"].queues["q"]
    assert queue.message_count() == 1
    passes(bench, 1000)
    assert queue.message_count() == 2
    assert bodies(client, "q") == [b"1", b"2"]
    store = bench.broker.store
    assert store is not None
    assert not any(key.startswith(b"r") for key in store.journal.values)


def test_a_letter_and_the_end_of_its_original_are_one_group() -> None:
    """Whatever part of the journal is lost, the message is in exactly one of the two queues."""
    bench = Bench()
    client = bench.client()
    declare(client, "morgue")
    declare(client, "q", dead_letter_exchange="", dead_letter_routing_key="morgue")
    publish(client, "q", b"1.", headers={"mine": 1})
    bench.broker.finish_pass()
    store = bench.broker.store
    assert store is not None
    store.journal.commit_now()
    get(client, "q", no_ack=False)
    client.say(1, methods.BasicReject(delivery_tag=1, requeue=False))
    client = crash(bench)
    queues = bench.broker.virtual_hosts["/"].queues
    assert (queues["q"].message_count(), queues["morgue"].message_count()) == (0, 1)
    delivery = queues["morgue"].take()
    assert delivery is not None
    assert delivery.message is not None
    found = decode_basic_properties(delivery.message.content, 12, delivery.message.header_size)
    assert found.headers is not None
    assert found.headers["mine"] == 1
    assert found.headers["x-first-death-reason"] == "rejected"


def test_policies_set_at_run_time_are_back_before_the_queues() -> None:
    bench = Bench()
    client = bench.client()
    bench.broker.policies.put("/", "p", "^q", {"max-length": 1}, priority=4, apply_to="queues")
    bench.broker.policies.put("/", "o", "", {"expires": 10_000}, is_operator=True)
    declare(client, "q")
    crash(bench)
    policies = bench.broker.policies
    [policy] = policies.of("/")
    assert (policy.pattern, policy.priority, policy.apply_to) == ("^q", 4, "queues")
    rules = bench.broker.virtual_hosts["/"].queues["q"].rules
    assert rules is not None
    assert rules.limits is not None
    assert (rules.limits.length_max, rules.expires_ms) == (1, 10_000)
    policies.delete("/", "p")
    crash(bench)
    assert bench.broker.policies.of("/") == []
    passes(bench, 10_000)
    assert not bench.broker.virtual_hosts["/"].queues


def test_priorities_above_the_highest_share_a_lane_in_the_order_they_came() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", max_priority=2)
    for number, priority in enumerate((9, 2, 9, 3, 2)):
        publish(client, "q", b"%d" % number, priority=priority)
    client = crash(bench)
    assert bodies(client, "q") == [b"0", b"1", b"2", b"3", b"4"]


def test_what_comes_to_the_head_by_a_limit_expires() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", max_length=2, dead_letter_exchange="", dead_letter_routing_key="morgue")
    declare(client, "morgue")
    publish(client, "q", b"1")
    publish(client, "q", b"2")
    publish(client, "q", b"3", expiration="100")
    publish(client, "q", b"4")
    passes(bench, 200)
    assert bodies(client, "morgue") == [b"1", b"2", b"3"]


def rescued(bench: Bench, **properties: Any) -> Client:
    """A message was to come an hour later; then the exchange that held it lost its own record."""
    client = bench.client()
    arguments = {"x-delayed-type": "fanout"}
    client.say(
        1,
        methods.ExchangeDeclare(exchange="x", type="x-delayed-message", durable=True, arguments=arguments),
    )
    bench.broker.finish_pass()
    assert bench.broker.store is not None
    bench.broker.store.journal.commit_now()
    publish(client, "", b"1", exchange="x", headers={"x-delay": 3_600_000}, **properties)
    bench.broker.finish_pass()
    bench.broker.store.journal.commit_now()
    [name] = [each for each in bench.disk.list(DIRECTORY) if each.endswith(".segment")]
    path = f"{DIRECTORY}/{name}"
    bench.disk.flip_bit(path, bench.disk.content(path).index(b"x-delayed-message"), 0)
    return crash(bench)


def test_what_was_rescued_from_an_exchange_expires_from_then_on() -> None:
    bench = Bench()
    client = rescued(bench, expiration="1000")
    [queue] = bench.broker.virtual_hosts["/"].queues.values()
    passes(bench, 900)
    assert queue.message_count() == 1
    passes(bench, 100)
    assert get(client, queue.name) is None


def test_what_was_rescued_does_not_expire_with_the_first_that_may() -> None:
    bench = Bench()
    client = rescued(bench, expiration="1000")
    [queue] = bench.broker.virtual_hosts["/"].queues.values()
    publish(client, queue.name, b"2", expiration="100")
    passes(bench, 500)
    assert bodies(client, queue.name) == [b"1"]


def test_what_was_rescued_and_has_no_expiration_stays() -> None:
    bench = Bench()
    client = rescued(bench)
    [queue] = bench.broker.virtual_hosts["/"].queues.values()
    publish(client, queue.name, b"2", expiration="100")
    passes(bench, 500)
    assert bodies(client, queue.name) == [b"1"]


def test_a_queue_that_is_over_its_limit_after_a_crash_is_not_trimmed_by_those_who_read_it() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", max_length=2)
    for number in range(6):
        publish(client, "q", b"%d" % number, expiration="60000")
        if number < 4:
            assert get(client, "q", no_ack=False) is not None
    client = crash(bench)
    found = get(client, "q")
    assert found is not None
    assert (found[1], found[0].message_count) == (b"0", 5)
    assert bodies(client, "q") == [b"1", b"2", b"3", b"4", b"5"]
