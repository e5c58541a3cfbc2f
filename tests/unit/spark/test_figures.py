"""What a sink tells of its batches."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from flintmq.spark.options import WriteOptions
from flintmq.spark.write import figures
from flintmq.spark.write.figures import Figures


def options(**given: str) -> WriteOptions:
    return WriteOptions.of({"exchange": "out", **given})


def test_batches_add_up(tmp_path: Path) -> None:
    chosen = options(figuresFile=str(tmp_path / "there" / "sink.json"))
    for _ in range(3):
        figures.note(chosen, "adds", 10, 2, 1)
    assert figures.read(tmp_path / "there" / "sink.json") == Figures(3, 30, 6, 3)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"rows": 7}', "[" * 100_000])
def test_a_file_that_is_none_of_these_counts_as_empty(tmp_path: Path, text: str) -> None:
    file = tmp_path / "sink.json"
    file.write_text(text)
    assert figures.read(file) == Figures()
    figures.note(options(figuresFile=str(file)), "mends", 5, 0)
    assert figures.read(file) == Figures(1, 5)


@pytest.mark.parametrize("place", ["file/sink.json", "/", "..", "a\0b"])
def test_a_place_that_cannot_be_written_fails_no_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    (tmp_path / "file").write_text("")
    figures.note(options(figuresFile=str(tmp_path / place)), "fails", 5, 0)
    assert "the figures of the sink are not written" in caplog.text


def test_the_first_rows_that_go_nowhere_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic exchange that few listen to is no fault; nobody wants a warning each second."""
    caplog.set_level(logging.INFO, "flintmq.spark")
    for _ in range(2):
        figures.note(options(), "warns", 10, 4)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "of 10 rows 4 went to no queue; bind a queue, or set mandatory" in caplog.text
    caplog.clear()
    figures.note(options(figuresFile=str(tmp_path / "sink.json")), "counts", 10, 4)
    assert [record.levelname for record in caplog.records] == ["INFO"]
