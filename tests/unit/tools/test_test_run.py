"""A test that fails beside others is run once more by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[3] / "tools" / "test_run.py"
TESTS = """
from pathlib import Path

import pytest


def test_that_passes() -> None:
    noted = Path("passes.txt")
    noted.write_text((noted.read_text() if noted.exists() else "") + "once ")


@pytest.mark.parametrize("number", range({failing}))
def test_that_fails_at_first(number: int) -> None:
    noted = Path(f"tried-{{number}}.txt")
    if not noted.exists():
        noted.write_text("")
        assert number == -1


def test_that_fails() -> None:
    assert not {fails}
"""


def run(project: Path, *, failing: int, fails: bool) -> subprocess.CompletedProcess[str]:
    (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (project / "test_it.py").write_text(TESTS.format(failing=failing, fails=fails))
    # The variables of a parallel run would make the inner pytest think it is one of its workers.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "FLINTMQ_"))}
    # Of the plug-ins that are installed it needs one, and some take long to load.
    kept["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [sys.executable, str(TOOL), "stage", "-q", "-p", "xdist", "-n", "1", "--dist", "loadfile"]
    command.append("test_it.py")
    return subprocess.run(command, cwd=project, env=kept, capture_output=True, text=True, timeout=100)


def test_a_test_that_passes_by_itself_is_named_and_fails_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, failing=2, fails=False)
    assert done.returncode == 0, done.stdout
    assert "== 2 failed beside others" in done.stdout
    assert "passed only by itself: test_it.py::test_that_fails_at_first[1]" in done.stdout
    assert (tmp_path / "passes.txt").read_text() == "once "


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, failing=1, fails=True)
    assert done.returncode == 1
    assert "passed only by itself: test_it.py::test_that_fails_at_first[0]" in done.stdout
    assert "failed twice: test_it.py::test_that_fails" in done.stdout


def test_many_failures_are_not_tried_again(tmp_path: Path) -> None:
    done = run(tmp_path, failing=9, fails=False)
    assert done.returncode == 1
    assert "once more" not in done.stdout
