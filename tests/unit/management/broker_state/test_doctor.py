"""The doctor of the management process: which rows it compares, where it works, and what it tells after a
failure."""

from __future__ import annotations

import asyncio
import marshal
import threading
from collections.abc import Hashable
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.client.core.errors import ClientError
from flintmq.clock import Clock
from flintmq.management.broker_state.doctor import APART_S, QUICK_S, Doctor
from flintmq.management.broker_state.samples import Totals
from flintmq.snapshot_rows import ChannelRow, ConsumerRow, QueueRow

QUEUE = QueueRow._make(["q", False, False, False, False, b"", 0, 0, *[0] * (len(QueueRow._fields) - 8)])
CHANNEL = ChannelRow._make([7, 1, "/", "guest", 2, 10, 0, 10, 0, False, False, True, 5, "q", *[0] * 11])
CONSUMER = ConsumerRow(7, 1, "/", "guest", "tag", "q", False, False, 10, 10, b"", True, 0, 5)


class Stepped(Clock):
    now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


class Snapshot:
    """One that tells what it has, and when that was taken."""

    taken_s = -1e9

    def __init__(self) -> None:
        self.rows: dict[Hashable, Any] = {}

    async def current(self) -> dict[Hashable, Any]:
        return self.rows

    def take(self, time_s: float, rows: dict[Hashable, Any]) -> None:
        self.taken_s, self.rows = time_s, rows


class Broker:
    """What a doctor sees of a broker with one virtual host."""

    watch = None
    failure: ClientError | None = None

    def __init__(self) -> None:
        self.clock = Stepped()
        self.of_hosts: dict[tuple[str, str], Snapshot] = {("queues", "/"): Snapshot()}
        self.connections, self.channels, self.consumers = Snapshot(), Snapshot(), Snapshot()
        mine: Any = self
        self.doctor = Doctor(mine, mine, mine, self.queue_policies, self.clock)

    def queues(self, host: str) -> Snapshot:
        return self.of_hosts["queues", host]

    def take_clients(self) -> None:
        self.channels.take(self.clock.now_s, {(7, 1): CHANNEL})
        self.consumers.take(self.clock.now_s, {(7, 1, "tag"): CONSUMER})

    def take_queues(self, **changed: Any) -> None:
        self.queues("/").take(self.clock.now_s, {"q": QUEUE._replace(**changed)})

    async def current(self) -> Totals:
        if self.failure is not None:
            raise self.failure
        info = {"now_ms": self.clock.wall_ms(), "disk-bytes": 1}
        return Totals(self.clock.now_s, {"/": {"queues": 1, "connections": 1, "ready": 1}}, info)

    async def queue_policies(self, host: str) -> Any:
        return SimpleNamespace(of=lambda row: SimpleNamespace(definition={}))

    async def ask(self, service: str, arguments: Any) -> Any:
        return SimpleNamespace(body=marshal.dumps([]), results={"login": "", "in-force": False})

    def found(self) -> tuple[float, list[str]]:
        """The seconds between the looks, and the kinds of what was found."""
        diagnosis = asyncio.run(self.doctor.examine())
        return diagnosis.seconds, [each.kind for each in diagnosis.findings]


BUSY = {"ready": 90, "unacked": 10, "consumers": 1}


def test_rows_of_queues_are_not_compared_with_themselves() -> None:
    """A snapshot of very many queues is taken seldom. The consumer acks all the time."""
    broker = Broker()
    broker.take_queues(entered=100, **BUSY)
    for _ in range(3):
        broker.take_clients()
        broker.doctor.note()
        broker.clock.now_s += APART_S
    broker.take_clients()
    assert broker.found() == (0.0, [])
    broker.take_queues(entered=400, **BUSY)
    assert broker.found() == (3 * APART_S, [])


def test_seconds_are_those_between_the_snapshots() -> None:
    broker = Broker()
    broker.take_clients()
    broker.take_queues(entered=100, **BUSY)
    broker.clock.now_s += 4
    broker.doctor.note()
    broker.clock.now_s += 20
    broker.take_clients()
    broker.take_queues(entered=100, **BUSY)
    broker.clock.now_s += 3
    assert broker.found() == (24.0, ["consumer takes nothing"])
    # The looks stay apart when what is new is noted.
    broker.doctor.note()
    assert broker.found() == (24.0, ["consumer takes nothing"])


def test_a_virtual_host_that_is_gone_is_forgotten() -> None:
    broker = Broker()
    broker.take_queues()
    broker.doctor.note()
    assert list(broker.doctor.queues) == ["/"]
    del broker.of_hosts["queues", "/"]
    broker.doctor.note()
    assert broker.doctor.queues == {}


def test_the_event_loop_does_not_go_through_all_queues() -> None:
    loop_thread = threading.current_thread()
    went_through: list[threading.Thread] = []

    class Rows(dict[Hashable, Any]):
        def values(self) -> Any:
            went_through.append(threading.current_thread())
            return super().values()

    broker = Broker()
    names = [f"q{number}" for number in range(500)]
    rows = Rows({name: QUEUE._replace(name=name, ready=at) for at, name in enumerate(names)})
    broker.queues("/").take(broker.clock.now_s, rows)
    broker.found()
    assert went_through
    assert loop_thread not in went_through


def test_whoever_asks_after_a_failure_is_told_of_it(caplog: pytest.LogCaptureFixture) -> None:
    """Examinations take long: the last one is told while a new one is on its way."""

    async def use() -> None:
        broker = Broker()
        doctor = broker.doctor
        diagnosis = await doctor.examine()
        doctor.latest = slow = type(diagnosis)(diagnosis.time_s, 2 * QUICK_S, 0.0, 1, 0, [])
        broker.clock.now_s += 60
        broker.failure = ClientError("the broker is gone")
        assert await doctor.current() is slow
        assert doctor.examining is not None
        await asyncio.wait([doctor.examining])
        await asyncio.sleep(0)
        with pytest.raises(ClientError, match="the broker is gone"):
            await doctor.current()
        broker.failure = None
        assert (await doctor.current()).time_s == broker.clock.now_s

    asyncio.run(use())
    assert "the broker could not be examined: the broker is gone" in caplog.text
