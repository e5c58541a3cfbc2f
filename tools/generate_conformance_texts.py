"""Makes docs/conformance-texts.md from the tables in spec/texts, which name the tests of each rule.

    python tools/generate_conformance_texts.py            writes the page
    python tools/generate_conformance_texts.py --check    exits 1 if the page is stale, a rule is
                                                          unaccounted for, or a test is not there

Tests are found by reading the test files, not by running them.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from generate_conformance import KINDS as XML_KINDS
from generate_conformance import LEVELS as XML_LEVELS
from generate_conformance import ROOT, Malformed, finish

TABLES = ROOT / "spec" / "texts"
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "conformance-texts.md"

STATES = "states"
LEVELS = (*XML_LEVELS, STATES)
UNMET = "unmet"
KINDS = {
    "client": XML_KINDS["client"],
    "unseen": XML_KINDS["unseen"],
    "free": XML_KINDS["free"],
    "moot": "does not apply",
    "differs": XML_KINDS["differs"],
    UNMET: "not met",
}
# A test may show what the broker does instead.
KINDS_WITH_TESTS = ("", "differs", UNMET)


@dataclass
class TextRule:
    """One demand of a text: its number within its section, and how the broker stands to it."""

    document: str
    section: str
    number: int
    level: str
    text: str
    kind: str = ""
    reason: str = ""
    tests: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{self.document}/{self.section}/{self.number}"

    @property
    def status(self) -> str:
        return KINDS[self.kind] if self.kind else "tested"


@dataclass
class Document:
    """A table: the title of the text, and those of its sections in the order of the text."""

    name: str
    title: str = ""
    sections: dict[str, str] = field(default_factory=dict)
    rules: list[TextRule] = field(default_factory=list)


def read_documents(directory: Path = TABLES) -> list[Document]:
    return [read_document(path) for path in sorted(directory.glob("*.txt"))]


def read_document(path: Path) -> Document:
    document = Document(path.stem)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            read_line(document, line)
        except Malformed as error:
            raise Malformed(f"{path.name}:{number}: {error}") from None
    if not document.title:
        raise Malformed(f"{path.name}: has no line 'document: <title>'")
    return document


def read_line(document: Document, line: str) -> None:
    if not line or line.startswith("#"):
        return
    if line.startswith("document: "):
        document.title = line.removeprefix("document: ").strip()
    elif line.startswith("== "):
        begin_section(document, line.removeprefix("== "))
    elif line.startswith("    "):
        if not document.rules:
            raise Malformed("a test or a reason before the first rule")
        account_for(document.rules[-1], line.strip())
    else:
        add_rule(document, line)


def begin_section(document: Document, text: str) -> None:
    section, _, title = text.partition(" ")
    if not title.strip():
        raise Malformed("expected == <section> <title>")
    if section in document.sections:
        raise Malformed(f"the section {section} is there twice")
    document.sections[section] = title.strip()


def add_rule(document: Document, line: str) -> None:
    """`<number> <level> <what it demands>`; numbers count up from 1 in each section."""
    if not document.sections:
        raise Malformed("a rule before the first section")
    section = next(reversed(document.sections))
    wanted = 1 + sum(rule.section == section for rule in document.rules)
    number, _, rest = line.partition(" ")
    if number != str(wanted):
        raise Malformed(f"expected rule {wanted} of {section}")
    level = next((level for level in LEVELS if rest.startswith(level + " ")), None)
    text = rest.removeprefix(level or "").strip()
    if level is None or not text:
        raise Malformed(f"expected one of {', '.join(LEVELS)}, and what is demanded")
    document.rules.append(TextRule(document.name, section, wanted, level, text))


def account_for(rule: TextRule, text: str) -> None:
    kind, colon, rest = text.partition(": ")
    rest = rest.strip()
    if kind == "test" and "::" in rest:
        rule.tests.append(rest)
    elif kind in KINDS and colon and rest:
        if rule.kind:
            raise Malformed(f"{rule.id} has two reasons")
        rule.kind, rule.reason = kind, rest
    else:
        raise Malformed(f"expected test: <file>::<test>, or one of {', '.join(KINDS)}, a colon and a reason")


@cache
def tests_of(path: Path) -> frozenset[str]:
    """The names of the tests in a file."""
    if not path.is_file():
        return frozenset()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def faults(documents: Sequence[Document], tests: Path = TESTS) -> list[str]:
    """What keeps the account from adding up."""
    found = []
    for rule in (rule for document in documents for rule in document.rules):
        if not rule.tests and not rule.kind:
            found.append(f"{rule.id}: neither a test nor a reason")
        if rule.tests and rule.kind not in KINDS_WITH_TESTS:
            found.append(f"{rule.id}: has a test, so it is no longer '{rule.kind}'")
        for test in rule.tests:
            file, _, name = test.partition("::")
            if name not in tests_of(tests / file):
                found.append(f"{rule.id}: there is no test {test}")
    return found


HEAD = """\
<!-- Generated by tools/generate_conformance_texts.py from spec/texts. -->

# Conformance with the texts

What the texts of AMQP oblige a server or a client to, in our own words, by document and section, with the
tests that hold it. [conformance.md](conformance.md) has the rules of the XML files. *states* marks a
sentence that obliges without one of the words MUST, SHOULD and MAY. The id of a rule is its document, its
section and its number: `amqp-0-9/virtual-hosts/1`.
"""

TABLE_HEAD = "\n| rule | level | what it demands | where we stand |\n|---|---|---|---|\n"


def render(documents: Sequence[Document]) -> str:
    parts = [HEAD, overview(documents)]
    for document in documents:
        parts += render_document(document)
    return "".join(parts)


def render_document(document: Document) -> list[str]:
    parts = [f"\n## {document.title}\n"]
    for section, title in document.sections.items():
        rows = [row(rule) for rule in document.rules if rule.section == section]
        if rows:
            parts += [f"\n### {title}\n", TABLE_HEAD, *rows]
    return parts


def overview(documents: Sequence[Document]) -> str:
    statuses = ["tested", *KINDS.values()]
    lines = [f"\n| | rules | {' | '.join(statuses)} |\n|---|{'---|' * (len(statuses) + 1)}\n"]
    for document in documents:
        counts = Counter(rule.status for rule in document.rules)
        cells = [counts[status] for status in statuses]
        lines.append(f"| {document.title} | {sum(cells)} | {' | '.join(map(str, cells))} |\n")
    return "".join(lines)


def row(rule: TextRule) -> str:
    links = (test.partition("::") for test in rule.tests)
    stand = "; ".join(f"[{name}](../tests/{file})" for file, _, name in links)
    if rule.kind:
        stand = f"*{KINDS[rule.kind]}:* {rule.reason}" + (f" ({stand})" if stand else "")
    return f"| `{rule.section}/{rule.number}` | {rule.level} | {rule.text} | {stand} |\n"


def main(arguments: Sequence[str], say: Callable[[str], object] = print) -> int:
    try:
        documents = read_documents()
    except Malformed as error:
        say(str(error))
        return 1
    return finish(PAGE, render(documents), faults(documents), "--check" in arguments, say)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
