"""Reads the tables in spec/, each of which says at its head how it is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

SPEC = Path(__file__).resolve().parent.parent / "spec"

VERSIONS = (8, 9, 91)
VERSION_NAMES = {8: "0_8", 9: "0_9", 91: "0_9_1"}


@dataclass(frozen=True)
class Argument:
    """One argument, or property, as it stands in one version."""

    name: str
    type: str
    reserved: bool = False
    optional: bool = False


@dataclass
class Method:
    """One method of the table: its ids and its arguments by version."""

    class_name: str
    class_id: int
    name: str
    id: int
    sender: str
    sync: bool
    content: bool
    replies: tuple[str, ...]
    ids: dict[int, int]
    fields: dict[str, str] = field(default_factory=dict)
    layouts: dict[int, tuple[Argument, ...]] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.class_name}.{self.name}"

    @property
    def snake(self) -> str:
        return self.full_name.replace(".", "_").replace("-", "_")

    @property
    def python_name(self) -> str:
        return "".join(word.capitalize() for word in self.snake.split("_"))

    def constant(self, version: int) -> str:
        """The name of the code in amqp.py: one for all versions, unless the id differs."""
        suffix = "" if self.ids[version] == self.id else f"_{VERSION_NAMES[version]}"
        return self.snake.upper() + suffix


@dataclass(frozen=True)
class Constant:
    group: str
    name: str
    number: int
    closes: str


def lines_of(path: Path) -> list[str]:
    """The lines of a table without its comments, an indented line joined to the one before it."""
    joined: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line[0] == " ":
            joined[-1] += ("" if joined[-1].endswith(",") else " :") + " " + line.strip()
        else:
            joined.append(line)
    return joined


def take_versions(text: str, default: Iterable[int]) -> tuple[str, dict[int, str]]:
    """Splits `words [8=60 9 91-]` into the words and the mark of each version."""
    words, _, marks = text.partition("[")
    if not marks:
        return words.strip(), dict.fromkeys(default, "")
    versions: dict[int, str] = {}
    for mark in marks.strip().removesuffix("]").split():
        digits = mark.split("=")[0].rstrip("-?")
        versions[int(digits)] = mark[len(digits) :]
    return words.strip(), versions


def read_methods() -> list[Method]:
    methods: list[Method] = []
    class_name, class_id = "", 0
    for line in lines_of(SPEC / "methods.txt"):
        head, _, arguments = line.partition(" : ")
        words, versions = take_versions(head, VERSIONS)
        if words.startswith("class "):
            _, class_name, number = words.split()
            class_id = int(number)
            continue
        left, _, replies = words.partition(">")
        _, name, number, sender, *flags = left.split()
        method = Method(
            class_name=class_name,
            class_id=class_id,
            name=name,
            id=int(number),
            sender=sender,
            sync="sync" in flags,
            content="content" in flags,
            replies=tuple(f"{class_name}.{reply}" for reply in replies.split()),
            ids={version: int(mark[1:] or number) for version, mark in versions.items()},
        )
        read_arguments(method, arguments)
        methods.append(method)
    return methods


def read_arguments(method: Method, text: str) -> None:
    layouts: dict[int, list[Argument]] = {version: [] for version in method.ids}
    for argument in filter(None, (part.strip() for part in text.split(","))):
        words, versions = take_versions(argument, method.ids)
        name, kind = words.split()
        method.fields[name] = kind
        for version, mark in versions.items():
            layouts[version].append(Argument(name, kind, reserved=mark == "-", optional=mark == "?"))
    method.layouts = {version: tuple(arguments) for version, arguments in layouts.items()}


def read_properties() -> list[tuple[str, int, list[Argument]]]:
    classes: list[tuple[str, int, list[Argument]]] = []
    for line in lines_of(SPEC / "properties.txt"):
        head, _, properties = line.partition(" : ")
        _, name, number = head.split()
        pairs = [part.split() for part in properties.split(",") if part.strip()]
        classes.append((name, int(number), [Argument(pair[0], pair[1]) for pair in pairs]))
    return classes


def read_constants() -> list[Constant]:
    rows = [line.split() for line in lines_of(SPEC / "constants.txt")]
    return [Constant(row[0], row[1], int(row[2]), row[3] if len(row) > 3 else "") for row in rows]
