"""What a comparison found: medians, spread and ratios by figure and broker, as text, Markdown or JSON."""

from __future__ import annotations

import dataclasses
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scenarios import Figure


@dataclass
class Samples:
    """One figure on one broker and what the broker spent, with one entry for each round that worked."""

    values: list[float] = field(default_factory=list)
    cpu_us_per_message: list[float] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, value: float, report: Mapping[str, object]) -> None:
        """Take the figure's value and the broker's costs from one report."""
        self.values.append(value)
        held = report.get("held")
        cpu, rss = report.get("cpu_us_per_message"), report.get("rss_kib_peak")
        if rss is None and isinstance(held, Mapping):
            rss = held.get("rss_kib")
        if isinstance(cpu, (int, float)):
            self.cpu_us_per_message.append(float(cpu))
        if isinstance(rss, (int, float)):
            self.rss_mib.append(rss / 1024)

    @property
    def median(self) -> float | None:
        """The middle value; None when no round worked."""
        return median(self.values)

    @property
    def spread_percent(self) -> float | None:
        """How far apart the lowest and the highest round are, in percent of the median."""
        if not self.values or not self.median:
            return None
        return 100 * (max(self.values) - min(self.values)) / abs(self.median)


@dataclass
class Row:
    """One figure on all brokers; the first broker is the one whose advantage the ratio tells."""

    figure: Figure
    samples: dict[str, Samples]

    @property
    def ratio(self) -> float | None:
        """How many times better the first broker is than the second; None when that cannot be said."""
        medians = [samples.median for samples in self.samples.values()]
        if len(medians) != 2 or not medians[0] or not medians[1] or min(medians[0], medians[1]) < 0:
            return None
        return medians[0] / medians[1] if self.figure.higher_is_better else medians[1] / medians[0]


def median(values: Sequence[float]) -> float | None:
    """The median, or None for no values."""
    return statistics.median(values) if values else None


def number(value: float | None) -> str:
    """A value as a person reads it: three digits that matter, thousands apart."""
    if value is None:
        return "-"
    if abs(value) >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def heading(brokers: Sequence[str]) -> list[str]:
    """The names of the table's columns."""
    columns = ["", "scenario", "unit"]
    for broker in brokers:
        columns += [broker, "spread"]
    columns += ["ratio"] if len(brokers) == 2 else []
    return [*columns, "CPU us/msg", "RSS MiB"]


def cells(row: Row) -> list[str]:
    """One row of the table, in the order of the heading."""
    texts = [row.figure.name, row.figure.what, row.figure.unit]
    for samples in row.samples.values():
        spread = samples.spread_percent
        texts += [number(samples.median), "-" if spread is None else f"{spread:.0f}%"]
    if len(row.samples) == 2:
        texts.append("-" if row.ratio is None else f"{row.ratio:.{1 if row.ratio >= 2 else 2}f}x")
    every = list(row.samples.values())
    texts.append(" / ".join(number(median(s.cpu_us_per_message)) for s in every))
    texts.append(" / ".join(number(median(s.rss_mib)) for s in every))
    return texts


def text_lines(table: Sequence[Sequence[str]]) -> list[str]:
    """The table in columns: names to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return [
        "  ".join(
            f"{c:<{w}}" if i < 3 else f"{c:>{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def failures(rows: Sequence[Row]) -> list[str]:
    """One line for each round that did not work."""
    return [
        f"{row.figure.name} on {broker}: {why}"
        for row in rows
        for broker, samples in row.samples.items()
        for why in samples.failures
    ]


def markdown(rows: Sequence[Row], brokers: Sequence[str], machine: Mapping[str, str], command: str) -> str:
    """The table for the documentation, with all that is needed to repeat it."""
    columns = heading(brokers)
    lines = ["| " + " | ".join(columns) + " |"]
    lines.append("|" + "|".join("---" if i < 3 else "---:" for i in range(len(columns))) + "|")
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    lines += ["", *(f"- {key}: {value}" for key, value in machine.items()), f"- Command: `{command}`"]
    lines += [f"- Failed: {line}" for line in failures(rows)]
    return "\n".join(lines) + "\n"


def as_json(rows: Sequence[Row], machine: Mapping[str, str], command: str) -> dict[str, object]:
    """Everything that was found, for other programs."""
    return {
        "machine": dict(machine),
        "command": command,
        "figures": [
            {
                "name": row.figure.name,
                "what": row.figure.what,
                "unit": row.figure.unit,
                "load": row.figure.load.arguments,
                "higher_is_better": row.figure.higher_is_better,
                "ratio": row.ratio,
                "brokers": {
                    name: {"median": s.median, "spread_percent": s.spread_percent, **dataclasses.asdict(s)}
                    for name, s in row.samples.items()
                },
            }
            for row in rows
        ],
    }


def build_of_flintmq() -> str:
    """What `flintmq info` of this Python says about build and event loop."""
    command = [sys.executable, "-m", "flintmq", "info"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    lines = [line.split() for line in done.stdout.splitlines()]
    told = [" ".join(words) for words in lines if words[:1] == ["build"] or words[:2] == ["event", "loop"]]
    return ", ".join(told) if told else "not installed in this Python"


def machine_description(versions: Mapping[str, str]) -> dict[str, str]:
    """The machine and the software, as far as they decide the figures."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    description = {
        "CPU": f"{models[0] if models else platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "Memory": f"{memory_kib / 2**20:.0f} GiB",
        "Kernel": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "FlintMQ here": build_of_flintmq(),
    }
    return description | {f"{name} says it is": version for name, version in versions.items() if version}
