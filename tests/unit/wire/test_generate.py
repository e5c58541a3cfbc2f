"""The generated modules are what the tables give."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("generate_wire")


def test_the_committed_files_are_fresh(generator: ModuleType) -> None:
    said: list[str] = []
    assert generator.main(["--check"], said.append) == 0
    assert said == []


def test_a_stale_file_is_told_and_written(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "PACKAGE", tmp_path)
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    said: list[str] = []
    assert generator.main(["--check"], said.append) == 1
    assert len(said) == 5
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "wire").mkdir()
    assert generator.main([], said.append) == 0
    assert generator.main(["--check"], said.append) == 0
    (tmp_path / "wire" / "amqp.py").write_text("FRAME_END = 207\n", encoding="utf-8")
    assert generator.main(["--check"], said.append) == 1
    assert said[-1].startswith("wire/amqp.py is not what spec/ gives")


def test_generated_files_say_so(generator: ModuleType) -> None:
    for text in generator.generate().values():
        assert "Generated" in text.splitlines()[0]


def test_other_arguments_are_refused(generator: ModuleType) -> None:
    said: list[str] = []
    assert generator.main(["--chek"], said.append) == 2
    assert said == ["usage: generate_wire.py [--check]\n"]
