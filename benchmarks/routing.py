"""Routing: bindings added, matches and removals per CPU-second; the exchanges alone, without the route cache.

    python benchmarks/routing.py
    python benchmarks/routing.py selector headers     # only what starts so

The last lines go through a virtual host as a publish does: `route_of` with its cache for topics; reading
the header from its octets and `match` for exchanges that look into messages.
Topics: market data, keys such as "stock.nyse.s00042.trade" over 10,000 symbols, half of the
traffic on a tenth of them. Of the bindings 90% name one symbol and the rest use wildcards.
Headers: bindings of three terms, one of which most of them share; each message meets one.
Selectors: a symbol and a price, a region with one of several users, a range, a LIKE: a quarter each.
The build that is loaded is the one that is measured; the first line says which.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from flintmq.broker.broker import Broker
from flintmq.broker.channels.channel import Channel
from flintmq.broker.exchanges.exchange import (
    DirectExchange,
    Exchange,
    FanoutExchange,
    HeadersExchange,
    TopicExchange,
)
from flintmq.broker.exchanges.selector_exchange import PropWildExchange, RegexpExchange, SelectorExchange
from flintmq.broker.matching import topic_trie
from flintmq.broker.virtual_host import VirtualHost
from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.protocol.outbox import Output
from flintmq.wire.properties import BasicProperties, encode_properties

SYMBOLS = 10_000
VENUES = ("nyse", "xetra", "tse", "lse")
EVENTS = ("trade", "quote", "close")
MESSAGES = 200_000
ROUNDS = 3

Bound = tuple[Any, str, dict[str, Any]]
Message = tuple[str, dict[str, Any]]
Bindings = Callable[[], list[Bound]]
Messages = Callable[[], list[Message]]


class Queue:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def symbol_key(number: int, event: str) -> str:
    return f"stock.{VENUES[number % len(VENUES)]}.s{number:05d}.{event}"


def topic_keys(chance: random.Random) -> list[Message]:
    """Half of the messages are about the first tenth of the symbols."""
    keys: list[Message] = []
    for _ in range(MESSAGES):
        number = chance.randrange(SYMBOLS // 10) if chance.random() < 0.5 else chance.randrange(SYMBOLS)
        keys.append((symbol_key(number, chance.choice(EVENTS)), {}))
    return keys


def topic_bindings(chance: random.Random, count: int, queues: list[Queue]) -> list[Bound]:
    bindings: list[Bound] = []
    for number in range(count):
        symbol, kind = chance.randrange(SYMBOLS), chance.random()
        if kind < 0.6:
            pattern = symbol_key(symbol, chance.choice(EVENTS))
        elif kind < 0.8:
            pattern = symbol_key(symbol, "*")
        elif kind < 0.9:
            pattern = f"stock.*.s{symbol:05d}.#"
        elif kind < 0.95:
            pattern = f"#.s{symbol:05d}.{chance.choice(EVENTS)}"
        else:
            pattern = f"bond.{chance.choice(VENUES)}.b{number}.#"
        bindings.append((queues[number % len(queues)], pattern, {}))
    return bindings


def header_bindings(count: int, queues: list[Queue]) -> list[Bound]:
    modes = ("all", "all", "any")
    return [
        (
            queues[number % len(queues)],
            "",
            {"x-match": modes[number % 3], "user": number, "order": f"o{number}"}
            | ({"region": "eu"} if number % 3 != 2 else {}),
        )
        for number in range(count)
    ]


def header_messages(chance: random.Random, count: int) -> list[Message]:
    numbers = [chance.randrange(count) for _ in range(MESSAGES // 4)]
    return [("", {"region": "eu", "user": n, "order": f"o{n}", "trace": "t", "hop": 1}) for n in numbers]


def selector_bindings(count: int, queues: list[Queue]) -> list[Bound]:
    kinds = (
        "symbol = 's{0}' AND price > {1}",
        "region = 'eu' AND user IN ({0}, -{0})",
        "price BETWEEN {0}.25 AND {0}.75",
        "path LIKE '/orders/o{0}/%'",
    )
    return [
        (queues[n % len(queues)], "", {"x-selector": kinds[n % 4].format(n, n % 50)}) for n in range(count)
    ]


def selector_messages(chance: random.Random, count: int) -> list[Message]:
    """Each is what one binding of each kind asks for, or nearly so."""
    numbers = [chance.randrange(count) for _ in range(MESSAGES // 4)]
    return [
        (
            "",
            {"region": "eu", "user": n, "symbol": f"s{n}", "price": n + 0.5, "path": f"/orders/o{n}/items"},
        )
        for n in numbers
    ]


def wild_bindings(count: int, queues: list[Queue]) -> list[Bound]:
    return [
        (queues[n % len(queues)], "", {"symbol": f"s{n}*", "path": "/orders/*/items"}) for n in range(count)
    ]


def pattern_bindings(count: int, queues: list[Queue]) -> list[Bound]:
    kinds = (r"^stock\.[a-z]+\.s{0:05d}\.(trade|quote)$", r"\.s{0:05d}\.", r"^stock\.lse\.s{0:05d}")
    return [(queues[n % len(queues)], kinds[n % 3].format(n % SYMBOLS), {}) for n in range(count)]


def per_second(work: Callable[[], object], count: int) -> float:
    # CPU time: one thread does it all, and a shared machine must not count.
    start = time.process_time()
    work()
    return count / (time.process_time() - start)


def publish(exchange: Exchange, messages: list[Message]) -> int:
    total = 0
    needs_headers = exchange.needs_headers
    for key, headers in messages:
        found: dict[Any, Any] = {}
        exchange.route(key, headers.copy if needs_headers else None, found)
        total += len(found)
    return total


def memory_mb() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 1e6


def measure(title: str, exchange: Exchange, bindings: list[Bound], messages: list[Message]) -> None:
    def bind_all() -> None:
        for destination, key, arguments in bindings:
            exchange.bind(destination, key, arguments)

    def unbind_all() -> None:
        for destination, key, arguments in bindings:
            exchange.unbind(destination, key, arguments)

    before_mb = memory_mb()
    bound = per_second(bind_all, len(bindings))
    grown_mb, held = memory_mb() - before_mb, len(exchange.bindings)
    hits = publish(exchange, messages) / len(messages)
    matched = max(per_second(lambda: publish(exchange, messages), len(messages)) for _ in range(ROUNDS))
    unbound = per_second(unbind_all, len(bindings))
    sys.stdout.write(
        f"{title:<26}{held:>9,}{grown_mb:>8.1f}{bound:>12,.0f}{matched:>13,.0f}{hits:>9.2f}{unbound:>12,.0f}\n"
    )


def through_topics(chance: random.Random, queues: list[Queue]) -> None:
    """Router.route_of for keys as they come, its cache filled by the first round."""
    host, exchange = virtual_host("topic", topic_bindings(chance, 100_000, queues))
    octets = [routes_octets(exchange.name, key) for key, _ in topic_keys(chance)]
    route_of = host.router.route_of

    def look_up() -> None:
        for route in octets:
            route_of(route)

    first = per_second(look_up, len(octets))
    cached = max(per_second(look_up, len(octets)) for _ in range(ROUNDS))
    rest = f"   first round {first:,.0f}, {len(host.router.routes):,} keys"
    sys.stdout.write(f"{'topic 100,000, cached':<26}{cached:>42,.0f}{rest}\n")


def through_headers(title: str, kind: str, bindings: list[Bound], messages: list[Message]) -> None:
    """Channel.publish: header octets read, matched, enqueued."""
    host, exchange = virtual_host(kind, bindings)
    broker_channel = Channel(1, 1, host, next(iter(Broker(Config(), Clock()).users)), Output([], None))
    route = routes_octets(exchange.name, "")
    contents = []
    for _, headers in messages[:20_000]:
        properties = encode_properties(BasicProperties(headers=headers, delivery_mode=1))
        header = b"\x00\x3c\x00\x00" + (16).to_bytes(8, "big") + properties
        contents.append((header + bytes(16), len(header)))

    def publish_all() -> None:
        for content, size in contents:
            broker_channel.publish(route, 0, content, size)

    best = 0.0
    for _ in range(ROUNDS):
        best = max(best, per_second(publish_all, len(contents)))
        for queue in host.queues.values():
            queue.purge()
    sys.stdout.write(f"{title:<26}{best:>42,.0f}\n")


def virtual_host(kind: str, bindings: list[Bound]) -> tuple[VirtualHost, Exchange]:
    """A virtual host with real queues in the place of the bindings' own."""
    host = Broker(Config(), Clock()).virtual_hosts["/"]
    exchange = host.declare_exchange("bench", kind, False, False, False, {})
    for destination, key, arguments in bindings:
        queue = host.queues.get(destination.name)
        if queue is None:
            queue = host.declare_queue(destination.name, False, False, False, {}, 0)
        host.bind(exchange, queue, key, arguments)
    return host, exchange


def routes_octets(exchange: str, key: str) -> bytes:
    return bytes((len(exchange),)) + exchange.encode() + bytes((len(key),)) + key.encode()


def loads(chance: random.Random, queues: list[Queue]) -> dict[str, Callable[[], None]]:
    keys = topic_keys(chance)

    def exchange(title: str, kind: type[Exchange], bindings: Bindings, messages: Messages) -> None:
        todo[title] = lambda: measure(title, kind("x"), bindings(), messages())

    def headers(count: int) -> list[Bound]:
        return header_bindings(count, queues)

    todo: dict[str, Callable[[], None]] = {}
    for count in (10_000, 100_000):
        exchange(
            f"topic {count:,}", TopicExchange, partial(topic_bindings, chance, count, queues), lambda: keys
        )
    identical: list[Bound] = [(Queue(f"i{number}"), "stock.#.trade", {}) for number in range(100_000)]
    exchange("topic, one pattern", TopicExchange, lambda: identical, lambda: keys[:50])
    hostile: list[Bound] = [(q, ".".join(["#", "a"] * 60 + [q.name]), {}) for q in queues]
    exchange(
        "topic, hostile", TopicExchange, lambda: hostile, lambda: [(".".join(["a"] * 128), {"": 0})] * 20
    )
    for count in (1_000, 100_000):
        exchange(
            f"headers {count:,}",
            HeadersExchange,
            partial(headers, count),
            partial(header_messages, chance, count),
        )
    for count in (1_000, 10_000):
        exchange(
            f"selector {count:,}",
            SelectorExchange,
            partial(selector_bindings, count, queues),
            partial(selector_messages, chance, count),
        )
    exchange(
        "prop-wild 10,000",
        PropWildExchange,
        partial(wild_bindings, 10_000, queues),
        partial(selector_messages, chance, 10_000),
    )
    exchange(
        "regexp 10,000", RegexpExchange, partial(pattern_bindings, 10_000, queues), lambda: keys[:50_000]
    )
    direct: list[Bound] = [
        (queues[n % 1000], symbol_key(n % SYMBOLS, EVENTS[n % 3]), {}) for n in range(100_000)
    ]
    exchange("direct 100,000", DirectExchange, lambda: direct, lambda: keys)
    exchange("fanout 10", FanoutExchange, lambda: [(queue, "", {}) for queue in queues[:10]], lambda: keys)
    todo["topic, through the host"] = lambda: through_topics(chance, queues)
    for count in (1_000, 100_000):
        todo[f"headers {count:,}, published"] = partial(
            through_headers,
            f"headers {count:,}, published",
            "headers",
            headers(count),
            header_messages(chance, count),
        )
    todo["selector 10,000, published"] = lambda: through_headers(
        "selector 10,000, published",
        "x-selector",
        selector_bindings(10_000, queues),
        selector_messages(chance, 10_000),
    )
    return todo


def main() -> None:
    chance = random.Random(1)
    queues = [Queue(f"q{number}") for number in range(1000)]
    build = "pure" if (topic_trie.__file__ or "").endswith(".py") else "compiled"
    sys.stdout.write(f"{build} build, Python {sys.version.split()[0]}\n")
    sys.stdout.write(
        f"{'':<26}{'bindings':>9}{'MB':>8}{'binds/s':>12}{'matches/s':>13}{'hits':>9}{'unbinds/s':>12}\n"
    )
    for title, run in loads(chance, queues).items():
        if len(sys.argv) < 2 or title.startswith(tuple(sys.argv[1:])):
            run()
            gc.collect()
            sys.stdout.flush()


if __name__ == "__main__":
    main()
