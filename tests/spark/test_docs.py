"""docs/spark.md from its first line to its last: every snippet in Python is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


def test_every_snippet_runs(spark: Any, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(snippets) >= 5
    names: dict[str, Any] = {"session_of_tests": spark}
    for snippet in snippets:
        code = snippet.replace("amqp://guest:guest@localhost:5672", uri)
        exec(compile(code.replace('session("local[*]")', "session_of_tests"), str(PAGE), "exec"), names)
    assert names["query"].exception() is None
