"""What is told of pipelines that run, have ended, and died."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flintmq.cli import main
from flintmq.pipelines.errors import PipelineFailed
from flintmq.pipelines.run import status
from flintmq.pipelines.run.status import FlowStatus, PipelineStatus, StatusFile


def running(directory: Path, name: str = "bars") -> StatusFile:
    flow = FlowStatus(status.RUNNING, 7, 1000, 250.0, 120, 42, 1.5, 1, "the broker went away", 5, 17)
    file = StatusFile(directory, PipelineStatus(name, "bars.toml", status.RUNNING, 123, 0, 0, {"bars": flow}))
    file.write(10)
    return file


def test_running_and_died(tmp_path: Path) -> None:
    file = running(tmp_path)
    (known,) = status.read_all(tmp_path)
    assert known == file.status
    with pytest.raises(PipelineFailed, match="'bars' is running already"):
        running(tmp_path)
    file.close()
    (known,) = status.read_all(tmp_path)
    assert known.state == status.DIED
    running(tmp_path).close()


def test_ended(tmp_path: Path) -> None:
    file = running(tmp_path)
    file.status.state = status.FINISHED
    file.write(11)
    file.close()
    found = status.read(tmp_path, "bars")
    assert found is not None
    assert found.state == status.FINISHED
    assert status.read(tmp_path, "other") is None


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = running(tmp_path)
    assert main(["pipeline", "list", "--state", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "bars                 running        1        250      42 rows        17      123" in shown
    assert "shipped: archive, bars, dedupe, dropout, replay, route" in shown
    assert main(["pipeline", "status", "bars", "--state", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "1000 rows, 250 rows/s, batch time 120 ms, lag 42 rows, 1.5 s, restarts 1" in shown
    assert "17 rows went to no queue" in shown
    assert "last error: the broker went away" in shown
    assert main(["pipeline", "status", "--json", "--state", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)[0]["flows"]["bars"]["lag_rows"] == 42
    assert main(["pipeline", "status", "other", "--state", str(tmp_path)]) == 1
    assert "no pipeline 'other' has run here" in capsys.readouterr().err
    file.close()


@pytest.mark.parametrize("text", ["{}", "[1]", "", "\0\0", "[" * 100_000, '{"flows": {"a": 1}}'])
def test_a_status_that_cannot_be_read_does_not_hide_the_others(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    running(tmp_path).close()
    (tmp_path / "pipelines" / "x.json").write_text(text)
    for command in ("list", "status"):
        assert main(["pipeline", command, "--state", str(tmp_path)]) == 0
        shown = capsys.readouterr().out
        assert "bars" in shown
        assert "x.json is not a status that this version wrote" in shown
    with pytest.raises(PipelineFailed, match="remove the file"):
        status.read(tmp_path, "x")


@pytest.mark.parametrize(
    ("of_flow", "of_pipeline"),
    [({"rows": "many"}, {}), ({"lag_s": "1.5"}, {}), ({"lag_rows": [1]}, {}), ({}, {"name": 5})],
)
def test_a_value_of_another_type(
    tmp_path: Path, of_flow: dict[str, object], of_pipeline: dict[str, object]
) -> None:
    """The metrics of the broker would fail at it."""
    running(tmp_path).close()
    path = tmp_path / "pipelines" / "bars.json"
    told = json.loads(path.read_text())
    told["flows"]["bars"]["lag_s"] = 2  # a whole number will do for a float
    path.write_text(json.dumps(told))
    assert status.read_all(tmp_path)[0].flows["bars"].lag_s == 2
    told["flows"]["bars"] |= of_flow
    path.write_text(json.dumps(told | of_pipeline))
    (found,) = status.read_all(tmp_path)
    assert (found.name, found.state) == ("bars", status.UNREADABLE)
