"""Which tests the Makefile runs on which build."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_what_imitates_windows_runs_on_the_pure_build() -> None:
    """On Windows there is no other build."""
    done = subprocess.run(
        ["make", "--dry-run", "test-pure"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    ignored = [word for word in done.stdout.split() if word.startswith("--ignore=tests/live")]
    assert "--ignore=tests/live/test_lifecycle.py" in ignored
    assert "--ignore=tests/live" not in ignored
    assert "--ignore=tests/live/test_without_unix.py" not in ignored
