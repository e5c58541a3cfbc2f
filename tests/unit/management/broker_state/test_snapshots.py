"""Snapshots in portions, from the services of a broker without sockets."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.broker.broker import Broker
from flintmq.broker.channels import host_tally
from flintmq.broker.scheduling.timetable import Timetable
from flintmq.broker.services import management_services
from flintmq.broker.services.acting import MANAGEMENT
from flintmq.broker.services.request import SERVICES, Request
from flintmq.client.core.errors import ServiceError
from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.management.broker_state import snapshots
from flintmq.management.broker_state.snapshots import QueueSnapshot, Snapshots
from flintmq.snapshot_rows import COUNTED, rows_in


class Asked(Request):
    """A request of the management process."""

    def __init__(self, broker: Broker, name: str, arguments: dict[str, Any]) -> None:
        host = broker.virtual_hosts["/"]
        self.channel: Any = SimpleNamespace(user=MANAGEMENT, virtual_host=host)
        self.broker = broker
        self.name = name
        self.arguments = arguments
        self.results: dict[str, Any] = {}
        self.steps = 0

    def reply(self, results: dict[str, Any], body: bytes = b"") -> None:
        self.results, self.body = results, body

    def answered(self) -> Any:
        for _ in SERVICES[self.name](self) or ():
            self.steps += 1
        return self


class Link:
    """The way to a broker in this process; `told` has the rows of each answer."""

    watch = None

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.asked: list[Any] = []

    async def ask(self, service: str, arguments: dict[str, Any], place: Any = None) -> Any:
        self.broker.pass_work.passes += 1
        self.asked.append(Asked(self.broker, service, dict(arguments)).answered())
        return self.asked[-1]

    def told(self) -> int:
        """How many rows the broker has told since it was asked last."""
        told = sum(len(rows_in(each.body)) for each in self.asked)
        self.asked.clear()
        return told


def declare(broker: Broker, *names: str) -> None:
    for name in names:
        broker.virtual_hosts["/"].declare_queue(name, False, False, False, {}, 1)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers about four queues, in steps of two."""
    monkeypatch.setattr(management_services, "STEP_QUEUES_MIN", 2)
    monkeypatch.setattr(management_services, "STEP_S_MIN", 0.0)
    monkeypatch.setattr(management_services, "STEP_ROWS", 1)
    monkeypatch.setattr(management_services, "LOOKED_AT_MAX", 4)
    monkeypatch.setattr(snapshots, "PAUSE_S", 0)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 11])
def test_changed_queues_alone_are_told(count: int) -> None:
    broker = Broker(Config(), Clock())
    host = broker.virtual_hosts["/"]
    link = Link(broker)
    known = QueueSnapshot(link, Clock(), "/")  # type: ignore[arg-type]

    def taken() -> list[str]:
        asyncio.run(known.take())
        assert known.failure is None
        assert list(known.rows) == sorted(host.queues)
        rows = {name: management_services.queue_row(queue) for name, queue in host.queues.items()}
        assert dict(known.rows) == rows
        return [str(name) for name in known.rows]

    declare(broker, *(f"q{number:02}" for number in range(count)))
    assert len(taken()) == count
    assert link.told() == count
    taken()  # those that changed while the one before was taken are told once more
    link.told()
    taken()
    assert link.told() == 0
    if count > 2:
        host.queues["q01"].unasked += 1
        declare(broker, "q01.new", "z")
        host.delete_queue(host.queues["q02"])
        taken()
        assert known.rows["q01"].unasked == 1
        host.delete_queue(host.queues["q00"])
        declare(broker, "q00.instead")
        taken()
        taken()
        link.told()
        taken()
        assert link.told() == 0
    for queue in list(host.queues.values()):
        host.delete_queue(queue)
    assert taken() == []


@pytest.mark.usefixtures("small")
def test_one_answer_looks_at_so_many_queues() -> None:
    broker = Broker(Config(), Clock())
    declare(broker, *(f"q{number:02}" for number in range(20)))
    first = Asked(broker, "management.changed-queues", {"virtual-host": "/", "since": 0}).answered()
    assert (first.results["count"], first.results["next"], first.steps) == (4, "q03", 3)


@pytest.mark.usefixtures("small")
def test_one_answer_tells_of_so_many_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management_services, "LOOKED_AT_MAX", 1000)
    monkeypatch.setattr(management_services, "CHANGED_MAX", 5)
    broker = Broker(Config(), Clock())
    declare(broker, *(f"q{number:02}" for number in range(20)))
    first = Asked(broker, "management.changed-queues", {"virtual-host": "/", "since": 0}).answered()
    assert (first.results["count"], first.results["next"]) == (6, "q05")
    assert len(rows_in(first.body)) == 6


@pytest.mark.usefixtures("small")
def test_a_queue_that_is_deleted_between_two_steps_is_not_told() -> None:
    broker = Broker(Config(), Clock())
    host = broker.virtual_hosts["/"]
    declare(broker, "a", "b")
    asked = Asked(broker, "management.changed-queues", {"virtual-host": "/", "since": 0})
    steps = SERVICES["management.changed-queues"](asked)
    assert steps is not None
    next(steps)
    host.delete_queue(host.queues["b"])
    for _ in steps:
        pass
    assert asked.results["count"] == 1
    assert [row[0] for row in rows_in(asked.body)] == ["a"]


def test_marks_go_with_their_queues() -> None:
    broker = Broker(Config(), Clock())
    host = broker.virtual_hosts["/"]
    for number in range(10):
        declare(broker, f"q{number}")
        Asked(broker, "management.changed-queues", {"virtual-host": "/", "since": 0}).answered()
        assert list(host.tally.queue_marks.known) == [f"q{number}"]
        host.delete_queue(host.queues[f"q{number}"])
    assert host.tally.queue_marks.known == {}


def test_whoever_asks_after_a_change_sees_it() -> None:
    """Also those who come when a snapshot from before the change is just done."""
    broker = Broker(Config(), Clock())
    declare(broker, "before")

    class SlowLink(Link):
        def __init__(self, broker: Broker) -> None:
            super().__init__(broker)
            self.gates: list[asyncio.Event] = []

        async def ask(self, service: str, arguments: dict[str, Any], place: Any = None) -> Any:
            answer = await super().ask(service, arguments, place)
            self.gates.append(asyncio.Event())
            await self.gates[-1].wait()
            return answer

    async def settle() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def use() -> None:
        link = SlowLink(broker)
        queues = QueueSnapshot(link, Clock(), "/")  # type: ignore[arg-type]
        early = asyncio.create_task(queues.current())
        await settle()
        declare(broker, "after")
        queues.changed()
        asked = [asyncio.create_task(queues.current())]
        await settle()
        link.gates[0].set()
        await settle()
        assert list(early.result()) == ["before"]
        asked += [asyncio.create_task(queues.current()) for _ in range(2)]
        await settle()
        assert len(link.gates) == 2, "one snapshot is enough for all who ask after the change"
        link.gates[1].set()
        assert [list(each) for each in await asyncio.gather(*asked)] == [["after", "before"]] * 3

    asyncio.run(use())


@pytest.mark.parametrize("gone_max", [1024, 2])
def test_queues_that_are_gone_take_no_other_rows(gone_max: int) -> None:
    """Unless more have gone than the broker remembers; what is known is right in both cases."""
    broker = Broker(Config(), Clock())
    host = broker.virtual_hosts["/"]
    link = Link(broker)
    known = QueueSnapshot(link, Clock(), "/")  # type: ignore[arg-type]
    declare(broker, *(f"q{number:02}" for number in range(50)))
    for _ in range(3):
        asyncio.run(known.take())
    link.told()
    for number in (3, 20, 21, 49):
        host.delete_queue(host.queues[f"q{number:02}"])
        if gone_max == 2:
            while len(host.tally.queue_marks.gone) > gone_max:
                del host.tally.queue_marks.gone[next(iter(host.tally.queue_marks.gone))]
    declare(broker, "q21", "q21.new")
    asyncio.run(known.take())
    assert list(known.rows) == sorted(host.queues) == known.names
    assert link.told() == (2 if gone_max == 1024 else 2 + 48)


class SteppedClock(Clock):
    """Goes on when it is told to."""

    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s


def test_a_look_at_queues_pauses_by_the_clock_and_by_count() -> None:
    clock = SteppedClock()
    pace = management_services.Pace(Timetable(clock), 10_000)
    for _ in range(2):
        assert not pace.is_over(32)
        clock.now_s += pace.step_s
        assert pace.is_over(32)
        for _ in pace.pause():
            pass
    assert not pace.is_over(management_services.STEP_QUEUES_MAX - 1)
    assert pace.is_over(1)
    assert pace.step_s == management_services.STEP_S_MIN
    assert management_services.Pace(Timetable(clock), 10**6).step_s == management_services.STEP_S_MAX


def test_the_order_of_connections_is_found_once_for_a_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many steps it takes; those that close meanwhile are left out."""
    monkeypatch.setattr(management_services, "STEP_ROWS", 2)
    sorts: list[int] = []

    def counted(numbers: dict[int, Any]) -> list[int]:
        sorts.append(len(numbers))
        return sorted(numbers)

    monkeypatch.setattr(management_services, "sorted", counted, raising=False)
    monkeypatch.setattr(management_services, "connection_row", lambda client: (client.number,))
    broker = Broker(Config(), Clock())
    for number in (5, 3, 9, 1, 7):
        broker.clients.by_number[number] = SimpleNamespace(number=number)  # type: ignore[assignment]
    asked = Asked(broker, "management.snapshot", {"kind": "connections"})
    steps = SERVICES["management.snapshot"](asked)
    assert steps is not None
    next(steps)
    del broker.clients.by_number[7]
    for _ in steps:
        pass
    assert rows_in(asked.body) == [(1,), (3,), (5,), (9,)]
    assert sorts == [5]


@pytest.mark.parametrize("took_s", [0.001, 1.0])
def test_a_change_of_messages_is_seen_at_once_where_that_is_quick(took_s: float) -> None:
    """Else each message that is published over HTTP would have the broker look at 100,000 queues."""
    broker = Broker(Config(), Clock())

    async def use() -> None:
        known = Snapshots(Link(broker), Clock())  # type: ignore[arg-type]
        await known.queues("/").current()
        known.queues("/").took_s = took_s
        declare(broker, "q")
        known.changed(of_messages=True)
        assert ("q" in await known.queues("/").current()) == (took_s < 0.05)
        known.changed(of_messages=False)
        assert "q" in await known.queues("/").current()

    asyncio.run(use())


def test_names_that_are_no_virtual_host_are_forgotten() -> None:
    """Who may see all virtual hosts may ask for as many names as there are."""
    broker = Broker(Config(), Clock())

    class Refusing(Link):
        async def ask(self, service: str, arguments: dict[str, Any], place: Any = None) -> Any:
            if arguments.get("virtual-host") != "/":
                raise ServiceError(service, 404, "no such virtual host")
            return await super().ask(service, arguments, place)

    async def use() -> None:
        known = Snapshots(Refusing(broker), Clock())  # type: ignore[arg-type]
        await known.queues("/").current()
        for number in range(20):
            for snapshot in (known.queues, known.exchanges, known.bindings):
                with pytest.raises(ServiceError):
                    await snapshot(f"none{number}").current()
        assert len(known.of_hosts) <= 2
        assert ("queues", "/") in known.of_hosts

    asyncio.run(use())


def test_the_broker_counts_what_rows_of_channels_end_with() -> None:
    assert COUNTED == host_tally.COUNTED
