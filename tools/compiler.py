"""Whether this machine can compile the hot modules: status 0, or 1 and a line that says what is missing."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def missing(compiler: str, include: Path) -> str | None:
    """What there is to install before C can be compiled against this Python; None if nothing."""
    if shutil.which(compiler) is None:
        return f"No C compiler here ('{compiler}' is not found); on Debian: apt-get install gcc."
    if not (include / "Python.h").is_file():
        return f"Python's C headers are missing ({include}/Python.h); on Debian: apt-get install python3-dev."
    return None


def main() -> int:
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    lack = missing(command.split()[0], Path(sysconfig.get_path("include")))
    if lack is None:
        return 0
    print(lack)
    return 1


if __name__ == "__main__":
    sys.exit(main())
