"""What is used of compiled classes from outside compiled code, and is not visible there. Exits 1 on findings.

    queue.pxd     cdef class Queue:                     leases.py, not compiled
                      cdef bint dirty                       queue.dirty          hidden
                      cdef readonly dict arguments          queue.arguments      visible
                                                            queue.arguments = x  hidden: it cannot be set
                      cdef int append(self, message)        queue.append(m)      hidden
                      cpdef purge(self)                     queue.purge()        visible

The pure build knows no such border, so only the compiled one fails, and only when that line runs. mypy tells
the class of each expression, in the package, in the tools and in the tests; what mypy knows nothing about
(Any) is not checked. A method that Python code overrides must be visible too: compiled callers of a `cdef`
method never ask for the override.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mypy import build, nodes, types
from mypy.config_parser import parse_config_file
from mypy.find_sources import create_source_list
from mypy.options import Options
from mypy.server.subexpr import get_subexpressions

ROOT = Path(__file__).resolve().parent.parent
# What is checked, as far as it is there.
PLACES = ("src", "tools", "tests", "benchmarks")
# First and last line and octet of an expression, as both parsers count them.
Extent = tuple[int, int, int | None, int | None]
HIDDEN, READ_ONLY, VISIBLE = "cdef", "cdef readonly", "visible"

# A declaration of a .pxd file, its parentheses emptied: how it is seen, and the names it declares.
CLASS = re.compile(r"cdef class (\w+)")
METHOD = re.compile(r"(cdef|cpdef)\b.*?(\w+)\(")
ATTRIBUTE = re.compile(r"cdef (?:(readonly|public) )?.*?([\w, ]+)$")


@dataclass
class Border:
    """How names of the compiled modules are seen from outside."""

    # By the full name of a class, or of a module for its functions.
    names: dict[str, dict[str, str]] = field(default_factory=dict)

    def seen(self, owner: str, name: str) -> str | None:
        return self.names.get(owner, {}).get(name)


@dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def compiled_modules(setup: Path) -> list[str]:
    """HOT_MODULES of setup.py, with the package before them."""
    for node in ast.parse(setup.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "HOT_MODULES":
            return [f"flintmq.{name}" for name in ast.literal_eval(node.value)]
    raise SystemExit(f"{setup} has no HOT_MODULES")


def declarations(text: str) -> Iterator[tuple[int, str]]:
    """The statements of a .pxd file: how far they are indented, in one line each, parentheses emptied."""
    text = re.sub(r"#.*", "", text)
    before = None
    while before != text:
        before = text
        text = re.sub(r"\(([^()]+)\)", "()", text)
    for line in text.split("\n"):
        if line.strip() and not line.lstrip().startswith(("@", "cimport ", "from ")):
            yield len(line) - len(line.lstrip()), line.strip()


def read_declarations(module: str, text: str, border: Border) -> None:
    """Adds what the .pxd file of a compiled module declares."""
    owner = module
    inner = border.names.setdefault(module, {})
    for indent, statement in declarations(text):
        if not indent:
            owner = module
        if found := CLASS.match(statement):
            owner = f"{module}.{found[1]}"
        elif found := METHOD.match(statement):
            border.names.setdefault(owner, inner if owner == module else {})
            border.names[owner][found[2]] = VISIBLE if found[1] == "cpdef" else HIDDEN
        elif owner != module and (found := ATTRIBUTE.match(statement)):
            seen = {None: HIDDEN, "readonly": READ_ONLY, "public": VISIBLE}[found[1]]
            for name in found[2].split(","):
                border.names.setdefault(owner, {})[name.split()[-1]] = seen


def border_of(modules: list[str], source: Path) -> Border:
    border = Border()
    for module in modules:
        declared = source.joinpath(*module.split(".")).with_suffix(".pxd")
        read_declarations(module, declared.read_text(), border)
    return border


class Uses(ast.NodeVisitor):
    """Walks one module that is not compiled, and notes what it uses beyond the border."""

    def __init__(self, border: Border, known: dict[Extent, types.Type]) -> None:
        self.border = border
        self.known = known
        self.modules: dict[str, str] = {}
        self.findings: set[tuple[int, str]] = set()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        is_set = not isinstance(node.ctx, ast.Load)
        if isinstance(node.value, ast.Name) and node.value.id in self.modules:
            self.judge(node.lineno, self.modules[node.value.id], node.attr, is_set=is_set)
        for info in classes_of(self.known.get(extent_of(node.value))):
            owner = owner_of(info, node.attr, self.border)
            if owner is not None:
                self.judge(node.lineno, owner, node.attr, is_set=is_set)

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            if each.asname is not None:
                self.modules[each.asname] = each.name

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for each in node.names:
            self.judge(node.lineno, node.module or "", each.name, is_set=False)
            full = f"{node.module}.{each.name}"
            if full in self.border.names:
                self.modules[each.asname or each.name] = full

    def judge(self, line: int, owner: str, name: str, *, is_set: bool) -> None:
        seen = self.border.seen(owner, name)
        place = f"{owner.removeprefix('flintmq.')}.{name}"
        if seen == HIDDEN:
            self.findings.add((line, f"{place} is {HIDDEN}, which only compiled code sees"))
        elif seen == READ_ONLY and is_set:
            self.findings.add((line, f"{place} is {READ_ONLY}, which only compiled code sets"))


def extent_of(node: ast.expr) -> Extent:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def overrides(tree: nodes.MypyFile, border: Border) -> Iterator[tuple[int, str]]:
    """Methods of this module's classes that take the place of hidden ones."""
    for _, symbol, _ in tree.local_definitions():
        if not isinstance(symbol.node, nodes.TypeInfo):
            continue
        for name in symbol.node.names:
            for base in symbol.node.mro[1:]:
                if border.seen(base.fullname, name) == HIDDEN:
                    place = f"{base.fullname.removeprefix('flintmq.')}.{name}"
                    yield symbol.node.line, f"{symbol.node.name} overrides {place}, which is {HIDDEN}"


def classes_of(found: types.Type | None) -> Iterator[nodes.TypeInfo]:
    """The classes whose members an expression of this type may show."""
    proper = types.get_proper_type(found)
    if isinstance(proper, types.Instance):
        yield proper.type
    elif isinstance(proper, types.UnionType):
        for item in proper.items:
            yield from classes_of(item)
    elif isinstance(proper, types.TypeVarType):
        yield from classes_of(proper.upper_bound)
    elif isinstance(proper, types.TypeType):
        yield from classes_of(proper.item)
    elif isinstance(proper, types.FunctionLike) and proper.is_type_obj():
        yield proper.type_object()


def owner_of(info: nodes.TypeInfo, name: str, border: Border) -> str | None:
    """The first class that declares or defines it, if that one is compiled and declares it."""
    for base in info.mro:
        if border.seen(base.fullname, name) is not None:
            return base.fullname
        if base.fullname not in border.names and name in base.names:
            return None
    return None


def checked_paths(root: Path) -> list[str]:
    return [str(root / place) for place in PLACES if (root / place).is_dir()]


def options_of(root: Path) -> Options:
    """What the check of types asks of mypy; what it finds wrong is for that check to say."""
    options = Options()
    settings = root / "pyproject.toml"
    if settings.is_file():
        parse_config_file(options, lambda: None, str(settings))
    options.export_types = True
    options.preserve_asts = True
    options.incremental = False
    options.check_untyped_defs = True
    options.ignore_errors = True
    options.namespace_packages = True
    options.explicit_package_bases = True
    options.mypy_path = [str(root / "src"), str(root / "tests"), str(root / "tools"), str(root)]
    return options


def check(root: Path, modules: list[str], paths: list[str]) -> list[Finding]:
    """Every use beyond the border in the modules at `paths` that are not compiled."""
    border = border_of(modules, root / "src")
    findings: set[Finding] = set()
    options = options_of(root)
    sources = create_source_list(paths, options)
    checked = {source.module for source in sources}
    result = build.build(sources, options)
    for name, tree in result.files.items():
        if name in modules or name not in checked:
            continue
        known = {
            (each.line, each.column, each.end_line, each.end_column): found
            for each in get_subexpressions(tree)
            if (found := result.types.get(each)) is not None
        }
        uses = Uses(border, known)
        uses.visit(ast.parse(Path(tree.path).read_bytes()))
        place = str(Path(tree.path).relative_to(root))
        findings.update(Finding(place, *found) for found in uses.findings)
        findings.update(Finding(place, *found) for found in overrides(tree, border))
    return sorted(findings)


def main() -> int:
    findings = check(ROOT, compiled_modules(ROOT / "setup.py"), checked_paths(ROOT))
    for found in findings:
        print(found)
    print(f"border: {len(findings)} findings" if findings else "border: all that is used is visible")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
