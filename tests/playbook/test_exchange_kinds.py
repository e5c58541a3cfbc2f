"""Exchange types beyond the standard's: spreading, losing, remembering, dropping duplicates, delaying."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying

from flintmq.broker.broker import Broker
from flintmq.broker.exchanges import delayed_exchange
from flintmq.broker.exchanges.recent_history_exchange import HISTORY_BYTES_MAX, STEP_COPIES
from flintmq.broker.scheduling.pass_work import MEMORY_PAUSE_MS
from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.wire import methods
from flintmq.wire.methods import BasicPublish, ChannelClose, ExchangeDeclare, ExchangeDeclareOk


class SetClock(Clock):
    def __init__(self) -> None:
        self.random = random.Random(7)
        self.passed_ms = 50_000

    def monotonic_s(self) -> float:
        return (self.passed_ms + 0.25) / 1000

    def wall_ms(self) -> int:
        return 1_700_000_000_000


class Timed(Playbook):
    """A playbook whose time stands still until it is told to pass."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SetClock()
        self.broker = Broker(Config(), self.clock)

    def wait(self, ms: int) -> None:
        self.clock.passed_ms += ms
        self.broker.timetable.run()
        self.finish_pass()

    def now_ms(self) -> int:
        return self.broker.timetable.now_ms()


@pytest.fixture
def playbook() -> Any:
    playbook = Timed()
    yield playbook
    playbook.end()


@pytest.fixture
def client(playbook: Timed) -> Client:
    return playbook.client()


def declare(client: Client, name: str, kind: str, **arguments: Any) -> None:
    given = {key.replace("_", "-"): value for key, value in arguments.items()}
    client >> ExchangeDeclare(exchange=name, type=kind, arguments=given)
    client << ExchangeDeclareOk()


def send(client: Client, exchange: str, key: str = "", body: bytes = b"m", **headers: Any) -> None:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    client >> carrying(BasicPublish(exchange=exchange, routing_key=key), body, headers=given)


def queues(client: Client, exchange: str, *names: str, key: str = "") -> None:
    for name in names:
        client.declares(name)
        client.binds(name, exchange, key)


def counts(client: Client, *names: str) -> list[int]:
    found = []
    for name in names:
        client >> methods.QueueDeclare(queue=name, passive=True)
        found.append(client.hears(methods.QueueDeclareOk).message_count)
    return found


@pytest.mark.parametrize(
    ("kind", "arguments", "named"),
    [
        ("x-delayed-message", {}, "x-delayed-type"),
        ("x-delayed-message", {"x-delayed-type": "x-delayed-message"}, "x-delayed-type"),
        ("x-delayed-message", {"x-delayed-type": 5}, "x-delayed-type"),
        ("x-lossy", {}, "x-drop-rate"),
        ("x-lossy", {"x-drop-rate": 1.1}, "x-drop-rate"),
        ("x-lossy", {"x-drop-rate": -0.1}, "x-drop-rate"),
        ("x-lossy", {"x-drop-rate": float("nan")}, "x-drop-rate"),
        ("x-lossy", {"x-drop-rate": True}, "x-drop-rate"),
        ("x-lossy", {"x-drop-rate": 0.5, "x-routing-type": "x-random"}, "x-routing-type"),
        ("x-recent-history", {"x-recent-history-length": 0}, "x-recent-history-length"),
        ("x-recent-history", {"x-recent-history-length": "20"}, "x-recent-history-length"),
        ("x-recent-history", {"x-recent-history-length": 1 << 40}, "x-recent-history-length"),
        ("x-message-deduplication", {}, "x-cache-size"),
        ("x-message-deduplication", {"x-cache-size": 0}, "x-cache-size"),
        ("x-message-deduplication", {"x-cache-size": 5, "x-cache-ttl": -1}, "x-cache-ttl"),
        ("x-consistent-hash", {"hash-header": 5}, "hash-header"),
        ("x-consistent-hash", {"hash-property": "body"}, "hash-property"),
        ("x-consistent-hash", {"hash-property": "type", "hash-header": "h"}, "hash-property"),
    ],
)
def test_a_bad_argument_is_named(client: Client, kind: str, arguments: Any, named: str) -> None:
    client >> ExchangeDeclare(exchange="x", type=kind, arguments=arguments)
    refused = client.hears(ChannelClose)
    assert (refused.reply_code, refused.class_id, refused.method_id) == (406, 40, 10)
    assert f"'{named}'" in refused.reply_text


# x-consistent-hash and x-random


def test_a_value_always_leads_to_the_same_queue(client: Client) -> None:
    declare(client, "x", "x-consistent-hash")
    queues(client, "x", "a", "b", "c", key="1")
    for _ in range(5):
        send(client, "x", "some key")
    assert sorted(counts(client, "a", "b", "c")) == [0, 0, 5]


def test_weights_are_shares(client: Client) -> None:
    declare(client, "x", "x-consistent-hash")
    queues(client, "x", "a", key="1")
    queues(client, "x", "b", key="3")
    for number in range(2000):
        send(client, "x", str(number))
    light, heavy = counts(client, "a", "b")
    assert light + heavy == 2000
    assert 400 < light < 600


def test_only_the_values_of_a_queue_that_goes_move(client: Client) -> None:
    declare(client, "x", "x-consistent-hash")
    queues(client, "x", "a", "b", "c", "d", key="1")

    def homes() -> dict[bytes, str]:
        for number in range(400):
            send(client, "x", f"key {number}", str(number).encode())
        return {body: name for name in "abcd" for body in client.gets_all(name)}

    before = homes()
    assert min(Counter(before.values()).values()) > 60
    client >> methods.QueueUnbind(queue="d", exchange="x", routing_key="1")
    client << methods.QueueUnbindOk()
    without = homes()
    assert all(without[body] == home for body, home in before.items() if home != "d")
    assert set(without.values()) == {"a", "b", "c"}
    client.binds("d", "x", "1")
    assert homes() == before


@pytest.mark.parametrize("key", ["", "0", "-1", "1.5", "a", "10000000000", "٣"])
def test_a_binding_key_is_a_weight(client: Client, key: str) -> None:
    declare(client, "x", "x-consistent-hash")
    client.declares("q")
    client >> methods.QueueBind(queue="q", exchange="x", routing_key=key)
    assert client.hears(ChannelClose).reply_code == 406


def test_hashing_a_header_or_a_property(client: Client) -> None:
    declare(client, "by-header", "x-consistent-hash", hash_header="customer")
    declare(client, "by-property", "x-consistent-hash", hash_property="message_id")
    for exchange in ("by-header", "by-property"):
        queues(client, exchange, f"{exchange} 1", f"{exchange} 2", key="1")
    for number in range(60):
        send(client, "by-header", str(number), customer="same")
        client >> carrying(BasicPublish(exchange="by-property", routing_key=str(number)), message_id="same")
    assert sorted(counts(client, "by-header 1", "by-header 2")) == [0, 60]
    assert sorted(counts(client, "by-property 1", "by-property 2")) == [0, 60]
    for number in range(60):
        send(client, "by-header", "same", customer=number)
        client >> carrying(BasicPublish(exchange="by-property", routing_key="same"), message_id=str(number))
    assert min(counts(client, "by-header 1", "by-header 2", "by-property 1", "by-property 2")) > 10


def test_random_goes_to_one_of_all(client: Client) -> None:
    declare(client, "x", "x-random")
    send(client, "x")
    queues(client, "x", "a", "b", "c")
    client.binds("a", "x", "again")
    for _ in range(300):
        send(client, "x", "same key")
    found = counts(client, "a", "b", "c")
    assert sum(found) == 300
    assert min(found) > 60
    for key in ("", "again"):
        client >> methods.QueueUnbind(queue="a", exchange="x", routing_key=key)
        client << methods.QueueUnbindOk()
    for _ in range(20):
        send(client, "x", "same key")
    assert counts(client, "a")[0] == found[0]


# x-lossy


def test_lossy_loses_what_it_should(client: Client) -> None:
    declare(client, "x", "x-lossy", x_drop_rate=0.25)
    queues(client, "x", "q")
    for _ in range(400):
        send(client, "x")
    assert 260 < counts(client, "q")[0] < 340


def test_what_is_lost_is_not_returned(client: Client) -> None:
    declare(client, "x", "x-lossy", x_drop_rate=1)
    queues(client, "x", "q")
    client >> carrying(BasicPublish(exchange="x", mandatory=True), b"lost")
    assert counts(client, "q") == [0]


def test_lossy_routes_as_the_kind_it_names(client: Client) -> None:
    declare(client, "x", "x-lossy", x_drop_rate=0, x_routing_type="topic")
    queues(client, "x", "q", key="a.*")
    send(client, "x", "a.b")
    send(client, "x", "b.b")
    assert counts(client, "q") == [1]


# x-recent-history


def test_a_new_binding_gets_the_recent_past(client: Client) -> None:
    declare(client, "x", "x-recent-history", x_recent_history_length=3)
    queues(client, "x", "first")
    for number in range(5):
        send(client, "x", "key", str(number).encode())
    send(client, "x", "key", b"secret", x_recent_history_no_store=True)
    queues(client, "x", "late")
    assert client.gets_all("late") == [b"2", b"3", b"4"]
    assert client.gets_all("first") == [b"0", b"1", b"2", b"3", b"4", b"secret"]
    client.binds("late", "x")
    assert client.gets_all("late") == [], "the same binding again is nothing new"


def test_the_default_is_twenty(client: Client) -> None:
    declare(client, "x", "x-recent-history")
    for number in range(25):
        send(client, "x", "", str(number).encode())
    queues(client, "x", "q")
    assert counts(client, "q") == [20]


def test_the_past_goes_on_through_exchanges(client: Client) -> None:
    declare(client, "x", "x-recent-history")
    send(client, "x", "a.b", b"past")
    client.declares("q")
    client.binds("q", "amq.topic", "a.*")
    client >> methods.ExchangeBind(source="x", destination="amq.topic")
    client << methods.ExchangeBindOk()
    assert client.gets_all("q") == [b"past"]


def test_history_takes_so_much_memory(client: Client) -> None:
    declare(client, "x", "x-recent-history", x_recent_history_length=10_000)
    size = HISTORY_BYTES_MAX // 8
    for _ in range(10):
        send(client, "x", "", bytes(size))
    queues(client, "x", "q")
    assert counts(client, "q") == [7]


LONG = 1000


def test_the_past_waits_while_memory_is_full(client: Client, playbook: Timed) -> None:
    past = long_past(client)
    client.declares("q")
    pass_work = playbook.broker.pass_work
    pass_work.is_memory_full = lambda: True
    client >> methods.QueueBind(queue="q", exchange="x")
    for _ in range(5):
        playbook.wait(MEMORY_PAUSE_MS)
        client.hears_nothing()
    assert counts(playbook.client(), "q")[0] <= STEP_COPIES
    pass_work.is_memory_full = lambda: False
    playbook.wait(MEMORY_PAUSE_MS)
    client << methods.QueueBindOk()
    assert client.gets_all("q") == past


def long_past(client: Client) -> list[bytes]:
    """What an exchange `x` remembers: more than one step hands over."""
    declare(client, "x", "x-recent-history", x_recent_history_length=LONG)
    past = [b"%d" % number for number in range(LONG)]
    for body in past:
        send(client, "x", "", body)
    return past


def test_a_long_past_is_handed_over_in_portions(client: Client, playbook: Timed) -> None:
    """The answer comes behind the last of them. Until then the broker reads no more of its connection."""
    past = long_past(client)
    client.declares("q")
    other = playbook.client()
    queue = playbook.broker.virtual_hosts["/"].queues["q"]
    with playbook.one_pass():
        chores = playbook.broker.pass_work.chores
        chores.pass_number, chores.credit = playbook.broker.pass_work.passes, 2
        client >> methods.QueueBind(queue="q", exchange="x")
        client.hears_nothing()
        assert client.session.number in playbook.broker.pass_work.asking
        assert 0 < queue.message_count() < LONG
        send(other, "x", "", b"of another")
        assert queue.message_count() < LONG
    client << methods.QueueBindOk()
    send(client, "x", "", b"mine")
    bodies = client.gets_all("q")
    assert [body for body in bodies if body != b"of another"] == [*past, b"mine"]
    assert bodies.count(b"of another") == 1


def test_a_past_goes_to_many_queues_in_portions(client: Client, playbook: Timed) -> None:
    past = long_past(client)
    names = [f"q{number}" for number in range(100)]
    queues(client, "amq.fanout", *names)
    other = playbook.client()
    with playbook.one_pass():
        chores = playbook.broker.pass_work.chores
        chores.pass_number, chores.credit = playbook.broker.pass_work.passes, 1
        client >> methods.ExchangeBind(source="x", destination="amq.fanout")
        found = playbook.broker.virtual_hosts["/"].queues
        assert sum(found[name].message_count() for name in names) < len(names)
        other >> methods.QueueDelete(queue="q99", no_wait=True)
    client << methods.ExchangeBindOk()
    assert {found[name].message_count() for name in names[:-1]} == {LONG}
    assert client.gets_all("q98") == past


def test_a_past_that_goes_nowhere_is_looked_at_in_portions(client: Client, playbook: Timed) -> None:
    long_past(client)
    with playbook.one_pass():
        chores = playbook.broker.pass_work.chores
        chores.pass_number, chores.credit = playbook.broker.pass_work.passes, 2
        client >> methods.ExchangeBind(source="x", destination="amq.topic")
        client.hears_nothing()
    client << methods.ExchangeBindOk()


@pytest.mark.parametrize("is_bound_again", [False, True])
def test_a_binding_that_ends_meanwhile_gets_no_more(
    client: Client, playbook: Timed, is_bound_again: bool
) -> None:
    past = long_past(client)
    client.declares("q")
    other = playbook.client()
    with playbook.one_pass():
        chores = playbook.broker.pass_work.chores
        chores.pass_number, chores.credit = playbook.broker.pass_work.passes, 1
        client >> methods.QueueBind(queue="q", exchange="x")
        other >> methods.QueueUnbind(queue="q", exchange="x")
        if is_bound_again:
            other >> methods.QueueBind(queue="q", exchange="x", no_wait=True)
    other << methods.QueueUnbindOk()
    client << methods.QueueBindOk()
    found = client.gets_all("q")
    some = len(found) - LONG * is_bound_again
    assert 0 < some < LONG
    assert found == past[:some] + past * is_bound_again


@pytest.mark.parametrize(
    "end", [methods.QueueDelete(queue="q", no_wait=True), methods.ExchangeDelete(exchange="x", no_wait=True)]
)
def test_an_end_of_the_binding_goes_meanwhile(client: Client, playbook: Timed, end: methods.Method) -> None:
    long_past(client)
    client.declares("q")
    queue = playbook.broker.virtual_hosts["/"].queues["q"]
    other = playbook.client()
    with playbook.one_pass():
        chores = playbook.broker.pass_work.chores
        chores.pass_number, chores.credit = playbook.broker.pass_work.passes, 1
        client >> methods.QueueBind(queue="q", exchange="x")
        other >> end
        count = queue.message_count()
    client << methods.QueueBindOk()
    assert queue.message_count() == (0 if queue.deleted else count)


# x-message-deduplication


def test_the_second_of_two_is_dropped(client: Client, playbook: Timed) -> None:
    declare(client, "x", "x-message-deduplication", x_cache_size=2, x_cache_ttl=1000)
    queues(client, "x", "q")
    for value in ("a", "a", 1, "1", 1, True, b"\xff", "long" * 100, "long" * 100):
        send(client, "x", x_deduplication_header=value)
    assert counts(client, "q") == [6]
    send(client, "x")
    send(client, "x")
    assert counts(client, "q") == [8], "without the header none is like another"
    send(client, "x", x_deduplication_header="a")
    assert counts(client, "q") == [9], "there is room for two values only"
    send(client, "x", x_deduplication_header="a")
    playbook.wait(1001)
    send(client, "x", x_deduplication_header="a")
    assert counts(client, "q") == [10], "a value is remembered for a time"


def test_a_message_may_say_how_long(client: Client, playbook: Timed) -> None:
    declare(client, "x", "x-message-deduplication", x_cache_size=10)
    queues(client, "x", "q")
    send(client, "x", x_deduplication_header="a", x_cache_ttl=50)
    send(client, "x", x_deduplication_header="b", x_cache_ttl="never")
    playbook.wait(60)
    for value in ("a", "b"):
        send(client, "x", x_deduplication_header=value)
    assert counts(client, "q") == [3]


def test_a_queue_refuses_what_it_has(client: Client) -> None:
    client.declares("q", arguments={"x-message-deduplication": True})
    for value in ("a", "b", "a", "b"):
        send(client, "", "q", value.encode(), x_deduplication_header=value)
    client >> methods.BasicGet(queue="q")
    assert isinstance(client.next(1), Carried)
    send(client, "", "q", b"a again", x_deduplication_header="a")
    assert counts(client, "q") == [1], "handed out, and not yet acked"
    client >> methods.BasicAck(delivery_tag=1)
    send(client, "", "q", b"a anew", x_deduplication_header="a")
    assert client.gets_all("q") == [b"b", b"a anew"]
    send(client, "", "q", b"a", x_deduplication_header="a")
    client >> methods.QueuePurge(queue="q")
    client << methods.QueuePurgeOk(message_count=1)
    send(client, "", "q", b"a", x_deduplication_header="a")
    assert counts(client, "q") == [1]


@pytest.mark.parametrize("count", [1, 600])
def test_a_purge_of_a_queue_with_priorities_forgets_what_it_had(client: Client, count: int) -> None:
    client.declares("q", arguments={"x-message-deduplication": True, "x-max-priority": 5})
    for _ in range(2):
        for number in range(count):
            send(client, "", "q", b"", x_deduplication_header=number)
        client >> methods.QueuePurge(queue="q")
        client << methods.QueuePurgeOk(message_count=count)


def test_a_queue_with_priorities_forgets_what_is_acked(client: Client) -> None:
    client.declares("q", arguments={"x-message-deduplication": True, "x-max-priority": 5})
    for body in (b"1", b"2"):
        send(client, "", "q", body, x_deduplication_header="a")
        send(client, "", "q", b"a duplicate", x_deduplication_header="a")
        assert client.gets_all("q") == [body]


def test_a_duplicate_that_a_full_queue_refuses_was_never_there(client: Client) -> None:
    client.declares("morgue")
    client.declares(
        "q",
        arguments={
            "x-message-deduplication": True,
            "x-max-length": 2,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "morgue",
        },
    )
    for value in ("a", "b", "a", "c"):
        send(client, "", "q", value.encode(), x_deduplication_header=value)
    assert counts(client, "morgue") == [2]
    client >> methods.BasicGet(queue="q")
    assert isinstance(client.next(1), Carried)
    send(client, "", "q", b"a again", x_deduplication_header="a")
    assert counts(client, "q") == [1], "handed out, and not yet acked"
    client >> methods.BasicAck(delivery_tag=1)
    send(client, "", "q", b"a anew", x_deduplication_header="a")
    assert client.gets_all("q") == [b"b", b"a anew"]
    send(client, "", "q", b"c anew", x_deduplication_header="c")
    assert client.gets_all("q") == [b"c anew"]


def test_the_queue_argument_is_true_or_false(client: Client) -> None:
    client >> methods.QueueDeclare(queue="q", arguments={"x-message-deduplication": "yes"})
    assert client.hears(ChannelClose).reply_code == 406


# x-delayed-message


def delayed(client: Client, kind: str = "direct") -> None:
    declare(client, "x", "x-delayed-message", x_delayed_type=kind)
    queues(client, "x", "q", key="k")


def test_messages_come_when_they_are_due(client: Client, playbook: Timed) -> None:
    delayed(client)
    send(client, "x", "k", b"later", x_delay=500)
    send(client, "x", "k", b"soon", x_delay=20)
    send(client, "x", "k", b"also soon", x_delay=20)
    send(client, "x", "k", b"at", x_deliver_at=playbook.now_ms() + 100)
    for headers in ({}, {"x_delay": 0}, {"x_delay": -5}, {"x_deliver_at": 5}):
        send(client, "x", "k", b"now", **headers)
    assert client.gets_all("q") == [b"now"] * 4
    playbook.wait(19)
    assert client.gets_all("q") == []
    playbook.wait(1)
    assert client.gets_all("q") == [b"soon", b"also soon"]
    playbook.wait(80)
    assert client.gets_all("q") == [b"at"]
    playbook.wait(1000)
    assert client.gets_all("q") == [b"later"]
    assert playbook.broker.timetable.next_due_ms() is None


def test_there_is_one_alarm(client: Client, playbook: Timed) -> None:
    delayed(client)
    for number in range(100):
        send(client, "x", "k", x_delay=1000 + number)
    assert len(playbook.broker.timetable.alarms) == 1


def test_a_message_arrives_as_it_was_sent(client: Client, playbook: Timed) -> None:
    delayed(client)
    client >> carrying(
        BasicPublish(exchange="x", routing_key="k"),
        b"body",
        headers={"x-delay": 10},
        message_id="m",
        priority=3,
    )
    playbook.wait(10)
    client >> methods.BasicGet(queue="q", no_ack=True)
    found = client.next(1)
    assert isinstance(found, Carried)
    assert isinstance(found.method, methods.BasicGetOk)
    assert (found.method.exchange, found.method.routing_key, found.body) == ("x", "k", b"body")
    assert (found.properties.headers, found.properties.message_id) == ({"x-delay": 10}, "m")


def test_it_is_routed_when_it_is_due(client: Client, playbook: Timed) -> None:
    delayed(client, "topic")
    send(client, "x", "later.bound", x_delay=10)
    client.binds("q", "x", "later.*")
    playbook.wait(10)
    assert counts(client, "q") == [1]


def test_with_copies_and_an_alternate(client: Client, playbook: Timed) -> None:
    arguments = {"x-delayed-type": "direct", "alternate-exchange": "amq.fanout"}
    client >> ExchangeDeclare(exchange="x", type="x-delayed-message", arguments=arguments)
    client << ExchangeDeclareOk()
    queues(client, "x", "q", key="k")
    queues(client, "amq.fanout", "rest")
    send(client, "x", "nowhere", b"copied", x_delay=10, BCC=["k"])
    send(client, "x", "nowhere", b"unrouted", x_delay=10)
    playbook.wait(10)
    assert client.gets_all("q") == [b"copied"]
    assert client.gets_all("rest") == [b"unrouted"]


def test_through_another_exchange(client: Client, playbook: Timed) -> None:
    delayed(client, "fanout")
    client >> methods.ExchangeBind(source="amq.fanout", destination="x")
    client << methods.ExchangeBindOk()
    client >> methods.ExchangeBind(source="x", destination="amq.fanout")
    client << methods.ExchangeBindOk()
    queues(client, "amq.fanout", "now")
    send(client, "amq.fanout", x_delay=10)
    assert counts(client, "q", "now") == [0, 1]
    playbook.wait(10)
    assert counts(client, "q", "now") == [1, 2], "the way back leads past it, and not in again"


def test_what_is_due_to_many_queues_comes_in_portions(
    client: Client, playbook: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many copies as one portion has, and those of one message more."""
    monkeypatch.setattr(delayed_exchange, "RELEASED_COPIES", 7)
    delayed(client, "fanout")
    queues(client, "x", "r", "s", "t")
    sent = [b"%d" % number for number in range(10)]
    for body in sent:
        send(client, "x", "k", body, x_delay=10)
    found = []
    for _ in range(8):
        playbook.wait(10)
        found.append(counts(client, "t")[0])
    assert found == [2, 4, 6, 8, 10, 10, 10, 10]
    assert [client.gets_all(queue) for queue in "qrst"] == [sent] * 4
    assert playbook.broker.timetable.next_due_ms() is None


def test_nothing_is_due_while_memory_is_full(client: Client, playbook: Timed) -> None:
    delayed(client)
    pass_work = playbook.broker.pass_work
    pass_work.is_memory_full = lambda: True
    for body in (b"1", b"2"):
        send(client, "x", "k", body, x_delay=10)
    for _ in range(50):
        playbook.wait(10)
    assert counts(client, "q") == [0]
    pass_work.is_memory_full = lambda: False
    send(client, "x", "k", b"3", x_delay=10)
    playbook.wait(MEMORY_PAUSE_MS)
    assert client.gets_all("q") == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-delay", "5"),
        ("x-delay", True),
        ("x-delay", 1.5),
        ("x-delay", 1 << 41),
        ("x-deliver-at", "tomorrow"),
        ("x-deliver-at", 1 << 60),
    ],
)
def test_a_wrong_delay_is_refused(client: Client, name: str, value: Any) -> None:
    delayed(client)
    send(client, "x", "k", **{name: value})
    refused = client.hears(ChannelClose)
    assert refused.reply_code == 406
    assert f"'{name}'" in refused.reply_text


def test_deliver_at_may_be_a_timestamp(client: Client, playbook: Timed) -> None:
    delayed(client)
    send(client, "x", "k", x_deliver_at=datetime.fromtimestamp(playbook.now_ms() // 1000 + 2, UTC))
    playbook.wait(1000)
    assert counts(client, "q") == [0]
    playbook.wait(1000)
    assert counts(client, "q") == [1]


def test_a_transaction_delays_all_or_nothing(client: Client, playbook: Timed) -> None:
    delayed(client)
    client >> methods.TxSelect()
    client << methods.TxSelectOk()
    send(client, "x", "k", b"fine", x_delay=10)
    send(client, "x", "k", b"wrong", x_delay="soon")
    client >> methods.TxCommit()
    assert client.hears(ChannelClose).reply_code == 406
    playbook.wait(10)
    other = playbook.client()
    assert counts(other, "q") == [0]
    other >> methods.TxSelect()
    other << methods.TxSelectOk()
    send(other, "x", "k", b"fine", x_delay=10)
    playbook.wait(10)
    other >> methods.TxCommit()
    other << methods.TxCommitOk()
    playbook.wait(9)
    assert counts(other, "q") == [0], "the delay begins with the commit"
    playbook.wait(1)
    assert counts(other, "q") == [1]


def test_what_waits_goes_with_its_exchange(client: Client, playbook: Timed) -> None:
    delayed(client)
    send(client, "x", "k", x_delay=10)
    client >> methods.ExchangeDelete(exchange="x")
    client << methods.ExchangeDeleteOk()
    assert playbook.broker.timetable.next_due_ms() is None
    playbook.wait(20)
    assert counts(client, "q") == [0]


def test_only_so_many_may_wait(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_exchange, "WAITING_MAX", 2)
    delayed(client)
    for _ in range(3):
        send(client, "x", "k", x_delay=10)
    assert client.hears(ChannelClose).reply_code == 506


def test_very_many_are_released_in_turns(client: Client, playbook: Timed) -> None:
    delayed(client)
    for number in range(2500):
        send(client, "x", "k", str(number).encode(), x_delay=10)
    playbook.wait(10)
    assert counts(client, "q") == [1024]
    playbook.wait(1)
    playbook.wait(1)
    assert client.gets_all("q") == [str(number).encode() for number in range(2500)]


def test_a_confirm_does_not_wait_for_the_delay(client: Client) -> None:
    delayed(client)
    client >> methods.ConfirmSelect()
    client << methods.ConfirmSelectOk()
    client >> carrying(BasicPublish(exchange="x", routing_key="k", mandatory=True), headers={"x-delay": 1000})
    client << methods.BasicAck(delivery_tag=1)


def past_of_thousands(client: Client) -> None:
    """Two queues, and an exchange whose past takes more than one pass to hand over."""
    declare(client, "x", "x-recent-history", x_recent_history_length=10_000)
    for number in range(5000):
        send(client, "x", "", b"%d" % number)
    client.declares("q1")
    client.declares("q2")


def test_what_is_published_before_a_past_is_handed_over_comes_once(
    playbook: Playbook, client: Client
) -> None:
    past_of_thousands(client)
    other, third = playbook.client(), playbook.client()
    with playbook.one_pass():
        client >> methods.QueueBind(queue="q1", exchange="x")
        other >> methods.QueueBind(queue="q2", exchange="x")
        third >> carrying(methods.BasicPublish(exchange="x", routing_key=""), b"once")
    client << methods.QueueBindOk()
    other << methods.QueueBindOk()
    assert playbook.broker.virtual_hosts["/"].queues["q2"].message_count() == 5001


def test_a_queue_that_is_bound_anew_gets_the_past_once(playbook: Playbook, client: Client) -> None:
    past_of_thousands(client)
    other = playbook.client()
    with playbook.one_pass():
        client >> methods.QueueBind(queue="q1", exchange="x")
        other >> methods.QueueBind(queue="q2", exchange="x", no_wait=True)
        other >> methods.QueueUnbind(queue="q2", exchange="x")
        other >> methods.QueueBind(queue="q2", exchange="x")
    client << methods.QueueBindOk()
    other << methods.QueueUnbindOk()
    other << methods.QueueBindOk()
    assert playbook.broker.virtual_hosts["/"].queues["q2"].message_count() == 5000
