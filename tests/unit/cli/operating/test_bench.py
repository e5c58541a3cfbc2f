"""The command at the head of a load, without its processes."""

from __future__ import annotations

import argparse
import multiprocessing
import queue
from typing import Any, cast

import pytest

from flintmq.cli.operating import bench
from flintmq.cli.output.statuses import CommandFault

ASKED = {"time": None, "messages": 5, "consumers": 1, "rate": 0.0, "json": True}


class SilentReports:
    """Nobody reports anything, until the command is interrupted. It is the clock as well."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def get(self, timeout: float) -> Any:
        self.now_s += timeout
        if self.now_s > 3 * bench.BLOCKED_S:
            raise KeyboardInterrupt
        raise queue.Empty

    def get_nowait(self) -> Any:
        raise queue.Empty

    def monotonic_s(self) -> float:
        return self.now_s


def silent_run(producers: int) -> bench.Run:
    reports, event = SilentReports(), multiprocessing.Event
    options = argparse.Namespace(producers=producers, **ASKED)
    run = bench.Run(options, [], reports, multiprocessing.Semaphore(0), event(), event(), event())
    run.clock = cast(Any, reports)
    return run


def test_producers_that_send_nothing_are_a_fault() -> None:
    with pytest.raises(CommandFault, match="the broker has taken no message of the load"):
        silent_run(producers=1).follow()


def test_consumers_alone_wait_until_they_are_interrupted() -> None:
    total, seconds, _ = silent_run(producers=0).follow()
    assert (total.sent, total.received) == (0, 0)
    assert seconds > 3 * bench.BLOCKED_S
