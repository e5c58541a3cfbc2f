"""How quick the HTTP API is with many queues: `python benchmarks/management.py [queues]`.

`python benchmarks/management.py --watched [queues] [rounds] [figures]` tells what it costs to be watched
instead: the loads a16, c16 and f of run.py beside 10,000 queues, in random turns on one broker: alone,
watched, and beside a control. Watched means that metrics are scraped each second, and that two tabs of the
console are open, on the overview and on the list of queues. A process sends what these tabs ask for, as often
as they do: a browser runs on the machine of an operator, and must not take a processor of the broker here.
The control is a process that uses as much of a processor as the management process does, at the same
priority, and asks nothing: what it costs the loads is for want of a third processor. The ratio of the medians
counts. Before the turns the processor time of the broker, of the management process and of the one who asks
is counted, without a load.

Starts a broker with its management process, declares queues, and asks for a page of 100 sorted by each
column, and for the whole list. A bystander sends itself a message each few milliseconds meanwhile, from a
process of its own. Prints one line for each figure; the load of the machine stands above them.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import multiprocessing
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

import brokers
import run
import scenarios

from flintmq.client import connect
from flintmq.management import priority
from flintmq.wire.tables import FieldTable

QUEUES = 100_000
PAGES = 3  # for each column: the median counts
BYSTANDER_PAUSE_S = 0.004
QUIET_S = 5.0
# So many queues have messages.
FILLED = 1000
LOGIN = base64.b64encode(b"guest:guest").decode()
# Besides the columns that a row has.
DEEPER = (
    *("message_stats.publish", "message_stats.publish_details.rate", "messages_details.rate"),
    *("arguments.x-max-length", "effective_policy_definition.message-ttl"),
)
POLICIES = 10
# Beside how many queues loads are watched, how often and how long each is measured, and the pause before it.
WATCHED_QUEUES = 10_000
WATCHED_ROUNDS = 9
WATCHED_S = 2.5
SETTLED_S = 1.5
WATCHED_FIGURES = "a16,c16,f99"
# How long processor time is counted without a load.
COUNTED_S = 15.0
SCRAPE_S = 1.0
# What the console asks for each so many seconds: the overview in one tab, the list of queues in another. One
# tab asks half of that time after the other, so that each measured stretch meets what one of them asks.
CONSOLE_S = 5.0
TABS = (
    (
        "overview?msg_rates_age=600&msg_rates_incr=5&lengths_age=600&lengths_incr=5",
        "nodes",
        "queues?page=1&page_size=6&sort=messages&sort_reverse=true&columns=name,vhost,type,messages,"
        "messages_ready,messages_unacknowledged,consumers,message_stats",
        "flintmq/alarms",
        "flintmq/alarms",
    ),
    (
        "queues?page=1&page_size=50&sort=messages&sort_reverse=true&columns=name,vhost,type,state,durable,"
        "auto_delete,exclusive,policy,arguments,consumers,leases,messages,messages_ready,"
        "messages_unacknowledged,message_bytes,message_stats,idle_since",
        "flintmq/alarms",
    ),
)


class Api:
    """The HTTP API of the broker, over one connection."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)

    def get(self, path: str) -> bytes:
        return self.octets_of(f"/api/{path}")

    def scrape(self) -> bytes:
        return self.octets_of("/metrics")

    def octets_of(self, path: str) -> bytes:
        self.connection.request("GET", path, headers={"authorization": f"Basic {LOGIN}"})
        response = self.connection.getresponse()
        octets = response.read()
        if response.status != 200:
            raise SystemExit(f"GET {path}: {response.status} {octets[:200]!r}")
        return octets

    def put(self, path: str, body: object) -> None:
        headers = {"authorization": f"Basic {LOGIN}", "content-type": "application/json"}
        self.connection.request("PUT", f"/api/{path}", json.dumps(body), headers)
        response = self.connection.getresponse()
        octets = response.read()
        if response.status not in (201, 204):
            raise SystemExit(f"PUT {path}: {response.status} {octets[:200]!r}")

    def timed(self, path: str) -> float:
        began_s = time.perf_counter()
        self.get(path)
        return 1000 * (time.perf_counter() - began_s)


@contextmanager
def broker(*more: str) -> Iterator[tuple[int, int, int]]:
    """A broker: its ports for AMQP and HTTP, and its process id."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as settings:
        settings.write("[limits]\nqueues_per_virtual_host_max = 1_000_000\n")
        settings.flush()
        options = ["--port", "0", "--management-port", "0", "--config", settings.name, *more]
        command = [sys.executable, "-m", "flintmq", "serve", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with served(process) as ports:
            yield *ports, process.pid


@contextmanager
def served(process: subprocess.Popen[str]) -> Iterator[tuple[int, int]]:
    assert process.stdout is not None
    try:
        ports = [0, 0]
        for line in process.stdout:
            for at, pattern in enumerate((r"amqp://127\.0\.0\.1:(\d+)", r"management on http://[^ ]*:(\d+)")):
                if found := re.search(pattern, line):
                    ports[at] = int(found[1])
            if all(ports):
                break
        # What it says from now on is read, or it would stand still.
        subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL)
        yield ports[0], ports[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def declare(port: int, queues: int) -> None:
    with connect(f"amqp://guest:guest@127.0.0.1:{port}") as connection, connection.channel() as channel:
        for number in range(queues):
            arguments: FieldTable = {"x-max-length": 1000 + number % 100} if number % 4 == 0 else {}
            channel.queue(f"queue.{number * 7919 % queues:06}", arguments=arguments)
        for number in range(min(FILLED, queues)):
            for _ in range(1 + number % 7):
                channel.publish(b"x" * 16, routing_key=f"queue.{number:06}")
        channel.queue("queue.000001", passive=True)  # all of that is done


def set_policies(api: Api) -> None:
    """Each queue has one of them, and half of them an operator policy too."""
    for number in range(POLICIES):
        definition = {"message-ttl": 3_600_000 + number}
        body = {"pattern": f"^queue\\..*{number}$", "definition": definition, "apply-to": "queues"}
        api.put(f"policies/%2F/policy-{number}", body)
    body = {"pattern": "[02468]$", "definition": {"max-length": 100_000}, "apply-to": "queues"}
    api.put("operator-policies/%2F/cap", body)


def stand_by(port: int, pipe: Connection) -> None:
    """Sends itself messages. Told to, it hands over how long each took since it was asked last."""
    took_ms: list[float] = []
    with connect(f"amqp://guest:guest@127.0.0.1:{port}") as connection, connection.channel() as channel:
        queue = channel.queue("", exclusive=True).name
        with channel.consume(queue, no_ack=True) as consumer:
            while True:
                began_s = time.perf_counter()
                channel.publish(b"x" * 16, routing_key=queue)
                while not consumer.take(1, 5):
                    pass
                took_ms.append(1000 * (time.perf_counter() - began_s))
                if pipe.poll():
                    if not pipe.recv():
                        return
                    pipe.send(took_ms)
                    took_ms = []
                time.sleep(BYSTANDER_PAUSE_S)


class Bystander:
    def __init__(self, port: int) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=stand_by, args=(port, theirs), daemon=True)
        self.process.start()
        theirs.close()  # else nobody would hear of its end
        self.took_ms()

    def took_ms(self) -> list[float]:
        self.pipe.send(True)
        found: list[float] = self.pipe.recv()
        return found

    def during(self, name: str, work: Callable[[], object]) -> None:
        self.took_ms()
        work()
        took_ms = sorted(self.took_ms())
        shown = [took_ms[min(len(took_ms) - 1, int(part * len(took_ms)))] for part in (0.5, 0.99, 1.0)]
        row(f"bystander, {name}", *(f"{each:.1f}" for each in shown), f"{len(took_ms)} messages")

    def stop(self) -> None:
        self.pipe.send(False)
        self.process.join(10)


def row(name: str, *values: str) -> None:
    sys.stdout.write(f"{name:<52}" + "".join(f"{value:>16}" for value in values) + "\n")
    sys.stdout.flush()


def memory_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def columns(api: Api) -> list[str]:
    (shown,) = json.loads(api.get("queues?page=1&page_size=1"))["items"]
    return [*(name for name in shown if not name.endswith("_details")), *DEEPER]


def pages(api: Api, management: int) -> None:
    """Each column in turn: how long a page took, and how much of a processor's time."""
    found: list[tuple[float, float, str]] = []
    for column in columns(api):
        path = f"queues?page=1&page_size=100&sort={column}&sort_reverse=true"
        before_s = cpu_s(management)
        median_ms = sorted(api.timed(path) for _ in range(PAGES))[PAGES // 2]
        found.append((median_ms, 1000 * (cpu_s(management) - before_s) / PAGES, column))
    for took_ms, used_ms, column in sorted(found, reverse=True):
        row(f"page of 100 by {column}, ms", f"{took_ms:.0f}", f"{used_ms:.0f}")


def whole(api: Api, management: int) -> None:
    before_mib = memory_mib(management)
    began_s = time.perf_counter()
    octets = api.get("queues")
    took_s = time.perf_counter() - began_s
    rows = len(json.loads(octets))
    row(f"whole list, {rows} queues, s and MB", f"{took_s:.1f}", f"{len(octets) / 1e6:.0f}")
    row("management process before and after, MiB", f"{before_mib:.0f}", f"{memory_mib(management):.0f}")


def refreshed(api: Api, pids: tuple[int, int]) -> None:
    """What a look each second costs: processor time of the broker and of the management process."""
    before = [cpu_s(pid) for pid in pids]
    began_s = time.perf_counter()
    while time.perf_counter() - began_s < 4 * QUIET_S:
        api.get("queues?page=1&page_size=100&sort=messages&sort_reverse=true")
        time.sleep(1.0)
    took_s = time.perf_counter() - began_s
    used = [100 * (cpu_s(pid) - was) / took_s for pid, was in zip(pids, before, strict=True)]
    row("a page each second, % of a processor: broker, API", *(f"{each:.1f}" for each in used))


def watch(http_port: int, is_on: Event) -> None:
    """While it is on: scrapes metrics each second, and asks for what the console shows."""
    api = Api(http_port)
    tabs = itertools.cycle(TABS)
    scrape_s = ask_s = 0.0  # when the next one is due
    while True:
        if not is_on.is_set():
            api.connection.close()  # the broker ends what is idle while others have their turns
        is_on.wait()
        now_s = time.perf_counter()
        if now_s >= scrape_s:
            api.scrape()
            scrape_s = max(scrape_s + SCRAPE_S, now_s)
        if now_s >= ask_s:
            for path in next(tabs):
                api.get(path)
            ask_s = max(ask_s + CONSOLE_S / len(TABS), now_s)
        time.sleep(max(0.0, min(scrape_s, ask_s) - time.perf_counter()))


def burn(burnt_s: float, is_on: Event) -> None:
    """While it is on: uses so much of a processor each second, at the priority of the management process."""
    priority.give_way()
    while True:
        is_on.wait()
        began_s, until_s = time.perf_counter(), time.process_time() + burnt_s
        while time.process_time() < until_s:
            pass
        time.sleep(max(0.0, 1.0 - (time.perf_counter() - began_s)))


class Beside:
    """What goes on beside a load: one of the processes, or none of them."""

    def __init__(self) -> None:
        self.started: dict[str, tuple[multiprocessing.Process, Event]] = {}

    def start(self, name: str, target: Callable[..., None], argument: float) -> int:
        """Its process id; it waits for its turn."""
        is_on = multiprocessing.Event()
        process = multiprocessing.Process(target=target, args=(argument, is_on), daemon=True)
        process.start()
        self.started[name] = (process, is_on)
        assert process.pid is not None
        return process.pid

    def turn(self, name: str) -> None:
        """The turn of this one alone, of whom "" is nobody; what was begun before is over when it returns."""
        for each, (process, is_on) in self.started.items():
            if not process.is_alive():
                raise SystemExit(f"{each} has ended")
            (is_on.set if each == name else is_on.clear)()
        time.sleep(SETTLED_S)

    def stop(self) -> None:
        for process, _ in self.started.values():
            process.terminate()


def used_ms(pids: Sequence[int]) -> list[float]:
    """Milliseconds of a processor that each process uses in a second."""
    before = [cpu_s(pid) for pid in pids]
    began_s = time.perf_counter()
    time.sleep(COUNTED_S)
    took_s = time.perf_counter() - began_s
    return [1000 * (cpu_s(pid) - was) / took_s for pid, was in zip(pids, before, strict=True)]


def watched(queues: int, rounds: int, names: str) -> None:
    figures = scenarios.choose(scenarios.figures(), names)
    found: dict[tuple[str, str], list[float]] = {}
    beside = Beside()
    with tempfile.TemporaryDirectory() as folder, broker("--data", f"{folder}/data") as ports:
        amqp_port, http_port, pid = ports
        management = child_of(pid)
        tool = run.build_load_tool(Path(folder))
        declare(amqp_port, queues)
        row(f"load of the machine, {os.cpu_count()} processors", *(f"{each:.1f}" for each in os.getloadavg()))
        watcher = beside.start("watched", watch, http_port)
        pids = (pid, management, watcher)
        row(f"without a load, {queues} queues, ms of CPU a second", "broker", "API", "asker")
        for name in ("", "watched"):
            beside.turn(name)
            time.sleep(CONSOLE_S)  # each queue has been told once
            used = used_ms(pids)
            row(name or "alone", *(f"{each:.1f}" for each in used))
        beside.start("control", burn, used[1] / 1000)
        with brokers.attached(amqp_port, pid) as target:
            turns = [(figure, name) for figure in figures for name in ("", "watched", "control")] * rounds
            for figure, name in random.sample(turns, len(turns)):
                beside.turn(name)
                report = run.measure(tool, target, figure.load, WATCHED_S)
                if not report.get("ok"):
                    raise SystemExit(f"{figure.name}: {report.get('failure')}")
                found.setdefault((figure.name, name), []).append(figure.read(report))
        beside.stop()
    row("median", "alone", "watched", "ratio", "control", "ratio")
    for figure in figures:
        alone, *others = (statistics.median(found[figure.name, name]) for name in ("", "watched", "control"))
        told = [text for each in others for text in (f"{each:,.0f}", f"{each / alone:.3f}")]
        row(f"{figure.name}, {figure.unit}", f"{alone:,.0f}", *told)
    row("load of the machine at the end", *(f"{each:.1f}" for each in os.getloadavg()))


def child_of(pid: int) -> int:
    """The management process of a broker."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def main() -> None:
    if sys.argv[1:2] == ["--watched"]:
        given = [*sys.argv[2:], *("", "", "")]
        watched(int(given[0] or WATCHED_QUEUES), int(given[1] or WATCHED_ROUNDS), given[2] or WATCHED_FIGURES)
        return
    queues = int(sys.argv[1]) if len(sys.argv) > 1 else QUEUES
    with broker() as (amqp_port, http_port, pid):
        declare(amqp_port, queues)
        api = Api(http_port)
        set_policies(api)
        management = child_of(pid)
        row(f"load of the machine, {os.cpu_count()} processors", *(f"{each:.1f}" for each in os.getloadavg()))
        row("first page, ms", f"{api.timed('queues?page=1&page_size=100'):.0f}")
        bystander = Bystander(amqp_port)
        row("bystander", "p50 ms", "p99 ms", "max ms")
        row("page", "median ms", "used ms")
        bystander.during("quiet", lambda: time.sleep(QUIET_S))
        bystander.during("pages", lambda: pages(api, management))
        bystander.during("whole list", lambda: whole(api, management))
        bystander.during("a page each second", lambda: refreshed(api, (pid, management)))
        row("load of the machine at the end", *(f"{each:.1f}" for each in os.getloadavg()))
        bystander.stop()


if __name__ == "__main__":
    main()
