"""On which line of a TOML text each key stands. tomllib does not tell, and a finding must name the line.

Reads only text that tomllib has accepted, so it need not find faults: it follows headers and keys, and
steps over values.

    [[source]]            ("source", 0)
    name = "ticks"        ("source", 0, "name")
    [source.columns]      ("source", 0, "columns")
    time = "now()"        ("source", 0, "columns", "time")
"""

from __future__ import annotations

import re

Path = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"(?:[ \t]|\r?\n|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_QUOTED = re.compile(r'"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'')
_LONG = {
    '"""': re.compile(r'"""(?:\\.|[^\\])*?"{3,5}', re.DOTALL),
    "'''": re.compile(r"'''.*?'{3,5}", re.DOTALL),
}
_PLAIN = re.compile(r"[^,\]}#\n]+")


class Lines:
    """The line of each key and header of a text, by its path."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found: dict[Path, int] = {(): 1}
        self._counts: dict[Path, int] = {}
        table: Path = ()
        while self._skip(_BLANK) < len(text):
            if text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def of(self, *path: str | int) -> int:
        """The line of this key, or of the nearest thing around it."""
        while path not in self._found:
            path = path[:-1]
        return self._found[path]

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _header(self) -> Path:
        line = self._line()
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        names = self._key()
        self._at += 2 if is_array else 1
        path: Path = ()
        for place, name in enumerate(names):
            path = (*path, name)
            is_last = place == len(names) - 1
            if is_array and is_last:
                self._counts[path] = self._counts.get(path, 0) + 1
            if path in self._counts:
                self._found.setdefault(path, line)
                path = (*path, self._counts[path] - 1)
            self._found.setdefault(path, line)
        return path

    def _key(self) -> list[str]:
        names: list[str] = []
        while True:
            self._skip(_SPACE)
            match = _QUOTED.match(self._text, self._at) or _BARE.match(self._text, self._at)
            if match is None:
                return names
            self._at = match.end()
            names.append(match[0].strip("\"'"))
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return names
            self._at += 1

    def _pair(self, table: Path) -> None:
        line = self._line()
        names = self._key()
        if not names:
            self._at += 1
            return
        path = table
        for name in names:
            path = (*path, name)
            self._found.setdefault(path, line)
        self._skip(_SPACE)
        self._at += 1  # the equals sign
        self._value(path)

    def _value(self, path: Path) -> None:
        self._skip(_SPACE)
        text = self._text
        self._found[path] = self._line() if path not in self._found else self._found[path]
        long = _LONG.get(text[self._at : self._at + 3])
        if long is not None:
            self._skip(long)
        elif text[self._at : self._at + 1] in ('"', "'"):
            self._skip(_QUOTED)
        elif text.startswith("[", self._at):
            self._items(path)
        elif text.startswith("{", self._at):
            self._inline(path)
        else:
            self._skip(_PLAIN)

    def _items(self, path: Path) -> None:
        self._at += 1
        number = 0
        while self._skip(_BLANK) < len(self._text) and self._text[self._at] != "]":
            self._found[(*path, number)] = self._line()
            self._value((*path, number))
            number += 1
            self._skip(_BLANK)
            if self._text.startswith(",", self._at):
                self._at += 1
        self._at += 1

    def _inline(self, path: Path) -> None:
        self._at += 1
        while self._skip(_BLANK) < len(self._text) and self._text[self._at] != "}":
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._pair(path)
        self._at += 1
