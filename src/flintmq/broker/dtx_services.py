"""Services for those who coordinate distributed transactions, and for operators who clear up after them.

    dtx.list       the branches there are
    dtx.prepare    some branches
    dtx.commit     prepared branches, all or none; with a marker, once
    dtx.rollback   some branches
    dtx.marker     how far a marker has come

A marker is a name with a number that only grows, kept on disk: whoever commits batch 7 under a marker and
does not hear the answer may ask again, and is told that it was done.
Xids are text, as xid.py has it. Everybody may touch their own branches, administrators all of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flintmq.broker.dtx_branch import Branch, BranchState
from flintmq.broker.services import Request, ServiceFault, service
from flintmq.broker.xid import Xid, xid_of_text
from flintmq.wire import amqp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.broker.dtx_branches import Branches
    from flintmq.wire.tables import FieldTable, FieldValue

MARKER_OCTETS_MAX = 255


def branches_of(request: Request) -> Branches:
    branches: Branches = request.channel.virtual_host.branches
    store = branches.store
    if store is not None and store.journal.in_group():
        raise ServiceFault(
            amqp.PRECONDITION_FAILED,
            f"PRECONDITION_FAILED - {request.name}: cannot be asked from inside a transaction",
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
    """Those of them that there are, and that are not committed."""
    branches = branches_of(request)
    there = branches.branches
    return [
        branches.find(xid, request.channel.user)
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


@service("dtx.list")
def dtx_list(request: Request) -> None:
    """Branches, by xid: state, user, since-ms, messages, operations, octets. `prefix`: of the xid."""
    prefix = request.text("prefix", "")
    branches = branches_of(request)

    def rows() -> Iterator[tuple[str, Branch]]:
        for branch in branches.visible(request.channel.user):
            if str(branch.xid).startswith(prefix):
                yield str(branch.xid), branch

    request.page((name, partial(described, branch)) for name, branch in rows())


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


@service("dtx.prepare")
def dtx_prepare(request: Request) -> None:
    """Prepares `xids`, one after the other; those that were rolled back or had nothing in them are named."""
    branches = branches_of(request)
    found = [branches.find(xid, request.channel.user) for xid in xids_of(request)]
    for branch in found:
        branches.not_busy(branch)
    codes = {branch: branches.prepare(branch) for branch in found}
    results: FieldTable = {
        "prepared": texts([each for each, (code, _) in codes.items() if code == amqp.XA_OK]),
        "read-only": texts([each for each, (code, _) in codes.items() if code == amqp.XA_RDONLY]),
        "rolled-back": texts(
            [each for each, (code, _) in codes.items() if code not in (amqp.XA_OK, amqp.XA_RDONLY)]
        ),
    }
    reply_when_safe(request, max((sequence for _, sequence in codes.values()), default=0), results)


@service("dtx.commit")
def dtx_commit(request: Request) -> None:
    """Commits `xids`, all prepared, in one go; rolls back those in `rollback-xids`, known or not.

    `marker`, `marker-number`: only if that number is above the marker's, which it then becomes; otherwise
    `already` is true, and what is left of all these branches is rolled back.
    `heuristic`: the coordinator is to hear of it when it asks, as of a decision that was not its own.
    """
    branches = branches_of(request)
    user = request.channel.user
    xids = xids_of(request)
    losers = known(request, [xid for xid in xids_of(request, "rollback-xids") if xid not in xids])
    marker, number = marker_of(request)
    stored = branches.marker_number(marker, user) if marker else None
    if stored is not None and number <= stored:
        count, sequence = roll_back(branches, [*known(request, xids), *losers])
        results: FieldTable = {"already": True, "committed": 0, "rolled-back": count, "marker-number": stored}
        # The commit that it repeats may not be safe yet, either.
        reply_when_safe(request, max(sequence, last(branches)), results)
        return
    found = prepared(request, xids)
    if request.flag("heuristic", False):
        if marker:
            raise request.wrong("heuristic", "does not go together with a marker")
        sequence = max([branches.complete_heuristically(each, commit=True) for each in found], default=0)
    else:
        sequence = branches.commit_all(
            found, (lambda: branches.mark(marker, number, user)) if marker else None
        )
    count, undone = roll_back(branches, losers)
    results = {"already": False, "committed": len(found), "rolled-back": count}
    if marker:
        results["marker-number"] = number
    reply_when_safe(request, max(sequence, undone), results)


def last(branches: Branches) -> int:
    return 0 if branches.store is None else branches.store.last()


def marker_of(request: Request) -> tuple[str, int]:
    marker = request.text("marker", "")
    if len(marker.encode("utf-8", "surrogateescape")) > MARKER_OCTETS_MAX:
        raise request.wrong("marker", f"expected at most {MARKER_OCTETS_MAX} octets")
    if not marker:
        return "", 0
    return marker, request.number("marker-number")


def prepared(request: Request, xids: list[Xid]) -> list[Branch]:
    branches = branches_of(request)
    found = [branches.find(xid, request.channel.user) for xid in xids]
    for branch in found:
        if branch.state is not BranchState.PREPARED:
            raise ServiceFault(
                amqp.PRECONDITION_FAILED,
                f"PRECONDITION_FAILED - {request.name}: branch {branch.xid} is {branch.state_text()}",
            )
    return found


def roll_back(branches: Branches, found: list[Branch]) -> tuple[int, int]:
    """How many, and the record to wait for."""
    for branch in found:
        branches.not_busy(branch)
    count = sequence = 0
    for branch in found:
        if branch.state is not BranchState.HEURISTIC:
            count += 1
            sequence = max(sequence, branches.rollback(branch)[1])
    return count, sequence


@service("dtx.rollback")
def dtx_rollback(request: Request) -> None:
    """Rolls back `xids`; one that is not there is named in `unknown`. `heuristic` as with dtx.commit."""
    branches = branches_of(request)
    xids = xids_of(request)
    found = known(request, xids)
    if request.flag("heuristic", False):
        found = prepared(request, xids)
        count = len(found)
        sequence = max([branches.complete_heuristically(each, commit=False) for each in found], default=0)
    else:
        count, sequence = roll_back(branches, found)
    there = {branch.xid for branch in found}
    unknown: list[FieldValue] = [str(xid) for xid in xids if xid not in there]
    reply_when_safe(request, sequence, {"rolled-back": count, "unknown": unknown})


@service("dtx.marker")
def dtx_marker(request: Request) -> None:
    """The highest number committed under `marker`: `known`, and `marker-number` if it is."""
    number = branches_of(request).marker_number(request.text("marker"), request.channel.user)
    results: FieldTable = {"known": number is not None}
    if number is not None:
        results["marker-number"] = number
    reply_when_safe(request, last(branches_of(request)), results)
