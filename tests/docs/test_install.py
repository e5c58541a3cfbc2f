"""Every page says alike how to install the package, in a way that works: it is on no index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"pip install +(?:--find-links +\S+ +|--?[\w-]+ +)*[\"']?([^\s\"'`]+)")
# With an extra alone the name stands for the package that is installed already.
FROM_HERE = re.compile(r"(?:\.|flintmq(?=\[))(?:\[(\w+)\])?|dist/flintmq-\*\.whl|\$\(ls|pika")


def test_pages_install_from_a_checkout_or_a_wheel_and_name_extras_that_there_are() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    given = [(page.name, found[1]) for page in PAGES for found in COMMAND.finditer(page.read_text())]
    assert len(given) > 5
    for page, target in given:
        match = FROM_HERE.fullmatch(target)
        assert match, f"{page}: pip install {target}"
        assert match[1] is None or match[1] in extras, f"{page}: {target}"
