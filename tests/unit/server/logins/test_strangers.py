"""How many may be in the midst of a handshake, who makes room for whom, and what a refusal costs."""

from __future__ import annotations

import asyncio
import logging
import re
import select
import socket
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from flintmq.clock import Clock
from flintmq.config import Bans, Config, Limits, Listen
from flintmq.server.logins import login_queue, strangers
from flintmq.server.logs.log_floods import LINES_MAX, STRANGERS, LogFloods
from flintmq.server.network.link import HELD_LOGIN, HELD_REFUSED, STRANGER_READ_BYTES, Link
from flintmq.server.network.readiness import NEWCOMERS_MAX, EpollReadiness
from flintmq.server.server import Server
from flintmq.wire import amqp, methods
from flintmq.wire.methods import encode_method

HEADER = b"AMQP\x00\x00\x09\x01"
Scenario = Callable[["Scene"], Coroutine[Any, Any, None]]


class Scene:
    """A server, and those who connect to it from any address of this machine."""

    def __init__(self, limits: Limits, bans: Bans) -> None:
        config = Config()._replace(listen=Listen(("127.0.0.1",), 0), limits=limits, bans=bans)
        self.server = Server(config, Clock(), asyncio.get_running_loop())
        self.port = int(self.server.listen()[0].rsplit(":", 1)[1])
        self.sockets: list[socket.socket] = []

    async def connect(self, address: str = "127.0.0.1", octets: bytes = b"") -> socket.socket:
        """Connected, and taken or refused by the server."""
        client = socket.socket()
        client.setblocking(False)
        client.bind((address, 0))
        self.sockets.append(client)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", self.port))
        await asyncio.get_running_loop().sock_sendall(client, octets)
        return client

    async def until(self, condition: Callable[[], object]) -> None:
        for _ in range(4000):
            if condition():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("it did not come to that")

    async def ends(self, client: socket.socket) -> bytes:
        """What comes until the server closes."""
        octets = b""
        async with asyncio.timeout(20):
            try:
                while more := await asyncio.get_running_loop().sock_recv(client, 65536):
                    octets += more
            except ConnectionError:
                pass
        return octets


def run(scenario: Scenario, limits: Limits | None = None, bans: Bans | None = None) -> None:
    async def main() -> None:
        scene = Scene(limits or Limits(), bans or Bans())
        try:
            await scenario(scene)
        finally:
            for client in scene.sockets:
                client.close()
            await scene.server.stop(0.1)

    asyncio.run(main())


def login(password: bytes = b"wrong") -> bytes:
    method = methods.ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0" + password, locale="en_US")
    payload = encode_method(amqp.VERSION_0_9_1, method)
    return b"\x01\x00\x00" + len(payload).to_bytes(4, "big") + payload + b"\xce"


async def opened(scene: Scene) -> socket.socket:
    """Somebody who has logged in and opened a connection."""
    client = await scene.connect("127.0.0.1", HEADER + login(b"guest"))
    tune_ok = encode_method(
        amqp.VERSION_0_9_1, methods.ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
    )
    opening = encode_method(amqp.VERSION_0_9_1, methods.ConnectionOpen(virtual_host="/"))
    for payload in (tune_ok, opening):
        frame = b"\x01\x00\x00" + len(payload).to_bytes(4, "big") + payload + b"\xce"
        await asyncio.get_running_loop().sock_sendall(client, frame)
    octets = b""
    while b"\x00\x0a\x00\x29" not in octets:  # connection.open-ok
        more = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 65536), 20)
        assert more, "closed"
        octets += more
    return client


def test_one_address_has_so_many_handshakes_and_others_have_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "SILENT_S", 60)

    async def scenario(scene: Scene) -> None:
        for _ in range(3):
            await scene.connect("127.0.0.2")
        await scene.until(lambda: len(scene.server.strangers) == 3)
        assert await scene.ends(await scene.connect("127.0.0.2")) == b""
        assert scene.server.strangers.refused_address == 1
        other = await scene.connect("127.0.0.3", HEADER)
        assert await asyncio.get_running_loop().sock_recv(other, 1) == b"\x01"

    run(scenario, Limits(handshakes_per_address_max=3))


def test_who_says_nothing_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that are there the oldest silent one goes, and no more of them; who has begun stays."""
    asked: list[float] = []

    class Patience(float):
        """Seconds, and what has been compared with them."""

        def __gt__(self, waited_s: float) -> bool:
            asked.append(waited_s)
            return float(self) > waited_s

    monkeypatch.setattr(strangers, "SILENT_S", Patience(3600))
    monkeypatch.setattr(strangers, "GREETED_S", 3600)

    async def scenario(scene: Scene) -> None:
        begun = await scene.connect("127.0.0.2", HEADER)
        await scene.until(lambda: scene.server.strangers.greeted)
        silent = [await scene.connect("127.0.0.3") for _ in range(3)]
        await scene.until(lambda: len(scene.server.strangers) == 4)
        late = await scene.connect("127.0.0.4", HEADER)  # waits in the backlog until somebody makes room
        await scene.until(lambda: asked)
        assert scene.server.strangers.displaced == 0, "all of them have time yet"
        monkeypatch.setattr(strangers, "SILENT_S", 0)
        assert await scene.ends(silent[0]) == b""
        assert await asyncio.get_running_loop().sock_recv(late, 1) == b"\x01"
        assert await asyncio.get_running_loop().sock_recv(begun, 1) == b"\x01"
        counts = scene.server.strangers.counts()
        assert (counts["handshakes"], counts["handshakes-displaced"]) == (4, 1)

    run(scenario, Limits(handshakes_max=4))


def test_many_who_come_together_wait_for_each_other() -> None:
    """A herd that logs in is let in, however few handshakes there may be at a time."""

    async def scenario(scene: Scene) -> None:
        await asyncio.gather(*(opened(scene) for _ in range(40)))
        assert len(scene.server.links) == 40
        assert not len(scene.server.strangers)
        assert not scene.server.strangers.sources
        readiness = scene.server.readiness
        if isinstance(readiness, EpollReadiness):
            assert (readiness.newcomers, readiness.apart) == (0, set())

    run(scenario, Limits(handshakes_max=4, handshakes_per_address_max=4))


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="the event loop watches each socket")
def test_few_strangers_are_watched_with_all_others_and_more_of_them_apart() -> None:
    async def scenario(scene: Scene) -> None:
        readiness = scene.server.readiness
        assert isinstance(readiness, EpollReadiness)
        silent = [await scene.connect() for _ in range(NEWCOMERS_MAX)]
        await scene.until(lambda: readiness.newcomers == NEWCOMERS_MAX)
        crowd = [await scene.connect("127.0.0.2", HEADER) for _ in range(3)]
        for client in crowd:
            assert await asyncio.get_running_loop().sock_recv(client, 1) == b"\x01"
        assert (readiness.newcomers, len(readiness.apart)) == (NEWCOMERS_MAX, 3)
        for client in silent:
            client.close()
        await scene.until(lambda: not readiness.newcomers)
        await scene.connect("127.0.0.3", HEADER)
        await scene.until(lambda: readiness.newcomers == 1)
        for client in scene.sockets:
            client.close()
        await scene.until(lambda: not scene.server.links)
        assert (readiness.newcomers, readiness.apart) == (0, set())

    run(scenario)


def test_wrong_passwords_ban_the_address_until_it_is_cleared(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        failed = scene.server.broker.failed_logins
        failed.settings = Bans(failures_max=1, window_s=1000, ban_s=600, pause_s=0.01)
        for _ in range(60):  # each of them counts 0.02 on this machine
            if failed.is_banned("127.0.0.9"):
                break
            client = await scene.connect("127.0.0.9", HEADER + login())
            await scene.ends(client)
        assert failed.is_banned("127.0.0.9")
        assert await scene.ends(await scene.connect("127.0.0.9", HEADER)) == b""
        assert scene.server.strangers.refused_banned == 1
        other = await scene.connect("127.0.0.8", HEADER)
        assert await asyncio.get_running_loop().sock_recv(other, 1) == b"\x01"
        failed.clear("127.0.0.9")
        again = await scene.connect("127.0.0.9", HEADER)
        assert await asyncio.get_running_loop().sock_recv(again, 1) == b"\x01"

    run(scenario)
    assert re.search(r"127\.0\.0\.9 is banned for 600 s after 5\d failed logins", caplog.text)


GARBAGE = {
    "no amqp": b"GET / HTTP/1.1\r\n\r\n",
    "bad frame": HEADER + b"\x01\x00\x00\xff\xff\xff\xff\x00",
    "mechanism": HEADER + login().replace(b"PLAIN", b"PLANE"),
    "password": HEADER + login(),
}


@pytest.mark.parametrize("octets", GARBAGE.values(), ids=GARBAGE)
def test_every_failed_handshake_counts_and_pauses(octets: bytes) -> None:
    async def scenario(scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await scene.ends(await scene.connect("127.0.0.1", octets))
        assert loop.time() - began_s >= 0.25
        assert scene.server.broker.failed_logins.total == 1

    run(scenario, bans=Bans(pause_s=0.3))


@pytest.mark.parametrize(
    "opening", [b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x00\x0a\x00", b"AMQP\x01\x01\x64\x03"]
)
def test_who_asks_for_a_version_that_is_not_served_is_told_at_once_and_has_failed_at_nothing(
    opening: bytes,
) -> None:
    """The client tries the version of the answer next, or its user learns that there is no AMQP 1.0."""

    async def scenario(scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await scene.ends(await scene.connect("127.0.0.1", opening)) == HEADER
        assert loop.time() - began_s < 10
        assert scene.server.broker.failed_logins.total == 0

    run(scenario, bans=Bans(pause_s=20.0, pause_s_max=20.0))


def test_who_connects_and_leaves_again_is_no_failure() -> None:
    """So do health checks of load balancers."""

    async def scenario(scene: Scene) -> None:
        (await scene.connect()).close()
        (await scene.connect(octets=HEADER)).close()
        await scene.until(lambda: scene.server.broker.connections_made == 2 and not scene.server.links)
        assert scene.server.broker.failed_logins.total == 0

    run(scenario)


def test_who_hangs_up_while_the_password_waits_is_no_failure() -> None:
    async def scenario(scene: Scene) -> None:
        started, gate = threading.Event(), threading.Event()

        def stand() -> None:
            started.set()
            gate.wait(20)

        scene.server.login_queue.submit(stand, lambda _: None)
        assert started.wait(20)
        client = await scene.connect(octets=HEADER + login())
        await scene.until(lambda: len(scene.server.login_queue) == 1)
        client.close()
        gate.set()
        await scene.until(lambda: not scene.server.links)
        assert scene.server.broker.failed_logins.total == 0

    run(scenario)


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="the event loop watches each socket")
def test_those_who_come_and_those_who_are_there_share_the_time_of_strangers() -> None:
    """A turn, which all others wait for, lets a few in or hears a few, however many there are of both."""

    async def scenario(scene: Scene) -> None:
        readiness, links = scene.server.readiness, scene.server.links
        greeted = scene.server.strangers.greeted
        assert isinstance(readiness, EpollReadiness)
        readiness.looks_max = 0
        for _ in range(NEWCOMERS_MAX):
            await scene.connect()
        await scene.until(lambda: readiness.newcomers == NEWCOMERS_MAX)
        crowd = [await scene.connect("127.0.0.2") for _ in range(6)]
        await scene.until(lambda: len(readiness.apart) == 6)
        # From here on the event loop does not run.
        for client in crowd:
            client.send(HEADER)
        for _ in range(8):
            scene.sockets.append(socket.create_connection(("127.0.0.1", scene.port)))
        turns = []
        for _ in range(20):
            before = len(links), len(greeted)
            readiness.turn()
            turns.append((len(links) - before[0], len(greeted) - before[1]))
        assert sum(came for came, _ in turns) == 8
        assert sum(heard for _, heard in turns) == 6
        assert max(came + heard for came, heard in turns) <= 2, turns

    run(scenario)


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="the event loop watches each socket")
def test_who_has_logged_in_is_answered_before_strangers_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(scene: Scene) -> None:
        readiness, all_strangers = scene.server.readiness, scene.server.strangers
        assert isinstance(readiness, EpollReadiness)
        readiness.looks_max = 0
        stranger = await scene.connect("127.0.0.2")  # first in the list of sockets
        await scene.until(lambda: readiness.newcomers == 1)
        client = await opened(scene)
        answered: list[bool] = []

        class Greeting:
            def __getattr__(self, name: str) -> object:
                return getattr(all_strangers, name)

            def greet(self, link: Link) -> None:
                answered.append(bool(select.select([client], [], [], 0)[0]))
                all_strangers.greet(link)

        monkeypatch.setattr(scene.server, "strangers", Greeting())
        # From here on the event loop does not run.
        stranger.send(HEADER)
        payload = encode_method(amqp.VERSION_0_9_1, methods.ChannelOpen())
        client.send(b"\x01\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce")
        readiness.turn()
        assert answered == [True]

    run(scenario)


def test_a_password_for_which_there_is_no_room_is_told_and_bans_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(login_queue, "WAITING_MAX", 0)

    async def scenario(scene: Scene) -> None:
        assert b"Login was refused" not in await scene.ends(await scene.connect(octets=HEADER + login()))
        assert scene.server.broker.failed_logins.total == 0
        assert scene.server.strangers.counts()["refused-busy"] == 1

    run(scenario)
    assert "the password of user 'guest' is not checked: 0 other passwords wait" in caplog.text


def test_refusals_that_are_due_together_come_a_few_in_a_turn() -> None:
    async def scenario(scene: Scene) -> None:
        told: list[int] = []
        for number in range(30):
            scene.server.strangers.refuse_after(0.01 if number else 0.02, partial(told.append, number))
        turns: list[int] = []
        while len(told) < 30:
            before = len(told)
            await asyncio.sleep(0)
            turns.append(len(told) - before)
        assert told == [*range(1, 30), 0]
        assert max(turns) <= strangers.DROPS_MAX

    run(scenario)


def test_a_bug_in_one_refusal_keeps_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        told: list[int] = []

        def fails() -> None:
            raise RuntimeError("a bug")

        scene.server.strangers.refuse_after(0.01, fails)
        scene.server.strangers.refuse_after(0.02, partial(told.append, 1))
        await scene.until(lambda: told)

    run(scenario)
    assert "a bug in refusing somebody" in caplog.text


def test_little_is_read_of_a_stranger() -> None:
    """However much it sends, while its password is checked no more of it is here than a frame or two."""

    async def scenario(scene: Scene) -> None:
        client = await scene.connect(octets=HEADER + login())
        sending = asyncio.get_running_loop().create_task(
            asyncio.get_running_loop().sock_sendall(client, bytes(4_000_000))
        )
        await scene.until(lambda: any(link.held & (HELD_LOGIN | HELD_REFUSED) for link in scene.server.links))
        (link,) = scene.server.links
        assert len(link.leftover) <= 2 * STRANGER_READ_BYTES
        sending.cancel()
        await scene.until(lambda: not link.held & HELD_LOGIN)

    run(scenario)


def test_a_flood_of_lines_is_cut_short_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    floods = LogFloods()
    STRANGERS.addFilter(floods)
    try:
        for number in range(1000):
            STRANGERS.warning("login refused for %s", number)
            STRANGERS.warning("another line") if number < 5 else None
        floods.tell()
    finally:
        STRANGERS.removeFilter(floods)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    left_out = [line for line in lines if line.endswith("left out: login refused for %s")]
    told = sum(int(line.split()[0]) for line in left_out)
    assert told + sum(line.startswith("login refused") for line in lines) == 1000
    assert told >= 1000 - 2 * LINES_MAX
    assert lines.count("another line") == 5
