"""What can be said of an SQL text by its tokens: whether its brackets match, whether it keeps state.

Also templates, text with SQL in braces: `bar.{symbol}` becomes the pieces "bar." and the expression symbol.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<string>'(?:''|\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
      | (?P<quoted>`(?:``|[^`])*`)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>\d[\w.]*)
      | (?P<sign>.)""",
    re.DOTALL | re.VERBOSE,
)
_STATEFUL = {"group", "distinct", "window", "session_window", "count", "sum", "avg", "min", "max", "join"}
_OPENING = {"(": ")", "[": "]"}


class Token(NamedTuple):
    kind: str
    text: str
    start: int


def tokens(sql: str) -> Iterator[Token]:
    """Everything but blanks and comments."""
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup or "sign"
        if kind != "blank":
            text = match[0]
            yield (
                Token("word", text.strip("`").replace("``", "`"), match.start())
                if kind == "quoted"
                else Token(kind, text, match.start())
            )


def normalised(sql: str) -> str:
    """The text without what does not count: blanks, comments, the case of words."""
    return " ".join(token.text.lower() if token.kind == "word" else token.text for token in tokens(sql))


def keeps_state(sql: str) -> bool:
    """Whether Spark keeps something between batches for it: aggregates, distinct, joins."""
    words = [token.text.lower() for token in tokens(sql) if token.kind == "word"]
    return any(word in _STATEFUL for word in words)


def fault(sql: str) -> str | None:
    """What is wrong with its brackets, quotes or first word; None if nothing that can be seen here."""
    found = list(tokens(sql))
    first = next((token.text.lower() for token in found if token.text != "("), "")
    if first not in ("select", "with", "from", "values", "table"):
        return f"expected a query that begins with SELECT or WITH, not {first.upper() or 'nothing'}"
    open_: list[str] = []
    for token in found:
        if token.kind != "sign":
            continue
        if token.text in _OPENING:
            open_.append(_OPENING[token.text])
        elif token.text in _OPENING.values() and (not open_ or open_.pop() != token.text):
            return f"a {token.text} that nothing opens"
        elif token.text in "'\"`":
            return f"a quote {token.text} that nothing ends"
        elif token.text == ";":
            return "one query only, without ;"
    return f"a bracket is not closed: {open_[-1]} is missing" if open_ else None


def quote_at(sql: str) -> str:
    """The quote that is open where this beginning of an SQL text ends; empty if there is none."""
    quote, at = "", 0
    while at < len(sql):
        char = sql[at]
        if quote:
            if char == "\\" and quote != "`":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'\"`":
            quote = char
        elif sql.startswith("--", at):
            at = sql.find("\n", at) if "\n" in sql[at:] else len(sql)
        elif sql.startswith("/*", at):
            at = sql.find("*/", at) + 1 if "*/" in sql[at:] else len(sql)
        at += 1
    return quote


def as_value(value: object, quote: str) -> str:
    """A value as SQL, outside of quotes or inside such as are open."""
    if isinstance(value, list):
        separator = "," if quote else ", "
        return separator.join(as_value(item, quote) for item in value)
    if quote == "`":
        return str(value).replace("`", "``")
    if quote:
        return str(value).replace("\\", "\\\\").replace(quote, "\\" + quote)
    if isinstance(value, bool | int | float):
        return str(value).upper()
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def pieces(template: str) -> list[tuple[bool, str]]:
    """A template's pieces: (is SQL, text). ValueError for braces that do not match; {{ is a brace."""
    found: list[tuple[bool, str]] = []
    text, at = "", 0
    while at < len(template):
        char = template[at]
        if template[at : at + 2] in ("{{", "}}"):
            text += char
            at += 2
        elif char == "{":
            end = template.find("}", at)
            if end < 0 or not template[at + 1 : end].strip():
                raise ValueError("a brace { without an expression and }")
            if text:
                found.append((False, text))
            found.append((True, template[at + 1 : end]))
            text, at = "", end + 1
        elif char == "}":
            raise ValueError("a brace } that nothing opens")
        else:
            text += char
            at += 1
    if text or not found:
        found.append((False, text))
    return found


def expression(template: str) -> str:
    """A template as one SQL expression of text."""
    made = [
        f"CAST(({text}) AS STRING)" if is_sql else "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        for is_sql, text in pieces(template)
    ]
    return made[0] if len(made) == 1 else f"concat({', '.join(made)})"
