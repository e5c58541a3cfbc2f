"""A real broker on a real socket, in the hands of clients that do everything wrong."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conversation import GREETINGS, Frame, frame, method_frame, publish, split_frames, start_ok

import flintmq
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method

MIB = 1_048_576
# Longer than the pause after a wrong password.
HANDSHAKE_TIMEOUT_S = 2.5


class Broker:
    """The process, and how it is doing."""

    def __init__(self, directory: Path, *options: str) -> None:
        config = directory / "flintmq.toml"
        config.write_text(
            f"[limits]\nhandshake_timeout_s = {HANDSHAKE_TIMEOUT_S}\n"
            "[bans]\npause_s = 0.2\npause_s_max = 0.2\nban_s = 0\n",
            encoding="utf-8",
        )
        command = [sys.executable, "-m", "flintmq", "serve", "--config", str(config), "--port", "0"]
        environment = {**os.environ, "PYTHONPATH": str(Path(flintmq.__file__).parent.parent)}
        self.log = (directory / "log").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", *options],
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r":(\d+)$", line.strip())
        assert found is not None, line
        self.port = int(found[1])

    def memory_bytes(self) -> int:
        statm = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii")
        return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def complaints(self) -> str:
        """What the log has of bugs."""
        self.log.seek(0)
        return "".join(
            re.findall(r"(?ms)^.*(?:Traceback|a bug |was left open|Exception in).*", self.log.read())
        )

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(20)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()


@pytest.fixture(scope="module", params=["memory", "store"])
def shared(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("broker")
    options = ("--data", str(directory / "data")) if request.param == "store" else ()
    broker = Broker(directory, *options)
    yield broker
    assert broker.process.poll() is None, "the broker died"
    assert broker.stop() == 0
    assert broker.complaints() == ""
    broker.log.close()


@pytest.fixture
def broker(shared: Broker) -> Iterator[Broker]:
    """Alive before and after, and as quick as ever."""
    yield shared
    assert shared.process.poll() is None, "the broker died"
    assert latency_s(shared) < 2.0


class Client:
    """A blocking client, as rude as it is told to be."""

    def __init__(self, broker: Broker) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), timeout=20)
        self.unread = b""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def login(self, *channels: int) -> Client:
        self.socket.sendall(GREETINGS[91])
        self.until(methods.ConnectionStart)
        self.say(0, start_ok(authentication_failure_close=True))
        self.until(methods.ConnectionTune)
        self.say(0, methods.ConnectionTuneOk())
        self.say(0, methods.ConnectionOpen(virtual_host="/"))
        self.until(methods.ConnectionOpenOk)
        for channel in channels:
            self.say(channel, methods.ChannelOpen())
            self.until(methods.ChannelOpenOk)
        return self

    def say(self, channel: int, method: Method) -> None:
        self.socket.sendall(method_frame(91, channel, method))

    def frames(self) -> list[Frame]:
        """At least one, or none when the broker has closed."""
        while True:
            found, used = split_frames(91, self.unread)
            self.unread = self.unread[used:]
            if found:
                return found
            try:
                more = self.socket.recv(262_144)
            except ConnectionError:
                more = b""
            if not more:
                return []
            self.unread += more

    def until(self, kind: type[Method]) -> Method:
        seen: list[Frame] = []
        while True:
            found = self.frames()
            assert found, f"closed without {kind.NAME}, after {seen}"
            seen += found
            for each in found:
                if isinstance(each.method, kind):
                    return each.method

    def ends(self) -> bytes:
        """Everything until the broker closes the connection."""
        octets = b""
        while True:
            try:
                more = self.socket.recv(65536)
            except ConnectionError:
                return octets
            if not more:
                return octets
            octets += more

    def reset(self) -> None:
        """Goes away with a bang."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.socket.close()


def latency_s(broker: Broker) -> float:
    """How long a stranger waits for a login and an answer."""
    began_s = time.monotonic()
    with Client(broker).login(1) as client:
        client.say(1, methods.QueueDeclare(queue="latency", auto_delete=True))
        client.until(methods.QueueDeclareOk)
        client.say(0, methods.ConnectionClose())
        client.until(methods.ConnectionCloseOk)
    return time.monotonic() - began_s


def wait_for(broker: Broker, descriptors: int) -> None:
    """Until the broker has no more than these open."""
    deadline_s = time.monotonic() + 20
    while broker.descriptors() > descriptors:
        assert time.monotonic() < deadline_s, f"{broker.descriptors()} descriptors are open"
        select.select([], [], [], 0.02)


NO_AMQP = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "amqp 1.0": b"AMQP\x00\x01\x00\x00",
    "amqp 1.0 with sasl": b"AMQP\x03\x01\x00\x00",
    "0-10": b"AMQP\x01\x01\x00\x0a",
    "newline": b"\r\n",
    "zeros": bytes(100),
    "almost": b"AMQQ",
}


@pytest.mark.parametrize("octets", NO_AMQP.values(), ids=NO_AMQP)
def test_what_is_not_amqp_is_told_so_and_closed(broker: Broker, octets: bytes) -> None:
    with Client(broker) as client:
        client.socket.sendall(octets)
        assert client.ends() == b"AMQP\x00\x00\x09\x01"


@pytest.mark.parametrize("octets", [b"", b"A", b"AMQP", GREETINGS[91], GREETINGS[91] + b"\x01\x00\x00"])
def test_a_slow_client_has_the_handshake_timeout_and_no_longer(broker: Broker, octets: bytes) -> None:
    began_s = time.monotonic()
    with Client(broker) as client:
        client.socket.sendall(octets)
        client.ends()
    assert HANDSHAKE_TIMEOUT_S * 0.9 < time.monotonic() - began_s < HANDSHAKE_TIMEOUT_S + 8


def test_octet_by_octet_is_as_slow(broker: Broker) -> None:
    """Each octet is a sign of life, but not of a login."""
    began_s = time.monotonic()
    with Client(broker) as client:
        try:
            for octet in GREETINGS[91] + method_frame(91, 0, start_ok()):
                client.socket.sendall(bytes((octet,)))
                if select.select([client.socket], [], [], 0.1)[0] and time.monotonic() - began_s > 2.4:
                    break
        except ConnectionError:
            pass
        client.ends()
    assert time.monotonic() - began_s < HANDSHAKE_TIMEOUT_S + 8


BEFORE_LOGIN = {
    "too large": (b"\x01\x00\x00\x00\x00\x20\x01", amqp.FRAME_ERROR),
    "4 GiB": (b"\x01\x00\x00\xff\xff\xff\xff\x00", amqp.FRAME_ERROR),
    "wrong end": (b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x0b\xcd", amqp.FRAME_ERROR),
    "unknown type": (frame(77, 0, b""), amqp.FRAME_ERROR),
    "publish": (publish(1, "", "q", b"x"), amqp.CHANNEL_ERROR),
    "header": (frame(2, 1, bytes(14)), amqp.CHANNEL_ERROR),
    "tune-ok": (method_frame(91, 0, methods.ConnectionTuneOk()), amqp.COMMAND_INVALID),
    "open": (method_frame(91, 0, methods.ConnectionOpen(virtual_host="/")), amqp.COMMAND_INVALID),
    "half a method": (frame(1, 0, b"\x00\x0a"), amqp.SYNTAX_ERROR),
}


def test_an_unknown_mechanism_ends_the_connection(broker: Broker) -> None:
    with Client(broker) as client:
        client.socket.sendall(GREETINGS[91])
        client.until(methods.ConnectionStart)
        client.say(0, methods.ConnectionStartOk(mechanism="X"))
        assert client.ends() == b""


@pytest.mark.parametrize(("octets", "code"), BEFORE_LOGIN.values(), ids=BEFORE_LOGIN)
def test_frames_before_login_get_their_code(broker: Broker, octets: bytes, code: int) -> None:
    with Client(broker) as client:
        client.socket.sendall(GREETINGS[91] + octets + bytes(8))
        close = client.until(methods.ConnectionClose)
        assert isinstance(close, methods.ConnectionClose)
        assert close.reply_code == code
        client.say(0, methods.ConnectionCloseOk())
        assert client.ends() == b""


def test_thousands_of_bad_connections_leave_nothing(broker: Broker) -> None:
    hellos = [*NO_AMQP.values(), *(GREETINGS[91] + octets for octets, _ in BEFORE_LOGIN.values())]
    idle = broker.descriptors()
    memory_bytes = 0
    for number in range(3000):
        client = Client(broker)
        client.socket.sendall(hellos[number % len(hellos)])
        if number % 2:
            client.reset()
        else:
            client.socket.close()
        if number % 250 == 249:
            latency_s(broker)
        if number == 1000:
            memory_bytes = broker.memory_bytes()
    wait_for(broker, idle)
    assert broker.memory_bytes() < memory_bytes + 12 * MIB


def test_a_flood_of_logins_in_one_read_is_one_login(broker: Broker) -> None:
    """Each wrong password is some 40 ms of work; a thousand of them must not stand in front of others."""
    with Client(broker) as client:
        wrong = method_frame(91, 0, start_ok(b"wrong", authentication_failure_close=True))
        client.socket.sendall(GREETINGS[91] + wrong * 1000)
        client.until(methods.ConnectionStart)
        with Client(broker) as other:
            # A password that is not known to be right waits for the same thread.
            other.socket.sendall(GREETINGS[91])
            other.say(0, start_ok(b"flood", authentication_failure_close=True))
            other.until(methods.ConnectionClose)
        client.ends()


def test_logins_of_those_who_left_are_not_checked(broker: Broker) -> None:
    for _ in range(300):
        client = Client(broker)
        client.socket.sendall(GREETINGS[91] + method_frame(91, 0, start_ok(b"wrong")))
        client.reset()
    with Client(broker) as client:
        # A password that was not seen yet has to be checked by the same thread.
        began_s = time.monotonic()
        client.socket.sendall(GREETINGS[91])
        client.say(0, start_ok(b"new", authentication_failure_close=True))
        client.until(methods.ConnectionClose)
        assert time.monotonic() - began_s < 10


def test_a_login_with_all_that_follows_in_one_piece_works(broker: Broker) -> None:
    with Client(broker) as client:
        octets = GREETINGS[91] + method_frame(91, 0, start_ok())
        octets += method_frame(91, 0, methods.ConnectionTuneOk())
        octets += method_frame(91, 0, methods.ConnectionOpen(virtual_host="/"))
        octets += method_frame(91, 1, methods.ChannelOpen())
        client.socket.sendall(octets)
        client.until(methods.ChannelOpenOk)


def test_a_consumer_that_never_reads_costs_little_and_slows_nobody(broker: Broker) -> None:
    with Client(broker).login(1) as lazy, Client(broker).login(1) as publisher:
        lazy.say(1, methods.QueueDeclare(queue="lazy", exclusive=False, auto_delete=True))
        lazy.until(methods.QueueDeclareOk)
        lazy.say(1, methods.BasicConsume(queue="lazy", no_ack=True))
        lazy.until(methods.BasicConsumeOk)
        before_bytes = broker.memory_bytes()
        count, size = 2000, 10_000
        for _ in range(count):
            publisher.socket.sendall(publish(1, "", "lazy", bytes(size)))
        publisher.say(1, methods.QueueDeclare(queue="lazy", passive=True))
        publisher.until(methods.QueueDeclareOk)
        assert latency_s(broker) < 2
        # The queue holds them, and the socket's buffers: nothing is there twice.
        assert broker.memory_bytes() - before_bytes < count * size * 1.5 + 8 * MIB
        lazy.reset()


def test_a_publisher_that_never_reads_its_returns_is_stopped(broker: Broker) -> None:
    idle = broker.descriptors()
    with Client(broker).login(1) as rude:
        before_bytes = broker.memory_bytes()
        octets = publish(1, "", "nowhere at all", bytes(100_000), mandatory=True) * 10
        rude.socket.settimeout(2)
        sent = 0
        try:
            while sent < 300 * MIB:
                sent += rude.socket.send(octets)
        except TimeoutError:
            pass
        assert sent < 300 * MIB, "it was read from without end"
        assert latency_s(broker) < 2
        assert broker.memory_bytes() - before_bytes < 64 * MIB
        # It reads after all, and gets everything.
        rude.socket.settimeout(20)
        rude.until(methods.BasicReturn)
        assert rude.frames()
        rude.reset()
    wait_for(broker, idle)


def test_a_request_for_much_again_and_again_is_bounded(broker: Broker) -> None:
    with Client(broker).login(1) as rude:
        rude.say(1, methods.QueueDeclare(queue="bomb", exclusive=True))
        rude.until(methods.QueueDeclareOk)
        rude.socket.sendall(publish(1, "", "bomb", bytes(4 * MIB)))
        before_bytes = broker.memory_bytes()
        octets = b"".join(
            method_frame(91, 1, methods.BasicGet(queue="bomb"))
            + method_frame(91, 1, methods.BasicReject(delivery_tag=tag, requeue=True))
            for tag in range(1, 1001)
        )
        rude.socket.sendall(octets)
        assert latency_s(broker) < 2
        assert broker.memory_bytes() - before_bytes < 96 * MIB
        count = 0
        while count < 20:
            count += sum(isinstance(each.method, methods.BasicGetOk) for each in rude.frames())
        rude.reset()


def test_a_reset_while_output_waits_leaves_the_descriptor_to_others(broker: Broker) -> None:
    """Those who come next get the same number from the system."""
    idle = broker.descriptors()
    for _ in range(8):
        clients = [Client(broker).login(1) for _ in range(4)]
        for client in clients:
            client.say(1, methods.QueueDeclare(exclusive=True))
            queue = client.until(methods.QueueDeclareOk).queue  # type: ignore[attr-defined]
            client.socket.sendall(publish(1, "", queue, bytes(8 * MIB)))
            client.say(1, methods.BasicConsume(queue=queue, no_ack=True))
            client.until(methods.BasicConsumeOk)
        for client in clients:
            client.reset()
        wait_for(broker, idle)
        assert latency_s(broker) < 5


def test_a_goodbye_is_answered_though_the_client_says_more(broker: Broker) -> None:
    idle = broker.descriptors()
    with Client(broker).login(1) as client:
        goodbye = method_frame(91, 0, methods.ConnectionClose())
        client.socket.sendall(goodbye + goodbye * (4 * MIB // len(goodbye)))  # no reset while it sends
        client.until(methods.ConnectionCloseOk)
        assert not select.select([client.socket], [], [], 0.2)[0], "it is for the client to close first"
        client.socket.shutdown(socket.SHUT_WR)
        assert client.socket.recv(65536) == b""
    wait_for(broker, idle)


def test_a_client_that_is_told_goodbye_and_stays_is_let_go(broker: Broker) -> None:
    idle = broker.descriptors()
    with Client(broker).login(1) as rude:
        rude.say(0, methods.ConnectionClose())
        rude.until(methods.ConnectionCloseOk)
        assert rude.ends() == b""
        wait_for(broker, idle)


def test_a_client_that_says_goodbye_and_never_reads_is_let_go(broker: Broker) -> None:
    idle = broker.descriptors()
    with Client(broker).login(1) as rude:
        rude.say(1, methods.QueueDeclare(exclusive=True))
        queue = rude.until(methods.QueueDeclareOk).queue  # type: ignore[attr-defined]
        rude.socket.sendall(publish(1, "", queue, bytes(12 * MIB)))
        rude.say(1, methods.BasicGet(queue=queue, no_ack=True))
        rude.until(methods.BasicGetOk)
        rude.say(0, methods.ConnectionClose())
        wait_for(broker, idle)


@pytest.mark.parametrize("part", [1, 7, 8, 30, -1])
def test_a_client_that_vanishes_in_the_middle_of_a_frame(broker: Broker, part: int) -> None:
    idle = broker.descriptors()
    with Client(broker).login(1) as client:
        client.say(1, methods.QueueDeclare(queue="half", auto_delete=True))
        client.until(methods.QueueDeclareOk)
        client.say(1, methods.BasicConsume(queue="half"))
        client.until(methods.BasicConsumeOk)
        client.socket.sendall(publish(1, "", "half", bytes(1000))[:part])
        client.reset()
    wait_for(broker, idle)
    with Client(broker).login(1) as client:
        client.say(1, methods.QueueDeclare(queue="half", passive=True))
        close = client.until(methods.ChannelClose)
        assert isinstance(close, methods.ChannelClose)
        assert close.reply_code == amqp.NOT_FOUND
