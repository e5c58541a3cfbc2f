"""The line of every key, for each way that TOML has to write one."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flintmq.pipelines.file.toml_lines import Lines

TEXT = """\
# a comment = 1
top = "a # b"
[table]
'quoted key' = 1
a.b.c = [1, # one ]
  2,
  { x = 1, y = "}" }]
long = \"\"\"
key = "not one"
\"\"\"
after = '''[x]'''

[[rows]]
name = "first"
[rows.inner]
deep = true
[[rows]]
name = "second"
"""


def test_lines() -> None:
    tomllib.loads(TEXT)
    lines = Lines(TEXT)
    assert lines.of("top") == 2
    assert lines.of("table", "quoted key") == 4
    assert lines.of("table", "a", "b", "c") == 5
    assert lines.of("table", "a", "b", "c", 1) == 6
    assert lines.of("table", "a", "b", "c", 2, "y") == 7
    assert lines.of("table", "long") == 8
    assert lines.of("table", "after") == 11
    assert lines.of("rows", 0, "inner", "deep") == 16
    assert lines.of("rows", 1, "name") == 18
    assert lines.of("rows", 1, "missing") == 17, "the nearest thing around it"


SCALARS = st.sampled_from(
    ['"text = [1]"', "'''\nlong\n[x]\n'''", "12", "true", "[1, [2, 3]]", "{ a = 1 }", "1979-05-27"]
)
KEYS = st.sampled_from(["a", "b", "c", '"d e"'])


@given(st.lists(st.tuples(st.booleans(), st.lists(st.tuples(KEYS, SCALARS), unique_by=lambda pair: pair[0]))))
def test_every_key_is_found_on_its_own_line(rows: list[tuple[bool, list[tuple[str, str]]]]) -> None:
    text, wanted = "", {}
    for number, (has_comment, pairs) in enumerate(rows):
        text += "# x = 1\n" if has_comment else ""
        text += "[[row]]\n"
        for key, value in pairs:
            wanted["row", number, key.strip('"')] = text.count("\n") + 1
            text += f"{key} = {value}\n"
    parsed: dict[str, Any] = tomllib.loads(text)
    assert len(parsed.get("row", [])) == len(rows)
    lines = Lines(text)
    assert {path: lines.of(*path) for path in wanted} == wanted
