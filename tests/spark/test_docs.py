"""README's stream, then docs/spark.md from its first line to its last: every snippet in Python is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "spark.md"


def test_every_snippet_runs(spark: Any, uri: str, tmp_path: Path) -> None:
    """Both pages with one broker, as a reader does."""
    first = [snippet for snippet in snippets_of(ROOT / "README.md") if "flintmq.spark" in snippet]
    assert run(first, spark, uri, tmp_path)["query"].exception() is None
    snippets = snippets_of(PAGE)
    assert len(snippets) >= 5
    assert run(snippets, spark, uri, tmp_path)["query"].exception() is None


def snippets_of(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def run(snippets: list[str], spark: Any, uri: str, place: Path) -> dict[str, Any]:
    """Relative paths are relative to where Spark's JVM was started, so they are given a place here."""
    names: dict[str, Any] = {"session_of_tests": spark}
    for snippet in snippets:
        code = snippet.replace("localhost:5672", uri.partition("://")[2])
        code = code.replace('"checkpoints/', f'"{place}/')
        exec(compile(code.replace('session("local[*]")', "session_of_tests"), "page", "exec"), names)
    return names
