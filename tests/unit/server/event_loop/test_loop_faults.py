"""What callbacks of the loop raise: how much of it is told, and when the broker ends for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from flintmq.server.event_loop import loop_faults
from flintmq.server.event_loop.loop_faults import FAILURES_MIN, LASTING_S, STOPPING_S, LoopFaults


class Scene:
    """A time that the test sets, and what was told and done."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.loop = asyncio.new_event_loop()
        self.done: list[str] = []
        self.faults = LoopFaults(lambda: self.done.append("end"), lambda: self.now_s, self.leave)

    def leave(self, status: int) -> None:
        self.done.append(f"leave {status}")

    def fail(self, handle: object, error: Exception) -> None:
        try:
            raise error
        except Exception as raised:
            context = {"message": "Exception in callback f", "exception": raised, "handle": handle}
            self.faults.heed(self.loop, context)

    def fail_for(self, seconds: float, handle: object, times: int = 2 * FAILURES_MIN) -> None:
        """So many times in each second."""
        for _ in range(round(seconds * times)):
            self.now_s += 1 / times
            if "leave 1" not in self.done:
                self.fail(handle, MemoryError())


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.loop.close()


def test_a_failure_is_told_once_a_second_with_the_number_of_others(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        for _ in range(40):
            scene.fail(object(), MemoryError())
        scene.fail(object(), KeyError("other"))
        scene.now_s += 1
    told = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert told == ["39 more failures like the next one were left out of the log"] * 2
    kinds = [record.exc_info[0] for record in caplog.records if record.exc_info]
    assert kinds == [MemoryError, KeyError] * 3
    assert scene.done == []


def test_a_callback_that_fails_without_end_ends_the_broker(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    reader = object()
    scene.fail_for(LASTING_S - 1, reader)
    assert scene.done == []
    scene.fail_for(2, reader)
    assert scene.done == ["end"]
    assert "fails without end, and the broker ends" in caplog.text
    scene.fail_for(STOPPING_S - 2, reader)
    assert scene.done == ["end"]
    scene.fail_for(2, reader)
    assert scene.done == ["end", "leave 1"]
    assert len(caplog.records) < 4 * (LASTING_S + STOPPING_S)


def test_a_callback_that_recovers_ends_nothing(scene: Scene) -> None:
    reader = object()
    for _ in range(5):
        scene.fail_for(LASTING_S - 1, reader)
        scene.now_s += 2.5
    scene.fail_for(4 * LASTING_S, reader, FAILURES_MIN // 2)
    assert scene.done == []


def test_callbacks_that_fail_once_end_nothing_and_hide_none_that_does_not_cease(scene: Scene) -> None:
    """Else a client that finds a bug could end the broker for all."""
    for _ in range(20):
        for _ in range(FAILURES_MIN):
            scene.now_s += 0.5 / FAILURES_MIN
            scene.fail(object(), KeyError())
    assert scene.done == []
    reader = object()
    for _ in range(round(2 * FAILURES_MIN * (LASTING_S + 2))):
        scene.now_s += 0.5 / FAILURES_MIN
        scene.fail(object(), KeyError())
        scene.fail(reader, KeyError())
    assert scene.done == ["end"]
    assert len(scene.faults.callbacks) <= loop_faults.KNOWN_MAX


def test_an_end_that_is_under_way_is_not_kept_for_ever(scene: Scene) -> None:
    scene.faults.stopping()
    reader = object()
    scene.fail_for(STOPPING_S - 1, reader)
    assert scene.done == []
    scene.fail_for(2, reader)
    assert scene.done == ["leave 1"]


def test_where_the_log_cannot_be_written_nothing_is_raised(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(context: dict[str, Any]) -> None:
        raise MemoryError

    monkeypatch.setattr(scene.loop, "default_exception_handler", refuse)
    scene.fail_for(LASTING_S + 1, object())
    assert scene.done == ["end"]


# A broker whose loop cannot read what a pipe brings. `deaf`: its orderly end does not come about either.
BROKEN_LOOP = """
import os, sys
from flintmq.cli import main
from flintmq.server.event_loop import loop_faults
from flintmq.server.process import lifecycle

def fail():
    raise MemoryError

def new_server(config, loop, rehearsal_s, make=lifecycle.new_server):
    reading, writing = os.pipe()
    os.write(writing, b"x")
    loop.add_reader(reading, fail)
    return make(config, loop, rehearsal_s)

loop_faults.LASTING_S = loop_faults.STOPPING_S = 1.5
lifecycle.new_server = new_server
if {deaf}:
    lifecycle.End.come = lambda self: None
sys.exit(main(["serve", "--port", "0"]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the loop of Windows cannot wait for a pipe")
@pytest.mark.parametrize("deaf", [False, True])
def test_a_process_whose_loop_fails_without_end_ends(deaf: bool) -> None:
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", BROKEN_LOOP.format(deaf=deaf)], stderr=subprocess.PIPE, text=True, timeout=60
    )
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert len(lines) < 20 * (time.monotonic() - began_s)
    assert sum("CRITICAL" in line for line in lines) == (2 if deaf else 1)
    assert any("failures like the next one were left out" in line for line in lines)
