"""Prints what an extra of the package requires, for `pip install` without the package itself.

python tools/extra.py pipelines
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(extra: str) -> list[str]:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    found: list[str] = []
    for each in extras[extra]:
        own = re.fullmatch(r"flintmq\[(\w+)\]", each)
        found += requirements(own[1]) if own else [each]
    return found


if __name__ == "__main__":
    print(" ".join(requirements(sys.argv[1])))
