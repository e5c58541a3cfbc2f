"""The demo: a broker, market data, the pipelines bars and dropout on Spark, and a view of it all.

    feed --> stream flintmq.demo.ticks --> bars    --+
                                      +--> dropout --+--> exchange flintmq.demo --> this process: the view

The names are the demo's own, so that it may use the broker of somebody who has ticks and bars. One demo runs
on a broker at a time, and takes its stream and its exchange away when it ends.
Each part but the view is a process of its own, in a session of its own: Ctrl-C reaches this process alone,
which ends the others in order. Should it be killed, Linux ends them too.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from flintmq.client.core.errors import ClientError, ResourceLocked
from flintmq.client.sync.connection import Connection, connect
from flintmq.clock import Clock
from flintmq.errors import ConfigFault
from flintmq.pipelines.demo.feed import symbol_name
from flintmq.pipelines.errors import PipelineFailed
from flintmq.pipelines.queries.brokers import settings_of
from flintmq.pipelines.run import status

log = logging.getLogger("flintmq.pipelines")

STREAM = "flintmq.demo.ticks"
EXCHANGE = "flintmq.demo"
RUNNING = "flintmq.demo.running"  # an exclusive queue: a second demo is refused
# Some minutes of ticks: who comes late can still read them, and the disk does not fill.
STREAM_BYTES_MAX = 1 << 30
AMQP_PORT = 5672
MANAGEMENT_PORT = 15672
# What `flintmq[pipelines]` installs, and the demo cannot do without.
PIPELINES_NEED = ("pyspark", "pandas", "pyarrow")
# What `flintmq[management]` installs.
MANAGEMENT_NEEDS = ("starlette", "uvicorn", "orjson")
START_TIMEOUT_S = 120.0
# The watcher takes so many messages at a time, and looks so often whether the demo has ended.
TAKEN_MAX = 100
LOOK_S = 0.2
# Spark compiles much of itself at its first query. A machine with other work takes minutes for that.
SPARK_START_TIMEOUT_S = 600.0
SPARK_START_TOLD_S = 20.0
STOP_TIMEOUT_S = 30.0
SHOWN_SYMBOLS = 6
BAR_NUMBERS = ("open", "high", "low", "close", "volume", "vwap", "ticks")
GAP_NUMBERS = ("first", "last", "missing")
GAPS_KEPT = 40  # as many as the tallest terminal shows
PR_SET_PDEATHSIG = 1
_LISTENING = re.compile(r"listening on (amqp://\S+)")
_MANAGEMENT = re.compile(r"management on (http://\S+)")
_CSV_SCHEMA = (
    "feed STRING, seq BIGINT NOT NULL, symbol STRING NOT NULL, price DOUBLE, size BIGINT, time BIGINT"
)


@dataclass(frozen=True)
class DemoOptions:
    rate: int
    seconds: float | None = None
    symbols: int = 10_000
    uri: str | None = None
    port: int | None = None
    format: str = "json"
    master: str = "local[2]"
    state: str | None = None
    is_plain: bool = False


@dataclass
class Snapshot:
    """What the view shows at one moment."""

    seconds: float = 0.0
    sent: int = 0
    sent_per_s: float = 0.0
    gaps_made: int = 0
    gaps_found: int = 0
    numbers_left_out: int = 0
    numbers_missed: int = 0
    stream_end: int = 0
    pipelines: list[status.PipelineStatus] = field(default_factory=list)
    memory_bytes: dict[str, int] = field(default_factory=dict)
    bars: dict[str, dict[str, Any]] = field(default_factory=dict)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    news: str = ""


class Part:
    """A process of the demo. Its lines go to a log, and to whoever listens."""

    def __init__(
        self, name: str, command: list[str], log: Path, heard: Callable[[str], None] | None = None
    ) -> None:
        self.name = name
        self.log = log
        self.lines: list[str] = []
        self.said = threading.Condition()
        self.is_silent = False  # it has closed its output: it ends, or has ended
        self._heard = heard
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._write(line)
            with self.said:
                self.lines = [*self.lines[-50:], line.rstrip("\n")]
                self.said.notify_all()
            if self._heard is not None:
                self._heard(line)
        with self.said:
            self.is_silent = True
            self.said.notify_all()

    def _write(self, line: str) -> None:
        """A log without room must not hold the process up, which waits for whoever reads its lines."""
        try:
            with open(self.log, "a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            log.debug("%s: %s", self.log, error)

    def wait_for(self, pattern: re.Pattern[str]) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            return next(filter(None, map(pattern.search, self.lines)), None)

        with self.said:
            self.said.wait_for(lambda: found() or self.is_silent, START_TIMEOUT_S)
            match = found()
        if match is None:
            raise PipelineFailed(f"the {self.name} did not start: {self.last_words()}")
        return match

    def last_words(self) -> str:
        return self.lines[-1] if self.lines else f"it said nothing, see {self.log}"

    def check(self) -> None:
        if self.process.poll() is not None:
            raise PipelineFailed(
                f"the {self.name} ended with status {self.process.returncode}: "
                f"{self.last_words()} (see {self.log})"
            )

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(STOP_TIMEOUT_S)


def _die_with_parent() -> None:
    """Linux: when the demo is killed, its parts are told to end."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Watcher:
    """Listens to what the pipelines publish: bars of a few symbols, and all gaps."""

    def __init__(self, uri: str, symbols: list[str]) -> None:
        self.bars: dict[str, dict[str, Any]] = {}
        self.gaps: list[dict[str, Any]] = []
        self.gaps_found = 0
        self.numbers_missed = 0
        self.failure: ClientError | None = None
        self._ended = threading.Event()
        self._connection: Connection = connect(settings_of(uri))
        channel = self._connection.channel()
        queue = channel.queue(exclusive=True)
        for symbol in symbols:
            queue.bind(EXCHANGE, f"bar.{symbol}")
        queue.bind(EXCHANGE, "gap.#")
        self._consumer = queue.consume(no_ack=True)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            while not self._ended.is_set():
                for message in self._consumer.take(TAKEN_MAX, timeout_s=LOOK_S):
                    self._take(message.routing_key, message.body)
        except ClientError as error:
            self.failure = error  # look() tells it

    def _take(self, key: str, body: bytes) -> None:
        try:
            told = json.loads(body)
            self._note(key, told)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            log.debug("a message of somebody else, with key %r: %r", key, error)

    def _note(self, key: str, told: dict[str, Any]) -> None:
        if key.startswith("bar."):
            bar: dict[str, Any] = {"symbol": str(told["symbol"]), "start": str(told["start"])}
            bar.update((name, float(told[name])) for name in BAR_NUMBERS)
            known = self.bars.get(bar["symbol"])
            if known is None or bar["start"] >= known["start"]:  # a batch that is run again comes again
                self.bars[bar["symbol"]] = bar
            return
        gap: dict[str, Any] = {"feed": str(told["feed"]), "at": str(told["at"])}
        gap.update((name, int(told[name])) for name in GAP_NUMBERS)
        self.gaps = [*self.gaps[-GAPS_KEPT + 1 :], gap]
        self.gaps_found += 1
        self.numbers_missed += gap["missing"]

    def close(self) -> None:
        self._ended.set()
        self._thread.join(5.0)
        close_quietly(self._connection)


def close_quietly(connection: Connection) -> None:
    try:
        connection.close()
    except ClientError as error:
        log.debug("closing: %s", error)  # the broker has gone before


class Demo:
    """All parts, from the first to the last."""

    def __init__(self, options: DemoOptions, clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.directory = Path(options.state or tempfile.mkdtemp(prefix="flintmq-demo-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.parts: list[Part] = []
        self.watcher: Watcher | None = None
        self.uri = options.uri or ""
        self.fed: dict[str, int] = {"sent": 0, "gaps": 0, "left_out": 0}
        self.snapshot = Snapshot()
        self.ended = threading.Event()
        self.told: Callable[[str], None] = log.info
        self._asker: Connection | None = None
        self._is_declared = False
        self._measured = (0.0, 0)

    def _part(self, name: str, arguments: list[str], heard: Callable[[str], None] | None = None) -> Part:
        command = [sys.executable, "-m", *arguments]
        part = Part(name, command, self.directory / f"{name}.log", heard)
        self.parts.append(part)
        return part

    def start(self, told: Callable[[str], None]) -> None:
        self.told = told
        if not self.uri:
            told("starting a broker")
            data = str(self.directory / "broker")
            port = free_port(AMQP_PORT) if self.options.port is None else str(self.options.port)
            has_management = all(importlib.util.find_spec(name) for name in MANAGEMENT_NEEDS)
            management = ["--management-port", free_port(MANAGEMENT_PORT)] if has_management else []
            broker = self._part(
                "broker",
                ["flintmq", "serve", "--host", "127.0.0.1", "--port", port, "--data", data, *management],
            )
            self.uri = broker.wait_for(_LISTENING)[1]
            told(f"the broker listens on {self.uri}: any AMQP client may join")
            if management:
                told(f"its HTTP API is on {broker.wait_for(_MANAGEMENT)[1]}, for guest with guest")
        self._declare()
        told("starting Spark with the pipelines bars and dropout")
        self._part("pipelines", self._pipeline_arguments())
        self._wait_for_pipelines()
        if self.ended.is_set():
            return
        told(f"feeding {self.options.rate} ticks per second")
        symbols = [symbol_name(number) for number in range(SHOWN_SYMBOLS)]
        self.watcher = Watcher(self.uri, symbols)
        options = self.options
        self._part(
            "feed",
            [
                *("flintmq.pipelines.demo.feed", "--uri", self.uri, "--stream", STREAM),
                *("--rate", str(options.rate), "--symbols", str(options.symbols), "--format", options.format),
            ],
            self._hear_feed,
        )

    def _declare(self) -> None:
        self._asker = connect(settings_of(self.uri))
        channel = self._asker.channel()
        try:
            channel.queue(RUNNING, exclusive=True)
        except ResourceLocked:
            raise PipelineFailed(f"a demo runs on {self._asker.settings.address} already") from None
        self._is_declared = True
        arguments: dict[str, Any] = {"x-queue-type": "stream", "x-max-length-bytes": STREAM_BYTES_MAX}
        channel.queue(STREAM, durable=True, arguments=arguments)
        channel.exchange(EXCHANGE, "topic", durable=True)

    def _take_away(self) -> None:
        """From the broker of somebody else, what the demo has declared: up to a gigabyte of ticks."""
        asker = self._asker
        if asker is None or not self._is_declared or self.options.uri is None:
            return
        try:
            channel = asker.channel()
            channel.queue(STREAM, passive=True).delete()
            channel.exchange(EXCHANGE, passive=True).delete()
        except ClientError as error:
            self.told(f"stream {STREAM} or exchange {EXCHANGE} is left: {error}")

    def _pipeline_arguments(self) -> list[str]:
        options = self.options
        given = {"uri": self.uri, "stream": STREAM, "exchange": EXCHANGE, "format": options.format}
        given["starting"] = "latest"
        if options.format == "csv":
            given["schema"] = _CSV_SCHEMA
        made = ["flintmq", "pipeline", "run", "bars", "dropout", "--master", options.master, "--reset"]
        made += ["--state", str(self.directory)]
        for name, value in given.items():
            made += ["--set", f"{name}={value}"]
        return made

    def _wait_for_pipelines(self) -> None:
        """Until each flow runs: ticks sent before would be a backlog to begin with."""
        began_s = told_s = self.clock.monotonic_s()
        while not self.ended.wait(0.2):
            self.parts[-1].check()
            flows = [flow for each in status.read_all(self.directory) for flow in each.flows.values()]
            if flows and all(flow.state == status.RUNNING and flow.updated_ms for flow in flows):
                return
            failed = next((flow.last_error for flow in flows if flow.last_error), None)
            if failed is not None:
                raise PipelineFailed(f"the pipelines do not run: {failed}")
            now_s = self.clock.monotonic_s()
            if now_s - began_s > SPARK_START_TIMEOUT_S:
                raise PipelineFailed(
                    f"the pipelines did not start in {SPARK_START_TIMEOUT_S:.0f} s: "
                    f"{self.parts[-1].last_words()}"
                )
            if now_s - told_s >= SPARK_START_TOLD_S:
                told_s = now_s
                self.told(f"Spark has been starting for {now_s - began_s:.0f} s: {_states(flows)}")

    def _hear_feed(self, line: str) -> None:
        if line.startswith('{"sent":'):
            self.fed = json.loads(line)

    def look(self, began_s: float) -> Snapshot:
        """What is to be seen now."""
        for part in self.parts:
            part.check()
        assert self.watcher is not None
        if self.watcher.failure is not None:
            raise self.watcher.failure
        assert self._asker is not None
        now_s = self.clock.monotonic_s()
        shown = self.snapshot
        end = self._asker.stream(STREAM).offsets().end
        last_s, last_end = self._measured
        shown.sent_per_s = (end - last_end) / (now_s - last_s) if last_s else 0.0
        self._measured = (now_s, end)
        shown.seconds = now_s - began_s
        shown.stream_end = end
        shown.sent, shown.gaps_made = self.fed["sent"], self.fed["gaps"]
        shown.numbers_left_out = self.fed["left_out"]
        shown.gaps_found, shown.numbers_missed = self.watcher.gaps_found, self.watcher.numbers_missed
        shown.bars, shown.gaps = dict(self.watcher.bars), list(self.watcher.gaps)
        shown.pipelines = status.read_all(self.directory)
        shown.memory_bytes = {part.name: memory_bytes(part.process.pid) for part in self.parts}
        return shown

    def stop(self) -> None:
        """The feed first, so that nothing comes in any more; the broker last. Each is ended, whatever the end
        of another raises."""
        with contextlib.ExitStack() as last_to_first:
            if self.options.state is None:
                last_to_first.callback(shutil.rmtree, self.directory, ignore_errors=True)
            for part in self.parts:
                if part.name == "broker":
                    last_to_first.callback(part.stop)
            if self._asker is not None:
                last_to_first.callback(close_quietly, self._asker)
                last_to_first.callback(self._take_away)
            for part in self.parts:
                if part.name != "broker":
                    last_to_first.callback(part.stop)
            if self.watcher is not None:
                last_to_first.callback(self.watcher.close)


def _states(flows: list[status.FlowStatus]) -> str:
    """What a user who waits for Spark is told of its flows."""
    waiting = sum(flow.state != status.RUNNING for flow in flows)
    if waiting or not flows:
        return f"{waiting or 'all'} flows are not running yet"
    return "its flows run, their first batches do not have an end yet"


def memory_bytes(root: int) -> int:
    """What a process and all that descend from it hold, as far as Linux tells: pages shared by some count
    once each. A session does not tell them: Spark has one of its own."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            sizes[int(entry.name)] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            continue  # it ended while we looked
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    total, found = 0, [root]
    while found:
        pid = found.pop()
        total += sizes.get(pid, 0)
        found += children.pop(pid, [])  # popped: a number that came twice while we looked makes no circle
    return total


def run(options: DemoOptions) -> int:
    """The demo until its time is over or Ctrl-C; the exit status."""
    from flintmq.pipelines.demo.view import view_for

    for name, value in (("--rate", options.rate), ("--symbols", options.symbols)):
        if value < 1:
            raise ConfigFault(f"{name} {value}: expected a whole number from 1")
    require_installed()
    demo = Demo(options, Clock())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: demo.ended.set())
    view = view_for(options.is_plain)
    try:
        demo.start(view.tell)
        began_s = demo.clock.monotonic_s()
        with view:
            while not demo.ended.wait(1.0):
                shown = demo.look(began_s)
                view.show(shown)
                if options.seconds is not None and shown.seconds >= options.seconds:
                    break
    finally:
        view.tell("ending: feed, pipelines, broker")
        demo.stop()
    return 0


def require_installed() -> None:
    """A fault before anything is started: the pipelines would end a minute later, each with its own error."""
    missing = [name for name in PIPELINES_NEED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigFault(f"the demo needs {', '.join(missing)}: pip install 'flintmq[pipelines]'")


def free_port(usual: int) -> str:
    """The port that clients expect, or any other where that is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", usual))
        except OSError:
            return "0"
    return str(usual)
