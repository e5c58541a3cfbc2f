"""Which tests the Makefile runs on which build, and how."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def ignored(target: str, tests: str = "tests") -> list[str]:
    """What pytest is told to leave out."""
    done = subprocess.run(
        ["make", "--dry-run", target, f"TESTS={tests}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [
        word.removeprefix("--ignore=") for word in done.stdout.split() if word.startswith("--ignore=tests/")
    ]


@needs_make
def test_what_imitates_windows_runs_on_the_pure_build() -> None:
    """On Windows there is no other build."""
    left_out = ignored("test-pure")
    assert "tests/live/test_lifecycle.py" in left_out
    assert "tests/live" not in left_out
    assert "tests/live/test_without_unix.py" not in left_out


@needs_make
def test_what_is_the_same_on_both_builds_runs_on_the_compiled_one_and_where_it_is_asked_for() -> None:
    same = "tests/management"
    assert same in ignored("test-pure")
    assert same not in ignored("test-compiled")
    assert same not in ignored("test-pure", tests=same)


@needs_make
def test_what_is_left_out_exists() -> None:
    assert [name for name in ignored("test-pure") if not (ROOT / name).exists()] == []


@needs_make
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
