"""The management process as the broker sees it: cannot be started, hangs, or is alive."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.clock import Clock
from flintmq.config import Management
from flintmq.management.http_process import tell_alive
from flintmq.server.process.management_process import ORPHAN_S, PING_S, SILENT_MAX, ManagementProcess


class Loop:
    """A loop whose time the test moves on."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.readers: dict[int, Callable[[], None]] = {}

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        timer = (self.now_s + delay_s, callback)
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: timer in self.timers and self.timers.remove(timer))

    def add_reader(self, descriptor: int, callback: Callable[[], None]) -> None:
        self.readers[descriptor] = callback

    def remove_reader(self, descriptor: int) -> None:
        self.readers.pop(descriptor, None)

    def run_until(self, until_s: float) -> None:
        while due := [timer for timer in self.timers if timer[0] <= until_s]:
            timer = min(due, key=lambda each: each[0])
            self.timers.remove(timer)
            self.now_s = timer[0]
            timer[1]()
        self.now_s = until_s


class Process:
    """A process that lives until it is killed."""

    def __init__(self, theirs: socket.socket) -> None:
        self.theirs = theirs
        self.is_killed = False

    def kill(self) -> None:
        self.is_killed = True
        self.theirs.close()

    terminate = kill

    def wait(self, timeout_s: float = 0.0) -> int:
        assert self.is_killed
        return -9


class StandingClock(Clock):
    """Time passes in sleep alone, and `woken` is called after each."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.woken: Callable[[], None] = int

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.woken()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """Those that were started, in order."""
    started: list[Process] = []

    def start(command: list[str], pass_fds: list[int], stdin: int) -> Process:
        started.append(Process(socket.fromfd(pass_fds[0], socket.AF_UNIX, socket.SOCK_STREAM)))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return started


@pytest.fixture
def management(loop: Loop, processes: list[Process]) -> Iterator[ManagementProcess]:
    config = SimpleNamespace(log=SimpleNamespace(level="info", file=None), audit=SimpleNamespace(file=None))
    broker = SimpleNamespace(clock=StandingClock())
    server: Any = SimpleNamespace(
        loop=loop,
        config=config,
        listeners=[],
        links=[],
        broker=broker,
        http_listeners=[],
        amqp_listeners=list,
    )
    made = ManagementProcess(server, Management(port=0, hosts=("127.0.0.1",)))
    yield made
    made.stop()
    assert not loop.readers


def test_a_port_that_an_orphan_still_has_is_waited_for(management: ManagementProcess) -> None:
    clock: Any = management.server.broker.clock
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        management.settings = Management(port=port, hosts=("127.0.0.1",))
        clock.woken = lambda: clock.now_s > 1 and taken.close()
        assert management.start() == [f"http://127.0.0.1:{port}"]
    assert 1 < clock.now_s < ORPHAN_S


def test_a_port_that_stays_taken_is_told(management: ManagementProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        management.settings = Management(port=port, hosts=("127.0.0.1",))
        with pytest.raises(OSError, match=rf"cannot listen on 127.0.0.1 port {port} for HTTP") as raised:
            management.start()
    assert raised.value.errno == errno.EADDRINUSE


def no_descriptors(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EMFILE, "Too many open files")


def test_without_descriptors_it_is_tried_again(
    management: ManagementProcess, loop: Loop, processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a pair of sockets, for the process, and to watch it."""
    for owner, name in ((socket, "socketpair"), (subprocess, "Popen"), (loop, "add_reader")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, no_descriptors)
            management.begin()
        assert management.control is None
        assert management.process is None
        assert [callback for _, callback in loop.timers] == [management.restart]
        assert all(process.is_killed for process in processes)
        loop.timers.clear()
    management.begin_again()
    loop.run_until(loop.timers[0][0])
    assert management.process is processes[-1]
    assert not processes[-1].is_killed


def test_a_process_that_hangs_is_replaced(
    management: ManagementProcess, loop: Loop, processes: list[Process]
) -> None:
    management.begin()
    for _ in range(3 * SILENT_MAX):
        processes[0].theirs.send(b"p")
        (readable,) = loop.readers.values()
        readable()
        loop.run_until(loop.now_s + PING_S)
    assert not processes[0].is_killed
    loop.run_until(loop.now_s + PING_S * (SILENT_MAX - 1))
    assert not processes[0].is_killed
    loop.run_until(loop.now_s + PING_S)
    assert processes[0].is_killed
    loop.run_until(loop.now_s + PING_S)
    assert len(processes) == 2
    assert not processes[1].is_killed


def test_the_process_says_that_it_is_alive() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)

        async def use() -> bytes:
            telling = asyncio.create_task(tell_alive(theirs, 0.001))
            try:
                loop = asyncio.get_running_loop()
                async with asyncio.timeout(10):
                    said = b"".join([await loop.sock_recv(ours, 1) for _ in range(3)])
                # Nobody reads, and the socket is full.
                with suppress(BlockingIOError):
                    while True:
                        theirs.send(b"x" * 4096, socket.MSG_DONTWAIT)
                await asyncio.sleep(0.01)
                assert not telling.done()
                return said
            finally:
                telling.cancel()

        assert asyncio.run(use()) == b"ppp"
