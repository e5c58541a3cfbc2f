"""Has the network and the broker fail under every call of both clients, at every frame, and counts messages.

    python tools/client_faults.py --rounds 1000 --seed 7         so many rounds, in the order of the seed
    python tools/client_faults.py --calls publish_many,get --clients aio --kinds rst,hole
    python tools/client_faults.py --plan '{"call": ...}'         one round again, as a finding names it

tests/client_calls.py has the calls, and what each promises. A round is one call of one client, with the
network (tests/network_proxy.py) failing at one place while it is under way:

    fin, rst     the connection is cut, in an orderly way or by a reset
    half         the client is cut off, and the broker does not hear of it
    hole         both ways everything is swallowed
    stop         nothing is taken any more, so that sends block
    delay        one direction stands still for a while
    kill         the broker is killed with SIGKILL, and started again

before, within or after any frame that the call sends or receives. Some rounds fail once more, at a frame of
the connection that follows; some are refused for a time; and the settings of the client vary. All of that is
drawn from the seed. A round is good if each message is where the client said: safe, refused, or named as
unknown; if nothing came twice without a word; and if no call outlived its deadline by more than a second.
A finding is tried again with less: what is printed is the smallest plan that still shows it, and how often.
Exit status 1 if there was a finding.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import queue
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from broker_process import BrokerProcess  # noqa: E402 - found by the path above
from client_calls import CALLS, CLIENTS, Finding, Options, Visit  # noqa: E402
from network_proxy import (  # noqa: E402
    DIRECTIONS,
    EDGES,
    TO_BROKER,
    Action,
    Call,
    Cut,
    Delay,
    Fault,
    NetworkProxy,
    StopReading,
    Swallow,
)

from flintmq.client import ClientError, ConnectFailed, Connection, connect  # noqa: E402

# How often each is drawn.
KINDS = {"fin": 6, "rst": 5, "half": 2, "hole": 2, "stop": 2, "delay": 1, "kill": 2}
DELAY_S = 0.3
# A call that has not returned so long after its deadline does not return.
HANG_S = 8.0
# What a hanging call gets to end in, once its connections are reset.
RELEASED_S = 5.0
# Frames of a connection that is made again, up to which a second fault may strike.
FRAMES_AGAIN = 12
REPEATS = 2
# How often a round is begun whose first login takes too long.
BEGINS = 3


@dataclass(frozen=True)
class Place:
    """Where the network fails, and how."""

    kind: str
    direction: str = TO_BROKER
    frame: int = 1
    edge: str = "before"


@dataclass(frozen=True)
class Plan:
    """One round, all of it."""

    call: str
    options: Options = field(default_factory=Options)
    first: Place | None = None
    again: Place | None = None  # at the connection that follows
    refused_s: float = 0.0

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Plan:
        given = json.loads(text)
        first, again = (Place(**given[name]) if given.get(name) else None for name in ("first", "again"))
        return cls(
            given["call"], Options(**given.get("options", {})), first, again, given.get("refused_s", 0.0)
        )


@dataclass
class Result:
    plan: Plan
    is_reached: bool
    findings: list[Finding]
    told: list[str]
    frames: dict[str, int]


class Broker:
    """A broker that is started again where it was killed; `connection` is one past every proxy."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.process = BrokerProcess("--data", str(data))
        self.life = 0
        self.kills = 0
        self.is_up = threading.Event()
        self.is_up.set()
        self._connections: dict[int, Connection] = {}

    def kill(self, proxy: NetworkProxy) -> None:
        """SIGKILL, and a new life as soon as may be, which the proxy leads to then."""
        self.is_up.clear()
        self.kills += 1
        self.process.process.kill()
        self.process.process.wait()

        def start() -> None:
            self.process = BrokerProcess("--data", str(self.data))
            self.life += 1
            proxy.target = self.process.port
            self.is_up.set()

        threading.Thread(target=start, daemon=True).start()

    def connection(self) -> Connection:
        if not self.is_up.wait(60):
            raise RuntimeError("the broker does not start again")
        found = self._connections.get(self.life)
        if found is None or not found.is_open:
            uri = f"amqp://guest:guest@127.0.0.1:{self.process.port}"
            found = connect(uri, recovery=None)
            self._connections = {self.life: found}
        return found

    def stop(self) -> None:
        self.is_up.wait(60)
        with suppress(ClientError):
            self.connection().close()
        self.process.stop()


def action_of(kind: str, broker: Broker, proxy: NetworkProxy) -> Action:
    actions: dict[str, Action] = {
        "fin": Cut("fin"),
        "rst": Cut("rst"),
        "half": Cut("fin", keep="broker"),
        "hole": Swallow(),
        "stop": StopReading(),
        "delay": Delay(DELAY_S),
        "kill": Call(lambda: broker.kill(proxy)),
    }
    return actions[kind]


class NotBegun(RuntimeError):
    """The machine was too busy for a login in time, before anything had failed."""


class Round:
    """One call of one client, over a network of its own."""

    def __init__(self, broker: Broker, plan: Plan, name: str) -> None:
        self.broker = broker
        self.plan = plan
        self.proxy = NetworkProxy(broker.process.port)
        self.visit = Visit(self.proxy, broker.connection, name, plan.options)
        self.visit.strike = self.strike
        self.visit.is_up = broker.is_up.is_set
        kills = broker.kills
        self.visit.is_killed = lambda: broker.kills > kills
        self.before: dict[str, int] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self.failure: BaseException | None = None

    def fault(self, place: Place) -> Fault:
        action = action_of(place.kind, self.broker, self.proxy)
        if self.plan.refused_s and place is self.plan.first and place.kind in ("fin", "rst", "half"):
            cut = action

            def strike() -> None:
                self.proxy.refuse(self.plan.refused_s)
                cut.apply(self.proxy.link.flows[place.direction])

            action = Call(strike)
        return Fault(place.direction, action, frame=place.frame, edge=place.edge)

    def strike(self) -> None:
        """The network fails from here on."""
        plan = self.plan
        if self.proxy.connections:
            self.before = {each: len(passed) for each, passed in self.proxy.passed().items()}
            if plan.first is not None:
                self.proxy.strike(self.fault(plan.first))
        else:
            self.proxy.plan(*([self.fault(plan.first)] if plan.first is not None else []))
        if plan.again is not None:
            self.proxy.plan(self.fault(plan.again))

    def run(self) -> Result:
        thread = threading.Thread(target=self.work, daemon=True)
        try:
            thread.start()
            self.watch(thread)
            if isinstance(self.failure, ConnectFailed) and not self.proxy.faults:
                raise NotBegun(f"no connection before any fault: {self.plan}") from self.failure
            if self.failure is not None:
                raise RuntimeError(f"the round itself failed: {self.plan}") from self.failure
            frames = {}
            if self.proxy.connections:
                frames = {
                    each: len(passed) - self.before.get(each, 0)
                    for each, passed in self.proxy.passed().items()
                }
            is_reached = bool(self.proxy.faults)
            self.broker.connection()
            self.visit.settle()
            self.visit.verify()
            return Result(self.plan, is_reached, self.visit.findings, self.visit.told, frames)
        finally:
            self.proxy.close()

    def watch(self, thread: threading.Thread) -> None:
        """Waits for the round, and releases a call that hangs."""
        visit = self.visit
        while thread.is_alive():
            thread.join(0.1)
            if not visit.doing or time.monotonic() - visit.began_s < HANG_S:
                continue
            visit.find("hang", f"{visit.doing} has not returned after {HANG_S:g} s")
            self.proxy.refuse()
            self.proxy.drop()
            thread.join(RELEASED_S)
            if thread.is_alive() and self.loop is not None:
                with suppress(RuntimeError):  # it has just ended
                    self.loop.call_soon_threadsafe(self.loop.stop)
                thread.join(RELEASED_S)
            return

    def work(self) -> None:
        try:
            asyncio.run(self.main())
        except RuntimeError as stopped:
            if "Event loop stopped" not in str(stopped):
                self.failure = stopped
        except BaseException as failure:
            self.failure = failure

    async def main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(self.told_to_nobody)
        await CALLS[self.plan.call](self.visit)

    def told_to_nobody(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.visit.find("wrong", f"the event loop was told: {context.get('message')} {error!r}")


class Walk:
    """All rounds, those of several brokers side by side: their order, the findings, and the reduction."""

    def __init__(self, brokers: list[Broker], arguments: argparse.Namespace) -> None:
        self.brokers = brokers
        self.arguments = arguments
        self.lock = threading.Lock()
        self.is_over = False
        self.names = itertools.count(1)
        self.frames: dict[tuple[str, str], dict[str, int]] = {}
        self.results: list[Result] = []
        self.groups: dict[tuple[str, ...], list[tuple[int, Result]]] = {}
        self.kinds: Counter[str] = Counter()

    def run(self, plan: Plan, broker: Broker | None = None) -> Result:
        for left in reversed(range(BEGINS)):
            try:
                return Round(broker or self.brokers[0], plan, f"faults-{next(self.names)}").run()
            except NotBegun:
                if not left:
                    raise
        raise AssertionError("a round ends or raises")

    def survey(self) -> Iterator[Result]:
        """How many frames each call takes where nothing fails; whatever it finds then is a finding too."""
        for client in self.arguments.clients.split(","):
            for call in self.arguments.calls.split(","):
                result = self.run(Plan(call, Options(client=client)))
                self.frames[client, call] = result.frames
                yield result

    def places(self) -> list[tuple[str, str, Place]]:
        """Every call with every kind of fault at every edge of every frame."""
        return [
            (client, call, Place(kind, direction, frame, edge))
            for (client, call), frames in self.frames.items()
            for kind in self.arguments.kinds.split(",")
            for direction in DIRECTIONS
            for frame in range(1, frames.get(direction, 0) + 1)
            for edge in EDGES
        ]

    def plans(self) -> Iterator[Plan]:
        """All places in the order of the seed, kinds as often as KINDS says, again and again."""
        seed = self.arguments.seed
        by_kind: dict[str, list[tuple[str, str, Place]]] = {}
        for each in self.places():
            by_kind.setdefault(each[2].kind, []).append(each)
        chance = random.Random(seed)
        left: dict[str, list[tuple[str, str, Place]]] = {}
        kinds = list(by_kind)
        for number in range(self.arguments.rounds):
            kind = chance.choices(kinds, [KINDS[each] for each in kinds])[0]
            if not left.get(kind):
                left[kind] = chance.sample(by_kind[kind], len(by_kind[kind]))
            yield self.plan(random.Random(f"{seed}-{number}"), *left[kind].pop())

    def plan(self, chance: random.Random, client: str, call: str, first: Place) -> Plan:
        options = Options(
            client=client,
            unconfirmed=chance.choice(("resend", "report")),
            recovers=chance.random() < 0.85,
            channel_max=chance.choices((2047, 2, 1), (8, 1, 1))[0],
        )
        again = None
        if chance.random() < 0.25:
            again = Place(
                chance.choice(("fin", "rst", "rst", "hole")),
                chance.choice(DIRECTIONS),
                chance.randint(1, FRAMES_AGAIN),
                chance.choice(EDGES),
            )
        refused_s = chance.choice((0.05, 0.4)) if chance.random() < 0.1 else 0.0
        return Plan(call, options, first, again, refused_s)

    def walk(self) -> None:
        for result in self.survey():
            self.note(-1, result)
        rounds = enumerate(self.plans())
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            for done in [pool.submit(self.share, rounds, broker) for broker in self.brokers]:
                done.result()

    def share(self, rounds: Iterator[tuple[int, Plan]], broker: Broker) -> None:
        """The rounds of one broker: the next one that nobody has, until there are no more."""
        while not self.is_over:
            with self.lock:
                number, plan = next(rounds, (0, None))
            if plan is None:
                return
            try:
                result = self.run(plan, broker)
            except BaseException as error:
                self.is_over = True
                why = f"{error!r} {error.__cause__!r}"
                print(f"round {number} could not be run: {why}\n    {plan}", flush=True)
                raise
            with self.lock:
                self.note(number, result)
                if len(self.results) % 100 == 0:
                    print(f"{len(self.results)} rounds: {self.summary()}", flush=True)

    def note(self, number: int, result: Result) -> None:
        self.results.append(result)
        if result.plan.first is not None:
            self.kinds[result.plan.first.kind] += result.is_reached
        for kind in {finding.kind for finding in result.findings}:
            place = result.plan.first.kind if result.plan.first is not None else "no fault"
            key = (kind, result.plan.options.client, result.plan.call, place)
            if key not in self.groups:
                print(f"round {number}: {described(result, kind)}", flush=True)
            self.groups.setdefault(key, []).append((number, result))

    def summary(self) -> str:
        reached = sum(result.is_reached for result in self.results)
        bad = sum(bool(result.findings) for result in self.results)
        return f"{reached} faults struck, {bad} rounds with findings"

    # Reduction

    def reduced(self, result: Result, kind: str, broker: Broker) -> tuple[Result, int]:
        """The smallest plan that still shows a finding of this kind, and how often of REPEATS tries."""
        best = result
        for simpler in simplifications():
            candidate = simpler(best.plan)
            if candidate != best.plan:
                tried = self.run(candidate, broker)
                if any(finding.kind == kind for finding in tried.findings):
                    best = tried
        shown = 0
        for _ in range(REPEATS):
            tried = self.run(best.plan, broker)
            shown += any(finding.kind == kind for finding in tried.findings)
        return best, shown

    def report(self) -> list[str]:
        """The findings, one for each kind of fault, call and client, reduced."""
        free: queue.SimpleQueue[Broker] = queue.SimpleQueue()
        for broker in self.brokers:
            free.put(broker)

        def reported(item: tuple[tuple[str, ...], list[tuple[int, Result]]]) -> str:
            (kind, client, call, place), found = item
            number, result = found[0]
            repeated = ""
            if not self.arguments.quick:
                broker = free.get()
                try:
                    result, shown = self.reduced(result, kind, broker)
                finally:
                    free.put(broker)
                repeated = f", shown again by {shown} of {REPEATS} repeats of the reduced plan"
            return (
                f"- {kind.upper()} {client} {call}, {place}: {len(found)} rounds, the first is "
                f"{number} of seed {self.arguments.seed}{repeated}\n{described(result, kind)}"
            )

        with ThreadPoolExecutor(len(self.brokers)) as pool:
            return list(pool.map(reported, sorted(self.groups.items())))


def simplifications() -> list[Callable[[Plan], Plan]]:
    return [
        lambda each: replace(each, again=None),
        lambda each: replace(each, refused_s=0.0),
        lambda each: replace(each, options=replace(each.options, channel_max=2047)),
        lambda each: replace(each, options=replace(each.options, recovers=True)),
        lambda each: replace(each, options=replace(each.options, unconfirmed="resend")),
    ]


def described(result: Result, kind: str) -> str:
    lines = [str(finding) for finding in result.findings if finding.kind == kind][:3]
    lines += [f"plan: {result.plan}", *result.told[-12:]]
    return "\n".join(f"    {line}" for line in lines)


def chosen(given: str, there: Any, what: str) -> str:
    unknown = [name for name in given.split(",") if name not in there]
    if unknown:
        raise SystemExit(f"there is no {what} {unknown[0]!r}; there are {', '.join(there)}")
    return given


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--workers", type=int, default=1, help="brokers, with a round of each at a time")
    parser.add_argument("--calls", default=",".join(CALLS))
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--plan", type=Plan.parse, default=None, help="one round, as a finding names it")
    parser.add_argument("--quick", action="store_true", help="do not reduce findings")
    parser.add_argument("--findings", type=Path, default=None, help="a file to append the findings to")
    arguments = parser.parse_args()
    chosen(arguments.calls, CALLS, "call")
    chosen(arguments.clients, CLIENTS, "client")
    chosen(arguments.kinds, KINDS, "kind")
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().getrandbits(32)
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the brokers end too
    with tempfile.TemporaryDirectory(prefix="flintmq-faults-") as place, ExitStack() as ends:
        brokers = []
        for number in range(arguments.workers):
            brokers.append(Broker(Path(place) / str(number)))
            ends.callback(brokers[-1].stop)
        return walked(Walk(brokers, arguments))


def walked(walk: Walk) -> int:
    arguments = walk.arguments
    if arguments.plan is not None:
        result = walk.run(arguments.plan)
        print("\n".join([*result.told, *map(str, result.findings)] or ["nothing was told"]))
        print("the fault struck" if result.is_reached else "the fault did not strike")
        return 1 if result.findings else 0
    print(f"seed {arguments.seed}", flush=True)
    began_s = time.monotonic()
    walk.walk()
    struck = ", ".join(f"{kind} {count}" for kind, count in sorted(walk.kinds.items()))
    lines = walk.report()
    print("\n".join(lines))
    print(
        f"{arguments.rounds} rounds in {time.monotonic() - began_s:.0f} s: {walk.summary()}\n"
        f"struck: {struck}; the broker was killed {sum(broker.kills for broker in walk.brokers)} times"
    )
    if lines and arguments.findings is not None:
        with arguments.findings.open("a") as file:
            file.write("\n".join([*lines, ""]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
