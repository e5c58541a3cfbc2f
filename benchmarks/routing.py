"""Routing without the route cache: bindings added, matches and removals per CPU-second.

    python benchmarks/routing.py

Topics: market data, keys such as "stock.nyse.s00042.trade" over 10,000 symbols, half of the
traffic on a tenth of them. Of the bindings 90% name one symbol and the rest use wildcards.
Headers: bindings of three terms, one of which most of them share; each message meets one.
The build that is loaded is the one that is measured; the first line says which.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from flintmq.broker import topic_trie
from flintmq.broker.exchange import DirectExchange, Exchange, FanoutExchange, HeadersExchange, TopicExchange

SYMBOLS = 10_000
VENUES = ("nyse", "xetra", "tse", "lse")
EVENTS = ("trade", "quote", "close")
MESSAGES = 200_000
ROUNDS = 3

Bound = tuple[Any, str, dict[str, Any]]
Message = tuple[str, dict[str, Any]]


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


def main() -> None:
    chance = random.Random(1)
    queues = [Queue(f"q{number}") for number in range(1000)]
    build = "pure" if (topic_trie.__file__ or "").endswith(".py") else "compiled"
    sys.stdout.write(f"{build} build, Python {sys.version.split()[0]}\n")
    sys.stdout.write(
        f"{'':<26}{'bindings':>9}{'MB':>8}{'binds/s':>12}{'matches/s':>13}{'hits':>9}{'unbinds/s':>12}\n"
    )
    keys = topic_keys(chance)
    for count in (10_000, 100_000):
        bindings = topic_bindings(chance, count, queues)
        measure(f"topic {count:,}", TopicExchange("x"), bindings, keys)
    identical: list[Bound] = [(Queue(f"i{number}"), "stock.#.trade", {}) for number in range(100_000)]
    measure("topic, one pattern", TopicExchange("x"), identical, keys[:50])
    hostile: list[Bound] = [(q, ".".join(["#", "a"] * 60 + [q.name]), {}) for q in queues]
    measure("topic, hostile", TopicExchange("x"), hostile, [(".".join(["a"] * 128), {"": 0})] * 20)
    for count in (1_000, 100_000):
        messages = header_messages(chance, count)
        measure(f"headers {count:,}", HeadersExchange("x"), header_bindings(count, queues), messages)
    direct: list[Bound] = [
        (queues[n % 1000], symbol_key(n % SYMBOLS, EVENTS[n % 3]), {}) for n in range(100_000)
    ]
    measure("direct 100,000", DirectExchange("x"), direct, keys)
    measure("fanout 10", FanoutExchange("x"), [(queue, "", {}) for queue in queues[:10]], keys)


if __name__ == "__main__":
    main()
