"""Small files through `tools/file_kills.py`; one of 8 GiB is sent by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent.parent / "tools" / "file_kills.py"


@pytest.mark.parametrize("way", ["command", "class"])
def test_a_file_arrives_whole_though_everybody_is_killed(tmp_path: Path, way: str) -> None:
    options = ["--bytes", "6291457", "--kills", "3", "--seed", "2", "--way", way]
    options += ["--directory", str(tmp_path)]
    done = subprocess.run([sys.executable, str(TOOL), *options], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6,291,457 octets in" in done.stdout
