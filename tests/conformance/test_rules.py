"""The account itself: every rule has a test or a reason, and the page says so."""

from __future__ import annotations

from pathlib import Path

import generate_conformance
import pytest
from conformance.rule import rule, versions_of
from generate_conformance import Malformed, Rule, expand, faults, read_rules

FIRST = "0-9,0-9-1/queue.bind/duplicates MUST Two binds make one binding\n"


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rules.txt"
    path.write_text(text)
    return path


def test_every_rule_has_a_test_or_a_reason_and_the_page_is_fresh() -> None:
    said: list[str] = []
    generate_conformance.main(["--check"], said.append)
    assert said == []


def test_a_rule_without_test_and_reason_is_told() -> None:
    alone = Rule("0-9/queue.bind/duplicates", "MUST", "text")
    assert faults([alone]) == ["0-9/queue.bind/duplicates: neither a test nor a reason"]


def test_a_reason_that_a_test_has_overtaken_is_told() -> None:
    overtaken = Rule(
        "0-9/basic/06", "MUST", "text", "later", "no priorities", ["test_basic.py::test_priority"]
    )
    assert faults([overtaken]) == ["0-9/basic/06: has a test, so it is no longer 'later'"]


def test_a_difference_may_have_a_test_of_what_is_done_instead() -> None:
    assert (
        faults([Rule("0-9/basic/06", "MUST", "text", "differs", "on purpose", ["test_basic.py::test"])]) == []
    )


def test_a_test_cannot_name_a_rule_that_is_not_there() -> None:
    with pytest.raises(LookupError, match=r"no rule 0-9/queue\.bind/perfect"):
        rule("0-9/queue.bind/perfect")


def test_a_line_gives_a_rule_to_each_of_its_versions(tmp_path: Path) -> None:
    found = read_rules(table(tmp_path, FIRST + "    client: its affair\n"))
    assert [one.id for one in found] == ["0-9/queue.bind/duplicates", "0-9-1/queue.bind/duplicates"]
    assert {(one.level, one.text, one.kind, one.reason) for one in found} == {
        ("MUST", "Two binds make one binding", "client", "its affair")
    }


def test_a_shared_reason_covers_what_is_below_it_and_has_none_of_its_own(tmp_path: Path) -> None:
    text = (
        "* 0-9/queue later: soon\n"
        + FIRST
        + "0-9/queues/one MAY Text\n0-9/queue/two MAY Text\n    free: no\n"
    )
    kinds = {one.id: one.kind for one in read_rules(table(tmp_path, text))}
    assert kinds == {
        "0-9/queue.bind/duplicates": "later",
        "0-9-1/queue.bind/duplicates": "",
        "0-9/queues/one": "",
        "0-9/queue/two": "free",
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0-7/queue/one MUST Text\n", r"rules.txt:1: 0-7/queue/one: expected <versions>"),
        ("0-9/queue/one OUGHT Text\n", r"rules.txt:1: 0-9/queue/one: expected one of MUST NOT"),
        ("\n" + FIRST + FIRST, r"rules.txt:3: 0-9/queue.bind/duplicates is there twice"),
        (FIRST + "    because: so\n", r"rules.txt:2: expected one of client"),
        (FIRST + "    client:\n", r"rules.txt:2: expected one of client"),
    ],
)
def test_a_table_that_is_badly_written_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(Malformed, match=told):
        read_rules(table(tmp_path, text))


def test_a_test_runs_in_the_versions_its_rules_name() -> None:
    assert versions_of(expand("0-9,0-9-1/basic/08")) == ["0-8", "0-9", "0-9-1"]
    assert versions_of(expand("0-9-1/queue.bind/unique")) == ["0-9-1"]
    assert versions_of(expand("extensions/basic.nack/multiple/exists")) == ["0-9-1"]
