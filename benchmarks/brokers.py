"""The brokers under test: started on ports and directories of their own, watched, and stopped at the end."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

RABBITMQ_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 20.0
SETTLE_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.25
# A broker that has just started loads modules in idle moments: what its memory is then compared with waits.
FRESH_LOOKS = 8
FREE_PORTS = (20_000, 32_000)
# The user of the load tool may use its exchanges, queues and routing keys alone.
OWN_NAMES = "^(amq\\.default$|bench)"
OWN_TOPICS = "^quote\\.(mkt[0-9]+|#|\\*)(\\.(ins[0-9]+|#|\\*))*$"
PERMISSIONS = {
    "permissions": [
        {"user": "guest", "vhost": "/", "configure": OWN_NAMES, "write": OWN_NAMES, "read": OWN_NAMES}
    ],
    "topic_permissions": [
        {"user": "guest", "vhost": "/", "exchange": "bench.topic", "write": OWN_TOPICS, "read": OWN_TOPICS}
    ],
}
FLINTMQ_COMMAND = "{python} -m flintmq serve --port 0 --data {directory} --log-level warning"


class BrokerFailure(Exception):
    """A broker did not start, or ended while it was needed."""


@dataclass(frozen=True)
class Broker:
    """A running broker: where it listens and the process that does its work."""

    name: str
    port: int
    pid: int
    version: str = ""

    def cpu_seconds(self) -> float:
        """Processor time used so far, from the kernel's account of the process."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except FileNotFoundError:
            raise BrokerFailure(f"{self.name} has ended") from None
        fields = stat[stat.rindex(")") + 2 :].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_kib(self) -> int:
        """Memory that the process has now."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except FileNotFoundError:
            raise BrokerFailure(f"{self.name} has ended") from None
        return int(status.partition("VmRSS:")[2].split()[0])

    def settle(self, looks: int = 1) -> None:
        """Wait until the broker has finished what the last load, or its start, left it to do.

        It has when nothing is seen of it in so many looks, one after the other. At most a few seconds.
        """
        end = time.monotonic() + SETTLE_SECONDS_MAX
        quiet = 0
        while quiet < looks and time.monotonic() < end:
            before, had_kib = self.cpu_seconds(), self.resident_kib()
            time.sleep(LOOK_SECONDS)
            is_quiet = self.cpu_seconds() - before <= 0.02 and self.resident_kib() == had_kib
            quiet = quiet + 1 if is_quiet else 0


def free_port() -> int:
    """A port on the loopback address that nothing listens on now.

    It lies below those that the system gives to connections that go out, one of which could take it before
    the broker does.
    """
    while True:
        port = random.randrange(*FREE_PORTS)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def speaks_amqp(port: int) -> str | None:
    """The product and version that a broker gives in connection.start; None while it does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as peer:
            peer.sendall(b"AMQP\x00\x00\x09\x01")
            received = b""
            while len(received) < 7 or len(received) < 8 + int.from_bytes(received[3:7], "big"):
                chunk = peer.recv(65536)
                if not chunk:
                    return None
                received += chunk
    except OSError:
        return None
    if received[7:11] != b"\x00\x0a\x00\x0a":
        return None
    found = [longstr_after(received, key) for key in (b"\x07productS", b"\x07versionS")]
    return " ".join(text for text in found if text)


def longstr_after(octets: bytes, key: bytes) -> str:
    """The long string that follows a key of a field table; empty when the key is not there."""
    start = octets.find(key)
    if start < 0:
        return ""
    start += len(key)
    size = int.from_bytes(octets[start : start + 4], "big")
    return octets[start + 4 : start + 4 + size].decode("ascii", "replace")


def listening_ports(pid: int) -> list[int]:
    """The TCP ports that a process listens on, as the kernel knows them."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):  # closed while we looked
            sockets.add(os.readlink(descriptor))
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)


def await_listening(
    process: subprocess.Popen[bytes], name: str, log: Path, port: int | None = None
) -> tuple[int, str]:
    """Wait until the broker answers, on any port of its own if none is given; returns port and version."""
    end = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < end:
        for candidate in listening_ports(process.pid) if port is None else [port]:
            version = speaks_amqp(candidate)
            if version is not None:
                return candidate, version
        if process.poll() is not None:
            raise BrokerFailure(f"{name} ended with status {process.returncode}: {tail(log)}")
        time.sleep(0.05)
    raise BrokerFailure(f"{name} did not listen within {START_SECONDS_MAX:g} s: {tail(log)}")


def tail(log: Path) -> str:
    """The end of a log file on one line, for an error message."""
    return " | ".join(log.read_text(errors="replace").split("\n")[-8:]).strip(" |")


def raise_descriptor_limit() -> None:
    """Let brokers and load tool hold as many connections as the machine allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.contextmanager
def running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, which is ended as a whole."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a session's processes, by force when they do not go in time."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def flintmq(
    command: str, directory: Path, name: str = "FlintMQ", definitions: Mapping[str, object] | None = None
) -> Iterator[Broker]:
    """FlintMQ, started by a command in which {python}, {port} and {directory} are filled in.

    A command without {port} lets the broker choose, which is then seen from its open sockets.
    """
    directory.mkdir(parents=True)
    port = free_port() if "{port}" in command else None
    places = {"python": sys.executable, "port": port, "directory": directory / "data"}
    words = [word.format(**places) for word in shlex.split(command)]
    if definitions is not None:
        definitions_file = directory / "definitions.json"
        definitions_file.write_text(json.dumps(definitions))
        words += ["--definitions", str(definitions_file)]
    with running(words, dict(os.environ), directory / "log") as process:
        port, version = await_listening(process, name, directory / "log", port)
        yield Broker(name, port, process.pid, version)


@contextlib.contextmanager
def attached(port: int, pid: int) -> Iterator[Broker]:
    """A broker that runs already and goes on running."""
    version = speaks_amqp(port)
    if version is None:
        raise BrokerFailure(f"no AMQP broker answers on port {port}")
    yield Broker("FlintMQ" if version.startswith("FlintMQ") else "broker", port, pid, version)


@contextlib.contextmanager
def rabbitmq(directory: Path, settings: str = "") -> Iterator[Broker]:
    """Debian's RabbitMQ with these settings, on a port, a node name and directories of its own."""
    for name in ("data", "log"):
        (directory / name).mkdir(parents=True)
    port = free_port()
    (directory / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = false\nlog.file.level = warning\n"
        f"vm_memory_high_watermark.relative = 0.6\n{settings}"
    )
    (directory / "enabled_plugins").write_text("[].\n")
    environment = dict(
        rabbitmq_environment(directory, port),
        RABBITMQ_CONFIG_FILE=str(directory / "rabbitmq"),
        RABBITMQ_ENABLED_PLUGINS_FILE=str(directory / "enabled_plugins"),
        RABBITMQ_MNESIA_BASE=str(directory / "data"),
        RABBITMQ_LOG_BASE=str(directory / "log"),
        RABBITMQ_DIST_PORT=str(free_port()),
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}",
    )
    with running([str(RABBITMQ_SERVER)], environment, directory / "output") as process:
        _, version = await_listening(process, "RabbitMQ", directory / "output", port)
        yield Broker("RabbitMQ", port, working_process(process.pid, "beam.smp"), version)


def rabbitmq_environment(directory: Path, port: int) -> dict[str, str]:
    """What a node and its tools have to agree on."""
    return dict(
        os.environ,
        HOME=str(directory),
        RABBITMQ_NODENAME=f"bench{port}@localhost",
        ERL_EPMD_ADDRESS="127.0.0.1",
    )


def rabbitmqctl(directory: Path, port: int, *words: str) -> str:
    """What RabbitMQ's own tool says to a node that `rabbitmq` has started."""
    command = [str(RABBITMQ_SERVER.with_name("rabbitmqctl")), *words]
    done = subprocess.run(
        command, env=rabbitmq_environment(directory, port), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BrokerFailure(f"rabbitmqctl {words[0]}: {done.stdout} {done.stderr}")
    return done.stdout


def working_process(session: int, name: str) -> int:
    """The process of that name in a session: RabbitMQ's work is done by a child of the started script."""
    for stat_file in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = stat_file.read_text()
        except OSError:  # it ended while we looked
            continue
        fields = stat[stat.rindex(")") + 2 :].split()
        if stat[stat.index("(") + 1 : stat.rindex(")")] == name and int(fields[3]) == session:
            return int(stat_file.parent.name)
    raise BrokerFailure(f"no process {name} in session {session}")
