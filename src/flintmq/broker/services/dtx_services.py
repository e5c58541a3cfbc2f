"""Services for those who coordinate distributed transactions, and for operators who clear up after them.

    dtx.list            the branches there are
    dtx.prepare         some branches
    dtx.commit          prepared branches, all or none; with a marker, once
    dtx.rollback        some branches
    dtx.marker          how far a marker has come
    dtx.markers         the markers there are
    dtx.forget-marker   its writer does not come back

A marker is a name with a number that only grows, kept on disk: whoever commits batch 7 under a marker and
does not hear the answer may ask again, and is told that it was done. A number alone does not say that it was
the same batch 7, as a writer that was set back counts anew: so the note of the one committed is told as well.
Xids are text, as transactions/xid.py has it. Everybody may touch their own branches, administrators all of
them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flintmq.broker.services.arguments import PAGE
from flintmq.broker.services.request import Request, service
from flintmq.broker.transactions.dtx_branch import Branch, BranchState
from flintmq.broker.transactions.dtx_branches import may_touch
from flintmq.broker.transactions.dtx_journal import Marker
from flintmq.broker.transactions.xid import Xid, xid_of_text
from flintmq.errors import ServiceFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.transactions.dtx_branches import Branches
    from flintmq.wire.tables import FieldTable, FieldValue

COMMIT = (
    "xids array, rollback-xids? array, mandatory? flag, wait? flag, heuristic? flag, marker? text, "
    "marker-number? number, marker-note? text, marker-keep-s? number, marker-reset? flag"
)
# What a rollback undoes.
ROLLED_BACK = (BranchState.OPEN, BranchState.PREPARING, BranchState.ROLLBACK_ONLY, BranchState.PREPARED)
MARKER_OCTETS_MAX = 255
# A note is in memory, and in every answer: with the name and the rest a page of markers has room for some 50.
NOTE_OCTETS_MAX = 2048
KEEP_S_MAX = 31_536_000


def branches_of(request: Request) -> Branches:
    branches: Branches = request.channel.virtual_host.branches
    store = branches.store
    if store is not None and store.journal.in_group():
        raise ServiceFault(
            amqp.PRECONDITION_FAILED,
            f"{request.name}: cannot be asked from inside a transaction",
        )
    return branches


def xids_of(request: Request, name: str = "xids") -> list[Xid]:
    given = request.arguments.get(name, [] if name != "xids" else None)
    if not isinstance(given, list):
        raise request.wrong(name, "expected an array of texts")
    found: dict[Xid, None] = {}
    for text in given:
        if not isinstance(text, str):
            raise request.wrong(name, "expected an array of texts")
        found[xid_of_text(text)] = None
    return list(found)


def known(request: Request, xids: list[Xid]) -> list[Branch]:
    """The branches of these xids that exist and are not committed."""
    branches = branches_of(request)
    there = branches.branches
    return [
        branches.find(xid, request.user)
        for xid in xids
        if xid in there and there[xid].state is not BranchState.DECIDED
    ]


def texts(branches: list[Branch]) -> list[FieldValue]:
    return [str(branch.xid) for branch in branches]


def reply_when_safe(request: Request, sequence: int, results: FieldTable) -> None:
    store = request.channel.virtual_host.store
    if store is None:
        request.reply(results)
    else:
        store.when_synced(sequence, lambda: request.reply(results))


@service("dtx.list", "prefix? text, " + PAGE)
def dtx_list(request: Request) -> Iterator[None]:
    """Branches, by xid: state, user, since-ms, messages, operations, octets. `prefix`: of the xid."""
    prefix = request.text("prefix", "")
    branches = branches_of(request)

    def rows() -> Iterator[tuple[str, Branch]]:
        for branch in branches.visible(request.user):
            if str(branch.xid).startswith(prefix):
                yield str(branch.xid), branch

    return request.page((name, partial(described, branch)) for name, branch in rows())


def described(branch: Branch) -> FieldTable:
    return {
        "xid": str(branch.xid),
        "state": branch.state_text(),
        "user": branch.user,
        "since-ms": branch.since_ms,
        "timeout-s": branch.timeout_s,
        "messages": branch.published(),
        "operations": branch.operations,
        "octets": branch.octets,
    }


@service("dtx.prepare", "xids array", changes=True)
def dtx_prepare(request: Request) -> Chore:
    """Prepares `xids`, one after the other; those that were rolled back or had nothing in them are named."""
    branches = branches_of(request)
    xids = xids_of(request)
    for xid in xids:
        branch = branches.find(xid, request.user)
        branches.not_busy(branch)
        branches.not_too_large(branch)
    codes: dict[Branch, tuple[int, int]] = {}
    for xid in xids:
        branch = branches.find(xid, request.user)  # it may have ended in the steps for others
        codes[branch] = yield from branches.prepare_in_portions(branch)
        yield None
    results: FieldTable = {
        "prepared": texts([each for each, (code, _) in codes.items() if code == amqp.XA_OK]),
        "read-only": texts([each for each, (code, _) in codes.items() if code == amqp.XA_RDONLY]),
        "rolled-back": texts(
            [each for each, (code, _) in codes.items() if code not in (amqp.XA_OK, amqp.XA_RDONLY)]
        ),
    }
    reply_when_safe(request, max((sequence for _, sequence in codes.values()), default=0), results)


@service("dtx.commit", COMMIT, changes=True)
def dtx_commit(request: Request) -> Chore:
    """Commits `xids`, all prepared, in one go; rolls back those in `rollback-xids`, known or not.

    `marker`, `marker-number`, `marker-note`: only if that number is above the marker's, which it becomes;
    otherwise `already` is true, and what is left of all these branches is rolled back. `marker-reset`:
    whatever the marker's number is. `marker-keep-s`: how long the marker is kept after this commit.
    `mandatory`: not if it is known that a message goes to no queue, or is refused by one that is full.
    `wait`: the answer comes when all messages are in their queues, not when that is decided.
    `heuristic`: the coordinator is to hear of it when it asks, as of a decision that was not its own.
    """
    branches = branches_of(request)
    xids = xids_of(request)
    yield from branches.outcomes.awaited_on_disk(known(request, xids))
    losers = known(request, [xid for xid in xids_of(request, "rollback-xids") if xid not in xids])
    for branch in losers:  # before anything is committed
        branches.not_busy(branch)
    name, marker = marker_of(request)
    stored = branches.marker(name, request.user) if name else None
    is_repeat = stored is not None and (stored.number, stored.note) == (marker.number, marker.note)
    is_reset = request.flag("marker-reset", False) and not is_repeat
    if stored is not None and marker.number <= stored.number and not is_reset:
        count, sequence = yield from rolled_back(branches, [*known(request, xids), *losers])
        results: FieldTable = {"already": True, "committed": 0, "rolled-back": count, **told_of(stored)}
        # The commit that it repeats may not be safe yet, either.
        answer(request, branches.outcomes.decided, max(sequence, last(branches)), results)
        return
    found = prepared(request, xids)
    if request.flag("mandatory", False):
        check_targets(request, found)
    if request.flag("heuristic", False):
        if name:
            raise request.wrong("heuristic", "does not go together with a marker")
        sequence = max([branches.complete_heuristically(each, commit=True) for each in found], default=0)
    elif name:
        branches.make_room(name, marker.keep_s)
        sequence = branches.commit_all(found, lambda: branches.mark(name, marker))
    else:
        sequence = branches.commit_all(found)
    count, undone = yield from rolled_back(branches, losers)
    results = {"already": False, "committed": len(found), "rolled-back": count}
    if name:
        results["marker-number"] = marker.number
    answer(request, found, max(sequence, undone), results)


def answer(request: Request, committed: list[Branch], sequence: int, results: FieldTable) -> None:
    """Answers when the record is safe, or, if that is asked for, when all messages are in their queues."""
    branches = branches_of(request)
    are_counted = not results["already"]

    def reply() -> None:
        if are_counted and not any(branch in branches.outcomes.decided for branch in committed):
            results["unrouted"] = sum(branch.unrouted for branch in committed)
            results["refused"] = sum(branch.refused for branch in committed)
        reply_when_safe(request, max(sequence, last(branches)), results)

    if request.flag("wait", False):
        branches.outcomes.when_applied(committed, reply)
    else:
        branches.outcomes.when_done(committed, reply)


def check_targets(request: Request, found: list[Branch]) -> None:
    """Raises if it is known that a queue would not get what it should; nothing is touched yet then."""
    host = request.channel.virtual_host
    wanted: dict[Queue, tuple[int, int]] = {}
    for branch in found:
        branches_of(request).not_too_large(branch)
        for octets, (count, size) in (branch.routes or {}).items():
            if not host.router.has_exchange_of(octets):
                raise goes_nowhere(request, octets, count, "there is no such exchange")
            route = host.router.route_of(octets)
            if route.by_headers:
                continue  # the exchange decides by the message
            if not route.queues:
                raise goes_nowhere(request, octets, count, "no queue is bound to it for that key")
            for queue in route.queues:
                counts, sizes = wanted.get(queue, (0, 0))
                wanted[queue] = (counts + count, sizes + size)
    for queue, (count, size) in wanted.items():
        check_room(request, queue, count, size)


def goes_nowhere(request: Request, octets: bytes, count: int, why: str) -> ServiceFault:
    exchange = octets[1 : 1 + octets[0]].decode("utf-8", "replace")
    key = octets[2 + octets[0] :].decode("utf-8", "replace")
    where = f"exchange '{exchange}' with routing key '{key}'"
    if not exchange:
        where, why = f"queue '{key}'", "there is no such queue"
    return ServiceFault(amqp.NO_ROUTE, f"{request.name}: {count} messages to {where} go to no queue: {why}")


def check_room(request: Request, queue: Queue, count: int, size: int) -> None:
    limits = None if queue.rules is None else queue.rules.limits
    if limits is None or not limits.refuses:
        return
    if queue.active:
        queue.dispatch()
    for limit, there, more, unit in (
        (limits.length_max, queue.message_count(), count, "messages"),
        (limits.bytes_max, limits.body_bytes, size, "octets"),
    ):
        if 0 <= limit < there + more:
            raise ServiceFault(
                amqp.RESOURCE_ERROR,
                f"{request.name}: queue '{queue.name}' has no room for {more} {unit}: it "
                f"holds {there} of at most {limit}, and refuses more",
            )


def last(branches: Branches) -> int:
    return 0 if branches.store is None else branches.store.last()


def marker_of(request: Request) -> tuple[str, Marker]:
    """The name of the marker, empty if there is none, and what it is to become."""
    name = request.text("marker", "")
    if len(name.encode("utf-8", "surrogateescape")) > MARKER_OCTETS_MAX:
        raise request.wrong("marker", f"expected at most {MARKER_OCTETS_MAX} octets")
    user = request.user
    if not name:
        return "", Marker(0, user.name)
    note = request.text("marker-note", "")
    if len(note.encode("utf-8", "surrogateescape")) > NOTE_OCTETS_MAX:
        raise request.wrong("marker-note", f"expected at most {NOTE_OCTETS_MAX} octets")
    keep_s = request.number("marker-keep-s", 0, maximum=KEEP_S_MAX)
    branches = branches_of(request)
    marker = branches.marker(name, user)
    owner, life = (user.name, user.life) if marker is None else (marker.user, marker.life)
    return name, Marker(request.number("marker-number"), owner, note, branches.now_ms(), keep_s, life)


def told_of(marker: Marker) -> FieldTable:
    return {"marker-number": marker.number, "marker-note": marker.note, "used-ms": marker.used_ms}


def prepared(request: Request, xids: list[Xid]) -> list[Branch]:
    branches = branches_of(request)
    found = [branches.find(xid, request.user) for xid in xids]
    for branch in found:
        if branch.state is not BranchState.PREPARED:
            raise ServiceFault(
                amqp.PRECONDITION_FAILED,
                f"{request.name}: branch {branch.xid} is {branch.state_text()}",
            )
    return found


def rolled_back(branches: Branches, found: list[Branch]) -> Generator[None, None, tuple[int, int]]:
    """Rolls branches back, one in each step: how many, and the record to wait for.

    One that ends or is joined in the steps for others is left as it is: what was done before stays done.
    """
    for branch in found:
        branches.not_busy(branch)
    count = sequence = 0
    for branch in found:
        is_there = branches.branches.get(branch.xid) is branch and branch.state in ROLLED_BACK
        if is_there and not branch.is_busy():
            count += 1
            sequence = max(sequence, branches.rollback(branch)[1])
            yield None
    return count, sequence


@service("dtx.rollback", "xids array, heuristic? flag", changes=True)
def dtx_rollback(request: Request) -> Chore:
    """Rolls back `xids`; one that is not there is named in `unknown`. `heuristic` as with dtx.commit."""
    branches = branches_of(request)
    xids = xids_of(request)
    found = known(request, xids)
    if request.flag("heuristic", False):
        found = prepared(request, xids)
        count = len(found)
        sequence = max([branches.complete_heuristically(each, commit=False) for each in found], default=0)
    else:
        count, sequence = yield from rolled_back(branches, found)
    there = {branch.xid for branch in found}
    unknown: list[FieldValue] = [str(xid) for xid in xids if xid not in there]
    reply_when_safe(request, sequence, {"rolled-back": count, "unknown": unknown})


@service("dtx.marker", "marker text")
def dtx_marker(request: Request) -> None:
    """The highest number committed under `marker`: known; marker-number, marker-note, used-ms if it is."""
    marker = branches_of(request).marker(request.text("marker"), request.user)
    results: FieldTable = {"known": marker is not None}
    if marker is not None:
        results.update(told_of(marker))
    reply_when_safe(request, last(branches_of(request)), results)


@service("dtx.markers", "prefix? text, " + PAGE)
def dtx_markers(request: Request) -> Iterator[None]:
    """The markers by name, those that begin with `prefix`: number, note, user, used-ms, keep-s."""
    prefix = request.text("prefix", "")
    branches = branches_of(request)

    def row(name: str, marker: Marker) -> FieldTable:
        return {"marker": name, **told_of(marker), "user": marker.user, "keep-s": marker.keep_s}

    return request.page(
        (name, partial(row, name, marker))
        for name, marker in [*branches.markers.items(), *branches.brief_markers.items()]
        if name.startswith(prefix) and may_touch(request.user, marker.user, marker.life)
    )


@service("dtx.forget-marker", "marker text", changes=True)
def dtx_forget_marker(request: Request) -> None:
    """Forgets `marker`: whoever committed under it does not come back. `forgotten`: whether there was one."""
    branches = branches_of(request)
    name = request.text("marker")
    is_known = branches.marker(name, request.user) is not None
    if is_known:
        branches.forget_marker(name)
    reply_when_safe(request, last(branches), {"forgotten": is_known})
