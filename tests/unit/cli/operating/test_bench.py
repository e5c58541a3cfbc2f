"""The command at the head of a load, without its processes."""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import re
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


def test_the_time_to_receive_ends_with_the_last_message_and_not_with_its_report() -> None:
    run = silent_run(producers=1)
    for received, received_s in ((5, 3.25), (2, 3.0), (0, 0.0)):
        run.add(bench.Report(received=received, received_s=received_s))
    assert (run.total.received, run.received_s) == (7, 3.25)


def test_consumers_alone_wait_until_they_are_interrupted() -> None:
    total, seconds, _ = silent_run(producers=0).follow()
    assert (total.sent, total.received) == (0, 0)
    assert seconds > 3 * bench.BLOCKED_S


@pytest.mark.parametrize(
    ("pattern", "fits", "differs"),
    [
        ("#", ["", "a", "a.b"], []),
        ("#.#", ["", "a", "a.b"], []),
        ("a.*", ["a.b", "a."], ["a", "a.b.c", "b.a"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["ab", "b.a"]),
        ("#.b", ["b", "a.b", "a.a.b"], ["ab", "b.a"]),
        ("a.#.b", ["a.b", "a.x.b", "a.x.y.b"], ["a", "b", "a.b.c"]),
        ("*.b", ["a.b"], ["b", "a.a.b"]),
        ("a+.b", ["a+.b"], ["aa.b"]),
    ],
)
def test_keys_that_a_binding_of_a_topic_exchange_takes(
    pattern: str, fits: list[str], differs: list[str]
) -> None:
    found = re.compile(bench.topic_pattern(pattern))
    assert [key for key in fits + differs if found.fullmatch(key)] == fits


def test_how_many_queues_a_message_goes_to() -> None:
    keys = ("t.1", "t.2", "t.3")
    bindings = (("t.1", "t.2"), ("t.2",), ("#", "t.1"), ("t.*",))
    assert bench.receivers_of("topic", keys, bindings) == (3, 4, 2)
    assert bench.receivers_of("direct", keys, bindings) == (2, 2, 0)
    assert bench.receivers_of("fanout", keys, bindings) == (4, 4, 4)


@pytest.mark.parametrize(
    ("topics", "queues", "each", "bindings"),
    [
        (4, 2, 0, (("k.1", "k.2"), ("k.3", "k.4"))),
        (3, 2, 0, (("k.1", "k.2"), ("k.3", "k.1"))),
        (2, 3, 0, (("k.1",), ("k.2",), ("k.1",))),
        (2, 2, 5, (("k.1", "k.2"), ("k.1", "k.2"))),
    ],
)
def test_topics_are_spread_over_the_queues(
    topics: int, queues: int, each: int, bindings: tuple[tuple[str, ...], ...]
) -> None:
    options = argparse.Namespace(binding_key=None, queues=queues, topics_per_queue=each)
    keys = tuple(f"k.{number}" for number in range(1, topics + 1))
    assert bench.bindings_of(options, "topic", keys) == bindings


def test_keys_come_in_turn_and_queues_are_shared_out() -> None:
    assert bench.in_turn(("a", "b", "c"), 2, 5) == ("c", "a", "b", "c", "a")
    assert bench.in_turn(("a",), 0, 3) == ("a", "a", "a")
    load = bench.Load(
        settings=cast(Any, None), exchange="", routing_keys=("a", "b", "c", "d"), receivers=(1, 1, 1, 1),
        first=0, queues=("p", "q", "r"), size=100, rate=0.0, confirm=0, prefetch=1, ack_every=1,
        auto_ack=False, persistent=False, messages=1,
    )  # fmt: skip
    assert [each.first for each in bench.producer_loads(load, 2)] == [0, 2]
    assert [each.queues for each in bench.consumer_loads(load, 2)] == [("p", "r"), ("q",)]
    assert [each.queues for each in bench.consumer_loads(load, 4)] == [("p",), ("q",), ("r",), ("p",)]
