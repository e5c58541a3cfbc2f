"""The repository's own lint: what no other tool checks. Exits 1 and lists every finding.

a function has at most 70 lines
no trailing whitespace, no tabs in Python, a newline at the end of each text file
every module under src/flintmq says in a docstring what it owns
no file is called after nothing in particular, no line postpones work
files made by a generator are what the generator makes now
nothing under src/flintmq is without a use (dead_code.py)
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dead_code import is_generated, unused

FUNCTION_LINES_MAX = 70
GENERATORS = (
    "tools/generate_wire.py",
    "tools/generate_conformance.py",
    "tools/generate_conformance_texts.py",
    "tools/architecture_map.py",
    "tools/generate_sync_client.py",
)
TEXT_SUFFIXES = {".py", ".pxd", ".md", ".toml", ".c", ".h", ".js", ".json", ".sh", ".tsv", ".txt", ".yml"}
TEXT_NAMES = {"Makefile", ".gitignore", "run"}
# Lock files and the like are written by other programs; a licence is what it is.
# So is what lies in a folder `vendor`.
NOT_OURS = {"package-lock.json", "LICENSE"}
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "base", "misc", "common"}
# Written in two halves, so that this file passes its own check.
POSTPONING = ("TO" + "DO", "FIX" + "ME", "XX" + "X")


def repository_files(root: Path) -> list[Path]:
    """Every file that is in git, or would be with `git add`, and still exists."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True).stdout
    paths = (root / name for name in listed.decode().split("\0") if name)
    return sorted(path for path in set(paths) if path.is_file())


def is_text(path: Path) -> bool:
    known = path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES
    return known and path.name not in NOT_OURS and "vendor" not in path.parts


def check_text(text: str, *, is_python: bool) -> Iterator[tuple[int, str]]:
    """Findings of any text file: line, what is wrong."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            yield number, "trailing whitespace"
        if is_python and "\t" in line:
            yield number, "a tab; indent by four spaces"
        for word in POSTPONING:
            if word in line:
                yield number, f"{word}; do it now, or write it where plans are kept"
    if text and not text.endswith("\n"):
        yield len(lines), "no newline at the end"


def check_python(text: str, *, needs_docstring: bool) -> Iterator[tuple[int, str]]:
    """Findings of a Python file that need its syntax tree."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        yield error.lineno or 1, f"not Python: {error.msg}"
        return
    if needs_docstring and not (ast.get_docstring(tree) or "").strip():
        yield 1, "no module docstring; say what the module owns"
    if is_generated(text):  # its functions may be as long as they like
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                yield node.lineno, f"{node.name} has {count} lines, {FUNCTION_LINES_MAX} at most"


def check_file(root: Path, path: Path) -> Iterator[str]:
    place = path.relative_to(root)
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        yield f"{place}:1: not UTF-8 at octet {error.start}"
        return
    is_python = path.suffix == ".py"
    in_package = is_python and place.parts[:2] == ("src", "flintmq")
    for number, finding in check_text(text, is_python=is_python or path.suffix == ".pxd"):
        yield f"{place}:{number}: {finding}"
    if is_python:
        # The empty __init__.py of a package that only groups modules owns nothing to tell of.
        needs_docstring = in_package and bool(text.strip())
        for number, finding in check_python(text, needs_docstring=needs_docstring):
            yield f"{place}:{number}: {finding}"
    if in_package and path.stem in VAGUE_NAMES:
        yield f"{place}:1: '{path.stem}' says nothing; name the file after the noun it is about"


def check_generated(root: Path) -> Iterator[str]:
    """What the generators say about the files they make; a generator that is not there makes none."""
    for generator in GENERATORS:
        if not (root / generator).is_file():
            continue
        command = [sys.executable, generator, "--check"]
        run = subprocess.run(command, cwd=root, capture_output=True, text=True)
        if run.returncode != 0:
            said = " ".join((run.stdout + run.stderr).split()[-40:])
            yield f"{generator}: generated files are out of date, run it without --check: {said}"


def check_dead(root: Path, paths: list[Path]) -> Iterator[str]:
    """What is defined and never used."""
    for each in unused(root, paths):
        name = f"{each.owner}.{each.name}" if each.owner else each.name
        yield f"{each.path}:{each.line}: nothing uses {name}; delete it"


def check(root: Path) -> list[str]:
    """Every finding in the repository at `root`."""
    paths = repository_files(root)
    findings = [found for path in paths if is_text(path) for found in check_file(root, path)]
    return [*findings, *check_dead(root, paths), *check_generated(root)]


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    findings = check(root)
    for found in findings:
        print(found)
    print(f"tidy: {len(findings)} findings" if findings else "tidy: nothing to tell")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
