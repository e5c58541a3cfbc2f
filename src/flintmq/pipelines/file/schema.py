"""A schema as users write it, `symbol STRING NOT NULL, price DOUBLE`: what can be said without Spark."""

from __future__ import annotations

from flintmq.checks import suggestion

_TYPES = (
    "BOOLEAN", "BYTE", "TINYINT", "SHORT", "SMALLINT", "INT", "INTEGER", "LONG", "BIGINT", "FLOAT", "REAL",
    "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "STRING", "BINARY", "DECIMAL", "DEC",
    "NUMERIC", "ARRAY", "MAP", "STRUCT", "CHAR", "CHARACTER", "VARCHAR", "INTERVAL", "VARIANT", "VOID",
)  # fmt: skip


def columns(ddl: str) -> list[str]:
    """Its columns, each as it was written: split at the commas outside of brackets."""
    depth, start, found = 0, 0, []
    for at, char in enumerate(ddl + ","):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            found.append(ddl[start:at].strip())
            start = at + 1
    if depth:
        raise ValueError("its brackets do not match")
    return found


def fault(ddl: str) -> str | None:
    """What is wrong with it, as far as its columns' names and types; None if nothing."""
    try:
        parts = columns(ddl)
    except ValueError as error:
        return str(error)
    seen: set[str] = set()
    for column in parts:
        words = column.replace("<", " <").replace("(", " (").split()
        if len(words) < 2:
            return f"expected a name and a type, not {column!r}"
        name, type_ = words[0].strip("`:").lower(), words[1].upper()
        if type_ not in _TYPES:
            return f"column {name!r}: there is no type {words[1]!r}{suggestion(type_, _TYPES)}"
        if name in seen:
            return f"column {name!r} is there twice"
        seen.add(name)
    return None


def not_null(ddl: str) -> list[str]:
    """The columns that it says must be there."""
    return [
        part.split()[0].strip("`:") for part in columns(ddl) if part.upper().rstrip().endswith("NOT NULL")
    ]
