"""A link on a real pair of sockets: when it is read from, when not, and how it ends."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from playbook.dialogue import HEADERS, decoded, frame

from flintmq.auth.failed_logins import FailedLogins
from flintmq.broker.exchanges import dead_letter
from flintmq.broker.services.request import SERVICES, Request
from flintmq.clock import Clock
from flintmq.config import Config, Limits
from flintmq.errors import ConnectionFault
from flintmq.protocol import phases
from flintmq.server import server as servers
from flintmq.server.memory import MemoryAlarm
from flintmq.server.network import link as links
from flintmq.server.network.link import (
    HELD_ALARM,
    HELD_CLOSED,
    HELD_OUTPUT,
    HELD_PRESSED,
    HELD_RATE,
    HELD_REFUSED,
    HELD_TURN,
    Link,
)
from flintmq.server.network.readiness import EpollReadiness, LoopReadiness
from flintmq.server.server import Server
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, encode_method

Scenario = Callable[["Wire"], Coroutine[Any, Any, None]]
VERSION = amqp.VERSION_0_9_1


class ScriptedAlarm(MemoryAlarm):
    used = 0

    def used_bytes(self) -> int:
        return self.used


class Wire:
    """A server with one link, and the client's end of its socket."""

    def __init__(self, limits: Limits | None = None) -> None:
        config = Config()._replace(limits=limits or Limits(memory_high_bytes=2**30))
        self.server = Server(config, Clock(), asyncio.get_running_loop())
        self.alarm = ScriptedAlarm(config)
        self.server.alarm = self.alarm
        self.far, near = socket.socketpair()
        self.far.setblocking(False)
        near.setblocking(False)
        self.link = Link(self.server, near.detach(), "127.0.0.1")
        self.server.links[self.link] = None
        self.link.start()
        self.octets = b""

    async def say(self, *said: Method | bytes, number: int = 1) -> None:
        whole = b""
        for each in said:
            if isinstance(each, bytes):
                whole += each
            else:
                channel = 0 if each.CLASS_ID == 10 else number
                whole += frame(1, channel, encode_method(VERSION, each))
        await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(self.far, whole), 20)

    async def hear(self, kind: type[Method]) -> Any:
        """Reads until a method of this kind has come."""
        while True:
            heard = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.far, 65536), 20)
            assert heard, f"closed while {kind.NAME} was due"
            self.octets += heard
            if self.octets.endswith(b"\xce"):
                found = [each for _, each in decoded(self.octets, VERSION) if isinstance(each, kind)]
                if found:
                    self.octets = b""
                    return found[-1]

    async def is_closed(self) -> bool:
        while await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.far, 65536), 20):
            pass
        return True

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not is_so():  # noqa: ASYNC110 - a value of the link, which has no event
                await asyncio.sleep(0.001)

    async def log_in(self, password: str = "guest") -> None:
        response = b"\0guest\0" + password.encode()
        capabilities = {"connection.blocked": True, "authentication_failure_close": True}
        properties = {"capabilities": capabilities}
        await self.say(HEADERS[VERSION])
        await self.hear(methods.ConnectionStart)
        await self.say(
            methods.ConnectionStartOk(mechanism="PLAIN", response=response, client_properties=properties)
        )

    async def open(self) -> None:
        await self.log_in()
        await self.hear(methods.ConnectionTune)
        await self.say(
            methods.ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0),
            methods.ConnectionOpen(virtual_host="/"),
        )
        await self.hear(methods.ConnectionOpenOk)
        await self.say(methods.ChannelOpen())
        await self.hear(methods.ChannelOpenOk)


@pytest.fixture(params=["epoll", "event loop"], autouse=True)
def watched_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scenario also with the event loop watching each socket, as where there is no epoll."""
    if request.param == "event loop":
        monkeypatch.setattr(servers, "readiness", lambda loop, scheduler: LoopReadiness(loop))


def run(scenario: Scenario, limits: Limits | None = None) -> None:
    async def main() -> None:
        wire = Wire(limits)
        try:
            await scenario(wire)
        finally:
            wire.far.close()
            wire.link.drop()
            wire.server.readiness.close()
            wire.server.login_queue.close()

    asyncio.run(main())


def test_a_lost_link_that_cannot_be_closed_keeps_no_other_open() -> None:
    """Sockets of peers that were gone stayed open until the broker ended."""

    class Lost:
        session = "a session"
        is_closed = False

        def __init__(self, is_broken: bool) -> None:
            self.is_broken = is_broken

        def disconnect(self) -> None:
            """Its socket is closed."""

        def close(self) -> None:
            self.is_closed = True
            if self.is_broken:
                raise RuntimeError("a bug")

    async def scenario(wire: Wire) -> None:
        links: list[Any] = [Lost(True), Lost(False), Lost(False)]
        chores = wire.server.broker.pass_work.chores
        chores.pass_number, chores.credit = wire.server.broker.pass_work.passes, 0
        for link in links:
            wire.server.lost_links.close(link, phases.CONNECTION_OPEN)
        await wire.until(lambda: all(link.is_closed for link in links))
        assert not wire.server.lost_links.waiting

    run(scenario)


class BrokenLink:
    """A bug meets whatever is done to it."""

    session = "a session"
    held = HELD_ALARM | HELD_PRESSED

    def __init__(self) -> None:
        self.is_dropped = False

    def unhold(self, reason: int) -> None:
        raise RuntimeError("a bug")

    def drop(self) -> None:
        self.is_dropped = True


@pytest.mark.parametrize("reason", [HELD_ALARM, HELD_PRESSED])
def test_a_bug_in_releasing_one_publisher_keeps_no_other(reason: int) -> None:
    """The others were not read from any more, for as long as they were there."""

    async def scenario(wire: Wire) -> None:
        await wire.open()
        broken: Any = BrokenLink()
        wire.link.hold(reason)
        if reason == HELD_ALARM:
            wire.server.tell_alarm([broken, wire.link], False)
        else:
            wire.server.pressed = [broken, wire.link]
            wire.server.release_pressed()
        assert broken.is_dropped
        assert not wire.link.held

    run(scenario)


def test_who_waits_to_go_on_with_a_read_has_missed_no_heartbeat() -> None:
    """Nothing is read of it meanwhile: others that take long are before it."""

    async def scenario(wire: Wire) -> None:
        await wire.open()
        link = wire.link
        link.pause(HELD_TURN)
        link.unhold(HELD_TURN)
        assert not link.held
        for _ in range(2 * links.LOOKS_MISSED_MAX):
            assert link.beat()
        await wire.until(lambda: not link.session.connection.paused)
        assert link.beat()

    run(scenario)


def test_of_many_that_are_lost_at_once_each_ends_in_its_turn() -> None:
    """The pass has no time left: the link gets nothing more, and its socket is closed in a later pass."""

    async def scenario(wire: Wire) -> None:
        await wire.open()
        broker, link = wire.server.broker, wire.link
        chores = broker.pass_work.chores
        chores.pass_number, chores.credit = broker.pass_work.passes, 0
        link.lost()
        link.lost()  # whoever finds it out again
        assert link.held & HELD_CLOSED
        assert link.output.ended
        assert link.session.connection.state == phases.CONNECTION_CLOSED  # nothing more is done for it
        assert link in wire.server.links
        await wire.until(lambda: link not in wire.server.links)
        assert not broker.connections
        assert await wire.is_closed()

    run(scenario)


def publish(key: bytes, body: bytes = b"x", flags: int = 0) -> bytes:
    method = b"\x00\x3c\x00\x28\x00\x00\x00" + bytes((len(key),)) + key + bytes((flags,))
    header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + b"\x00\x00"
    return frame(1, 1, method) + frame(2, 1, header) + frame(3, 1, body)


def test_a_connection_from_its_header_to_its_end() -> None:
    async def scenario(wire: Wire) -> None:
        await wire.open()
        await wire.say(methods.ConnectionClose(reply_code=200))
        await wire.hear(methods.ConnectionCloseOk)
        assert await wire.is_closed()
        assert wire.server.links == {}

    run(scenario)


def test_a_wrong_password_costs_a_pause_in_which_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(wire: Wire) -> None:
        await wire.log_in("wrong")
        await wire.until(lambda: wire.link.held & HELD_REFUSED)
        wire.link.refused(wire.link.session.login_refused)
        close = await wire.hear(methods.ConnectionClose)
        assert close.reply_code == 403
        await wire.say(methods.ConnectionCloseOk())
        assert await wire.is_closed()

    monkeypatch.setattr(FailedLogins, "note", lambda *_: 60.0)
    run(scenario)


def test_a_peer_that_asks_and_never_reads_is_not_read_from() -> None:
    """Returned messages pile up, and its socket is full all the while."""

    async def scenario(wire: Wire) -> None:
        await wire.open()
        wire.far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unroutable = publish(b"none", b"x" * 100_000, flags=1) * 300
        saying = asyncio.get_running_loop().create_task(wire.say(unroutable))
        await wire.until(lambda: wire.link.held & HELD_OUTPUT)
        assert wire.link.output.pending() < 18_000_000
        assert wire.link.output.blocked
        size = 0
        while size < 300 * 100_000:
            size += len(await asyncio.wait_for(asyncio.get_running_loop().sock_recv(wire.far, 65536), 20))
        await saying
        await wire.until(lambda: not wire.link.held)

    run(scenario)


def test_publishers_are_blocked_while_memory_is_low() -> None:
    async def scenario(wire: Wire) -> None:
        await wire.open()
        wire.alarm.used = 2**31
        wire.server.check_alarm()
        assert not wire.link.held, "it has not published"
        await wire.say(publish(b"none"))
        blocked = await wire.hear(methods.ConnectionBlocked)
        assert blocked.reason == "low on memory: 2048 MiB used of 1024 MiB allowed"
        assert wire.link.held & HELD_ALARM
        await wire.say(methods.QueueDeclare(queue="q"))
        wire.server.check_alarm()
        wire.alarm.used = 0
        wire.server.check_alarm()
        await wire.hear(methods.ConnectionUnblocked)
        wire.link.unhold(HELD_ALARM)
        await wire.say(methods.QueueDeclare(queue="q", passive=True))
        await wire.hear(methods.QueueDeclareOk)
        wire.alarm.used = 2**31
        wire.server.check_alarm()
        await wire.hear(methods.ConnectionBlocked)

    run(scenario)


def test_heartbeats_are_sent_to_the_silent_and_missed_from_them() -> None:
    async def scenario(wire: Wire) -> None:
        await wire.open()
        wire.link.sent = False
        assert wire.link.beat()
        assert wire.link.output.pending() == 8
        wire.link.flush()
        assert await asyncio.get_running_loop().sock_recv(wire.far, 100) == frame(8, 0, b"")
        assert [wire.link.beat() for _ in range(11)] == [True] * 11
        assert not wire.link.beat()
        assert await wire.is_closed()
        assert wire.server.links == {}

    run(scenario)


def test_a_slow_disk_does_not_hold_back_heartbeats() -> None:
    """What waits for a sync waits on; the heartbeat goes ahead of it, never into the middle of a frame."""

    async def scenario(wire: Wire) -> None:
        await wire.open()
        output = wire.link.output
        beat = frame(8, 0, b"")
        for is_torn in (False, True):
            output.write(beat + beat if is_torn else b"")
            wire.link.sent = False
            if is_torn:
                output.sent(3)
            output.barrier = 7
            output.write_method(1, b"answer")
            wire.link.flush()
            assert wire.link.beat()
            output.lift_barrier()
            wire.link.flush()
            came = await asyncio.get_running_loop().sock_recv(wire.far, 100)
            assert came == ((beat + beat)[3:] if is_torn else beat) + frame(1, 1, b"answer")

    run(scenario)


def test_whoever_speaks_is_alive_and_so_is_who_is_not_listened_to() -> None:
    async def scenario(wire: Wire) -> None:
        await wire.open()
        for _ in range(10):
            wire.link.received = False
            await wire.say(frame(8, 0, b""))
            await wire.until(lambda: wire.link.received)
            assert wire.link.beat()
        wire.link.hold(HELD_ALARM)
        assert [wire.link.beat() for _ in range(20)] == [True] * 20

    run(scenario)


def test_a_peer_that_answers_no_close_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "CLOSE_TIMEOUT_S", 0.01)

    async def scenario(wire: Wire) -> None:
        await wire.open()
        await wire.say(b"\x01\x00\x01\x00\x00\x00\x00\x00")
        assert (await wire.hear(methods.ConnectionClose)).reply_code == 501
        assert await wire.is_closed()

    run(scenario)


def test_a_lost_peer_gives_everything_back() -> None:
    async def scenario(wire: Wire) -> None:
        await wire.open()
        await wire.say(methods.QueueDeclare(queue="q", exclusive=True))
        await wire.hear(methods.QueueDeclareOk)
        wire.far.close()
        await wire.until(lambda: wire.link.held & HELD_CLOSED)
        assert wire.server.broker.virtual_hosts["/"].queues == {}
        wire.link.drop()  # once more does no harm

    run(scenario)


def test_stop_tells_everybody_and_waits() -> None:
    async def scenario(wire: Wire) -> None:
        await wire.open()
        stopping = asyncio.get_running_loop().create_task(wire.server.stop())
        close = await wire.hear(methods.ConnectionClose)
        assert (close.reply_code, close.reply_text) == (
            320,
            "CONNECTION_FORCED - the broker is shutting down",
        )
        assert not stopping.done()
        await wire.say(methods.ConnectionCloseOk())
        await asyncio.wait_for(stopping, 20)

    run(scenario)


def test_a_bug_ends_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(wire: Wire) -> None:
        await wire.open()
        wire.link.session.virtual_host.exchanges["amq.direct"] = 5  # type: ignore[union-attr]
        bind = methods.QueueBind(queue="q", exchange="amq.direct")
        await wire.say(methods.QueueDeclare(queue="q", no_wait=True), bind)
        close = await wire.hear(methods.ConnectionClose)
        assert (close.reply_code, close.reply_text) == (541, "INTERNAL_ERROR - see the log of the broker")

    run(scenario)
    assert "a bug ends the connection" in caplog.text


def test_a_bug_after_a_read_ends_that_connection_and_others_are_served(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(wire: Wire) -> None:
        def fail() -> None:
            raise RuntimeError("a bug")

        await wire.open()
        monkeypatch.setattr(wire.server, "watch_memory", fail)
        wire.server.broker.pass_work.unwatched_bytes = 0
        await wire.say(methods.QueueDeclare(queue="q", no_wait=True))
        assert await wire.is_closed()
        assert not wire.server.links

    run(scenario)
    assert "a bug ends the connection" in caplog.text


def test_dead_letters_that_a_commit_of_another_has_made_hold_up_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(wire: Wire) -> None:
        await wire.open()
        monkeypatch.setattr(dead_letter, "WAITING_MAX", 0)  # too many wait, for as long as the test takes
        virtual_host = wire.link.session.virtual_host
        assert virtual_host is not None
        wire.server.broker.pass_work.crowded = virtual_host.router.dead_letters
        await wire.say(methods.QueueDeclare(queue="q"))
        await wire.hear(methods.QueueDeclareOk)
        assert not wire.link.held

    run(scenario)


def test_a_slow_handshake_is_cut_off_and_a_quick_one_is_not() -> None:
    async def scenario(wire: Wire) -> None:
        far, near = socket.socketpair()
        far.setblocking(False)
        near.setblocking(False)
        slow = Link(wire.server, near.detach(), "127.0.0.1")
        wire.server.connected(slow)
        wire.server.connected(wire.link)
        await wire.open()
        assert list(wire.server.strangers.silent) == [slow]
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(far, 1), 20) == b""
        assert slow.held & HELD_CLOSED
        assert not wire.link.held
        assert not len(wire.server.strangers)
        far.close()

    run(scenario, Limits(memory_high_bytes=2**30, handshake_timeout_s=5))


def test_what_comes_before_a_login_is_resumed_is_not_left_lying() -> None:
    """The answer may be sent, and what the client says to it be there, before the loop comes to `resume`."""

    async def scenario(wire: Wire) -> None:
        await wire.log_in()
        await wire.hear(methods.ConnectionTune)
        wire.link.pause(HELD_ALARM)
        wire.link.unhold(HELD_ALARM)
        tune_ok = methods.ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
        for said in (tune_ok, methods.ConnectionOpen(virtual_host="/")):
            wire.far.send(frame(1, 0, encode_method(VERSION, said)))
        wire.link.readable()
        assert not wire.link.held
        await wire.hear(methods.ConnectionOpenOk)

    run(scenario)


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="needs epoll")
def test_a_client_that_answers_at_once_is_served_in_the_same_turn() -> None:
    """And the turn ends when it has its first channel, whatever it says then."""

    async def scenario(wire: Wire) -> None:
        readiness = wire.server.readiness
        if not isinstance(readiness, EpollReadiness):
            return
        readiness.looks_max = 20_000  # the other thread may be slow
        said: list[bytes] = [HEADERS[VERSION]]
        response = methods.ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest")
        tune_ok = methods.ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
        for each in (response, tune_ok, methods.ConnectionOpen(virtual_host="/"), methods.ChannelOpen()):
            said.append(frame(1, 0 if each.CLASS_ID == 10 else 1, encode_method(VERSION, each)))
        # The password is known already, or it would be another thread that has the next word.
        await wire.open()
        wire.far.close()
        await wire.until(lambda: not wire.server.links)
        wire.far, near = socket.socketpair()
        near.setblocking(False)
        wire.link = Link(wire.server, near.detach(), "127.0.0.1")
        wire.link.start()

        def client() -> None:
            wire.far.sendall(said[0])
            for octets in (said[1], said[2] + said[3], said[4]):
                wire.far.recv(65536)
                wire.far.sendall(octets)

        thread = threading.Thread(target=client)
        thread.start()
        readiness.linger()
        while thread.is_alive():  # it was slower than that
            readiness.linger()
        readiness.linger()
        assert wire.link.session.connection.open_channels == 1

    run(scenario)


def test_who_has_the_next_word() -> None:
    """Whoever opens a connection, as long as it is answered; no longer when it has a channel."""

    async def scenario(wire: Wire) -> None:
        async def said(what: Method | bytes) -> bool:
            wire.server.scheduler.begin_turn(1)  # whose end, and so the sending, the test decides
            await wire.say(what)
            is_next = wire.link.ready(links.READ)
            wire.server.scheduler.end_turn()
            return is_next

        await wire.open()
        wire.far.close()
        await wire.until(lambda: not wire.server.links)
        wire.far, near = socket.socketpair()
        wire.far.setblocking(False)
        near.setblocking(False)
        wire.link = Link(wire.server, near.detach(), "127.0.0.1")
        response = methods.ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest")
        tune_ok = methods.ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
        opening = (HEADERS[VERSION], response, tune_ok, methods.ConnectionOpen(virtual_host="/"))
        assert [await said(what) for what in opening] == [True] * 4
        assert not await said(frame(8, 0, b""))
        assert await said(methods.ChannelOpen())
        assert not await said(methods.ChannelFlow(active=True))
        wire.link.drop()

    run(scenario)


def test_a_publisher_waits_while_the_disk_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(wire: Wire) -> None:
        pass_work = wire.server.broker.pass_work
        is_behind = True

        def look() -> bool:
            pass_work.behind = is_behind
            return is_behind

        await wire.open()
        monkeypatch.setattr(wire.server, "is_disk_behind", look)
        pass_work.behind = True
        await wire.say(publish(b"nowhere"))
        await wire.until(lambda: wire.link.held & HELD_PRESSED)
        await asyncio.sleep(3 * servers.PRESSED_S)
        wire.server.after_write()
        assert wire.link.held & HELD_PRESSED
        is_behind = False
        await wire.until(lambda: not wire.link.held)
        await wire.say(publish(b"nowhere"), methods.ChannelClose(reply_code=200, reply_text=""))
        await wire.hear(methods.ChannelCloseOk)
        assert not wire.link.held

    run(scenario)


def test_messages_to_very_many_queues_leave_others_their_turn() -> None:
    async def scenario(wire: Wire) -> None:
        await wire.open()
        for number in range(200):
            name = f"q{number}"
            await wire.say(
                methods.QueueDeclare(queue=name), methods.QueueBind(queue=name, exchange="amq.fanout")
            )
            await wire.hear(methods.QueueBindOk)
        queue = wire.server.broker.virtual_hosts["/"].queues["q0"]
        bodies = [b"%d" % number for number in range(1000)]
        method = b"\x00\x3c\x00\x28\x00\x00\x0aamq.fanout\x00\x00"
        header = b"\x00\x3c\x00\x00" + bytes(7)
        flood = b"".join(
            frame(1, 1, method) + frame(2, 1, header + bytes((len(body), 0, 0))) + frame(3, 1, body)
            for body in bodies
        )
        wire.far.setblocking(True)
        wire.far.sendall(flood)
        wire.far.setblocking(False)
        wire.link.readable()
        assert wire.link.held & HELD_TURN
        assert 0 < queue.message_count() < 1000
        await wire.until(lambda: queue.message_count() == 1000 and not wire.link.held)

    run(scenario)


def test_who_is_read_next_does_not_wait_for_a_queue_that_others_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that goes on after its read, as a chore, may have put messages into a queue on disk."""

    async def scenario(wire: Wire) -> None:
        await wire.open()
        waiting: list[Link] = []
        monkeypatch.setattr(wire.server, "let_drain", waiting.append)
        wire.server.broker.pass_work.drained = True
        await wire.say(methods.QueueDeclare(queue="q"))
        await wire.hear(methods.QueueDeclareOk)
        assert waiting == []

    run(scenario)


def test_a_request_that_waits_holds_what_comes_after_it() -> None:
    async def scenario(wire: Wire) -> None:
        may_end = False

        def patient(request: Request) -> Iterator[None]:
            while not may_end:
                yield

        SERVICES["test.patient"] = patient
        try:
            await wire.open()
            key = b"test.patient"
            payload = b"\x00\x3c\x00\x28\x00\x00\x0aamq.system" + bytes((len(key),)) + key + b"\x00"
            asked = frame(1, 1, payload) + frame(2, 1, b"\x00\x3c\x00\x00" + bytes(10))
            await wire.say(asked, methods.QueueDeclare(queue="q"))
            await wire.until(lambda: bool(wire.link.held & HELD_TURN))
            for _ in range(20):
                await asyncio.sleep(0)
            assert wire.link.held & HELD_TURN
            assert "q" not in wire.server.broker.virtual_hosts["/"].queues
            may_end = True
            await wire.hear(methods.QueueDeclareOk)
            assert not wire.link.held
        finally:
            del SERVICES["test.patient"]

    run(scenario)


def test_a_long_frame_that_comes_in_many_reads() -> None:
    """It is looked at when it is whole, and what has come of it is not copied with each read."""

    async def scenario(wire: Wire) -> None:
        await wire.open()
        await wire.say(methods.QueueDeclare(queue="q"))
        await wire.hear(methods.QueueDeclareOk)
        body = bytes(range(256)) * 400
        header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + b"\x00\x00"
        publish = frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x00\x01q\x00") + frame(2, 1, header)
        whole = (publish + frame(3, 1, body)) * 2
        queue = wire.server.broker.virtual_hosts["/"].queues["q"]
        wire.server.scheduler.limit_reads(1000)
        gathered = wire.link.leftover
        shared = 0
        for at in range(0, len(whole), 900):
            wire.far.setblocking(True)
            wire.far.sendall(whole[at : at + 900])
            wire.far.setblocking(False)
            wire.link.readable()
            shared += wire.link.leftover is gathered
            gathered = wire.link.leftover
        await wire.until(lambda: queue.message_count() == 2)
        assert shared > len(whole) // 900 - 20
        assert wire.link.leftover == b""
        for _ in range(2):
            assert queue.take().message.content.endswith(body)

    run(scenario)


def test_a_link_is_woken_when_its_request_is_done() -> None:
    """It does not look for that again and again: a commit may wait for the disk for seconds."""

    async def scenario(wire: Wire) -> None:
        waiting: list[Callable[[], None]] = []
        timers: list[float] = []

        def patient(request: Request) -> Iterator[Any]:
            yield waiting.append

        class NotedTimers:
            def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
                self.call_soon = loop.call_soon

            def call_later(self, delay_s: float, *_: object) -> None:
                timers.append(delay_s)

        SERVICES["test.patient"] = patient
        try:
            await wire.open()
            key = b"test.patient"
            payload = b"\x00\x3c\x00\x28\x00\x00\x0aamq.system" + bytes((len(key),)) + key + b"\x00"
            asked = frame(1, 1, payload) + frame(2, 1, b"\x00\x3c\x00\x00" + bytes(10))
            wire.server.loop = NotedTimers(wire.server.loop)  # type: ignore[assignment]
            await wire.say(asked, methods.QueueDeclare(queue="q"))
            await wire.until(lambda: waiting and wire.link.held & HELD_TURN)
            for _ in range(20):
                await asyncio.sleep(0)
            assert not timers
            waiting[0]()
            wire.server.scheduler.schedule_pass()
            await wire.hear(methods.QueueDeclareOk)
            assert not wire.link.held
            assert not wire.server.broker.pass_work.awaiting
        finally:
            del SERVICES["test.patient"]

    run(scenario)


def test_many_methods_leave_others_their_turn() -> None:
    async def scenario(wire: Wire) -> None:
        await wire.open()
        declares = [methods.QueueDeclare(queue=f"q{number}", no_wait=True) for number in range(2000)]
        wire.far.setblocking(True)
        wire.far.sendall(b"".join(frame(1, 1, encode_method(VERSION, each)) for each in declares))
        wire.far.setblocking(False)
        queues = wire.server.broker.virtual_hosts["/"].queues
        wire.link.readable()
        assert wire.link.held & HELD_TURN
        assert 0 < len(queues) < 1000
        await wire.until(lambda: len(queues) == 2000 and not wire.link.held)

    run(scenario)


def test_a_fault_before_the_greeting_ends_it_at_once() -> None:
    async def scenario(wire: Wire) -> None:
        wire.link.session.close_connection(ConnectionFault(320, "CONNECTION_FORCED"))
        assert await wire.is_closed()

    run(scenario)


def test_a_goodbye_to_a_peer_that_does_not_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its close-ok waits behind what it does not take, and what it goes on saying is not kept."""
    monkeypatch.setattr(links, "CLOSE_TIMEOUT_S", 0.2)

    async def scenario(wire: Wire) -> None:
        await wire.open()
        unroutable = publish(b"none", b"x" * 100_000, flags=1) * 20
        await wire.say(unroutable)
        await wire.until(lambda: wire.link.output.blocked)
        await wire.say(methods.ConnectionClose(reply_code=200), bytes(1000))
        await wire.until(lambda: wire.link.finishing)
        await wire.say(bytes(500_000))
        assert not wire.link.held & HELD_CLOSED
        assert wire.link.leftover == b""
        await wire.until(lambda: wire.link.held & HELD_CLOSED)
        assert wire.server.links == {}

    run(scenario)


OWNER = ("user", "guest")


async def wait_long(wire: Wire) -> None:
    """Publishes two messages, of which the first has the link wait for all the seconds that there can be."""
    limits = wire.server.broker.administration.limits
    limits.set(OWNER, "max-publish-rate", 1)
    wire.server.scheduler.schedule_pass()
    await wire.until(lambda: wire.link.session.connection.events is not wire.link.session)
    limits.rates[OWNER].due_us = 1e18
    publish = encode_method(VERSION, methods.BasicPublish(routing_key="q"))
    empty = frame(1, 1, publish) + frame(2, 1, b"\0\x3c\0\0" + bytes(8) + b"\0\0")
    await wire.say(empty + empty)
    await wire.until(lambda: wire.link.held & HELD_RATE)


@pytest.mark.parametrize("change", ["clear", "raise"])
def test_who_waits_for_a_rate_goes_on_when_the_limit_is_changed(change: str) -> None:
    async def scenario(wire: Wire) -> None:
        await wire.open()
        await wire.say(methods.QueueDeclare(queue="q"))
        await wire.hear(methods.QueueDeclareOk)
        await wait_long(wire)
        limits = wire.server.broker.administration.limits
        if change == "clear":
            limits.clear(OWNER, "max-publish-rate")
        else:
            limits.set(OWNER, "max-publish-rate", 1000)
        wire.server.scheduler.schedule_pass()
        queue = wire.server.broker.virtual_hosts["/"].queues["q"]
        async with asyncio.timeout(4):  # the wait is one of 10 seconds
            await wire.until(lambda: queue.message_count() == 2)

    run(scenario)


def test_the_end_of_a_wait_for_a_former_rate_does_not_end_the_one_for_the_rate_of_now() -> None:
    async def scenario(wire: Wire) -> None:
        await wire.open()
        await wait_long(wire)
        former = wire.link.session.connection.events
        await wait_long(wire)
        assert wire.link.session.connection.events is not former
        wire.link.end_wait(former)
        assert wire.link.held & HELD_RATE
        wire.link.end_wait(wire.link.session.connection.events)
        assert not wire.link.held & HELD_RATE

    run(scenario)


def test_little_is_left_of_a_read_whose_octets_take_much_work() -> None:
    """What is left is copied with each turn: a buffer full of methods would be copied hundreds of times."""

    async def scenario(wire: Wire) -> None:
        await wire.open()
        await wire.say(methods.QueueDeclare(queue="q"))
        await wire.hear(methods.QueueDeclareOk)
        flood = frame(1, 1, encode_method(VERSION, methods.QueueDeclare(queue="q", no_wait=True))) * 4000
        sending = asyncio.get_running_loop().create_task(wire.say(flood, methods.QueueDeclare(queue="q")))
        left: list[int] = []
        while not sending.done() or wire.link.leftover:
            await asyncio.sleep(0)
            left.append(len(wire.link.leftover))
        await wire.hear(methods.QueueDeclareOk)
        assert len(flood) > 65_536
        assert max(left) <= 32_768
        assert sum(left) / len(left) <= 16_384
        # Who asks for little work is read from in large pieces again.
        for _ in range(8):
            await wire.say(publish(b"q") * 500)
            await wire.say(methods.QueueDeclare(queue="q"))
            await wire.hear(methods.QueueDeclareOk)
        assert wire.link.read_most >= 16_384

    run(scenario)
