"""A pipeline's file: its text, its parameters filled in, and where each value stands.

    [parameters]                            uri, stream, ... with a default each;
    uri = "amqp://localhost"                { help = "...", required = true } has none
    ...
    stream = "${stream}"                    filled in; ${env:NAME} is taken from the environment

A value that is one parameter alone keeps the parameter's type; elsewhere it becomes text. In SQL a parameter
is a value, whatever its text: inside quotes it is escaped, elsewhere it is a literal. A parameter that is SQL
itself, such as an expression for a column, is declared with sql = true.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from flintmq.checks import suggestion
from flintmq.errors import ConfigFault
from flintmq.pipelines.errors import Finding, PipelineWrong
from flintmq.pipelines.file import sql
from flintmq.pipelines.file.toml_lines import Lines

FILE_BYTES_MAX = 1 << 20
_PARAMETER = re.compile(r"\$\{([^}]*)\}")
# Keys whose texts are SQL; of a template, such as a sink's routing_key, only what stands in braces is.
_SQL_KEYS = (
    ("transform", "sql"), ("source", "columns"), ("sink", "properties"), ("transform", "rules", "when"),
)  # fmt: skip
_TOML_ERROR = re.compile(r"\(at line (\d+), column \d+\)")


class Document:
    """The tables of a pipeline's file after parameters, and what was wrong so far."""

    def __init__(self, file: str, text: str, settings: Mapping[str, str], directory: Path | None) -> None:
        self.file = file
        self.text = text
        self.directory = directory
        self.findings: list[Finding] = []
        self.sql_parameters: set[str] = set()  # those that stand as they are in SQL and in templates
        try:
            self._read(settings)
        except tomllib.TOMLDecodeError as error:
            place = _TOML_ERROR.search(str(error))
            line = int(place[1]) if place else text.count("\n") + 1
            raise PipelineWrong(file, [Finding(line, f"this is not TOML: {error}")]) from None
        except RecursionError:
            deep = "tables or arrays are nested too deeply; a pipeline needs three levels"
            raise PipelineWrong(file, [Finding(1, deep)]) from None

    def _read(self, settings: Mapping[str, str]) -> None:
        self.tables: dict[str, Any] = tomllib.loads(self.text)
        self.lines = Lines(self.text)
        self.parameters = self._parameters(settings)
        for name, table in self.tables.items():
            if name != "parameters":
                self.tables[name] = self._filled(table, (name,))

    def fault(self, text: str, *path: str | int) -> None:
        self.findings.append(Finding(self.lines.of(*path), text))

    def _parameters(self, settings: Mapping[str, str]) -> dict[str, Any]:
        declared = self.tables.get("parameters", {})
        if not isinstance(declared, dict):
            self.fault("[parameters] is a table: a name and a default each", "parameters")
            declared = {}
        values: dict[str, Any] = {}
        for name, default in declared.items():
            if isinstance(default, dict):
                unknown = set(default) - {"default", "help", "required", "sql"}
                if default.get("sql") is True:
                    self.sql_parameters.add(name)
                for key in sorted(unknown):
                    self.fault(
                        f"parameter {name!r} has no {key!r}, but default, help, required, sql",
                        "parameters",
                        name,
                        key,
                    )
                if "default" in default:
                    values[name] = default["default"]
            else:
                values[name] = default
        for name, text in settings.items():
            if name not in declared:
                raise ConfigFault(
                    f"--set {name}: {self.file} has no such parameter{suggestion(name, declared)}"
                    + (f" (it has {', '.join(declared)})" if declared else "")
                )
            values[name] = self._typed(name, text, values.get(name))
        for name in declared:
            if name not in values:
                self.fault(
                    f"parameter {name!r} has no default: give it with --set {name}=VALUE", "parameters", name
                )
                values[name] = None
        return values

    def _typed(self, name: str, text: str, default: object) -> object:
        """What --set gives is text; it is read as the default's type."""
        try:
            if isinstance(default, bool):
                return {"true": True, "false": False}[text.lower()]
            if isinstance(default, int | float):
                return float(text) if "." in text or isinstance(default, float) else int(text)
            if isinstance(default, list):
                return [item.strip() for item in text.split(",") if item.strip()]
        except (ValueError, KeyError):
            wanted = "true or false" if isinstance(default, bool) else "a number"
            raise ConfigFault(f"--set {name}={text}: expected {wanted}") from None
        return text

    def _filled(self, value: Any, path: tuple[str | int, ...]) -> Any:
        if isinstance(value, str):
            return self._fill_text(value, path)
        if isinstance(value, list):
            return [self._filled(item, (*path, place)) for place, item in enumerate(value)]
        if isinstance(value, dict):
            return {name: self._filled(item, (*path, name)) for name, item in value.items()}
        return value

    def _fill_text(self, text: str, path: tuple[str | int, ...]) -> Any:
        keys = tuple(part for part in path if isinstance(part, str))
        is_template = keys[-1:] in (("exchange",), ("routing_key",)) and keys[0] in ("sink", "transform")
        if keys[:2] in _SQL_KEYS or keys in _SQL_KEYS:
            return self._fill_sql(text, path)
        whole = _PARAMETER.fullmatch(text)
        if whole is not None and not is_template:
            return self._lookup(whole[1], path)

        def filled(match: re.Match[str]) -> str:
            value = str(self._lookup(match[1], path))
            if is_template and match[1] not in self.sql_parameters:
                return value.replace("{", "{{").replace("}", "}}")
            return value

        return _PARAMETER.sub(filled, text)

    def _fill_sql(self, text: str, path: tuple[str | int, ...]) -> str:
        made, last = "", 0
        for match in _PARAMETER.finditer(text):
            made += text[last : match.start()]
            value = self._lookup(match[1], path)
            is_sql = match[1] in self.sql_parameters
            made += str(value) if is_sql else sql.as_value(value, sql.quote_at(made))
            last = match.end()
        return made + text[last:]

    def _lookup(self, name: str, path: tuple[str | int, ...]) -> Any:
        if name.startswith("env:"):
            value = os.environ.get(name[4:])
            if value is None:
                self.fault(f"${{{name}}}: the environment has no {name[4:]}", *path)
            return value or ""
        if name not in self.parameters:
            self.fault(f"${{{name}}}: there is no such parameter{suggestion(name, self.parameters)}", *path)
            return ""
        return self.parameters[name]


def shipped_names() -> list[str]:
    """The pipelines that come with the package, run by name."""
    files = (resources.files("flintmq.pipelines") / "shipped").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def load(source: str, settings: Mapping[str, str] | None = None) -> Document:
    """The file at this path, or the shipped pipeline of this name."""
    path = Path(source)
    if source in shipped_names() and not path.is_file():
        text = (resources.files("flintmq.pipelines") / "shipped" / f"{source}.toml").read_text("utf-8")
        return Document(source, text, settings or {}, None)
    if not path.is_file():
        shipped = ", ".join(shipped_names())
        near = suggestion(source, shipped_names())
        raise ConfigFault(f"{source}: no such file, and no shipped pipeline ({shipped}){near}")
    if path.stat().st_size > FILE_BYTES_MAX:
        raise ConfigFault(f"{source}: larger than {FILE_BYTES_MAX} bytes; a pipeline's file is a small one")
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigFault(f"{source}: not UTF-8 at octet {error.start}") from None
    return Document(source, text, settings or {}, path.resolve().parent)


def copy_template(target: str) -> None:
    """The template of a Spark Declarative Pipeline, into a directory that is not there yet."""
    with resources.as_file(resources.files("flintmq.pipelines") / "shipped" / "sdp") as template:
        shutil.copytree(template, target, ignore=shutil.ignore_patterns("__pycache__"))
