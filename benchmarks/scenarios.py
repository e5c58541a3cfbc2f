"""What is measured: loads (one run of the load tool each) and the figures read from their reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MARKET = "--topology topic --queues 1000 --consumers 10 --body-bytes 100"
HEADERS = "--topology headers --queues 1000 --consumers 10 --body-bytes 100"
SAFE = "--persistent --confirms 1000 --prefetch 1000"


@dataclass(frozen=True)
class Load:
    """One way of loading a broker; `arguments` are the load tool's.

    `fresh` asks for a broker that has just started: memory that an earlier load left free for reuse would
    hide what this one needs.
    """

    name: str
    arguments: str
    fresh: bool = False


@dataclass(frozen=True)
class Figure:
    """One number of a load's report: where it stands there, its unit, and which direction is better."""

    name: str
    load: Load
    what: str
    path: str
    unit: str = "deliveries/s"
    higher_is_better: bool = True

    def read(self, report: Mapping[str, object]) -> float:
        """The figure's value in a report of the load tool."""
        value: object = report
        for key in self.path.split("."):
            if not isinstance(value, Mapping) or key not in value:
                raise KeyError(f"the report has no {self.path}")
            value = value[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{self.path} is not a number: {value!r}")
        return float(value)


def figures(many_connections: int = 10_000) -> dict[str, Figure]:
    """All figures by name, in the order of the table."""
    latency = Load("f", "--rate 5000 --batch 1")
    connections = Load("g", "--producers 0 --held 4000", fresh=True)
    backlog = Load("h", "--backlog --count 200000 --body-bytes 100", fresh=True)
    active = min(100, many_connections)
    crowd = f"--held {many_connections - active} --queues {active} --consumers {active} --rate 10000"
    many = Load("many", crowd, fresh=True)
    dropout = Load("dropout", f"{MARKET} --rate 100000 --latency-from-due --tolerate-gaps")
    held = f"{many_connections:,} connections, 10k msg/s on {active}"
    feed = "market data at 100k msg/s"

    def rate(name: str, what: str, arguments: str) -> Figure:
        return Figure(name, Load(name, arguments), what, "deliver_per_s")

    def cost(name: str, load: Load, what: str, path: str, unit: str) -> Figure:
        return Figure(name, load, what, path, unit, higher_is_better=False)

    every = [
        rate("a16", "16 B, transient, autoack", ""),
        rate("a1k", "1 KiB, transient, autoack", "--body-bytes 1024"),
        rate("b16", "16 B, acks, prefetch 1000", "--prefetch 1000"),
        rate("b1", "16 B, one send per message", "--batch 1"),
        rate("c16", "16 B, persistent, confirms, acks", SAFE),
        rate("c1k", "1 KiB, persistent, confirms, acks", f"{SAFE} --body-bytes 1024"),
        rate("d10", "fanout to 10 queues", "--topology fanout --queues 10 --consumers 2"),
        rate("e", "market data: 10k topics, 1,000 subscribers", MARKET),
        rate("ew", "the same with wildcard bindings", f"{MARKET} --wildcards"),
        rate("x", "headers exchange with 1,000 bindings, 100 B", HEADERS),
        cost("f50", latency, "latency p50 at 5k msg/s", "latency.p50_us", "us"),
        cost("f99", latency, "latency p99 at 5k msg/s", "latency.p99_us", "us"),
        Figure("g", connections, "connections opened", "held.connections_per_s", "per s"),
        cost("gm", connections, "memory per connection", "held.kib_per_connection", "KiB"),
        cost("h", backlog, "memory per 100 B message, 200k backlog", "backlog.bytes_per_message", "B"),
        cost("many", many, f"{held}: memory each", "held.kib_per_connection", "KiB"),
        cost("many-idle", many, f"{many_connections:,} connections, idle: CPU", "held.idle_cpu_percent", "%"),
        cost("many-cpu", many, f"{held}: CPU", "cpu_percent", "%"),
        cost("many-p99", many, f"{held}: latency p99", "latency.p99_us", "us"),
        Figure("dropout", dropout, f"{feed}: delivered within 1 s", "dropout.on_time_percent", "% of due"),
        cost("dropout-gaps", dropout, f"{feed}: gaps in topics", "dropout.gaps", "gaps"),
        cost("dropout-p50", dropout, f"{feed}: latency p50", "latency.p50_us", "us"),
        cost("dropout-p99", dropout, f"{feed}: latency p99", "latency.p99_us", "us"),
        cost("dropout-max", dropout, f"{feed}: latency max", "latency.max_us", "us"),
    ]
    return {figure.name: figure for figure in every}


def choose(available: Mapping[str, Figure], only: str) -> list[Figure]:
    """The figures named in a comma-separated list; a load's name stands for all of its figures."""
    if not only:
        return list(available.values())
    chosen: dict[str, Figure] = {}
    for name in only.split(","):
        named = [f for f in available.values() if f.load.name == name] or [
            f for f in [available.get(name)] if f
        ]
        if not named:
            raise ValueError(f"no scenario {name!r}; there are {', '.join(available)}")
        chosen.update((figure.name, figure) for figure in named)
    return list(chosen.values())
