"""Which tests the Makefile runs on which build, and how."""

from __future__ import annotations

import os
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


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_what_is_compiled_once_is_kept_whatever_the_environment_says() -> None:
    """Else each worker compiles every test, and each process of the pure build every module."""
    shown = subprocess.run(
        ["make", "--silent", "--eval", "shown:; @env", "shown"],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "PATH=" in shown.stdout
    assert "PYTHONDONTWRITEBYTECODE" not in shown.stdout
