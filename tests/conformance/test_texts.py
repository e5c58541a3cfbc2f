"""The account of the texts: every rule has tests that are there, or a reason, and the page says so."""

from __future__ import annotations

from pathlib import Path

import generate_conformance_texts
import pytest
from generate_conformance import Malformed
from generate_conformance_texts import Document, TextRule, faults, read_document, render

HEAD = "document: A text\n\n== frames Frames\n\n"
FIRST = "1 MUST A frame has an end\n"
TEST = "    test: unit/test_frames.py::test_an_end\n"


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "a-text.txt"
    path.write_text(text)
    return path


def with_rule(kind: str = "", *tests: str) -> list[Document]:
    rule = TextRule("a-text", "frames", 1, "MUST", "text", kind, "so" if kind else "", list(tests))
    return [Document("a-text", "A text", {"frames": "Frames"}, [rule])]


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    """A folder of tests with one file."""
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "test_frames.py").write_text(
        "async def test_an_end(): ...\ndef helper():\n    def test_inside(): ...\n"
    )
    return tmp_path


def test_every_rule_has_a_test_that_is_there_or_a_reason_and_the_page_is_fresh() -> None:
    said: list[str] = []
    generate_conformance_texts.main(["--check"], said.append)
    assert said == []


def test_a_table_is_read(tmp_path: Path) -> None:
    document = read_document(
        table(tmp_path, HEAD + FIRST + TEST + "2 states Frames are read\n    moot: by nobody\n")
    )
    assert document.title == "A text"
    first, second = document.rules
    assert (first.id, first.level, first.text) == ("a-text/frames/1", "MUST", "A frame has an end")
    assert (first.tests, first.status) == (["unit/test_frames.py::test_an_end"], "tested")
    assert (second.id, second.status, second.reason) == ("a-text/frames/2", "does not apply", "by nobody")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("== frames Frames\n", r"a-text.txt: has no line 'document: "),
        ("document: A text\n" + FIRST, r"a-text.txt:2: a rule before the first section"),
        (HEAD + "2 MUST Text\n", r"a-text.txt:5: expected rule 1 of frames"),
        (HEAD + FIRST + FIRST, r"a-text.txt:6: expected rule 2 of frames"),
        (HEAD + "1 OUGHT Text\n", r"a-text.txt:5: expected one of MUST NOT"),
        (HEAD + "1 MUST \n", r"a-text.txt:5: expected one of MUST NOT"),
        (HEAD + TEST, r"a-text.txt:5: a test or a reason before the first rule"),
        (HEAD + FIRST + "    test: unit/test_frames.py\n", r"a-text.txt:6: expected test: <file>::<test>"),
        (HEAD + FIRST + "    because: so\n", r"a-text.txt:6: expected test: "),
        (HEAD + FIRST + "    free: no\n    moot: no\n", r"a-text.txt:7: a-text/frames/1 has two reasons"),
        (HEAD + "== frames Frames\n", r"a-text.txt:5: the section frames is there twice"),
        (HEAD + "== frames\n", r"a-text.txt:5: expected == <section> <title>"),
    ],
)
def test_a_table_that_is_badly_written_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(Malformed, match=told):
        read_document(table(tmp_path, text))


def test_a_rule_without_test_and_reason_is_told(tests: Path) -> None:
    assert faults(with_rule(), tests) == ["a-text/frames/1: neither a test nor a reason"]


@pytest.mark.parametrize(
    "cited",
    ["unit/test_frames.py::test_no_end", "unit/test_frames.py::test_inside", "unit/none.py::test_an_end"],
)
def test_a_test_that_is_not_there_is_told(tests: Path, cited: str) -> None:
    assert faults(with_rule("", cited), tests) == [f"a-text/frames/1: there is no test {cited}"]


@pytest.mark.parametrize("kind", ["client", "unseen", "free", "moot"])
def test_a_reason_that_a_test_has_overtaken_is_told(tests: Path, kind: str) -> None:
    found = faults(with_rule(kind, "unit/test_frames.py::test_an_end"), tests)
    assert found == [f"a-text/frames/1: has a test, so it is no longer '{kind}'"]


@pytest.mark.parametrize("kind", ["", "differs", "unmet"])
def test_a_test_may_show_what_is_done_instead(tests: Path, kind: str) -> None:
    assert faults(with_rule(kind, "unit/test_frames.py::test_an_end"), tests) == []


def test_the_page_has_a_row_for_each_rule() -> None:
    test = "unit/test_frames.py::test_an_end"
    assert "| `frames/1` | MUST | text | *does not apply:* so |\n" in render(with_rule("moot"))
    assert "| text | [test_an_end](../tests/unit/test_frames.py) |\n" in render(with_rule("", test))
    unmet = "| text | *not met:* so ([test_an_end](../tests/unit/test_frames.py)) |\n"
    assert unmet in render(with_rule("unmet", test))
