"""Every call of the client while the network fails: what was promised for each message, and what was found.

    Visit       one connection of a client through a proxy, and the queues of one round
    CALLS       the calls by name: each is an async function of a Visit, for both clients
    Finding     a promise that was not kept

A call makes its claims as it goes: of each body how often it may be found at the end. A call that returned
claims that its messages are there. One that raised has said that it does not know, unless the error says
more. At the end the client is gone, everything is taken out of the queues over a connection of its own, and
counted. Each call is timed too: none may take longer than its deadline and LATE_S.

The calls are written once: what the async client returns is awaited, what the sync one returns is not.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from network_proxy import NetworkProxy

from flintmq.client import (
    ClientError,
    Connection,
    LoginRefused,
    PublishFailed,
    Recovery,
    ServiceError,
    TransactionLost,
    Xid,
    aio,
    connect,
)

CLIENTS = ("sync", "aio")
# Of each call, and of connecting.
DEADLINE_S = 2.0
LATE_S = 1.0
HEARTBEAT_S = 1
# A consumer of a connection that has died in silence hears of it by heartbeats: twice their time, and again.
SILENT_S = 4 * HEARTBEAT_S + 2.0
SETTLE_S = 20.0
MANY = 10**9
ROWS = 6
LARGE = 150_000  # octets: more than a frame

Thunk = Callable[[], Any]


@dataclass(frozen=True)
class Finding:
    """`kind` is one word: lost, twice, late, hang, wrong, silent, misnamed."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind.upper()}: {self.text}"


@dataclass(frozen=True)
class Options:
    """How the client is set up in a round."""

    client: str = "sync"
    unconfirmed: str = "resend"
    recovers: bool = True
    channel_max: int = 2047


class Outcome:
    """What a call returned or raised."""

    def __init__(self, value: Any, error: BaseException | None) -> None:
        self.value = value
        self.error = error

    @property
    def is_ok(self) -> bool:
        return self.error is None


class Visit:
    """One round: a client that comes through the proxy, and the promises that were made to it."""

    def __init__(
        self, proxy: NetworkProxy, admin: Callable[[], Connection], name: str, options: Options
    ) -> None:
        self.proxy = proxy
        self.admin = admin  # a connection past the proxy
        self.name = name
        self.options = options
        self.strike: Callable[[], None] = lambda: None  # has the network fail, from now on
        self.is_up: Callable[[], bool] = lambda: True  # whether there is a broker
        self.is_killed: Callable[[], bool] = lambda: False  # whether it was killed since the round began
        self.findings: list[Finding] = []
        self.doing = ""  # the call that has not returned
        self.began_s = 0.0
        self.claims: dict[str, dict[bytes, tuple[int, int, str]]] = {}  # by queue and body: least, most, why
        self.told: list[str] = []  # calls and how they went, for the report
        self.checks: list[Callable[[], None]] = []
        self.connection: Any = None

    # Before the fault

    def queue(self, suffix: str = "", *bodies: bytes) -> str:
        """A durable queue with these messages in it."""
        name = f"{self.name}{suffix}"
        with self.admin().channel(confirm=True) as channel:
            channel.queue(name, durable=True)
            if bodies:
                channel.publish_many(bodies, routing_key=name, persistent=True)
        self.claims.setdefault(name, {})
        return name

    async def connect(self) -> Any:
        recovery = Recovery(
            attempts_max=40,
            delay_s_min=0.02,
            delay_s_max=0.2,
            unconfirmed=self.options.unconfirmed,  # type: ignore[arg-type]
        )
        settings: dict[str, Any] = {
            "timeout_s": DEADLINE_S,
            "connection_timeout_s": DEADLINE_S,
            "heartbeat_s": HEARTBEAT_S,
            "recovery": recovery if self.options.recovers else None,
            "channel_max": self.options.channel_max,
        }
        uri = self.proxy.uri
        if self.options.client == "sync":
            self.connection = connect(uri, **settings)
        else:
            self.connection = await aio.connect(uri, **settings)
        return self.connection

    async def channel(self, **kind: Any) -> Any:
        """A channel of a new connection, before anything goes wrong."""
        return await done((await self.connect()).channel(**kind))

    # The calls

    async def do(self, what: str, thunk: Thunk, deadline_s: float = DEADLINE_S) -> Outcome:
        """One call, timed."""
        self.began_s = began_s = time.monotonic()
        self.doing = what
        outcome = Outcome(None, None)
        try:
            outcome.value = await done(thunk())
        except ClientError as error:
            outcome.error = error
            if isinstance(error, LoginRefused):
                self.find("misnamed", f"{what}: user and password are right, and the error says: {error}")
        except Exception as error:
            outcome.error = error
            self.find("wrong", f"{what} raised {type(error).__name__}, which is no ClientError: {error}")
        taken_s = time.monotonic() - began_s
        self.doing = ""
        said = "ok" if outcome.error is None else f"{type(outcome.error).__name__}: {outcome.error}"
        self.told.append(f"{what}: {said} ({taken_s:.2f} s)")
        if taken_s > deadline_s + LATE_S:
            self.find(
                "late", f"{what} took {taken_s:.1f} s, its deadline was {deadline_s:g} s; it said {said}"
            )
        return outcome

    def find(self, kind: str, text: str) -> None:
        self.findings.append(Finding(kind, text))

    async def close(self) -> Outcome:
        return await self.do("connection.close", lambda: self.connection.close())

    async def probe(self, channel: Any, queue: str, body: bytes = b"probe") -> None:
        """The network is well again: does a publish on the same channel still tell the truth?"""
        self.proxy.heal()
        outcome = await self.do(
            "publish afterwards", lambda: channel.publish(body, routing_key=queue, persistent=True)
        )
        self.claim_rows(queue, [body], outcome)

    # Claims

    def claim(self, queue: str, body: bytes, least: int, most: int, why: str) -> None:
        self.claims.setdefault(queue, {})[body] = (least, most, why)

    @property
    def most(self) -> int:
        """How often a confirmed message may come: sent again, it may be there twice."""
        return MANY if self.options.recovers and self.options.unconfirmed == "resend" else 1

    def claim_rows(self, queue: str, bodies: list[bytes], *outcomes: Outcome) -> None:
        """Those that no error names are there."""
        unsafe: set[int] = set()
        for outcome in outcomes:
            if isinstance(outcome.error, PublishFailed) and len(bodies) > 1:
                unsafe.update(outcome.error.rows())
            elif outcome.error is not None:
                unsafe.update(range(len(bodies)))
        for row, body in enumerate(bodies):
            why = "it was named as not safe" if row in unsafe else "it was said to be safe"
            self.claim(queue, body, 0 if row in unsafe else 1, self.most, why)

    # After it

    def settle(self) -> None:
        """Waits until the broker has seen the end of all but our own connection."""
        self.proxy.drop()
        deadline_s = time.monotonic() + SETTLE_S
        while self.admin().request("broker.info").results["connections"] != 1:
            if time.monotonic() > deadline_s:
                raise RuntimeError("the broker keeps connections that are gone")
            time.sleep(0.002)

    def verify(self) -> None:
        """Takes out what is there, and holds the claims to it."""
        for check in self.checks:
            check()
        for queue, claims in self.claims.items():
            found = self.drained(queue)
            for body, (least, most, why) in claims.items():
                count = found.pop(body, 0)
                if count < least:
                    self.find("lost", f"{shown(body)} is not in {queue!r}: {why}")
                elif count > most:
                    self.find("twice", f"{shown(body)} is {count} times in {queue!r}, at most {most}: {why}")
            for body, count in found.items():
                self.find("wrong", f"{shown(body)} is {count} times in {queue!r}, where it does not belong")

    def drained(self, queue: str) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        with self.admin().channel() as channel:
            while (message := channel.get(queue, no_ack=True)) is not None:
                found[message.body] += 1
            channel.queue(queue, passive=True).delete()
        return found


def shown(body: bytes) -> str:
    return repr(body[:20]) if len(body) <= 20 else f"{body[:12]!r}..."


async def done(value: Any) -> Any:
    """What a call of either client gives."""
    return await value if inspect.isawaitable(value) else value


def rows_of(count: int = ROWS, size: int = 0) -> list[bytes]:
    return [b"row %d" % number + bytes(size) for number in range(count)]


def is_unknown(error: BaseException | None) -> bool:
    """Whether the error of a service leaves open what was done; a plain refusal says that nothing was."""
    if not isinstance(error, ServiceError):
        return True
    return type(error) is not ServiceError or "not known" in str(error)


CallFunction = Callable[[Visit], Awaitable[None]]
CALLS: dict[str, CallFunction] = {}


def call(function: CallFunction) -> CallFunction:
    CALLS[function.__name__] = function
    return function


# Publishing


@call
async def publish(visit: Visit) -> None:
    queue = visit.queue()
    channel = await visit.channel(confirm=True)
    visit.strike()
    outcome = await visit.do("publish", lambda: channel.publish(b"one", routing_key=queue, persistent=True))
    visit.claim_rows(queue, [b"one"], outcome)
    await visit.probe(channel, queue)
    await visit.close()


@call
async def publish_large(visit: Visit) -> None:
    queue = visit.queue()
    channel = await visit.channel(confirm=True)
    body = bytes(LARGE)
    visit.strike()
    outcome = await visit.do("publish", lambda: channel.publish(body, routing_key=queue, persistent=True))
    visit.claim_rows(queue, [body], outcome)
    await visit.probe(channel, queue)
    await visit.close()


@call
async def publish_many(visit: Visit) -> None:
    queue, rows = visit.queue(), rows_of()
    channel = await visit.channel(confirm=True)
    visit.strike()
    outcome = await visit.do(
        "publish_many", lambda: channel.publish_many(rows, routing_key=queue, persistent=True)
    )
    visit.claim_rows(queue, rows, outcome)
    await visit.probe(channel, queue)
    await visit.close()


@call
async def publish_many_large(visit: Visit) -> None:
    queue, rows = visit.queue(), rows_of(size=LARGE)
    channel = await visit.channel(confirm=True)
    visit.strike()
    outcome = await visit.do(
        "publish_many", lambda: channel.publish_many(rows, routing_key=queue, persistent=True)
    )
    visit.claim_rows(queue, rows, outcome)
    await visit.close()


@call
async def publish_many_then_wait(visit: Visit) -> None:
    queue, rows = visit.queue(), rows_of()
    channel = await visit.channel(confirm=True)
    visit.strike()
    sent = await visit.do(
        "publish_many(wait=False)",
        lambda: channel.publish_many(rows, routing_key=queue, persistent=True, wait=False),
    )
    waited = await visit.do("wait_for_confirms", lambda: channel.wait_for_confirms())
    visit.claim_rows(queue, rows, sent, waited)
    await visit.probe(channel, queue)
    await visit.close()


@call
async def publish_many_then_close_channel(visit: Visit) -> None:
    queue, rows = visit.queue(), rows_of()
    channel = await visit.channel(confirm=True)
    visit.strike()
    sent = await visit.do(
        "publish_many(wait=False)",
        lambda: channel.publish_many(rows, routing_key=queue, persistent=True, wait=False),
    )
    closed = await visit.do("channel.close", lambda: channel.close())
    visit.claim_rows(queue, rows, sent, closed)
    await visit.close()


@call
async def publish_many_then_close(visit: Visit) -> None:
    queue, rows = visit.queue(), rows_of()
    channel = await visit.channel(confirm=True)
    visit.strike()
    sent = await visit.do(
        "publish_many(wait=False)",
        lambda: channel.publish_many(rows, routing_key=queue, persistent=True, wait=False),
    )
    closed = await visit.close()
    visit.claim_rows(queue, rows, sent, closed)


@call
async def publish_unconfirmed(visit: Visit) -> None:
    """Nothing says what arrived; but nothing may arrive twice."""
    queue, rows = visit.queue(), rows_of()
    channel = await visit.channel()
    visit.strike()
    await visit.do("publish_many", lambda: channel.publish_many(rows, routing_key=queue, persistent=True))
    for body in rows:
        visit.claim(queue, body, 0, 1, "without confirms a message is sent once")
    visit.proxy.heal()
    await visit.do("publish", lambda: channel.publish(b"last", routing_key=queue, persistent=True))
    visit.claim(queue, b"last", 0, 1, "without confirms a message is sent once")
    await visit.close()


@call
async def publish_side_by_side(visit: Visit) -> None:
    """Several publishes under way at once, where the client can: each tells of its own message."""
    queue, rows = visit.queue(), rows_of()
    channel = await visit.channel(confirm=True)
    visit.strike()
    publishes = [
        visit.do(f"publish {number}", partial(channel.publish, row, routing_key=queue, persistent=True))
        for number, row in enumerate(rows)
    ]
    if visit.options.client == "aio":
        outcomes = await asyncio.gather(*publishes)
    else:
        outcomes = [await each for each in publishes]
    for row, outcome in zip(rows, outcomes, strict=True):
        visit.claim_rows(queue, [row], outcome)
    await visit.probe(channel, queue)
    await visit.close()


@call
async def publish_refused(visit: Visit) -> None:
    """A queue with room for two refuses the others, and says which."""
    queue, rows = f"{visit.name}-full", rows_of()
    with visit.admin().channel() as theirs:
        theirs.queue(queue, durable=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    channel = await visit.channel(confirm=True)
    visit.strike()
    sent = await visit.do(
        "publish_many(wait=False)",
        lambda: channel.publish_many(rows, routing_key=queue, persistent=True, wait=False),
    )
    waited = await visit.do("wait_for_confirms", lambda: channel.wait_for_confirms())
    if sent.is_ok and waited.is_ok:
        visit.find("lost", "six messages to a queue with room for two were said to be safe")
    visit.claim_rows(queue, rows, sent, waited)
    visit.proxy.heal()
    await visit.close()


@call
async def publish_returned(visit: Visit) -> None:
    """Of two with the same body one has no queue, and is the one that is named."""
    queue = visit.queue()
    channel = await visit.channel(confirm=True)
    visit.strike()
    good = await visit.do(
        "publish(mandatory) with a queue",
        lambda: channel.publish(b"same", routing_key=queue, persistent=True, mandatory=True),
    )
    bad = await visit.do(
        "publish(mandatory) without a queue",
        lambda: channel.publish(b"same", routing_key="no such queue", persistent=True, mandatory=True),
    )
    if bad.is_ok:
        visit.find("lost", "a mandatory publish without a queue was said to be safe")
    if isinstance(good.error, PublishFailed) and good.error.returned:
        visit.find("wrong", f"a publish with a queue was said to be returned: {good.error}")
    visit.claim(queue, b"same", 1 if good.is_ok else 0, visit.most, "it was said to be safe")
    await visit.close()


# Reading


def claim_kept(visit: Visit, queue: str, bodies: list[bytes], seen: Counter[bytes]) -> None:
    """What the application has not seen is still there."""
    for body in bodies:
        least, why = (0, "it was delivered") if seen[body] else (1, "the application has not seen it")
        visit.claim(queue, body, least, 1, why)


@call
async def get(visit: Visit) -> None:
    rows = rows_of(3)
    queue = visit.queue("", *rows)
    channel = await visit.channel()
    visit.strike()
    seen: Counter[bytes] = Counter()
    for _ in rows:
        outcome = await visit.do("get", lambda: channel.get(queue))
        if outcome.value is not None:
            seen[outcome.value.body] += 1
            await visit.do("ack", outcome.value.ack)
    visit.proxy.heal()
    await visit.close()
    claim_kept(visit, queue, rows, seen)


@call
async def get_without_ack(visit: Visit) -> None:
    """A get that raised may have taken one message along, and no other may be missing."""
    rows = rows_of(4)
    queue = visit.queue("", *rows)
    channel = await visit.channel()
    visit.strike()
    seen: Counter[bytes] = Counter()
    failed = 0
    for _ in range(2):
        outcome = await visit.do("get(no_ack)", lambda: channel.get(queue, no_ack=True))
        failed += not outcome.is_ok
        if outcome.value is not None:
            seen[outcome.value.body] += 1
    visit.proxy.heal()
    await visit.close()

    def check() -> None:
        found = visit.drained(queue)
        del visit.claims[queue]
        missing = [body for body in rows if not found[body] and not seen[body]]
        twice = [body for body in rows if found[body] + seen[body] > 1]
        if len(missing) > failed:
            visit.find("lost", f"{missing} were neither returned nor left, and {failed} calls raised")
        # What a get has taken may come back with a broker that is killed, as what was acked may.
        if twice and not visit.is_killed():
            visit.find(
                "twice", f"{twice} were returned by a get with no_ack, and are there still, or came twice"
            )

    visit.checks.append(check)


@call
async def get_large(visit: Visit) -> None:
    rows = rows_of(2, LARGE)
    queue = visit.queue("", *rows)
    channel = await visit.channel()
    visit.strike()
    seen: Counter[bytes] = Counter()
    for _ in rows:
        outcome = await visit.do("get", lambda: channel.get(queue))
        if outcome.value is not None:
            seen[outcome.value.body] += 1
    visit.proxy.heal()
    await visit.close()
    claim_kept(visit, queue, rows, seen)


async def read_all(visit: Visit, take: Callable[[], Any], wanted: int, seen: Counter[bytes]) -> bool:
    """Reads and acks until so many different ones have come; False if an error, or silence, was first."""
    silent_s = 0.0
    while len(seen) < wanted:
        began_s = time.monotonic()
        outcome = await visit.do("consumer", take, 0.5)
        if not outcome.is_ok:
            return False
        taken = outcome.value if isinstance(outcome.value, list) else [outcome.value]
        taken = [message for message in taken if message is not None]
        for message in taken:
            seen[message.body] += 1
            await visit.do("ack", message.ack)
        silent_s = 0.0 if taken or not visit.is_up() else silent_s + time.monotonic() - began_s
        if silent_s > SILENT_S:
            visit.find("silent", f"a consumer that raised nothing got {len(seen)} of {wanted} messages")
            return False
    return True


@call
async def consume(visit: Visit) -> None:
    rows = rows_of(10)
    queue = visit.queue("", *rows)
    channel = await visit.channel(prefetch=4)
    visit.strike()
    seen: Counter[bytes] = Counter()
    consumer = (await visit.do("consume", lambda: channel.consume(queue))).value
    if consumer is not None:
        # An iteration that ends by its timeout would cancel the consumer.
        await read_all(visit, lambda: consumer.take(1, timeout_s=0.5), len(rows), seen)
        visit.proxy.heal()
        await visit.do("consumer.cancel", consumer.cancel)
    await visit.close()
    claim_kept(visit, queue, rows, seen)


@call
async def take(visit: Visit) -> None:
    """What comes after the fault reaches the consumer as well."""
    rows = rows_of(6)
    queue = visit.queue("", *rows)
    channel = await visit.channel()
    seen: Counter[bytes] = Counter()
    consumer = await done(channel.consume(queue))
    visit.strike()
    if await read_all(visit, lambda: consumer.take(3, timeout_s=0.5), len(rows), seen):
        visit.proxy.heal()
        visit.queue("", b"late")
        await read_all(visit, lambda: consumer.take(3, timeout_s=0.5), len(rows) + 1, seen)
        claim_kept(visit, queue, [*rows, b"late"], seen)
    else:
        claim_kept(visit, queue, rows, seen)
    await visit.close()


@call
async def settle(visit: Visit) -> None:
    """Acks, nacks and rejects before, in and after the fault: what was not acked is there again."""
    rows = rows_of(4)
    queue = visit.queue("", *rows)
    channel = await visit.channel()
    messages = [await done(channel.get(queue)) for _ in rows]
    visit.strike()
    await visit.do("ack", messages[0].ack)
    await visit.do("nack", messages[1].nack)
    await visit.do("queue(passive)", lambda: channel.queue(queue, passive=True))
    await visit.do("reject", lambda: messages[2].reject(True))
    await visit.do("queue(passive)", lambda: channel.queue(queue, passive=True))
    visit.proxy.heal()
    await visit.close()
    claim_kept(visit, queue, rows, Counter(rows[:1]))


# Transactions


@call
async def transaction(visit: Visit) -> None:
    rows = rows_of(2)
    queue = visit.queue()
    channel = await visit.channel(transactional=True)
    visit.strike()
    outcomes = [
        await visit.do("publish in tx", partial(channel.publish, row, routing_key=queue, persistent=True))
        for row in rows
    ]
    commit = await visit.do("commit", lambda: channel.commit())
    if not commit.is_ok:
        visit.proxy.heal()
        await visit.do("rollback", lambda: channel.rollback())
    await visit.close()
    claim_all_or_none(visit, queue, rows, outcomes, commit)


def claim_all_or_none(
    visit: Visit, queue: str, rows: list[bytes], published: list[Outcome], commit: Outcome
) -> None:
    """Of those that joined the transaction; a publish that raised may have joined it or not."""
    joined = [row for row, outcome in zip(rows, published, strict=False) if outcome.is_ok]

    def check() -> None:
        found = visit.drained(queue)
        del visit.claims[queue]
        count = sum(found[row] > 0 for row in joined)
        if any(found[row] > 1 for row in rows):
            visit.find("twice", f"{dict(found)} after a transaction")
        elif 0 < count < len(joined):
            visit.find("wrong", f"{count} of {len(joined)} messages of a transaction are there")
        elif commit.is_ok and count < len(joined):
            visit.find("lost", "a transaction was committed, and nothing of it is there")
        elif count and isinstance(commit.error, TransactionLost):
            visit.find("wrong", f"a transaction that was committed was told as rolled back: {commit.error}")

    visit.checks.append(check)


@call
async def transaction_with_ack(visit: Visit) -> None:
    """Takes one message and publishes its result: both or neither."""
    source, target = visit.queue("-in", b"work"), visit.queue("-out")
    channel = await visit.channel(transactional=True)
    message = await done(channel.get(source))
    visit.strike()
    outcomes = [
        await visit.do(
            "publish in tx", lambda: channel.publish(b"result", routing_key=target, persistent=True)
        ),
        await visit.do("ack in tx", message.ack),
        await visit.do("commit", lambda: channel.commit()),
    ]
    if not outcomes[-1].is_ok:
        visit.proxy.heal()
        await visit.do("rollback", lambda: channel.rollback())
    await visit.close()

    def check() -> None:
        left, made = visit.drained(source)[b"work"], visit.drained(target)[b"result"]
        del visit.claims[source], visit.claims[target]
        ack, commit = outcomes[1], outcomes[2]
        if commit.is_ok and all(each.is_ok for each in outcomes) and (left, made) != (0, 1):
            said = f"ack returned {ack.value}"
            visit.find("wrong", f"committed ({said}), and the work is there {left} times, its result {made}")
        elif left + made != 1:
            visit.find("wrong", f"the work is there {left} times, its result {made} times")
        elif made and isinstance(commit.error, TransactionLost):
            visit.find("wrong", f"a transaction that was committed was told as rolled back: {commit.error}")

    visit.checks.append(check)


def end_branches(visit: Visit) -> None:
    """Rolls back what nobody decided."""
    listed = visit.admin().request("dtx.list").results["rows"]
    assert isinstance(listed, list)
    xids: list[Any] = [row["xid"] for row in listed if isinstance(row, dict)]
    if xids:
        visit.admin().request("dtx.rollback", {"xids": xids})


@call
async def branch(visit: Visit) -> None:
    rows, xid = rows_of(2), Xid(visit.name.encode())
    queue = visit.queue()
    channel = await visit.channel()
    branches = channel.branches
    visit.strike()
    published: list[Outcome] = []
    last = await visit.do("branches.start", lambda: branches.start(xid))
    if last.is_ok:
        published = [
            await visit.do(
                "publish in dtx", partial(channel.publish, row, routing_key=queue, persistent=True)
            )
            for row in rows
        ]
        for what, step in (("end", branches.end), ("prepare", branches.prepare), ("commit", branches.commit)):
            last = await visit.do(f"branches.{what}", partial(step, xid))
            if not last.is_ok:
                break
    visit.proxy.heal()
    await visit.do("branches.recover", lambda: branches.recover())
    await visit.close()
    visit.checks.append(lambda: end_branches(visit))
    claim_all_or_none(visit, queue, rows, published, last)


@call
async def commit_many(visit: Visit) -> None:
    rows, xids = rows_of(2), [Xid(visit.name.encode(), bytes((number,))) for number in (1, 2)]
    queue = visit.queue()
    with visit.admin().channel() as theirs:
        for xid, row in zip(xids, rows, strict=True):
            theirs.branches.start(xid)
            theirs.publish(row, routing_key=queue, persistent=True)
            theirs.branches.end(xid)
            theirs.branches.prepare(xid)
    channel = await visit.channel()
    visit.strike()
    outcome = await visit.do("branches.commit_many", lambda: channel.branches.commit_many(xids))
    visit.proxy.heal()
    await visit.close()

    def check() -> None:
        end_branches(visit)
        found = visit.drained(queue)
        del visit.claims[queue]
        count = sum(found.values())
        if count not in (0, len(rows)):
            visit.find("wrong", f"{dict(found)} after a commit of {len(rows)} branches")
        elif outcome.is_ok and not count:
            visit.find("lost", "branches were committed, and nothing of them is there")
        elif count and not is_unknown(outcome.error):
            visit.find("wrong", f"branches were committed, and commit_many said: {outcome.error}")

    visit.checks.append(check)


# Services


async def move_or_copy(visit: Visit, service: str, result: str) -> None:
    rows = rows_of(10)
    source, target = visit.queue("-from", *rows), visit.queue("-to")
    await visit.connect()
    visit.strike()
    arguments = {"queue": source, "to": target, "limit": 3}
    outcome = await visit.do(service, lambda: visit.connection.request(service, arguments))
    visit.proxy.heal()
    await visit.close()

    def check() -> None:
        left, came = visit.drained(source), visit.drained(target)
        del visit.claims[source], visit.claims[target]
        count = sum(came.values())
        if count > 3:
            visit.find("twice", f"{service} with limit=3 has {result} {count}")
        if outcome.is_ok and count != outcome.value.results[result]:
            visit.find("wrong", f"{service} said {outcome.value.results}, and {count} are there")
        if count and not outcome.is_ok and not is_unknown(outcome.error):
            visit.find("wrong", f"{service} has {result} {count}, and said: {outcome.error}")
        everything = came + left if service == "queue.move" else left
        if any(everything[row] != 1 for row in rows):
            visit.find("lost", f"{service}: {dict(everything)}")

    visit.checks.append(check)


@call
async def queue_move(visit: Visit) -> None:
    await move_or_copy(visit, "queue.move", "moved")


@call
async def queue_copy(visit: Visit) -> None:
    await move_or_copy(visit, "queue.copy", "copied")


@call
async def request(visit: Visit) -> None:
    connection = await visit.connect()
    visit.strike()
    for _ in range(2):
        outcome = await visit.do("request", lambda: connection.request("broker.info"))
        if outcome.is_ok and outcome.value.results["product"] != "FlintMQ":
            visit.find("wrong", f"broker.info said {outcome.value.results}")
    visit.proxy.heal()
    await visit.close()


@call
async def lease(visit: Visit) -> None:
    rows = rows_of(4)
    queue = visit.queue("", *rows)
    leased = (await visit.connect()).lease(queue, "reader")
    visit.strike()
    taken = await visit.do("lease.take", lambda: leased.take(rows_max=4, timeout_s=30.0))
    acked = Outcome(None, None)
    if taken.is_ok:
        start = taken.value.start
        read = await visit.do("lease.read", lambda: leased.read(start, taken.value.end))
        if read.is_ok and len(read.value) != 4:
            visit.find("wrong", f"a lease of 4 messages has {len(read.value)} rows")
        acked = await visit.do("lease.ack", lambda: leased.ack(start + 2))
    visit.proxy.heal()
    await visit.do("lease.release", lambda: leased.release())
    await visit.close()

    def let_go() -> None:
        with suppress(ServiceError):  # no lease of that name
            theirs = visit.admin().lease(queue, "reader")
            theirs.take(rows_max=0)
            theirs.release()

    visit.checks.append(let_go)
    for number, body in enumerate(rows):
        is_acked = taken.is_ok and number < 2
        why = "it was acked" if is_acked else "nobody has acked it"
        visit.claim(queue, body, 0 if is_acked else 1, 0 if is_acked and acked.is_ok else 1, why)


@call
async def stream(visit: Visit) -> None:
    rows = rows_of()
    name = f"{visit.name}-stream"
    with visit.admin().channel(confirm=True) as theirs:
        theirs.queue(name, durable=True, arguments={"x-queue-type": "stream"})
        theirs.publish_many(rows, routing_key=name, persistent=True)
    read = (await visit.connect()).stream(name)
    visit.strike()
    offsets = await visit.do("stream.offsets", lambda: read.offsets())
    if offsets.is_ok and (offsets.value.first, offsets.value.end) != (0, len(rows)):
        visit.find("wrong", f"a stream of {len(rows)} messages has the offsets {offsets.value}")
    fetched = await visit.do("stream.fetch", lambda: read.fetch(0, len(rows)))
    if fetched.is_ok and len(fetched.value) != len(rows):
        visit.find("wrong", f"{len(fetched.value)} of {len(rows)} messages were fetched")
    visit.proxy.heal()
    await visit.close()
    visit.checks.append(lambda: delete(visit, name))


def delete(visit: Visit, queue: str) -> None:
    with visit.admin().channel() as theirs:
        theirs.queue(queue, passive=True).delete()


# Declarations, and the ends of things


@call
async def change_topology(visit: Visit) -> None:
    """What was unbound, purged or deleted stays so when the connection is made again."""
    exchange, queue = f"{visit.name}-x", visit.queue("", b"old")
    channel = await visit.channel(confirm=True)
    source = await done(channel.exchange(exchange, "direct", durable=True))
    bound = await done(channel.queue(queue, durable=True))
    await done(bound.bind(source, "kept"))
    await done(bound.bind(source, "dropped"))
    visit.strike()
    unbound = await visit.do("unbind", lambda: bound.unbind(source, "dropped"))
    purged = await visit.do("purge", lambda: bound.purge())
    visit.proxy.heal()
    visit.proxy.cut()  # once more, to have it all restored
    kept = await visit.do("publish", lambda: source.publish(b"kept", "kept", persistent=True))
    dropped = await visit.do("publish", lambda: source.publish(b"dropped", "dropped", persistent=True))
    visit.claim_rows(queue, [b"kept"], kept)
    most = 0 if unbound.is_ok and dropped.is_ok else visit.most
    visit.claim(queue, b"dropped", 0, most, "its binding was taken away")
    # What was purged may come back with a broker that is killed, as what was acked may.
    visit.claim(queue, b"old", 0, 0 if purged.is_ok and not visit.is_killed() else 1, "it was purged")
    await visit.close()

    def check() -> None:
        with visit.admin().channel() as theirs:
            theirs.exchange(exchange, "direct", durable=True).delete()

    visit.checks.append(check)


def exists(visit: Visit, name: str) -> bool:
    try:
        visit.admin().request("queue.info", {"queue": name})
    except ServiceError:
        return False
    return True


@call
async def declare(visit: Visit) -> None:
    names = [f"{visit.name}-{number}" for number in range(2)]
    exchange = f"{visit.name}-x"
    channel = await visit.channel(confirm=True)
    visit.strike()
    made = await visit.do("exchange", lambda: channel.exchange(exchange, "topic", durable=True))
    queues = [await visit.do("queue", partial(channel.queue, name, durable=True)) for name in names]
    if made.is_ok and queues[0].is_ok:
        bound = await visit.do("bind", lambda: queues[0].value.bind(made.value, "key"))
        if bound.is_ok:
            visit.proxy.heal()
            outcome = await visit.do(
                "publish", lambda: channel.publish(b"x", exchange, "key", persistent=True)
            )
            visit.claim_rows(names[0], [b"x"], outcome)
    deleted = Outcome(None, None)
    if queues[1].is_ok:
        deleted = await visit.do("queue.delete", lambda: queues[1].value.delete())
    await visit.close()

    def check() -> None:
        for name, outcome in zip(names, queues, strict=True):
            if name == names[1] and outcome.is_ok and deleted.is_ok:
                if exists(visit, name):
                    visit.find("wrong", f"queue {name!r} was deleted, and is there")
            elif outcome.is_ok and not (name == names[1] and not deleted.is_ok) and not exists(visit, name):
                visit.find("lost", f"queue {name!r} was declared, and is not there")
        with visit.admin().channel() as theirs:
            visit.claims.setdefault(names[0], {})
            theirs.queue(names[0], durable=True)
            theirs.queue(names[1], durable=True).delete()
            theirs.exchange(exchange, "topic", durable=True).delete()

    visit.checks.append(check)


@call
async def open_channels(visit: Visit) -> None:
    """New channels, and whether what they say holds."""
    queue = visit.queue()
    connection = await visit.connect()
    visit.strike()
    for number in range(2):
        opened = await visit.do("channel", lambda: connection.channel(confirm=True, prefetch=5))
        if opened.is_ok:
            body = b"channel %d" % number
            outcome = await visit.do("publish", partial(opened.value.publish, body, routing_key=queue))
            visit.claim(queue, body, 0, visit.most, "it is transient")
            if outcome.is_ok and visit.options.unconfirmed == "report":
                await visit.do("channel.close", opened.value.close)
    visit.proxy.heal()
    await visit.close()


@call
async def open_connection(visit: Visit) -> None:
    """The network fails while the first connection is made."""
    queue = visit.queue()
    visit.strike()
    opened = await visit.do("connect", visit.connect)
    if opened.is_ok:
        channel = await visit.do("channel", lambda: visit.connection.channel(confirm=True))
        if channel.is_ok:
            await visit.probe(channel.value, queue)
        await visit.close()


@call
async def close_connection(visit: Visit) -> None:
    queue = visit.queue()
    channel = await visit.channel(confirm=True)
    await done(channel.publish(b"safe", routing_key=queue, persistent=True))
    visit.claim(queue, b"safe", 1, 1, "it was confirmed")
    visit.strike()
    await visit.close()


@call
async def several_channels(visit: Visit) -> None:
    """A publisher, a consumer and a transaction on one connection: each is told of its own."""
    rows = rows_of(4)
    source, target, other = visit.queue("-in", *rows), visit.queue("-out"), visit.queue("-tx")
    connection = await visit.connect()
    opened = [
        await visit.do("channel", partial(connection.channel, **kind))
        for kind in ({"confirm": True}, {"prefetch": 2}, {"transactional": True})
    ]
    if not all(each.is_ok for each in opened):  # channel_max is too small for them
        await visit.close()
        claim_kept(visit, source, rows, Counter())
        return
    publisher, reader, transacted = (each.value for each in opened)
    consumer = await done(reader.consume(source))
    visit.strike()
    seen: Counter[bytes] = Counter()
    await read_all(visit, lambda: consumer.take(2, timeout_s=0.5), 2, seen)
    sent = await visit.do(
        "publish_many", lambda: publisher.publish_many(rows, routing_key=target, persistent=True)
    )
    visit.claim_rows(target, rows, sent)
    outcomes = [
        await visit.do("publish in tx", partial(transacted.publish, row, routing_key=other, persistent=True))
        for row in rows
    ]
    commit = await visit.do("commit", lambda: transacted.commit())
    claim_all_or_none(visit, other, rows, outcomes, commit)
    visit.proxy.heal()
    await read_all(visit, lambda: consumer.take(2, timeout_s=0.5), len(rows), seen)
    await visit.probe(publisher, target)
    await visit.close()
    claim_kept(visit, source, rows, seen)


@call
async def wait_idle(visit: Visit) -> None:
    """Nothing is asked while the network fails, and then something is."""
    queue = visit.queue()
    channel = await visit.channel(confirm=True)
    visit.strike()
    if visit.options.client == "aio":
        await asyncio.sleep(0.05)
    await visit.do("qos", lambda: channel.qos(3))
    await visit.probe(channel, queue)
    await visit.close()
