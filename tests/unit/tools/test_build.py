"""What is shown of a build: its progress, and all of it when it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[3] / "tools" / "build.py"
SETUP = """
from setuptools import setup
print("[ 1/2] Cythonizing a.py")
print("a warning")
print("[2/2] Compiled a in 1.0 s")
if {fails}:
    raise SystemExit("no compiler")
setup(name="nothing", version="1")
"""


def build(project: Path, *, fails: bool) -> subprocess.CompletedProcess[str]:
    (project / "setup.py").write_text(SETUP.format(fails=fails))
    arguments = [
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--wheel-dir",
        str(project / "dist"),
    ]
    return subprocess.run(
        [sys.executable, str(TOOL), *arguments, str(project)], capture_output=True, text=True, timeout=100
    )


def test_the_lines_that_count_modules_are_shown_and_no_others(tmp_path: Path) -> None:
    done = build(tmp_path, fails=False)
    assert done.returncode == 0, done.stdout
    shown = set(done.stdout.splitlines())
    assert shown == {"[ 1/2] Cythonizing a.py", "[2/2] Compiled a in 1.0 s"}
    assert len(list((tmp_path / "dist").glob("*.whl"))) == 1


def test_all_is_shown_when_it_fails(tmp_path: Path) -> None:
    done = build(tmp_path, fails=True)
    assert done.returncode != 0
    assert "a warning" in done.stdout
    assert "no compiler" in done.stdout
