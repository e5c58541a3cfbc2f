"""What pages show at a prompt is run in order, page after page, on one broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line.conftest import Command

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "command-line.md"


@pytest.mark.parametrize(
    "name",
    ["command-line.md", "alerts.md", "backup.md", "capacity.md", "celery.md", "files.md", "upgrading.md"],
)
def test_the_page(flintmq: Command, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file, text in (("a.txt", "a letter\n"), ("more/b.txt", "b too\n")):
        (tmp_path / "letters" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "letters" / file).write_text(text)
    examples = re.findall(r"^```console\n(.*?)^```", (DOCS / name).read_text(), re.S | re.M)
    assert examples
    for example in examples:
        for part in re.split(r"^\$ flintmq ", example, flags=re.M)[1:]:
            line, _, told = part.partition("\n")
            told = re.sub(r"^\.\.\.\n", "...", told)  # lines that may not be there
            said = flintmq(line)
            status = f"[{said.status}]\n" if said.status else ""
            # `...` stands for anything, which may be wider or narrower.
            pattern = re.escape(re.sub(" +", " ", told)).replace(r"\.\.\.", "(?s:.*)")
            assert re.fullmatch(pattern, re.sub(" +", " ", said.out + said.err + status)), (line, said)


def test_each_command_is_on_the_page() -> None:
    from flintmq.cli import RUNNING
    from flintmq.cli.ctl.command_table import COMMANDS

    words = set(re.findall(r"[\w-]+", PAGE.read_text()))
    assert {*RUNNING, *COMMANDS} - words == set()
