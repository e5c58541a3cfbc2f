"""Takes the pictures of docs/console.md anew: `python tools/console_screenshots.py`, after make test-console.

tests/console/test_screenshots.py takes them with each run of the tests; here they are kept, and show the
traffic of ten minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"


def main() -> int:
    IMAGES.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "CONSOLE_IMAGES": str(IMAGES)}
    command = [sys.executable, "-m", "pytest", "-q", "tests/console/test_screenshots.py"]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
