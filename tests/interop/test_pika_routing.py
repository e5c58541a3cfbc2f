"""Where messages go: the exchange types, headers matching, exchange bindings and returned messages."""

from typing import Any

import pika
import pytest
from interop_live import Broker
from interop_pika import Name, bodies, channel_error, connected, gather, publish


def bound(channel: Any, exchange: str, *keys: str, arguments: dict[str, Any] | None = None) -> str:
    """A new queue, bound to the exchange by each key."""
    queue: str = channel.queue_declare("", exclusive=True).method.queue
    for key in keys or ("",):
        channel.queue_bind(queue, exchange, key, arguments)
    return queue


def test_default_exchange_routes_by_queue_name(channel: Any, name: Name) -> None:
    channel.queue_declare(name("one"))
    channel.queue_declare(name("two"))
    publish(channel, name("one"), b"1")
    publish(channel, name("two"), b"2")
    assert bodies(channel, name("one")) == [b"1"]
    assert bodies(channel, name("two")) == [b"2"]


@pytest.mark.parametrize("operation", ["queue_bind", "queue_unbind"])
def test_default_exchange_takes_no_bindings(channel: Any, name: Name, operation: str) -> None:
    channel.queue_declare(name("queue"))
    with channel_error(403):
        getattr(channel, operation)(name("queue"), "", "key")


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_predeclared_exchanges(channel: Any, kind: str) -> None:
    assert channel.exchange_declare(f"amq.{kind}", kind, passive=True)
    assert channel.exchange_declare(f"amq.{kind}", kind, durable=True), "the same again is no error"


def test_predeclared_exchange_cannot_be_deleted(channel: Any) -> None:
    with channel_error(403):
        channel.exchange_delete("amq.direct")


def test_direct(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("exchange"), "direct")
    red = bound(channel, name("exchange"), "red")
    both = bound(channel, name("exchange"), "red", "blue")
    for key in ("red", "blue", "green", "Red", "red.blue"):
        channel.basic_publish(name("exchange"), key, key.encode())
    assert bodies(channel, red) == [b"red"]
    assert bodies(channel, both) == [b"red", b"blue"]


def test_fanout_ignores_the_key(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("exchange"), "fanout")
    queues = [bound(channel, name("exchange"), "some.key") for _ in range(3)]
    channel.basic_publish(name("exchange"), "another", b"all")
    assert [bodies(channel, queue) for queue in queues] == [[b"all"]] * 3


TOPICS = [
    ("stock.*.nyse", ["stock.ibm.nyse"], ["stock.nyse", "stock.ibm.us.nyse", "stock.ibm"]),
    ("stock.#", ["stock", "stock.ibm", "stock.ibm.nyse"], ["bond", "stocks.ibm"]),
    ("#.nyse", ["nyse", "a.nyse", "a.b.nyse"], ["nyse.a", "anyse"]),
    ("#", ["", "a", "a.b.c"], []),
    ("*", ["a"], ["", "a.b"]),
    ("*.#.end", ["a.end", "a.b.end", "a.b.c.end"], ["end", "a.b"]),
    ("a.#.#.b", ["a.b", "a.x.b", "a.x.y.b"], ["a", "b", "a.b.c"]),
    ("a.*.*", ["a.b.c", "a..c"], ["a.b", "a.b.c.d"]),
    ("plain.key", ["plain.key"], ["plain", "plain.key.more", "plain.*"]),
]


@pytest.mark.parametrize(("pattern", "hits", "misses"), TOPICS, ids=[row[0] for row in TOPICS])
def test_topic(channel: Any, name: Name, pattern: str, hits: list[str], misses: list[str]) -> None:
    channel.exchange_declare(name("exchange"), "topic")
    queue = bound(channel, name("exchange"), pattern)
    for key in hits + misses:
        channel.basic_publish(name("exchange"), key, key.encode())
    assert bodies(channel, queue) == [key.encode() for key in hits]


def test_a_queue_gets_one_copy_however_many_bindings_match(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("exchange"), "topic")
    queue = bound(channel, name("exchange"), "a.#", "#.b", "a.*", "a.b")
    channel.basic_publish(name("exchange"), "a.b", b"once")
    assert bodies(channel, queue) == [b"once"]


HEADERS = [
    ("all", {"x-match": "all", "a": 1, "b": "two"}, {"a": 1, "b": "two", "c": 3}, True),
    ("all-missing", {"x-match": "all", "a": 1, "b": "two"}, {"a": 1}, False),
    ("all-by-default", {"a": 1, "b": "two"}, {"a": 1}, False),
    ("all-other-value", {"x-match": "all", "a": 1}, {"a": 2}, False),
    ("any", {"x-match": "any", "a": 1, "b": "two"}, {"b": "two"}, True),
    ("any-other-value", {"x-match": "any", "a": 1, "b": "two"}, {"a": 2, "b": "three"}, False),
    ("any-none", {"x-match": "any", "a": 1}, {}, False),
    ("void-is-presence", {"x-match": "all", "a": None}, {"a": "anything"}, True),
    ("void-needs-presence", {"x-match": "all", "a": None}, {"b": 1}, False),
    ("all-ignores-x", {"x-match": "all", "x-kind": "k", "a": 1}, {"a": 1}, True),
    ("any-ignores-x", {"x-match": "any", "x-kind": "k", "a": 1}, {"x-kind": "k"}, False),
    ("all-with-x", {"x-match": "all-with-x", "x-kind": "k", "a": 1}, {"a": 1}, False),
    ("all-with-x-both", {"x-match": "all-with-x", "x-kind": "k", "a": 1}, {"a": 1, "x-kind": "k"}, True),
    ("any-with-x", {"x-match": "any-with-x", "x-kind": "k", "a": 1}, {"x-kind": "k"}, True),
    ("boolean", {"x-match": "all", "urgent": True}, {"urgent": True}, True),
    ("boolean-other", {"x-match": "all", "urgent": True}, {"urgent": False}, False),
    ("big-number", {"x-match": "all", "n": 2**40}, {"n": 2**40}, True),
    ("empty-binding-matches-all", {}, {"a": 1}, True),
]


@pytest.mark.parametrize(
    ("arguments", "headers", "hit"), [row[1:] for row in HEADERS], ids=[r[0] for r in HEADERS]
)
def test_headers(
    channel: Any, name: Name, arguments: dict[str, Any], headers: dict[str, Any], hit: bool
) -> None:
    channel.exchange_declare(name("exchange"), "headers")
    queue = bound(channel, name("exchange"), arguments=arguments)
    channel.basic_publish(name("exchange"), "ignored", b"it", pika.BasicProperties(headers=headers))
    assert bodies(channel, queue) == ([b"it"] if hit else [])


def test_headers_unbind_needs_the_same_arguments(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("exchange"), "headers")
    queue = bound(channel, name("exchange"), arguments={"x-match": "any", "a": 1})
    channel.queue_bind(queue, name("exchange"), "", {"x-match": "any", "b": 1})
    channel.queue_unbind(queue, name("exchange"), "", {"x-match": "any", "a": 1})
    for header in ("a", "b"):
        properties = pika.BasicProperties(headers={header: 1})
        channel.basic_publish(name("exchange"), "", header.encode(), properties)
    assert bodies(channel, queue) == [b"b"]


def test_headers_bad_x_match_is_refused(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("exchange"), "headers")
    with channel_error(406):
        bound(channel, name("exchange"), arguments={"x-match": "some"})


def test_unbind_stops_the_flow_and_is_idempotent(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("exchange"), "direct")
    queue = bound(channel, name("exchange"), "key")
    channel.queue_bind(queue, name("exchange"), "key")
    channel.queue_unbind(queue, name("exchange"), "key")
    channel.basic_publish(name("exchange"), "key", b"gone")
    assert bodies(channel, queue) == []
    channel.queue_unbind(queue, name("exchange"), "key")
    assert channel.is_open


@pytest.mark.parametrize("absent", ["queue", "exchange"])
def test_bind_of_what_is_not_there_is_not_found(channel: Any, name: Name, absent: str) -> None:
    channel.queue_declare(name("queue-there"))
    channel.exchange_declare(name("exchange-there"), "direct")
    queue = name("nothing") if absent == "queue" else name("queue-there")
    exchange = name("nothing") if absent == "exchange" else name("exchange-there")
    with channel_error(404):
        channel.queue_bind(queue, exchange, "key")


@pytest.mark.parametrize("absent", ["queue", "exchange"])
def test_unbind_of_what_is_not_there_is_no_error(channel: Any, name: Name, absent: str) -> None:
    """A client that tidies up after an auto-delete queue is gone must not lose its channel."""
    channel.queue_declare(name("queue"))
    queue = name("nothing") if absent == "queue" else name("queue")
    exchange = name("nothing") if absent == "exchange" else "amq.direct"
    channel.queue_unbind(queue, exchange, "key")
    assert channel.is_open


def test_exchange_to_exchange_bindings(channel: Any, name: Name) -> None:
    """topic -> direct -> queue, and the way is gone after exchange.unbind."""
    channel.exchange_declare(name("all"), "topic")
    channel.exchange_declare(name("errors"), "direct")
    channel.exchange_bind(name("errors"), name("all"), "log.error.#")
    queue = bound(channel, name("errors"), "log.error.disk")
    for key in ("log.error.disk", "log.info.disk", "log.error.net"):
        channel.basic_publish(name("all"), key, key.encode())
    assert bodies(channel, queue) == [b"log.error.disk"]
    channel.exchange_unbind(name("errors"), name("all"), "log.error.#")
    channel.basic_publish(name("all"), "log.error.disk", b"unbound")
    assert bodies(channel, queue) == []


def test_exchange_binding_cycle_delivers_once(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("one"), "fanout")
    channel.exchange_declare(name("two"), "fanout")
    channel.exchange_bind(name("one"), name("two"))
    channel.exchange_bind(name("two"), name("one"))
    queue = bound(channel, name("two"))
    channel.basic_publish(name("one"), "", b"round")
    assert bodies(channel, queue) == [b"round"]


def test_internal_exchange_takes_no_publish(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("inner"), "fanout", internal=True)
    channel.exchange_declare(name("outer"), "fanout")
    channel.exchange_bind(name("inner"), name("outer"))
    queue = bound(channel, name("inner"))
    channel.basic_publish(name("outer"), "", b"through")
    assert bodies(channel, queue) == [b"through"]
    channel.basic_publish(name("inner"), "", b"refused")
    with channel_error(403):
        channel.queue_declare("", exclusive=True)


def test_alternate_exchange_gets_what_found_no_queue(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("spill"), "fanout")
    channel.exchange_declare(name("main"), "direct", arguments={"alternate-exchange": name("spill")})
    spill, main = bound(channel, name("spill")), bound(channel, name("main"), "known")
    channel.basic_publish(name("main"), "known", b"1")
    channel.basic_publish(name("main"), "unknown", b"2")
    assert (bodies(channel, main), bodies(channel, spill)) == ([b"1"], [b"2"])


def test_exchange_declared_again_otherwise_is_precondition_failed(broker: Broker, name: Name) -> None:
    with connected(broker) as connection:
        connection.channel().exchange_declare(name("exchange"), "direct")
        connection.channel().exchange_declare(name("exchange"), "direct")
        with channel_error(406):
            connection.channel().exchange_declare(name("exchange"), "fanout")
        with channel_error(406):
            connection.channel().exchange_declare(name("exchange"), "direct", durable=True)
        with channel_error(404):
            connection.channel().exchange_declare(name("nothing"), passive=True)
        with channel_error(403):
            connection.channel().exchange_declare("amq." + name("mine"), "direct")


@pytest.mark.standard
def test_unknown_exchange_type_closes_the_channel_only(broker: Broker, name: Name) -> None:
    with connected(broker) as connection:
        with channel_error(503, 406):
            connection.channel().exchange_declare(name("exchange"), "x-no-such-type")
        assert connection.channel().queue_declare("", exclusive=True).method.queue


def test_mandatory_message_comes_back_whole(channel: Any, name: Name) -> None:
    returned: list[Any] = []
    channel.add_on_return_callback(lambda _, *parts: returned.append(parts))
    channel.exchange_declare(name("exchange"), "direct")
    properties = pika.BasicProperties(message_id="m-1", headers={"k": "v"}, content_type="text/plain")
    channel.basic_publish(name("exchange"), "nowhere", b"back to me", properties, mandatory=True)
    channel.basic_publish(name("exchange"), "nowhere", b"dropped in silence")
    gather(channel.connection, returned, 1)
    channel.queue_declare("", exclusive=True)
    channel.connection.process_data_events(0)
    assert len(returned) == 1
    method, header, body = returned[0]
    assert (method.reply_code, method.exchange, method.routing_key) == (312, name("exchange"), "nowhere")
    assert (header.message_id, header.headers, header.content_type) == ("m-1", {"k": "v"}, "text/plain")
    assert body == b"back to me"


def test_mandatory_message_that_is_routed_does_not_come_back(channel: Any, name: Name) -> None:
    returned: list[Any] = []
    channel.add_on_return_callback(lambda *parts: returned.append(parts))
    channel.queue_declare(name("queue"))
    channel.basic_publish("", name("queue"), b"routed", mandatory=True)
    assert bodies(channel, name("queue")) == [b"routed"]
    channel.connection.process_data_events(0)
    assert returned == []


def immediate(raw: Any, queue: str, body: bytes) -> None:
    """Publish with the immediate bit, which pika's channels no longer offer."""
    method = pika.spec.Basic.Publish(exchange="", routing_key=queue, immediate=True)
    raw._send_method(method, (pika.BasicProperties(), body))


@pytest.mark.standard
def test_immediate_message_without_consumer_comes_back(channel: Any, name: Name) -> None:
    returned: list[Any] = []
    channel.add_on_return_callback(lambda _, *parts: returned.append(parts))
    channel.queue_declare(name("queue"))
    immediate(channel._impl, name("queue"), b"now or never")
    gather(channel.connection, returned, 1)
    assert (returned[0][0].reply_code, returned[0][2]) == (313, b"now or never")
    assert bodies(channel, name("queue")) == []


@pytest.mark.standard
def test_immediate_message_with_a_waiting_consumer_is_delivered(channel: Any, name: Name) -> None:
    got: list[bytes] = []
    channel.queue_declare(name("queue"))
    channel.basic_consume(name("queue"), lambda _c, _m, _p, body: got.append(body), auto_ack=True)
    immediate(channel._impl, name("queue"), b"now")
    gather(channel.connection, got, 1)
    assert got == [b"now"]
