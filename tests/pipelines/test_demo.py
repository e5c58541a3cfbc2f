"""The demo, small: all parts start, bars and gaps come back, and nothing is left when it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from flintmq.pipelines.demo.demo import memory_bytes
from flintmq.pipelines.demo.feed import FEEDS, Market


def test_market() -> None:
    market = Market(100, seed=7, gap_chance=0.01)
    ticks = [json.loads(body) for body in market.ticks(20_000, 1000)]
    busy = sum(int(tick["symbol"][1:]) < 10 for tick in ticks)
    assert 0.45 < busy / len(ticks) < 0.55, "half of the traffic on a tenth of the symbols"
    missing = gaps = 0
    for feed in range(FEEDS):
        numbers = [tick["seq"] for tick in ticks if tick["feed"] == f"F{feed}"]
        steps = [after - before for before, after in pairwise(numbers)]
        gaps += sum(step > 1 for step in steps)
        missing += sum(step - 1 for step in steps)
    assert (gaps, missing) == (market.gaps, market.left_out)
    assert gaps > 50
    assert Market(5, 1, "csv").ticks(1, 1000)[0].count(b",") == 5


def processes_of(directory: Path) -> list[int]:
    """Processes whose command line speaks of this directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(directory).encode() in entry.read_bytes() and int(entry.parent.name) != os.getpid():
                found.append(int(entry.parent.name))
        except OSError:
            continue  # it ended while we looked
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks for what is left in /proc")
def test_demo(tmp_path: Path) -> None:
    """Interrupted as by Ctrl-C once gaps and bars were seen."""
    command = [sys.executable, "-m", "flintmq", "demo", "--rate", "3000", "--symbols", "100", "--plain"]
    demo = subprocess.Popen(
        [*command, "--state", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    alarm = threading.Timer(240.0, demo.kill)
    alarm.start()
    lines: list[str] = []
    assert demo.stdout is not None
    try:
        for line in demo.stdout:
            lines.append(line)
            shown = re.search(r"gaps (\d+) of (\d+) \| bars (\d+)", line)
            if shown is not None and int(shown[3]) == 6 and " s |" in line:
                assert len(processes_of(tmp_path)) >= 3
                assert memory_bytes(os.getsid(demo.pid)) > 0
                break
        demo.send_signal(signal.SIGINT)
        lines += list(demo.stdout)
        assert demo.wait() == 0, "".join(lines)
    finally:
        alarm.cancel()
        demo.kill()
        demo.wait()
    assert lines[-1] == "ending: feed, pipelines, broker\n", "".join(lines)
    assert processes_of(tmp_path) == []
