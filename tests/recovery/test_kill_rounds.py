"""A few rounds of `tools/kill_rounds.py`; a thousand are run by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parent.parent.parent / "tools" / "kill_rounds.py"
ROUNDS = 8


def test_nothing_confirmed_is_lost_by_kills_under_load(tmp_path: Path) -> None:
    command = [sys.executable, str(TOOL), "--rounds", str(ROUNDS), "--directory", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{ROUNDS} rounds on the" in done.stdout
    figures = dict(line.split(None, 1)[::-1] for line in done.stdout.splitlines() if line.startswith(" "))
    # Rounds in which nothing was promised would show nothing.
    assert int(figures["confirmed"]) > 10 * ROUNDS
    assert int(figures["transactions committed"]) > 0
    for queue in ("dead", "delayed", "ranked", "stream", "leased"):
        assert f"found in rounds.{queue}" in figures
    assert sum(int(count) for name, count in figures.items() if name.startswith("found in rounds.")) > ROUNDS
