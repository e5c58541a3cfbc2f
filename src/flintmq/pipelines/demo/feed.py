"""Market data made up: ticks of many symbols on several feeds, published into a stream at a steady rate.

Half of the traffic is on a tenth of the symbols. Each feed numbers its ticks; now and then numbers are
left out on purpose, so that there is dropout to find. Run as a process of its own:

    python -m flintmq.pipelines.demo.feed --uri URI --stream ticks --rate 50000

It writes a line of JSON per second: what was sent, and how many numbers were left out in how many gaps.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from flintmq.client.sync.connection import connect
from flintmq.clock import Clock
from flintmq.pipelines.queries.brokers import settings_of

FEEDS = 8
SLICE_S = 0.05
RAMP_S = 10.0
GAP_CHANCE = 1e-5
GAP_NUMBERS_MAX = 5
# A feed that was held up does not make up for more than this: a backlog is the broker's, not its own.
BEHIND_S_MAX = 1.0


def symbol_name(number: int) -> str:
    return f"S{number:05d}"


class Market:
    """Prices and sequence numbers; the next ticks as the octets of messages."""

    def __init__(self, symbols: int, seed: int, form: str = "json", gap_chance: float = GAP_CHANCE) -> None:
        import numpy

        self.random: Any = numpy.random.default_rng(seed)
        self.names = [symbol_name(number) for number in range(symbols)]
        self.prices: Any = self.random.uniform(10.0, 500.0, symbols)
        self.sequences = [0] * FEEDS
        self.gap_chance = gap_chance
        self.gaps = 0
        self.left_out = 0
        self.template = (
            '{"feed":"F%d","seq":%d,"symbol":"%s","price":%.2f,"size":%d,"time":%d}'
            if form == "json"
            else "F%d,%d,%s,%.2f,%d,%d"
        )

    def ticks(self, count: int, now_ms: int) -> list[bytes]:
        symbols = len(self.names)
        busy = max(1, symbols // 10)
        is_busy = self.random.random(count) < 0.5
        chosen = self.random.integers(0, symbols - busy or 1, count) + (busy if symbols > busy else 0)
        chosen[is_busy] = self.random.integers(0, busy, int(is_busy.sum()))
        steps = self.random.normal(0.0, 0.0005, count)
        prices = self.prices[chosen] * (1.0 + steps)
        self.prices[chosen] = prices
        sizes = self.random.integers(1, 500, count).tolist()
        gaps = set(self.random.integers(0, count, self.random.poisson(count * self.gap_chance)).tolist())
        made: list[bytes] = []
        names, sequences, template = self.names, self.sequences, self.template
        for place, (number, price) in enumerate(zip(chosen.tolist(), prices.tolist(), strict=True)):
            feed = number % FEEDS
            if place in gaps and sequences[feed]:
                self._leave_out(feed)
            sequences[feed] += 1
            text = template % (feed, sequences[feed], names[number], price, sizes[place], now_ms)
            made.append(text.encode())
        return made

    def _leave_out(self, feed: int) -> None:
        numbers = int(self.random.integers(1, GAP_NUMBERS_MAX + 1))
        self.sequences[feed] += numbers
        self.gaps += 1
        self.left_out += numbers


class Feed:
    """Publishes a market at a rate until it is ended."""

    def __init__(self, market: Market, stream: str, rate: int, clock: Clock, ramp_s: float = RAMP_S) -> None:
        self.market = market
        self.stream = stream
        self.rate = rate
        self.clock = clock
        self.ramp_s = ramp_s
        self.sent = 0
        self.ended = threading.Event()

    def run(self, uri: str | None) -> None:
        with connect(settings_of(uri)) as connection, connection.channel(confirm=True) as channel:
            began_s = due_s = told_s = self.clock.monotonic_s()
            while not self.ended.is_set():
                now_s = self.clock.monotonic_s()
                if now_s < due_s:
                    self.ended.wait(due_s - now_s)
                    continue
                due_s = max(due_s + SLICE_S, now_s - BEHIND_S_MAX)
                share = min(1.0, (now_s - began_s + SLICE_S) / self.ramp_s) if self.ramp_s else 1.0
                bodies = self.market.ticks(max(1, int(self.rate * SLICE_S * share)), self.clock.wall_ms())
                channel.publish_many(bodies, "", self.stream, wait=False)
                self.sent += len(bodies)
                if now_s - told_s >= 1.0:
                    told_s = now_s
                    self._tell()
            channel.wait_for_confirms()
        self._tell()

    def _tell(self) -> None:
        market = self.market
        told = {"sent": self.sent, "gaps": market.gaps, "left_out": market.left_out}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m flintmq.pipelines.demo.feed", description="Made-up market data."
    )
    parser.add_argument("--uri")
    parser.add_argument("--stream", default="ticks")
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--symbols", type=int, default=10_000)
    parser.add_argument("--format", choices=("json", "csv"), default="json")
    parser.add_argument("--seed", type=int)
    options = parser.parse_args(argv)
    clock = Clock()
    seed = clock.random.getrandbits(32) if options.seed is None else options.seed
    feed = Feed(Market(options.symbols, seed, options.format), options.stream, options.rate, clock)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: feed.ended.set())
    feed.run(options.uri)
    return 0


if __name__ == "__main__":
    sys.exit(main())
