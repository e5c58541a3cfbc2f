"""docs/capacity.md: its limits are the defaults, and its figures come from a program that works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from flintmq.config import Limits

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "capacity.md").read_text()
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def test_limits_are_the_defaults() -> None:
    found = re.findall(r"`(\w+)` ([\d.,]+\d)(?: (KiB|MiB))?", PAGE.partition("## Limits")[2])
    assert len(found) >= 6
    for name, number, unit in found:
        assert float(number.replace(",", "")) * UNITS[unit] == getattr(Limits(), name), name
    limits = Limits()
    for row, values in (
        ("consumers of a channel", (limits.consumers_per_channel_max, limits.consumers_per_connection_max)),
        ("queues, exchanges", (limits.queues_per_virtual_host_max,)),
        ("bindings of", (limits.bindings_per_virtual_host_max,)),
    ):
        [line] = re.findall(rf"^\| {row}.*", PAGE, re.M)
        assert all(f"{value:,}" in line for value in values)


@pytest.mark.timeout(300)
def test_the_figures_can_be_measured() -> None:
    """Few of each, so that the figures mean nothing."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "capacity.py"), "--count", "20"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured = re.findall(r"^(.*?) +-?[\d,]+ octets$", done.stdout, re.M)
    assert {"connection", "channel", "queue, durable", "consumer"} <= set(measured)
    assert len(measured) == 16
