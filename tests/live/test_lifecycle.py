"""The life of a `flintmq serve` process: its first line, its signals, its refusals to start."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pika
import pytest
from broker_process import BrokerProcess
from live.serving import Serving, serving, write

from flintmq import __version__
from flintmq.build import build


def connect(server: Serving) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.port))


def refused(*options: str) -> tuple[int, str]:
    """The status and the one line on standard error of a start that fails."""
    command = [sys.executable, "-m", "flintmq", "serve", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.returncode, ended.stderr.rstrip("\n")


def test_the_first_line_says_what_runs_and_where() -> None:
    with serving() as server:
        line = f"flintmq {__version__} ({build()} build) listening on amqp://127.0.0.1:{server.port}"
        assert server.lines == [line]
        connect(server).close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_closes_clients_with_320_and_ends_with_0(number: int) -> None:
    with serving() as server:
        clients = [connect(server) for _ in range(3)]
        server.process.send_signal(number)
        for client in clients:
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
                client.process_data_events(time_limit=30)
            assert closed.value.reply_code == 320
            assert closed.value.reply_text == "CONNECTION_FORCED - the broker is shutting down"
        assert server.wait() == 0


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux")
def test_it_accepts_again_when_it_has_descriptors_again() -> None:
    with BrokerProcess("--host", "127.0.0.1") as broker:
        taken = max(int(name) for name in os.listdir(f"/proc/{broker.process.pid}/fd")) + 1
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (taken + 4, taken + 4))
        crowd = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(8)]
        broker.wait_for(re.compile("cannot accept connections: Too many open files"))
        for each in crowd:
            each.close()
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)).close()


def test_it_ends_while_publishers_publish() -> None:
    with serving() as server:
        started = threading.Event()
        reasons: list[int] = []

        def publish() -> None:
            connection = connect(server)
            channel = connection.channel()
            channel.queue_declare("q")
            try:
                while True:
                    channel.basic_publish("", "q", b"x" * 1000)
                    started.set()
            except pika.exceptions.ConnectionClosed as closed:
                reasons.append(closed.reply_code)

        publisher = threading.Thread(target=publish)
        publisher.start()
        assert started.wait(30)
        assert server.stop() == 0
        publisher.join(30)
        assert reasons == [320]


def test_it_ends_though_a_client_never_answers() -> None:
    with serving() as server, socket.create_connection(("127.0.0.1", server.port), timeout=30) as silent:
        silent.sendall(b"AMQP\x00\x00\x09\x01")
        assert silent.recv(1) == b"\x01"
        assert server.stop() == 0
        assert any("1 clients did not answer in time" in line for line in server.errors)


def test_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, line = refused("--host", "127.0.0.1", "--port", str(port))
    assert status == 1
    assert line == (
        f"flintmq: cannot listen on 127.0.0.1 port {port}: Address already in use "
        "(another program has this port; stop it, or choose a port with --port)"
    )


def test_an_address_that_is_not_ours() -> None:
    status, line = refused("--host", "192.0.2.1", "--port", "0")
    assert status == 1
    assert line.startswith("flintmq: cannot listen on 192.0.2.1 port 0: Cannot assign requested address")


def test_a_host_that_does_not_exist() -> None:
    status, line = refused("--host", "no.such.host.invalid", "--port", "0")
    assert status == 1
    assert re.match(r"flintmq: cannot listen on no\.such\.host\.invalid port 0: ", line)


def test_a_configuration_that_cannot_be_read(tmp_path: Path) -> None:
    status, line = refused("--config", str(tmp_path / "none.toml"))
    assert status == 2
    assert "none.toml: cannot be read: No such file or directory" in line
    status, line = refused("--config", str(write(tmp_path / "bad.toml", "[listen\n")))
    assert status == 2
    assert "bad.toml: not valid TOML" in line


def test_a_port_is_free_again_at_once() -> None:
    with serving() as server:
        port = server.port
        client = connect(server)
        server.process.terminate()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            client.process_data_events(time_limit=30)
        assert server.wait() == 0
    with serving("--port", str(port)) as again:
        assert again.port == port


def test_no_more_connections_than_allowed(tmp_path: Path) -> None:
    file = write(tmp_path / "few.toml", "[limits]\nconnections_max = 2\n")
    with serving("--config", str(file)) as server:
        kept = [connect(server) for _ in range(2)]
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as third:
            assert third.recv(1) == b""
        kept.pop().close()
        while True:
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as third:
                third.sendall(b"AMQP\x00\x00\x09\x01")
                try:
                    if third.recv(1) == b"\x01":
                        break
                except ConnectionResetError:
                    continue
        kept.pop().close()


def test_messages_survive_a_slow_consumer(tmp_path: Path) -> None:
    """20 MB over a plain connection that is not read from for a while."""
    with serving() as server:
        slow, fast = connect(server), connect(server)
        consuming, publishing = slow.channel(), fast.channel()
        consuming.queue_declare("slow")
        seen: list[int] = []
        consuming.basic_consume("slow", lambda c, m, p, body: seen.append(int(body[:8])), auto_ack=True)
        publishing.confirm_delivery()
        for number in range(200):
            publishing.basic_publish("", "slow", b"%08d" % number + b"x" * 100_000)
        while len(seen) < 200:
            slow.process_data_events(time_limit=10)
        assert seen == list(range(200))
        fast.close()
        slow.close()


def test_a_client_that_speaks_tls_to_the_plain_port_is_told_in_the_log() -> None:
    with serving() as server:
        with socket.create_connection(("127.0.0.1", server.port), 10) as peer:
            peer.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
            assert peer.recv(8) == b"AMQP\x00\x00\x09\x01"
        server.stop()
        assert any("is refused: it spoke TLS" in line for line in server.errors), server.errors


def test_a_broker_in_memory_says_so_once(tmp_path: Path) -> None:
    told = "without a data directory all ends with the broker"
    for options, times in (([], 1), (["--data", str(tmp_path / "data")], 0)):
        with serving(*options) as server:
            server.stop()
            assert sum(told in line for line in server.errors) == times, server.errors


def test_settings_that_only_the_broker_can_refuse_are_named_with_their_file(tmp_path: Path) -> None:
    file = write(tmp_path / "flintmq.toml", '[[bindings]]\nsource = "none"\nqueue = "q"\n')
    status, line = refused("--port", "0", "--config", str(file))
    assert status == 2
    assert line == f"flintmq: {file}: bindings[0]: NOT_FOUND - no exchange 'none' in vhost '/'"
