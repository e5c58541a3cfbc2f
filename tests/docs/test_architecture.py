"""ARCHITECTURE.md names what is there: each name in backticks is a file, a class, a method or another word
of the code.

The pages under docs/ and the comments of the code are held to the files that they name.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "src" / "flintmq"
# Where a path in a page may begin; the last is for pages about what a user copies.
ORIGINS = (ROOT, ROOT / "src", PACKAGE, PACKAGE / "pipelines" / "shipped" / "sdp")
# What a reader types, not a name.
COMMANDS = ("make ", "flintmq ", "python -m ", "with ")
IN_BACKTICKS = re.compile(r"`([^`\n]+)`")
# A drawing names files from the folder that its boxes stand for.
MAP = re.compile(r"```mermaid.*?```", re.DOTALL)
FENCED = re.compile(r"```.*?```", re.DOTALL)
# A name that a user gives to a file.
USERS_FILES = {"conftest.py"}
FILE_NAME = re.compile(r"(?<![\w/.*-])((?:\w+/)*\w+\.(?:py|pxd))\b")
# Names with the file that they stand in.
NAMES_IN_FILE = re.compile(r"((?:`[\w.]+`, )*`[\w.]+`)(?: in | \(| \| )`([\w/]+\.py)`")
# `Class.member`, with a package of flintmq in front where several classes have the name.
MEMBER = re.compile(r"(?:(?P<package>[a-z_]+)\.)?(?P<class>[A-Z]\w*[a-z]\w*)(?:\.(?P<member>\w+))?")


class Names(ast.NodeVisitor):
    """All that one module defines, and the words that stand in it as text."""

    def __init__(self) -> None:
        self.defined: set[str] = set()
        self.words: set[str] = set()
        self.classes: dict[str, set[str]] = {}
        self.bases: dict[str, set[str]] = {}

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.defined.add(node.name)
        members = self.classes.setdefault(node.name, set())
        self.bases[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}
        for part in ast.walk(node):
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                members.add(part.name)
            elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                members.add(part.attr)
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                members.add(part.id)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.defined.add(node.name)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.defined.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store):
            self.defined.add(node.attr)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and len(node.value) <= 40:
            self.words.add(node.value)


@cache
def names_of(path: Path) -> Names:
    names = Names()
    names.visit(ast.parse(path.read_text(encoding="utf-8")))
    return names


@cache
def modules() -> dict[str, Names]:
    """The names of each module, by its dotted path below flintmq; setup.py counts as one."""
    found: dict[str, Names] = {}
    for path in [*sorted(PACKAGE.rglob("*.py")), ROOT / "setup.py"]:
        names = names_of(path)
        inside = path.is_relative_to(PACKAGE)
        dotted = ".".join(path.relative_to(PACKAGE if inside else ROOT).with_suffix("").parts)
        found[dotted.removesuffix(".__init__")] = names
    return found


@cache
def all_words() -> frozenset[str]:
    """What any module defines or has as text, and the modules' own names."""
    found: set[str] = set()
    for dotted, names in modules().items():
        found |= names.defined | names.words | {dotted.rpartition(".")[2]}
    return frozenset(found)


@cache
def amqp_methods() -> frozenset[str]:
    """The methods of the standard in lower case without marks: basicconsumeok."""
    return frozenset(name.lower() for name in modules()["wire.methods"].classes)


def exists(path: str) -> bool:
    """Whether a file or folder has this path; the suffix .py may be left out."""
    return any((origin / end).exists() for origin in ORIGINS for end in (path, f"{path}.py"))


def has_member(module_of: str | None, class_name: str, member: str | None) -> bool:
    """Whether a class of the name, in the package if one is given, has the member or inherits it."""
    for dotted, names in modules().items():
        if module_of is not None and module_of not in dotted.split("."):
            continue
        if class_name not in names.classes:
            continue
        if member is None or member in names.classes[class_name]:
            return True
        if any(has_member(None, base, member) for base in names.bases[class_name]):
            return True
    return False


def is_known(name: str) -> bool:
    """Whether the code has what stands in backticks."""
    if name.startswith(COMMANDS) or re.fullmatch(r"\.\w+", name):
        return True
    if "/" in name or name.endswith((".py", ".pxd", ".md", ".toml")):
        return exists(name)
    parts = MEMBER.fullmatch(name)
    if parts is not None:
        return has_member(parts["package"], parts["class"], parts["member"])
    module, dot, member = name.rpartition(".")
    if dot and re.sub(r"\W", "", name) in amqp_methods():
        return True
    if dot and name not in all_words():
        found = [names for dotted, names in modules().items() if f".{dotted}".endswith(f".{module}")]
        return any(member in names.defined for names in found)
    return name in all_words() or exists(name)


def unknown_names(text: str) -> list[str]:
    """What stands in backticks and is not there."""
    return [name for name in IN_BACKTICKS.findall(FENCED.sub("", text)) if not is_known(name)]


def missing_files(text: str) -> list[str]:
    """The paths of modules in a page that lead to no file."""
    return [name for name in FILE_NAME.findall(MAP.sub("", text)) if "/" in name and not exists(name)]


def test_every_name_in_the_architecture_is_there() -> None:
    assert unknown_names((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "name",
    [
        "broker/wiring.py",
        "wiring.py",
        "NoSuchClass",
        "Queue.no_such_method",
        "server.Queue.enqueue",
        "queue_rules.no_such_function",
        "basic.no-such-method",
        "no_such_name",
        "NO_SUCH_LIMIT",
    ],
)
def test_a_name_that_is_not_there_is_told(name: str) -> None:
    assert unknown_names(f"First `Queue.enqueue`, then `{name}`.") == [name]


@pytest.mark.parametrize(
    "page",
    [str(path.relative_to(ROOT)) for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])],
)
def test_every_module_that_a_page_names_is_there(page: str) -> None:
    assert missing_files((ROOT / page).read_text(encoding="utf-8")) == []


def misplaced_names(text: str) -> list[str]:
    """Names that the file beside them does not have."""
    wrong: list[str] = []
    for names, path in NAMES_IN_FILE.findall(FENCED.sub("", text)):
        file = next((origin / path for origin in ORIGINS if (origin / path).is_file()), None)
        if file is None:
            continue
        found = names_of(file)
        for name in IN_BACKTICKS.findall(names):
            owner, _, member = name.rpartition(".")
            has = member in (found.classes.get(owner, set()) if owner else found.defined)
            if not has and name not in found.words:
                wrong.append(f"{name} in {path}")
    return wrong


def unknown_members(text: str) -> list[str]:
    """What a page about octets names as `Class.member` and is not there; other words are names of fields."""
    parts = [MEMBER.fullmatch(name) for name in IN_BACKTICKS.findall(FENCED.sub("", text))]
    return [each[0] for each in parts if each is not None and each["member"] and not is_known(each[0])]


@pytest.mark.parametrize("page", [path.name for path in sorted(ROOT.glob("docs/internals/*.md"))])
def test_every_method_that_a_page_of_internals_names_is_there(page: str) -> None:
    text = (ROOT / "docs" / "internals" / page).read_text(encoding="utf-8")
    assert unknown_members(text) == []
    assert unknown_members(f"{text} Then `Journal.no_such_method`.") == ["Journal.no_such_method"]


def test_every_name_is_in_the_file_beside_it() -> None:
    assert misplaced_names((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "told",
    [
        "`Queue.enqueue` in `broker/broker.py`",
        "`Queue.enqueue` (`broker/broker.py`, and more)",
        "| `Broker`, `Queue.enqueue` | `broker/broker.py` |",
    ],
)
def test_a_name_beside_another_file_is_told(told: str) -> None:
    assert misplaced_names(told) == ["Queue.enqueue in broker/broker.py"]
    assert misplaced_names("`Queue.enqueue` in `broker/queues/queue.py`") == []


def prose(source: str) -> Iterator[tuple[int, str]]:
    """The comments and docstrings of a module, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and token.string.startswith('"""')
        ):
            yield token.start[0], token.string


def is_near(path: Path, name: str) -> bool:
    """Whether the name leads to a file from the module's own folder, from one above it, or from an origin."""
    near = [path.parent, *[each for each in path.parents if each.is_relative_to(PACKAGE)]]
    return any((folder / name).is_file() for folder in [*near, *ORIGINS])


def test_every_file_that_a_comment_names_is_there() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in prose(path.read_text(encoding="utf-8"))
        for name in FILE_NAME.findall(text)
        if name not in USERS_FILES and not is_near(path, name)
    ]
    assert wrong == []
