"""setup.py answers at once what pip asks before it builds, and looks for a compiler before Cython runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def setup(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs setup.py beside a Cython that does nothing."""
    (tmp_path / "Cython").mkdir()
    (tmp_path / "Cython" / "__init__.py").touch()
    (tmp_path / "Cython" / "Build.py").write_text('raise SystemExit("Cython was asked")\n')
    given = {name: value for name, value in os.environ.items() if name not in ("FLINTMQ_PURE", "CC")}
    command = [sys.executable, str(ROOT / "setup.py"), "--quiet", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**given, "PYTHONPATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_the_name_of_the_package_takes_no_cython(tmp_path: Path) -> None:
    done = setup(tmp_path, "--name")
    assert (done.returncode, done.stdout.strip()) == (0, "flintmq"), done.stderr


def test_a_missing_compiler_is_told_first(tmp_path: Path) -> None:
    done = setup(tmp_path, "build_ext", "--build-lib", str(tmp_path / "lib"), CC="no-such-compiler -m64")
    assert done.returncode == 1
    assert "No C compiler here ('no-such-compiler' is not found)" in done.stderr
    assert "FLINTMQ_PURE=1 builds FlintMQ without a compiler" in done.stderr
