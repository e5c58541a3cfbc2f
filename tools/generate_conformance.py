"""Makes docs/conformance.md from spec/rules.txt and the tests that name its rules.

    python tools/generate_conformance.py            writes the page
    python tools/generate_conformance.py --check    exits 1 if the page is stale or a rule is unaccounted for

A test names rules with `@rule("...")`; it is found by reading the test files, not by running them.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wire_spec import SPEC

ROOT = SPEC.parent
TESTS = ROOT / "tests" / "conformance"
PAGE = ROOT / "docs" / "conformance.md"

EXTENSIONS = "extensions"
VERSIONS = ("0-9-1", "0-9", EXTENSIONS)
# The longest first: MUST is the beginning of MUST NOT.
LEVELS = ("MUST NOT", "MUST", "SHOULD NOT", "SHOULD", "MAY")
KINDS = {
    "client": "binds the client",
    "unseen": "cannot be observed",
    "free": "permission not used",
    "differs": "differs on purpose",
    "later": "not there yet",
}


@dataclass
class Rule:
    """One demand of one version of the standard."""

    id: str
    level: str
    text: str
    kind: str = ""
    reason: str = ""
    tests: list[str] = field(default_factory=list)

    @property
    def version(self) -> str:
        return self.id.split("/")[0]

    @property
    def class_name(self) -> str:
        return self.id.split("/")[1].split(".")[0]

    @property
    def status(self) -> str:
        """The word for the overview: a difference is one even where a test shows it."""
        return KINDS[self.kind] if self.kind else "tested"


class Malformed(Exception):
    """The table, or what tests say of it, does not add up."""


def expand(pattern: str) -> list[str]:
    """`0-9,0-9-1/queue.bind/duplicates` as one id for each version."""
    versions, slash, place = pattern.partition("/")
    found = versions.split(",")
    if not slash or not set(found) <= set(VERSIONS):
        raise Malformed(f"{pattern}: expected <versions>/<place>/<rule>")
    return [f"{version}/{place}" for version in found]


def read_rules(path: Path = SPEC / "rules.txt") -> list[Rule]:
    """The rules in the order of the table, with their reasons and without tests."""
    rules: dict[str, Rule] = {}
    shared: list[tuple[str, str, str]] = []
    latest: list[Rule] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            if not line or line.startswith("#"):
                continue
            if line.startswith("* "):
                start, _, reason = line.removeprefix("* ").partition(" ")
                shared.append((start, *split_reason(reason)))
            elif line.startswith("    "):
                for rule in latest:
                    rule.kind, rule.reason = split_reason(line.strip())
            else:
                latest = split_rule(line)
                for rule in latest:
                    if rules.setdefault(rule.id, rule) is not rule:
                        raise Malformed(f"{rule.id} is there twice")
        except Malformed as error:
            raise Malformed(f"{path.name}:{number}: {error}") from None
    for rule in rules.values():
        for start, kind, reason in shared:
            if not rule.kind and is_below(rule.id, start):
                rule.kind, rule.reason = kind, reason
    return list(rules.values())


def is_below(identifier: str, start: str) -> bool:
    """Whether the id begins with `start` and a part of it ends there."""
    return identifier.startswith(start) and identifier[len(start) : len(start) + 1] in ("/", ".", "")


def split_rule(line: str) -> list[Rule]:
    pattern, _, rest = line.partition(" ")
    level = next((level for level in LEVELS if rest.startswith(level + " ")), None)
    if level is None:
        raise Malformed(f"{pattern}: expected one of {', '.join(LEVELS)}")
    text = rest.removeprefix(level).strip()
    return [Rule(identifier, level, text) for identifier in expand(pattern)]


def split_reason(text: str) -> tuple[str, str]:
    kind, colon, reason = text.partition(": ")
    if kind not in KINDS or not colon or not reason.strip():
        raise Malformed(f"expected one of {', '.join(KINDS)}, a colon and a reason")
    return kind, reason.strip()


def read_tests(directory: Path = TESTS) -> dict[str, list[str]]:
    """The tests that name each rule, as `file.py::test`."""
    tests: dict[str, list[str]] = {}
    for path in sorted(directory.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                for identifier in rules_named(node):
                    tests.setdefault(identifier, []).append(f"{path.name}::{node.name}")
    return tests


def rules_named(function: ast.FunctionDef) -> list[str]:
    named: list[str] = []
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "rule":
            for argument in decorator.args:
                named += expand(str(ast.literal_eval(argument)))
    return named


def accounted() -> list[Rule]:
    """The rules with their tests."""
    rules, tests = read_rules(), read_tests()
    for rule in rules:
        rule.tests = tests.pop(rule.id, [])
    if tests:
        raise Malformed(f"tests name rules that spec/rules.txt does not have: {', '.join(sorted(tests))}")
    return rules


def faults(rules: Sequence[Rule]) -> list[str]:
    """What keeps the account from adding up."""
    found = []
    for rule in rules:
        if not rule.tests and not rule.kind:
            found.append(f"{rule.id}: neither a test nor a reason")
        if rule.tests and rule.kind not in ("", "differs"):
            found.append(f"{rule.id}: has a test, so it is no longer '{rule.kind}'")
    return found


HEAD = """\
<!-- Generated by tools/generate_conformance.py from spec/rules.txt and tests/conformance. -->

# Conformance

These are the rules of the XML files. [conformance-texts.md](conformance-texts.md) has those of the texts of
AMQP 0-9 and AMQP/Fast.

What AMQP 0-9-1, AMQP 0-9 and the extensions of RabbitMQ demand, rule by rule, in our own words, and the
tests that prove it on a running broker. Where the broker does something else on purpose, the reason is
given, and a test shows what it does instead. The rules of AMQP 0-8 have no names to refer to; every test
of a rule of 0-9 runs in 0-8 too, but for the message class, which 0-8 does not have.
"""


def render(rules: Sequence[Rule]) -> str:
    parts = [HEAD, overview(rules)]
    for version in VERSIONS:
        title = "Extensions to 0-9-1" if version == EXTENSIONS else f"AMQP {version}"
        parts.append(f"\n## {title}\n")
        of_version = [rule for rule in rules if rule.version == version]
        for name in dict.fromkeys(rule.class_name for rule in of_version):
            parts.append(
                f"\n### {name}\n\n| rule | level | what it demands | where we stand |\n|---|---|---|---|\n"
            )
            parts += [row(rule) for rule in of_version if rule.class_name == name]
    return "".join(parts)


def overview(rules: Sequence[Rule]) -> str:
    counts = Counter((rule.version, rule.status) for rule in rules)
    statuses = ["tested", *KINDS.values()]
    lines = [f"\n| | rules | {' | '.join(statuses)} |\n|---|{'---|' * (len(statuses) + 1)}\n"]
    for version in VERSIONS:
        cells = [counts[version, status] for status in statuses]
        lines.append(f"| {version} | {sum(cells)} | {' | '.join(map(str, cells))} |\n")
    return "".join(lines)


def row(rule: Rule) -> str:
    place = rule.id.partition("/")[2]
    links = [
        f"[{test.partition('::')[2]}](../tests/conformance/{test.partition('::')[0]})" for test in rule.tests
    ]
    stand = "; ".join(links)
    if rule.kind:
        stand = f"*{KINDS[rule.kind]}:* {rule.reason}" + (f" ({stand})" if stand else "")
    return f"| `{place}` | {rule.level} | {rule.text} | {stand} |\n"


def main(arguments: Sequence[str], say: Callable[[str], object] = print) -> int:
    try:
        rules = accounted()
    except Malformed as error:
        say(str(error))
        return 1
    return finish(PAGE, render(rules), faults(rules), "--check" in arguments, say)


def finish(place: Path, page: str, found: list[str], is_check: bool, say: Callable[[str], object]) -> int:
    """Writes the page, or compares it with the one that is there; the exit status, with all faults said."""
    if not is_check:
        place.write_text(page, encoding="utf-8")
    elif not place.is_file() or place.read_text(encoding="utf-8") != page:
        found.append(f"{place.relative_to(ROOT)} is stale")
    for fault in found:
        say(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
