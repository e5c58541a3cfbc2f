"""Which tables a query reads, which columns it has, and which names are none of them: what sqlglot can tell.

Only Spark knows all of SQL. Where sqlglot cannot read a text, or a column's name is Spark's to choose, the
columns of that transform are not known, and nothing is said of whoever reads it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from flintmq.pipelines.file import schema, sql
from flintmq.pipelines.file.model import Source, Transform
from flintmq.spark.columns import STANDARD

Columns = tuple[str, ...]

_UNKNOWN = re.compile(r"Column '(?:.*\.)?([^'.]+)' could not be resolved\.(?: Line: (\d+))?")
# Grouping by these makes a column of the same name.
_WINDOWS = ("window", "session_window")


class WrongColumn(NamedTuple):
    name: str
    line: int  # of the SQL, from 0


def is_available() -> bool:
    """Whether sqlglot is installed."""
    try:
        import sqlglot  # noqa: F401
    except ImportError:
        return False
    return True


class ReadTable(NamedTuple):
    name: str
    line: int  # of the SQL, from 0


def tables_of(text: str) -> list[ReadTable] | None:
    """The tables that a query reads; None where sqlglot cannot read the text, or is not installed."""
    if not is_available():
        return None
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.scope import traverse_scope

    found: list[ReadTable] = []
    try:
        for scope in traverse_scope(_parsed(text)):
            for table in scope.tables:
                if table.name and not table.db and table.name not in scope.cte_sources:
                    found.append(ReadTable(table.name, table.this.meta.get("line", 1) - 1))
    except (SqlglotError, AttributeError, RecursionError, ValueError):
        return None
    return found


def _parsed(text: str) -> Any:
    import sqlglot

    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of functions that it does not know
    return sqlglot.parse_one(_windows_quoted(text), read="spark")


def of_source(source: Source) -> Columns | None:
    """The columns of a source; None for a lake, whose files have to be asked."""
    given = source.given
    if source.kind == "lake" or source.format == "avro":
        return None
    if source.kind == "rate":
        found: list[str] = ["timestamp", "value"]
    elif source.format == "raw":
        found = list(given.get("metadata", STANDARD))
        found.append("value")
    else:
        found = [part.split()[0].strip("`:") for part in schema.columns(given["schema"])]
        found += given.get("metadata", ())
    found += given.get("columns", {})
    return tuple(dict.fromkeys(found))


def of_transform(
    transform: Transform, known: Mapping[str, Columns | None]
) -> tuple[Columns | None, WrongColumn | None]:
    """The columns of a transform over inputs with these columns, and one that it names in vain."""
    inputs = [known.get(name) for name in transform.inputs]
    if transform.kind == "sql":
        readable = {name: columns for name in transform.inputs if (columns := known.get(name)) is not None}
        if len(readable) < len(transform.inputs):
            return None, None
        return of_query(transform.given["sql"], readable)
    if transform.kind == "python" or not inputs or inputs[0] is None:
        return None, None
    if transform.kind == "rules":
        return tuple(dict.fromkeys((*inputs[0], "exchange", "routing_key"))), None
    for name in transform.given["distinct_by"]:
        if name.lower() not in {column.lower() for column in inputs[0]}:
            return inputs[0], WrongColumn(name, 0)
    return inputs[0], None


def of_query(text: str, tables: Mapping[str, Columns]) -> tuple[Columns | None, WrongColumn | None]:
    """The same of an SQL text over tables with these columns."""
    from sqlglot.errors import OptimizeError, SqlglotError
    from sqlglot.optimizer.qualify import qualify

    more = _WINDOWS if _windows_quoted(text) != text else ()
    columns = {name: dict.fromkeys((*found, *more), "STRING") for name, found in tables.items()}
    try:
        query = qualify(_parsed(text), schema=columns, dialect="spark", quote_identifiers=False)
        names = [each.alias_or_name for each in query.selects]
    except OptimizeError as error:
        wrong = _UNKNOWN.match(str(error))
        return None, WrongColumn(wrong[1], int(wrong[2] or 1) - 1) if wrong else None
    except (SqlglotError, AttributeError, RecursionError, ValueError):
        return None, None
    if any(not name or name == "*" or name.startswith("_col_") for name in names):
        return None, None
    return tuple(names), None


def _windows_quoted(text: str) -> str:
    """`window(` as a function's name, which is a keyword to sqlglot."""
    found = list(sql.tokens(text))
    for token, following in reversed(list(pairwise(found))):
        if token.kind == "word" and token.text.lower() in _WINDOWS and following.text == "(":
            end = token.start + len(token.text)
            text = f"{text[: token.start]}`{text[token.start : end]}`{text[end:]}"
    return text
