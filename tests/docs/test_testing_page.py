"""docs/testing.md, as it stands, in a project of somebody else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
THEIR_TEST, THEIR_OPTIONS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
OF_A_RUN = """
def test_first(flintmq_session):
    test_first.port = flintmq_session.port

def test_second(flintmq_session, flintmq):
    assert test_first.port == flintmq_session.port != flintmq.port
"""


def run(project: Path) -> subprocess.CompletedProcess[str]:
    # By its name: an entry point is there only where the package is installed.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "flintmq.pytest_plugin", "--rootdir", str(project)]
    return subprocess.run(
        [*command, str(project)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=project,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
    )


def test_a_test_has_a_broker(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIR_TEST)
    (tmp_path / "test_of_a_run.py").write_text(OF_A_RUN)
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_options_are_overridden(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "conftest.py").write_text(THEIR_OPTIONS)
    (tmp_path / "test_theirs.py").write_text(THEIR_TEST)
    (tmp_path / "tests" / "flintmq.toml").write_text("[limits]\nconnections_max = 0\n")
    done = run(tmp_path)
    assert done.returncode == 1
    assert "ended with status" in done.stdout
    assert "connections_max" in done.stdout  # what the broker has to say is in the report
    (tmp_path / "tests" / "flintmq.toml").write_text("[limits]\nconnections_max = 5\n")
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
