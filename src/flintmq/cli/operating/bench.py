"""`flintmq bench`: load on a broker, and what it does with it: rates and latencies.

Each producer and each consumer is a process with a connection of its own. A message begins with the time at
which it was published, by the clock that all processes of a machine share.

    producer processes --> exchange --> queues --> consumer processes
             +--------- reports ---------+--> the command, which adds them up each second

A producer goes through the routing keys in turn, and knows how many queues each of them leads to: what it has
sent times the receivers is what consumers should receive, and what is missing in the end was lost.
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import re
import signal
import struct
import uuid
from bisect import bisect_left
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

from flintmq.cli.operating import running_broker
from flintmq.cli.output import statuses, tables
from flintmq.cli.output.statuses import CommandFault
from flintmq.clock import Clock

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

    from flintmq.client import Channel, Connection, Message, Settings

T = TypeVar("T")
STAMP = struct.Struct(">d")
# Published by one call; at a given rate, what a hundredth of a second takes.
BATCH = 100
TURNS_PER_S = 100
REPORT_EACH_S = 0.25
TAKEN_MAX = 1000
# Between two looks at several queues that were empty.
LOOK_S = 0.001
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
    routing_keys: tuple[str, ...]
    receivers: tuple[int, ...]  # of a message with each of these keys
    first: int  # the key to begin with
    queues: tuple[str, ...]
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
    expected: int = 0  # of what was sent, by all consumers together
    received: int = 0
    received_s: float = 0.0  # when the last of these came, by the clock that all processes share
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
    add_topology(parser)
    parser.add_argument("--type", choices=("classic", "quorum", "stream"), help="the type of the queue")
    # Without the -y that other commands have: here it is that of PerfTest.
    parser.add_argument("--yes", action="store_true", help="use a queue that others use, too")
    parser.set_defaults(run=bench)


def add_topology(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the topology; %d in a name is the number of the topic or of the queue")
    number: Any = {"type": tables.whole, "metavar": "N"}
    group.add_argument("-u", "--queue", metavar="Q", help="this queue, which stays (one of its own)")
    group.add_argument("--queues", default=1, help="so many queues; each gets its copies (1)", **number)
    group.add_argument("-e", "--exchange", metavar="E", help="publish to this exchange, which stays")
    group.add_argument(
        "-t",
        "--exchange-type",
        metavar="TYPE",
        help="topic, direct, fanout or another (topic); without -e an exchange of its own",
    )
    group.add_argument("-k", "--routing-key", metavar="KEY", help="of the messages (topic.%%d)")
    group.add_argument("--topics", default=0, help="so many routing keys in turn (1)", **number)
    group.add_argument(
        "--topics-per-queue", default=0, help="that each queue is bound by (topics / queues)", **number
    )
    group.add_argument(
        "-B", "--binding-key", action="append", metavar="KEY", help="bind each queue by this key instead"
    )


def bench(options: argparse.Namespace) -> int:
    if options.producers < 0 or options.consumers < 0 or options.producers + options.consumers == 0:
        raise CommandFault("expected a producer or a consumer at least", statuses.USAGE)
    if options.size < STAMP.size:
        raise CommandFault(f"--size: a message has {STAMP.size} octets at least", statuses.USAGE)
    settings = running_broker.settings_of(options)
    from flintmq.client import connect

    with connect(settings) as connection, connection.channel() as channel:
        plan = plan_of(options, connection)
        given = plan.queues if options.queue is not None else ()
        is_mixed = True in [ask_for_the_queue(connection, options, name) for name in given]
        try:
            declare(channel, plan, options)
            total, seconds, received_s = measured(options, load_of(options, settings, plan))
        finally:
            remove(connection, plan, options)
    summary = summary_of(total, seconds, received_s, options)
    if is_mixed or not plan.is_counted or not options.producers or not options.consumers:
        del (
            summary["expected"],
            summary["lost"],
        )  # others take messages as well, or nobody knows where they go
    if options.json:
        tables.print_json(summary)
    else:
        for line in lines_of(summary):
            print(line)
    return statuses.FAILED if summary.get("lost") else 0


# The topology


@dataclass(frozen=True)
class Plan:
    """Where messages go: `receivers` has how many consumers get a message, for each routing key."""

    exchange: str
    exchange_type: str
    is_new: bool  # the exchange has to be declared
    routing_keys: tuple[str, ...]
    queues: tuple[str, ...]
    bindings: tuple[tuple[str, ...], ...]  # of each queue
    receivers: tuple[int, ...]
    is_counted: bool = True


def numbered(pattern: str, number: int) -> str:
    return pattern.replace("%d", str(number))


def plan_of(options: argparse.Namespace, connection: Connection) -> Plan:
    if options.queues < 1:
        raise CommandFault("--queues: expected 1 at least", statuses.USAGE)
    if options.queues > 1 and options.queue is not None and "%d" not in options.queue:
        raise CommandFault("--queue: several queues need %d in their name, for the number", statuses.USAGE)
    own = f"flintmq-bench-{uuid.uuid4()}"
    pattern = options.queue or (f"{own}-%d" if options.queues > 1 else own)
    queues = tuple(numbered(pattern, at + 1) for at in range(options.queues))
    # Each consumer of a stream reads all of it; of other queues each message goes to one consumer.
    is_stream = options.type == "stream"
    copies = max(1, options.consumers // options.queues) if is_stream else 1
    is_even = not is_stream or options.consumers <= options.queues or not options.consumers % options.queues
    asked = (options.exchange, options.exchange_type, options.routing_key, options.binding_key)
    if not options.topics and not options.topics_per_queue and all(each is None for each in asked):
        receivers = (copies,) * len(queues)
        return Plan("", "direct", False, queues, queues, ((),) * len(queues), receivers, is_even)
    exchange = own if options.exchange is None else options.exchange
    found = type_of(connection, exchange)
    kind = options.exchange_type or found or "topic"
    topics = max(1, options.topics)
    key = options.routing_key if options.routing_key is not None else "topic.%d"
    if topics > 1 and "%d" not in key:
        raise CommandFault("--routing-key: several topics need %d in it, for the number", statuses.USAGE)
    keys = tuple(numbered(key, at + 1) for at in range(topics))
    bindings = bindings_of(options, kind, keys)
    return Plan(
        exchange,
        kind,
        kind != found,
        keys,
        queues,
        bindings,
        tuple(copies * each for each in receivers_of(kind, keys, bindings)),
        is_counted=is_even and kind in ("topic", "direct", "fanout"),
    )


def type_of(connection: Connection, exchange: str) -> str | None:
    rows = running_broker.rows_of(connection, "exchange.list")
    return next((row["type"] for row in rows if row["name"] == exchange), None)


def bindings_of(options: argparse.Namespace, kind: str, keys: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The binding keys of each queue: those that were given, or its part of the routing keys."""
    if options.binding_key is not None:
        given: list[str] = options.binding_key
        return tuple(tuple(numbered(key, at + 1) for key in given) for at in range(options.queues))
    queues: int = options.queues
    if kind == "fanout":
        return (("",),) * queues
    each = min(options.topics_per_queue or -(-len(keys) // options.queues), len(keys))
    return tuple(
        tuple(keys[(at * each + part) % len(keys)] for part in range(each)) for at in range(options.queues)
    )


def receivers_of(kind: str, keys: tuple[str, ...], bindings: tuple[tuple[str, ...], ...]) -> tuple[int, ...]:
    """How many queues a message with each key goes to; a queue that is bound twice gets one copy."""
    if kind == "fanout":
        return (len(bindings),) * len(keys)
    exact: Counter[str] = Counter()
    wild: Counter[tuple[str, ...]] = Counter()  # queues by their keys: many have the same
    for of_queue in bindings:
        if kind == "topic" and any("*" in key or "#" in key for key in of_queue):
            wild[of_queue] += 1
        else:
            exact.update(set(of_queue))
    found = [exact[key] for key in keys]
    for patterns, count in wild.items():
        matching = re.compile("|".join(map(topic_pattern, patterns)))
        for at, key in enumerate(keys):
            found[at] += count if matching.fullmatch(key) else 0
    return tuple(found)


def topic_pattern(key: str) -> str:
    """A binding key of a topic exchange as a regular expression over routing keys: a word is [^.]*."""
    key = re.sub(r"#(\.#)+", "#", key)
    if key == "#":
        return ".*"
    parts: list[str] = []
    for at, word in enumerate(key.split(".")):
        before = r"\." if at else ""
        if word == "#":
            parts.append(r"(?:\.[^.]*)*" if at else r"(?:[^.]*\.)*?")
        elif at == 1 and key.startswith("#."):
            parts.append("[^.]*" if word == "*" else re.escape(word))
        else:
            parts.append(before + ("[^.]*" if word == "*" else re.escape(word)))
    return "".join(parts)


def declare(channel: Channel, plan: Plan, options: argparse.Namespace) -> None:
    arguments = {"x-queue-type": options.type} if options.type else None
    durable = options.persistent or options.type in ("quorum", "stream")
    if plan.is_new:
        channel.exchange(plan.exchange, plan.exchange_type, durable=options.persistent)
    for name, keys in zip(plan.queues, plan.bindings, strict=True):
        channel.queue(name, durable=durable, arguments=arguments)
        for key in keys:
            channel.bind_queue(name, plan.exchange, key)


def remove(connection: Connection, plan: Plan, options: argparse.Namespace) -> None:
    """What was made for the load, on a channel that no refusal has closed."""
    with connection.channel() as channel:
        if options.queue is None:
            for name in plan.queues:
                channel.delete_queue(name)
        if plan.exchange and options.exchange is None:
            channel.delete_exchange(plan.exchange)


def ask_for_the_queue(connection: Connection, options: argparse.Namespace, name: str) -> bool:
    """Whether others use the queue, which has to be confirmed: the load would take their messages, and they
    those of the load."""
    from flintmq.client import ServiceError

    try:
        found: Any = connection.request("queue.info", {"queue": name}).results
    except ServiceError as error:
        if error.code != 404:
            raise
        return False  # the queue is made for the load
    messages = found["messages-ready"] + found["messages-unacked"] + found.get("messages-delayed", 0)
    if messages or found["consumers"]:
        tables.confirm(
            options,
            f"queue {name!r} has {messages:,} messages and {found['consumers']:,} consumers: "
            "the load would be mixed with them, and messages taken from the queue",
        )
    return bool(messages or found["consumers"])


def load_of(options: argparse.Namespace, settings: Settings, plan: Plan) -> Load:
    return Load(
        settings=settings,
        exchange=plan.exchange,
        routing_keys=plan.routing_keys,
        receivers=plan.receivers,
        first=0,
        queues=plan.queues,
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
    makers: list[tuple[Any, Load, Event]] = [
        (produce, each, stop) for each in producer_loads(load, options.producers)
    ]
    makers += [(consume, each, drained) for each in consumer_loads(load, options.consumers)]
    processes = [
        context.Process(target=worker, args=(work, each, reports, ready, go, end), daemon=True)
        for work, each, end in makers
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


def producer_loads(load: Load, producers: int) -> list[Load]:
    """Each begins with another routing key."""
    apart = len(load.routing_keys) / max(1, producers)
    return [replace(load, first=int(at * apart), queues=()) for at in range(producers)]


def consumer_loads(load: Load, consumers: int) -> list[Load]:
    """Each has its part of the queues; where there are fewer queues, several share one."""
    queues = load.queues
    return [
        replace(
            load, queues=queues[at::consumers] or (queues[at % len(queues)],), routing_keys=(), receivers=()
        )
        for at in range(consumers)
    ]


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
        expected = self.total.expected if self.options.consumers and self.options.producers else 0
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
        self.received_s = max(self.received_s, report.received_s)
        for into in (self.total, self.second):
            into.sent += report.sent
            into.expected += report.expected
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
            at = (load.first + sent) % len(load.routing_keys)
            channel.publish_many(
                [body] * some,
                load.exchange,
                persistent=load.persistent,
                routing_keys=in_turn(load.routing_keys, at, some),
                wait=False,
            )
            report.expected += sum(in_turn(load.receivers, at, some))
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


def in_turn(values: tuple[T, ...], at: int, count: int) -> tuple[T, ...]:
    """So many of them from a place on, over and over."""
    rounds = (at + count) // len(values) + 1
    return (values if rounds == 1 else values * rounds)[at : at + count]


def consume(load: Load, reports: Any, ready: Any, go: Event, drained: Event) -> None:
    from flintmq.client import connect

    clock, report = Clock(), Report()
    told_s = clock.monotonic_s()
    with connect(load.settings) as connection, ExitStack() as opened:
        subscriptions = [Subscription(connection, load, name, opened) for name in load.queues]
        # One is waited for. Several are looked at in turn; after a round without a message the first of them
        # is waited for, for a moment: the socket is read meanwhile, for all of them.
        wait_s = REPORT_EACH_S if len(subscriptions) == 1 else 0.0
        ready.release()
        go.wait()
        while not drained.is_set():
            before = report.received
            for each in subscriptions:
                each.take(report, clock, wait_s)
            if wait_s == 0.0 and report.received == before:
                subscriptions[0].take(report, clock, LOOK_S)
            now_s = clock.monotonic_s()
            if now_s - told_s >= REPORT_EACH_S:
                reports.put(report)
                report, told_s = Report(), now_s
    report.is_over = True
    reports.put(report)


class Subscription:
    """One queue, on a channel of its own: an ack is for all messages of the channel up to one."""

    def __init__(self, connection: Connection, load: Load, queue: str, opened: ExitStack) -> None:
        self.load = load
        channel = opened.enter_context(connection.channel(prefetch=load.prefetch))
        self.consumer = opened.enter_context(channel.consume(queue, no_ack=load.auto_ack))
        self.unacked: list[Message] = []

    def take(self, report: Report, clock: Clock, wait_s: float) -> None:
        load = self.load
        messages = self.consumer.take(TAKEN_MAX, timeout_s=wait_s)
        now_s = clock.monotonic_s()
        for message in messages:
            latency_s = latency_of(message.body, load.size, now_s)
            if latency_s is not None:
                report.latencies[rounded(int(1e6 * latency_s))] += 1
        if messages:
            report.received_s = now_s
        report.received += len(messages)
        self.unacked += messages
        is_due = len(self.unacked) >= load.ack_every or not messages
        if self.unacked and is_due and not load.auto_ack:
            self.unacked[-1].ack(multiple=True)
            self.unacked.clear()


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
        "queues": options.queues,
        "topics": max(1, options.topics),
        "size": options.size,
        "sent": total.sent,
        "expected": total.expected,
        "received": total.received,
        "lost": max(0, total.expected - total.received),
        "sent_per_second": round(total.sent / seconds, 1),
        "received_per_second": round(total.received / received_s, 1),
        "latency_ms": percentiles(total.latencies),
    }


def lines_of(summary: dict[str, Any]) -> list[str]:
    lines = [
        f"sent      {summary['sent']:,} in {summary['seconds']:.1f} s, {summary['sent_per_second']:,.0f}/s",
        f"received  {summary['received']:,}, {summary['received_per_second']:,.0f}/s",
    ]
    if summary.get("expected", summary["sent"]) != summary["sent"] or summary.get("lost"):
        lost, expected = summary["lost"], summary["expected"]
        share = 100 * lost / max(1, expected)
        lines.append(f"lost      {lost:,} of {expected:,} expected by all queues, {share:.4g} %")
    if summary["latency_ms"]:
        told = ", ".join(f"{name} {value:.1f}" for name, value in summary["latency_ms"].items())
        lines.append(f"latency   {told} ms")
    return lines
