"""Draws the layers of flintmq and the rooms of broker into ARCHITECTURE.md, from what the modules import.

    python tools/architecture_map.py            writes the drawings
    python tools/architecture_map.py --check    exits 1 if a drawing is stale

A drawing is a Mermaid flowchart between two markers. A box is a package, or the modules that lie loose in one
layer. An arrow means "imports"; it is left out where a longer way of arrows leads to the same place. A dotted
arrow is an import against the layers, which is for types alone: no program runs it. The layers are those of
the import contracts in pyproject.toml.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = "ARCHITECTURE.md"
# The containers that are drawn, each between markers with its name.
CONTAINERS = ("flintmq", "flintmq.broker")
END = "<!-- end of map -->"
# Names of loose modules on one line of a box.
LINE_NAMES = 4


class Undrawable(Exception):
    """The page, the contracts or the imports do not allow a drawing."""


@dataclass(frozen=True)
class Box:
    """A package, or the modules that lie loose in one layer."""

    names: tuple[str, ...]
    depth: int  # of its layer; 0 is the highest

    @property
    def id(self) -> str:
        """What the chart calls it: not by the bare name, since words such as `end` mean something there."""
        return f"box_{self.names[0]}"


Graph = dict[Box, set[Box]]


def boxes_of(root: Path, container: str) -> dict[str, Box]:
    """The box of each package and loose module in the container, the highest layer first."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    folder = root.joinpath("src", *container.split("."))
    found: dict[str, Box] = {}
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract.get("containers") != [container]:
            continue
        for depth, layer in enumerate(contract["layers"]):
            names = [name.strip("() ") for name in re.split(r"[:|]", layer)]
            packages = [name for name in names if (folder / name / "__init__.py").is_file()]
            loose = [name for name in names if (folder / f"{name}.py").is_file()]
            found |= {name: Box((name,), depth) for name in packages}
            found |= dict.fromkeys(loose, Box(tuple(loose), depth))
    if not found:
        raise Undrawable(f"pyproject.toml has no layers for {container}")
    return found


def imported(tree: ast.AST) -> Iterator[str]:
    """What a module imports, at its top or later; a module that a name is taken from comes with the name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield from (f"{node.module}.{each.name}" for each in node.names)


def imports_of(root: Path, container: str, boxes: dict[str, Box]) -> Graph:
    """Which boxes each box imports from."""
    source = root / "src"
    graph: Graph = {box: set() for box in boxes.values()}
    depth = container.count(".") + 1
    for path in sorted(source.joinpath(*container.split(".")).rglob("*.py")):
        place = path.relative_to(source).with_suffix("").parts
        box = boxes.get(place[depth])
        if box is None:
            continue
        for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
            parts = name.split(".")
            if ".".join(parts[:depth]) == container and len(parts) > depth:
                graph[box].add(boxes.get(parts[depth], box))
        graph[box].discard(box)
    return graph


def reachable(graph: Graph, start: Box) -> set[Box]:
    """Every box that arrows lead to from the start."""
    found: set[Box] = set()
    waiting = [start]
    while waiting:
        for box in graph[waiting.pop()] - found:
            found.add(box)
            waiting.append(box)
    return found


def without_detours(graph: Graph) -> Graph:
    """The graph without each arrow that a longer way replaces."""
    beyond = {box: reachable(graph, box) for box in graph}
    circles = [box.names[0] for box, found in beyond.items() if box in found]
    if circles:
        raise Undrawable(f"these import each other: {'; '.join(circles)}")
    return {
        box: {each for each in targets if not any(each in beyond[other] for other in targets)}
        for box, targets in graph.items()
    }


def label_of(folder: Path, box: Box) -> str:
    """A package with the files that its docstring tells a newcomer to begin with; loose modules by name."""
    first = box.names[0]
    path = folder / first / "__init__.py"
    if path.is_file():
        told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        sentence = re.search(r"Begin with .*?(?=\.\s|\.$|;)", told, re.DOTALL)
        return "<br/>".join([f"{first}/", *re.findall(r"[\w/]+\.py", sentence[0] if sentence else "")])
    lines = [box.names[at : at + LINE_NAMES] for at in range(0, len(box.names), LINE_NAMES)]
    return ",<br/>".join(", ".join(line) for line in lines)


def drawing(root: Path, container: str) -> str:
    """A Mermaid flowchart of the container, the highest boxes first."""
    boxes = boxes_of(root, container)
    order = list(dict.fromkeys(boxes.values()))
    graph = imports_of(root, container, boxes)
    against = {box: {each for each in graph[box] if each.depth < box.depth} for box in order}
    down = without_detours({box: graph[box] - against[box] for box in order})
    folder = root.joinpath("src", *container.split("."))
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {box.id}["{label_of(folder, box)}"]' for box in order]
    for arrow, arrows in (("-->", down), ("-.->", against)):
        for box in order:
            lines += [f"    {box.id} {arrow} {each.id}" for each in order if each in arrows[box]]
    return "\n".join([*lines, "```"])


def drawn(root: Path, text: str) -> str:
    """The page with its drawings as they have to be now."""
    for container in CONTAINERS:
        begin = f"<!-- map of {container}, made by tools/architecture_map.py -->"
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(END)
        if not found or not ended:
            raise Undrawable(f"{PAGE} has no place for a drawing: {begin} ... {END}")
        text = f"{before}{begin}\n{drawing(root, container)}\n{END}{after}"
    return text


def main() -> int:
    page = ROOT / PAGE
    text = page.read_text(encoding="utf-8")
    try:
        now = drawn(ROOT, text)
    except Undrawable as problem:
        print(problem)
        return 1
    if "--check" not in sys.argv[1:]:
        page.write_text(now, encoding="utf-8")
        return 0
    if now != text:
        print(f"{PAGE} has a stale map")
    return int(now != text)


if __name__ == "__main__":
    sys.exit(main())
