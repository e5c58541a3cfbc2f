"""`flintmq bench`: load on a broker, and what it does with it: rates and latencies.

Each producer and each consumer is a process with a connection of its own. A message begins with the time at
which it was published, by the clock that all processes of a machine share.

    producer processes --> broker --> consumer processes
             +--------- reports ---------+--> the command, which adds them up each second
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import signal
import struct
import uuid
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from flintmq.cli.operating import running_broker
from flintmq.cli.output import statuses, tables
from flintmq.cli.output.statuses import CommandFault
from flintmq.clock import Clock

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

    from flintmq.client import Connection, Message, Settings

STAMP = struct.Struct(">d")
# Published by one call; at a given rate, what a hundredth of a second takes.
BATCH = 100
TURNS_PER_S = 100
REPORT_EACH_S = 0.25
TAKEN_MAX = 1000
# How long consumers wait for messages that are on their way when the producers have ended.
DRAIN_S = 5.0
JOIN_S = 10.0
# How long producers whose time is over, or that have to send so many, may send nothing: an alarm of the
# broker keeps them from ending.
BLOCKED_S = 10.0
# Longer than any load runs.
LATENCY_S_MAX = 1e6
SHARES = (
    ("min", 0.0),
    ("median", 0.5),
    ("p75", 0.75),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("max", 1.0),
)


@dataclass(frozen=True)
class Load:
    """What one process does."""

    settings: Settings
    exchange: str
    routing_key: str
    queue: str
    size: int
    rate: float
    confirm: int
    prefetch: int
    ack_every: int
    auto_ack: bool
    persistent: bool
    messages: int


@dataclass
class Report:
    """What a process has done since its last report."""

    sent: int = 0
    received: int = 0
    latencies: Counter[int] = field(default_factory=Counter)
    is_over: bool = False
    failure: str = ""


def add(command: str, parser: argparse.ArgumentParser) -> None:
    running_broker.add_options(parser)
    tables.add_options(parser)
    number: Any = {"type": tables.whole, "metavar": "N"}
    parser.add_argument("-x", "--producers", default=1, help="processes that publish (1)", **number)
    parser.add_argument("-y", "--consumers", default=1, help="processes that consume (1)", **number)
    parser.add_argument(
        "-z", "--time", type=tables.amount, metavar="S", help="publish for so long (10, or until -C)"
    )
    parser.add_argument("-C", "--messages", default=0, help="so many from each producer", **number)
    parser.add_argument("-s", "--size", default=100, help="octets of a body (100)", **number)
    parser.add_argument(
        "-r", "--rate", type=tables.amount, default=0.0, metavar="N", help="a second, of each producer"
    )
    parser.add_argument(
        "-c", "--confirm", default=0, help="confirms, N messages unconfirmed at most", **number
    )
    parser.add_argument("-q", "--prefetch", default=1000, help="of each consumer (1000)", **number)
    parser.add_argument("-A", "--ack-every", default=100, help="messages for one ack (100)", **number)
    parser.add_argument("-a", "--auto-ack", action="store_true", help="consume without acks")
    parser.add_argument(
        "-f", "--persistent", action="store_true", help="a durable queue, persistent messages"
    )
    parser.add_argument("-u", "--queue", metavar="Q", help="this queue, which stays (one of its own)")
    parser.add_argument("--type", choices=("classic", "quorum", "stream"), help="the type of the queue")
    # Without the -y that other commands have: here it is that of PerfTest.
    parser.add_argument("--yes", action="store_true", help="use a queue that others use, too")
    parser.set_defaults(run=bench)


def bench(options: argparse.Namespace) -> int:
    if options.producers < 0 or options.consumers < 0 or options.producers + options.consumers == 0:
        raise CommandFault("expected a producer or a consumer at least", statuses.USAGE)
    if options.size < STAMP.size:
        raise CommandFault(f"--size: a message has {STAMP.size} octets at least", statuses.USAGE)
    settings = running_broker.settings_of(options)
    name = options.queue or f"flintmq-bench-{uuid.uuid4()}"
    from flintmq.client import connect

    with connect(settings) as connection, connection.channel() as channel:
        arguments = {"x-queue-type": options.type} if options.type else None
        durable = options.persistent or options.type in ("quorum", "stream")
        if options.queue is not None:
            ask_for_the_queue(connection, options)
        channel.queue(name, durable=durable, arguments=arguments)
        try:
            total, seconds, received_s = measured(options, load_of(options, settings, name))
        finally:
            if options.queue is None:
                channel.delete_queue(name)
    summary = summary_of(total, seconds, received_s, options)
    if options.json:
        tables.print_json(summary)
    else:
        for line in lines_of(summary):
            print(line)
    return 0


def ask_for_the_queue(connection: Connection, options: argparse.Namespace) -> None:
    """Consumers of the load would take the messages of others, and consumers of others those of the load."""
    from flintmq.client import ServiceError

    try:
        found: Any = connection.request("queue.info", {"queue": options.queue}).results
    except ServiceError as error:
        if error.code != 404:
            raise
        return  # the queue is made for the load
    messages = found["messages-ready"] + found["messages-unacked"]
    if messages or found["consumers"]:
        tables.confirm(
            options,
            f"queue {options.queue!r} has {messages:,} messages and {found['consumers']:,} consumers: "
            "the load would be mixed with them, and messages taken from the queue",
        )


def load_of(options: argparse.Namespace, settings: Settings, name: str) -> Load:
    return Load(
        settings=settings,
        exchange="",
        routing_key=name,
        queue=name,
        size=options.size,
        rate=options.rate,
        confirm=options.confirm,
        prefetch=options.prefetch,
        ack_every=max(1, min(options.ack_every, options.prefetch or options.ack_every)),
        auto_ack=options.auto_ack,
        persistent=options.persistent,
        messages=options.messages,
    )


def measured(options: argparse.Namespace, load: Load) -> tuple[Report, float, float]:
    """Runs the processes, tells of each second, and adds up."""
    context = multiprocessing.get_context("spawn")
    reports: Any = context.Queue()
    ready, stop, drained = context.Semaphore(0), context.Event(), context.Event()
    go = context.Event()
    makers = [(produce, stop)] * options.producers + [(consume, drained)] * options.consumers
    processes = [
        context.Process(target=worker, args=(work, load, reports, ready, go, end), daemon=True)
        for work, end in makers
    ]
    for process in processes:
        process.start()
    try:
        return Run(options, processes, reports, ready, go, stop, drained).follow()
    finally:
        stop.set()
        drained.set()
        for process in processes:
            process.join(JOIN_S)
            if process.is_alive():
                process.kill()
                process.join()


class Run:
    """The processes at work, seen from the command."""

    def __init__(
        self,
        options: argparse.Namespace,
        processes: list[Any],
        reports: Any,
        ready: Any,
        go: Event,
        stop: Event,
        drained: Event,
    ) -> None:
        self.options = options
        self.processes = processes
        self.reports = reports
        self.ready = ready
        self.go = go
        self.stop = stop
        self.drained = drained
        self.clock = Clock()
        self.total = Report()
        self.second = Report()
        self.over = 0
        self.received_s = 0.0
        self.moved: tuple[int, float] | None = None  # how many were sent, and when the count was new

    def follow(self) -> tuple[Report, float, float]:
        """The sum of all reports, and how long it took to send, and to receive."""
        for _ in self.processes:
            while not self.ready.acquire(timeout=REPORT_EACH_S):
                self.take(0.0)
                self.check_alive()
        self.go.set()
        begun_s = self.clock.monotonic_s()
        time_s = self.options.time or (None if self.options.messages else 10.0)
        tell_s = begun_s + 1.0
        try:
            while self.over < self.options.producers or not self.options.producers:
                self.take(REPORT_EACH_S)
                now_s = self.clock.monotonic_s()
                if now_s >= tell_s:
                    self.tell(now_s - begun_s)
                    tell_s += 1.0
                if time_s is not None and now_s - begun_s >= time_s:
                    self.stop.set()
                    if not self.options.producers:
                        break
                    self.check_progress(now_s)
                elif time_s is None and self.options.producers and not 0 < self.options.rate < 1:
                    self.check_progress(now_s)  # nothing else ends a load of so many messages
                self.check_alive()
        except KeyboardInterrupt:
            self.stop.set()  # what was measured until then is told
        seconds = self.clock.monotonic_s() - begun_s
        self.drain()
        return self.total, seconds, max(seconds, self.received_s - begun_s)

    def drain(self) -> None:
        """Consumers get what is still on its way."""
        until_s = self.clock.monotonic_s() + DRAIN_S
        expected = self.total.sent if self.options.consumers and self.options.producers else 0
        while self.total.received < expected and self.clock.monotonic_s() < until_s:
            before = self.total.received
            self.take(REPORT_EACH_S)
            if self.total.received > before:
                until_s = self.clock.monotonic_s() + DRAIN_S
        self.drained.set()
        self.stop.set()
        until_s = self.clock.monotonic_s() + DRAIN_S
        while self.over < len(self.processes) and self.clock.monotonic_s() < until_s:
            self.take(REPORT_EACH_S)

    def take(self, timeout_s: float) -> None:
        """All reports there are, at least one unless none comes in time."""
        try:
            while True:
                self.add(self.reports.get(timeout=timeout_s) if timeout_s else self.reports.get_nowait())
                timeout_s = 0.0
        except queue.Empty:
            return

    def add(self, report: Report) -> None:
        if report.failure:
            raise CommandFault(report.failure)
        self.over += report.is_over
        if report.received:
            self.received_s = self.clock.monotonic_s()
        for into in (self.total, self.second):
            into.sent += report.sent
            into.received += report.received
            into.latencies.update(report.latencies)

    def tell(self, seconds: float) -> None:
        second, self.second = self.second, Report()
        if self.options.json:
            return
        latency = percentiles(second.latencies)
        words = f", latency median {latency['median']:.1f} ms, p99 {latency['p99']:.1f} ms" if latency else ""
        print(f"{seconds:5.1f} s  sent {second.sent:,}/s, received {second.received:,}/s{words}", flush=True)

    def check_progress(self, now_s: float) -> None:
        """A fault when producers that should end have sent nothing for a while."""
        sent = self.total.sent + self.second.sent
        if self.moved is None or self.moved[0] != sent:
            self.moved = sent, now_s
        elif now_s - self.moved[1] >= BLOCKED_S:
            raise CommandFault(
                f"the broker has taken no message of the load for {BLOCKED_S:g} s; see: flintmq alarms"
            )

    def check_alive(self) -> None:
        for process in self.processes:
            if process.exitcode not in (None, 0):
                self.take(REPORT_EACH_S)  # it may have said why
                raise CommandFault(f"a process of the load has ended with {process.exitcode}")


# In the processes


def worker(work: Any, load: Load, reports: Any, ready: Any, go: Event, end: Event) -> None:
    """One producer or consumer. An interrupt is for the command, which ends all of them."""
    from flintmq.client import ClientError

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        work(load, reports, ready, go, end)
    except ClientError as error:
        reports.put(Report(failure=str(error)))
        ready.release()


def produce(load: Load, reports: Any, ready: Any, go: Event, stop: Event) -> None:
    from flintmq.client import connect

    clock, report = Clock(), Report()
    filling = bytes(load.size - STAMP.size)
    batch = BATCH if not load.rate else max(1, int(load.rate / TURNS_PER_S))
    if load.confirm:
        batch = min(batch, load.confirm)
    with connect(load.settings) as connection, connection.channel(confirm=bool(load.confirm)) as channel:
        ready.release()
        go.wait()
        begun_s = told_s = clock.monotonic_s()
        sent = 0
        while not stop.is_set() and (not load.messages or sent < load.messages):
            some = min(batch, load.messages - sent) if load.messages else batch
            if load.rate:
                ahead_s = sent / load.rate - (clock.monotonic_s() - begun_s)
                if ahead_s > 0:
                    clock.sleep(min(ahead_s, REPORT_EACH_S))
                    continue
            body = STAMP.pack(clock.monotonic_s()) + filling
            channel.publish_many(
                [body] * some, load.exchange, load.routing_key, persistent=load.persistent, wait=False
            )
            if load.confirm and channel.unconfirmed + batch > load.confirm:
                channel.wait_for_confirms()
            sent += some
            report.sent += some
            now_s = clock.monotonic_s()
            if now_s - told_s >= REPORT_EACH_S:
                reports.put(report)
                report, told_s = Report(), now_s
    report.is_over = True
    reports.put(report)


def consume(load: Load, reports: Any, ready: Any, go: Event, drained: Event) -> None:
    from flintmq.client import connect

    clock, report = Clock(), Report()
    told_s = clock.monotonic_s()
    with connect(load.settings) as connection, connection.channel(prefetch=load.prefetch) as channel:  # noqa: SIM117
        with channel.consume(load.queue, no_ack=load.auto_ack) as consumer:
            ready.release()
            go.wait()
            unacked: list[Message] = []
            while not drained.is_set():
                messages = consumer.take(TAKEN_MAX, timeout_s=REPORT_EACH_S)
                now_s = clock.monotonic_s()
                for message in messages:
                    latency_s = latency_of(message.body, load.size, now_s)
                    if latency_s is not None:
                        report.latencies[rounded(int(1e6 * latency_s))] += 1
                report.received += len(messages)
                unacked += messages
                is_due = len(unacked) >= load.ack_every or not messages
                if unacked and is_due and not load.auto_ack:
                    unacked[-1].ack(multiple=True)
                    unacked.clear()
                if now_s - told_s >= REPORT_EACH_S:
                    reports.put(report)
                    report, told_s = Report(), now_s
    report.is_over = True
    reports.put(report)


def latency_of(body: bytes, size: int, now_s: float) -> float | None:
    """None of a message that is none of the load: it was in the queue before."""
    if len(body) != size:
        return None
    found: float = now_s - STAMP.unpack_from(body)[0]
    return found if 0 <= found < LATENCY_S_MAX else None


def rounded(microseconds: int) -> int:
    """To six binary digits, 1.6 percent: so a histogram has some hundred entries."""
    shift = max(0, microseconds.bit_length() - 6)
    return microseconds >> shift << shift


# The outcome


def percentiles(latencies: Counter[int]) -> dict[str, float]:
    """In milliseconds; nothing where nothing was received."""
    total = latencies.total()
    if not total:
        return {}
    values = sorted(latencies)
    upto = list(accumulate(latencies[value] for value in values))
    return {name: values[bisect_left(upto, share * total)] / 1000 for name, share in SHARES}


def summary_of(
    total: Report, seconds: float, received_s: float, options: argparse.Namespace
) -> dict[str, Any]:
    return {
        "seconds": round(seconds, 3),
        "producers": options.producers,
        "consumers": options.consumers,
        "size": options.size,
        "sent": total.sent,
        "received": total.received,
        "sent_per_second": round(total.sent / seconds, 1),
        "received_per_second": round(total.received / received_s, 1),
        "latency_ms": percentiles(total.latencies),
    }


def lines_of(summary: dict[str, Any]) -> list[str]:
    lines = [
        f"sent      {summary['sent']:,} in {summary['seconds']:.1f} s, {summary['sent_per_second']:,.0f}/s",
        f"received  {summary['received']:,}, {summary['received_per_second']:,.0f}/s",
    ]
    if summary["latency_ms"]:
        told = ", ".join(f"{name} {value:.1f}" for name, value in summary["latency_ms"].items())
        lines.append(f"latency   {told} ms")
    return lines
