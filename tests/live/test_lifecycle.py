"""The life of a `flintmq serve` process: its first line, its signals, its refusals to start."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pika
import pytest
from broker_process import BrokerProcess
from live.serving import Serving, serving, write
from management_http import Http

from flintmq import __version__
from flintmq.build import build
from flintmq.server.server import STOP_TIMEOUT_S


def wait_until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def connect(server: Serving | BrokerProcess) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.port))


def refused(*options: str) -> tuple[int, str]:
    """The status and the one line on standard error of a start that fails."""
    command = [sys.executable, "-m", "flintmq", "serve", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.returncode, ended.stderr.rstrip("\n")


LOGGED = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO (.*)$")


def test_the_first_line_and_the_last_say_what_runs_and_where_like_all_others() -> None:
    with BrokerProcess("--host", "127.0.0.1", "--log-level", "warning") as broker:
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)).close()
    url = f"amqp://127.0.0.1:{broker.port}"
    said = [LOGGED.match(line) for line in broker.lines]
    assert [line and line[1] for line in said] == [
        f"flintmq {__version__} ({build()} build) listening on {url}",
        "flintmq is stopping",
    ]


def test_a_log_file_is_opened_again_at_sighup(tmp_path: Path) -> None:
    file, moved = tmp_path / "flintmq.log", tmp_path / "flintmq.log.1"
    settings = write(tmp_path / "flintmq.toml", f'[log]\nfile = "{file}"\n')
    with BrokerProcess("--host", "127.0.0.1", "--config", str(settings)) as broker:
        assert f"listening on amqp://127.0.0.1:{broker.port}" in file.read_text()
        file.rename(moved)
        broker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: file.exists() and "SIGHUP: the log file is open again" in file.read_text())
        file.unlink()
        file.mkdir()
        broker.process.send_signal(signal.SIGHUP)
        connect(broker).close()
        file.rmdir()
        broker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: file.exists() and "SIGHUP: the log file is open again" in file.read_text())
    assert "SIGHUP" not in moved.read_text()
    assert LOGGED.match(file.read_text().splitlines()[-1])[1] == "flintmq is stopping"  # type: ignore[index]


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", "<&- >&- 2>&-", "2>&-"])
def test_it_runs_and_ends_in_order_though_it_was_given_closed_standard_descriptors(
    closed: str, tmp_path: Path
) -> None:
    """Else the first socket or file takes the number of a closed one, and what goes to standard error."""
    file = tmp_path / "flintmq.log"
    settings = write(tmp_path / "flintmq.toml", f'[log]\nfile = "{file}"\n')
    command = [sys.executable, "-m", "flintmq", "serve", "--port", "0", "--host", "127.0.0.1"]
    command += ["--config", str(settings), "--data", str(tmp_path / "data"), "--management-port", "0"]
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: process.poll() is not None or "management on" in told(file))
        assert process.poll() is None
        found = re.search(r"listening on amqp://127\.0\.0\.1:(\d+)", told(file))
        assert found
        if sys.platform == "linux":
            assert [os.readlink(f"/proc/{process.pid}/fd/{n}") for n in range(3)].count(os.devnull) == 3
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(found[1]))).close()
        management = re.search(r"management on http://127\.0\.0\.1:(\d+)", told(file))
        assert management
        assert Http(int(management[1]), int(found[1])).get("overview")["product_version"]
        if sys.platform == "linux":
            (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            assert [os.readlink(f"/proc/{child}/fd/{n}") for n in range(3)] == [os.devnull] * 3
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert "flintmq is stopping" in told(file)


def told(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def test_sighup_without_anything_to_read_is_told() -> None:
    with BrokerProcess("--host", "127.0.0.1") as broker:
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_for(re.compile("INFO SIGHUP: nothing was read again"))
        connect(broker).close()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_sigusr_has_the_broker_tell_how_it_is(number: int) -> None:
    with BrokerProcess("--host", "127.0.0.1") as broker:
        connection = connect(broker)
        channel = connection.channel()
        channel.queue_declare("q")
        channel.queue_bind("q", "amq.fanout")
        broker.process.send_signal(number)
        told = broker.wait_for(re.compile(r"INFO (\d+ connections, .*)$"))[1]
        assert re.fullmatch(
            r"1 connections, 1 virtual hosts, \d+ exchanges, 1 queues, 1 bindings, "
            r"\d+ MiB of memory used of \d+ MiB allowed, no alarm",
            told,
        )
        connection.close()


def test_sighup_does_not_end_it_nor_does_the_end_of_its_terminal(tmp_path: Path) -> None:
    file = tmp_path / "flintmq.log"
    settings = write(tmp_path / "flintmq.toml", f'[log]\nfile = "{file}"\n')
    command = [sys.executable, "-m", "flintmq", "serve", "--port", "0", "--config", str(settings)]
    process, terminal = pty.fork()
    if process == 0:
        os.execv(command[0], command)
    wait_until(lambda: file.exists() and "listening on" in file.read_text())
    port = int(file.read_text().split("127.0.0.1:")[1].split()[0])
    os.kill(process, signal.SIGHUP)
    wait_until(lambda: file.read_text().count("SIGHUP: the log file is open again") == 1)
    os.close(terminal)
    wait_until(lambda: file.read_text().count("SIGHUP: the log file is open again") == 2)
    pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)).close()
    os.kill(process, signal.SIGTERM)
    _, status = os.waitpid(process, 0)
    assert status == 0
    said = [LOGGED.match(line)[1] for line in file.read_text().splitlines()]  # type: ignore[index]
    assert said[-1] == "flintmq is stopping"


def test_a_log_file_that_cannot_be_written(tmp_path: Path) -> None:
    settings = write(tmp_path / "flintmq.toml", f'[log]\nfile = "{tmp_path}/none/flintmq.log"\n')
    status, line = refused("--config", str(settings), "--port", "0")
    assert status == 2
    assert 'none/flintmq.log" cannot be written: No such file or directory' in line


def test_it_ends_with_its_input_and_waits_for_nobody() -> None:
    command = [sys.executable, "-m", "flintmq", "serve", "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(
        [*command, "--until-input-ends"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as silent:
            silent.sendall(b"AMQP\x00\x00\x09\x01")
            assert silent.recv(1) == b"\x01"
            process.stdin.close()
            began_s = time.monotonic()
            assert process.wait(30) == 0
            assert time.monotonic() - began_s < STOP_TIMEOUT_S, "as after SIGTERM"


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


class BrokerWithFewFiles(BrokerProcess):
    command = ("sh", "-c", 'ulimit -n 100 && exec "$@"', "sh", *BrokerProcess.command)


@pytest.mark.skipif(os.name != "posix", reason="needs a limit on open files")
def test_connections_leave_descriptors_to_the_journal(tmp_path: Path) -> None:
    """A client that forgets to close its connections ends at the limit, and others go on to publish."""
    with BrokerWithFewFiles("--host", "127.0.0.1", "--data", str(tmp_path / "data")) as broker:
        publisher = connect(broker)
        channel = publisher.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        forgotten = []
        with contextlib.suppress(pika.exceptions.AMQPConnectionError):
            while len(forgotten) < 75:
                forgotten.append(connect(broker))
        assert 40 < len(forgotten) < 70
        # What the broker itself had open before, and a quarter for files, are not theirs.
        told = f"{len(forgotten) + 1} connections are open already, and the broker itself needs the rest of"
        broker.wait_for(re.compile(f"{told} the 100 open files"))
        for _ in range(48):  # several files of the journal
            channel.basic_publish("", "q", bytes(1 << 20), pika.BasicProperties(delivery_mode=2))
        assert channel.queue_declare("q", passive=True).method.message_count == 48
        for each in (*forgotten, publisher):
            each.close()


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


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the system limits no other process")
def test_an_end_with_something_that_is_not_on_disk(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path)) as server:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.port))
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        until_s = time.monotonic() + 30
        while not list(tmp_path.glob("spare.*")):  # else the broker may notice before it has the message
            assert time.monotonic() < until_s
            time.sleep(0.05)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1000, 1000))
        channel.basic_publish("", "q", bytes(100_000), pika.BasicProperties(delivery_mode=2))
        until_s = time.monotonic() + 30
        while not any("cannot write to" in line for line in server.errors):
            assert time.monotonic() < until_s
            time.sleep(0.05)
        assert server.stop() == 1
    assert any("not everything is on disk" in line for line in server.errors)


def test_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, line = refused("--host", "127.0.0.1", "--port", str(port))
    assert status == 1
    assert line == (
        f"flintmq: cannot listen on 127.0.0.1 port {port}: Address already in use "
        "(another program or another setting has this port; stop the program, or choose a port "
        "with --port or --management-port)"
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize("name", ["segments.promised", "streams.promised", "0000000000000001.segment"])
def test_what_is_no_file_in_the_data_directory(name: str, tmp_path: Path) -> None:
    with serving("--data", str(tmp_path)) as server:
        assert server.stop() == 0
    file = tmp_path / name
    file.unlink()
    file.mkdir()
    status, line = refused("--port", "0", "--data", str(tmp_path))
    assert (status, line.startswith(f"flintmq: {file}: Is a directory")) == (1, True)
    file.rmdir()
    os.mkfifo(file)
    assert refused("--port", "0", "--data", str(tmp_path)) == (
        1,
        f"flintmq: {file}: it is a pipe, and no file",
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


def test_a_broker_says_where_its_data_is(tmp_path: Path) -> None:
    told = "without a data directory all ends with the broker"
    data = tmp_path / "data"
    shown = os.path.relpath(data)
    for options, times in (([], 1), (["--data", str(data)], 0), (["--data", shown], 0)):
        with serving(*options) as server:
            server.stop()
            assert sum(told in line for line in server.errors) == times, server.errors
            assert sum(f"the data is in {data}" in line for line in server.errors) == 1 - times


def test_settings_that_only_the_broker_can_refuse_are_named_with_their_file(tmp_path: Path) -> None:
    file = write(tmp_path / "flintmq.toml", '[[bindings]]\nsource = "none"\nqueue = "q"\n')
    status, line = refused("--port", "0", "--config", str(file))
    assert status == 2
    assert line == f"flintmq: {file}: bindings[0]: NOT_FOUND - no exchange 'none' in vhost '/'"
