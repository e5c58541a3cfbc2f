"""The gate itself: the wrong build stops the tests, and lint bans what would break a simulation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flintmq.build import build

ROOT = Path(__file__).resolve().parent.parent.parent.parent
RUFF = shutil.which("ruff", path=str(Path(sys.executable).parent))


def collect(expected: str) -> subprocess.CompletedProcess[str]:
    # The variables of a parallel run would make the inner pytest think it is one of its workers.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", __file__]
    environment = kept | {"FLINTMQ_EXPECT_BUILD": expected}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


def test_the_build_that_runs_is_accepted() -> None:
    assert collect(build()).returncode == 0


def test_the_other_build_stops_the_session() -> None:
    other = "pure" if build() == "compiled" else "compiled"
    ran = collect(other)
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"the tests should run on the {other} build, but " in ran.stdout + ran.stderr


def test_a_build_that_does_not_exist_stops_the_session() -> None:
    ran = collect("fast")
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "FLINTMQ_EXPECT_BUILD=fast: expected compiled or pure" in ran.stdout + ran.stderr


LEAVING = {
    "the level of all": "logging.getLogger().setLevel(logging.CRITICAL)",
    "a level": 'logging.getLogger("flintmq.of_this_test").setLevel(logging.CRITICAL)',
    "no propagation": 'logging.getLogger("flintmq.of_this_test").propagate = False',
    "loggers disabled": 'logging.getLogger("flintmq.of_this_test").disabled = True',
    "everything disabled": "logging.disable(logging.CRITICAL)",
    "another handler": "logging.basicConfig(force=True)",
}


def test_a_test_that_leaves_logging_changed_fails(tmp_path: Path) -> None:
    """What the next one waits for in the log would not come."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "conftest.py")
    lines = ["import logging", *(f"def test_{at}():\n    {line}" for at, line in enumerate(LEAVING.values()))]
    lines.append("def test_clean(caplog):\n    caplog.set_level(logging.DEBUG)")
    (tmp_path / "test_leaving.py").write_text("\n".join(lines))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-rE", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    ran = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=60)
    failed = {line.split()[1] for line in ran.stdout.splitlines() if line.startswith("ERROR test")}
    assert failed == {f"test_leaving.py::test_{at}" for at in range(len(LEAVING))}, ran.stdout


def lint(place: str, text: str) -> set[str]:
    assert RUFF is not None
    command = [RUFF, "check", "--no-cache", "--output-format=concise", "--stdin-filename", place, "-"]
    ran = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, timeout=60)
    lines = [line for line in ran.stdout.splitlines() if line.startswith(place)]
    return {line.split(": ")[1].split(" ")[0] for line in lines}


@pytest.mark.parametrize(
    ("place", "text", "codes"),
    [
        ("src/flintmq/broker/queues/queue.py", "import time\n\ntime.time()\n", {"TID251"}),
        ("src/flintmq/storage/disk.py", "from time import time_ns\n\ntime_ns()\n", {"TID251"}),
        ("src/flintmq/broker/queues/queue.py", "import random\n\nrandom.random()\n", {"TID251"}),
        (
            "src/flintmq/server/network/listener.py",
            "import asyncio\n\ntasks = [asyncio.create_task(1)]\n",
            {"TID251"},
        ),
        ("src/flintmq/server/network/listener.py", 'print("here")\n', {"T201"}),
        ("src/flintmq/cli/local/info.py", 'print("here")\n', set()),
        ("src/flintmq/clock.py", "import time\n\ntime.time()\n", set()),
        ("tests/unit/test_x.py", "import random\n\nrandom.random()\n", set()),
    ],
)
def test_lint_bans_hidden_time_chance_tasks_and_prints(place: str, text: str, codes: set[str]) -> None:
    assert lint(place, text) == codes
