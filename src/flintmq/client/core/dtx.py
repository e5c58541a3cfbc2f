"""Distributed transactions: branches named by an Xid, prepared and committed in two phases.

    select, then for each branch     start --> publish, settle --> end --> prepare --> commit
                                                                   |          |
                                                                   +----------+--> rollback

An unprepared branch dies with its connection; a prepared one survives the broker itself, and `recover`
finds it. The dtx classes are of 0-9, and FlintMQ serves them on 0-9-1 as well. What a service of the
broker does better is asked there: committing many branches at once, and only once (`marker`).

    xid   | format 4 | g 1 | b 1 | global id, g octets | branch id, b octets |      g 1..64, b 0..64
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from flintmq.client.core.errors import ClientError, TransactionFailed
from flintmq.client.core.pending import Steps
from flintmq.client.core.services import Ask, Reply, number
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method
from flintmq.wire.tables import FieldTable, FieldValue

if TYPE_CHECKING:
    from flintmq.client.core.channel import ChannelCore

_HEAD = struct.Struct(">IBB")
ID_OCTETS_MAX = 64
FORMAT_MAX = 0xFFFFFFFE
# Answers to `recover` with nothing new in them end it; a server that never ends is stopped here.
RECOVERED_MAX = 1_000_000

_OUTCOMES = {
    amqp.XA_RBROLLBACK: "was rolled back",
    amqp.XA_RBTIMEOUT: "was rolled back after its timeout",
    amqp.XA_HEURHAZ: "may have been completed by an operator",
    amqp.XA_HEURCOM: "was committed by an operator",
    amqp.XA_HEURRB: "was rolled back by an operator",
    amqp.XA_HEURMIX: "was committed in part by an operator",
}


class Xid(NamedTuple):
    """The name of a branch."""

    global_id: bytes
    branch_id: bytes = b""
    format: int = 0

    def octets(self) -> bytes:
        if not 0 < len(self.global_id) <= ID_OCTETS_MAX or len(self.branch_id) > ID_OCTETS_MAX:
            raise ClientError(f"xid {self}: a global id has 1 to 64 octets, a branch id at most 64")
        if not 0 <= self.format <= FORMAT_MAX:
            raise ClientError(f"xid {self}: the format is a number from 0 to {FORMAT_MAX}")
        head = _HEAD.pack(self.format, len(self.global_id), len(self.branch_id))
        return head + self.global_id + self.branch_id

    @classmethod
    def of(cls, octets: object) -> Xid:
        """From the octets of a reply."""
        if isinstance(octets, bytes) and len(octets) >= _HEAD.size:
            form, global_size, branch_size = _HEAD.unpack_from(octets)
            middle = _HEAD.size + global_size
            if len(octets) == middle + branch_size:
                return cls(octets[_HEAD.size : middle], octets[middle:], form)
        raise ClientError("the server's list of branches has an entry that is no xid")

    def __str__(self) -> str:
        return f"{self.format}:{self.global_id.hex()}:{self.branch_id.hex()}"


class InDoubt(NamedTuple):
    """A branch that waits for its commit or rollback."""

    xid: Xid
    state: str


def select(channel: ChannelCore) -> Steps[None]:
    yield channel.call(methods.DtxDemarcationSelect(), "asking for distributed transactions")
    channel.distributed = True


def start(channel: ChannelCore, xid: Xid, join: bool, resume: bool) -> Steps[None]:
    if not channel.distributed:
        yield from select(channel)
    method = methods.DtxDemarcationStart(xid=xid.octets(), join=join, resume=resume)
    yield from _checked(channel, method, xid, "starting")
    channel.transaction_lost = False
    channel.transaction_begun = True


def end(channel: ChannelCore, xid: Xid, fail: bool, suspend: bool) -> Steps[None]:
    channel.check_transaction()
    method = methods.DtxDemarcationEnd(xid=xid.octets(), fail=fail, suspend=suspend)
    yield from _checked(channel, method, xid, "ending", fail)
    channel.transaction_begun = False


def prepare(channel: ChannelCore, xid: Xid) -> Steps[bool]:
    """False if there was nothing in it: then it is over already."""
    code = yield from _checked(channel, methods.DtxCoordinationPrepare(xid=xid.octets()), xid, "preparing")
    return code != amqp.XA_RDONLY


def commit(channel: ChannelCore, xid: Xid, one_phase: bool) -> Steps[None]:
    method = methods.DtxCoordinationCommit(xid=xid.octets(), one_phase=one_phase)
    yield from _checked(channel, method, xid, "committing")


def rollback(channel: ChannelCore, xid: Xid) -> Steps[None]:
    method = methods.DtxCoordinationRollback(xid=xid.octets())
    yield from _checked(channel, method, xid, "rolling back", rolled_back_is_fine=True)


def forget(channel: ChannelCore, xid: Xid) -> Steps[None]:
    yield channel.call(methods.DtxCoordinationForget(xid=xid.octets()), f"forgetting branch {xid}")


def set_timeout(channel: ChannelCore, xid: Xid, timeout_s: int) -> Steps[None]:
    method = methods.DtxCoordinationSetTimeout(xid=xid.octets(), timeout=timeout_s)
    yield channel.call(method, f"setting a timeout for branch {xid}")


def recover(channel: ChannelCore) -> Steps[list[InDoubt]]:
    """All branches that are prepared, or were completed by an operator."""
    found: list[InDoubt] = []
    while len(found) < RECOVERED_MAX:
        method = methods.DtxCoordinationRecover(startscan=not found)
        reply = yield channel.call(method, "looking for branches in doubt")
        xids, states = reply.xids.get("xids", []), reply.xids.get("states", [])
        if not isinstance(xids, list) or not isinstance(states, list) or not xids:
            break
        texts = [*map(str, states), *[""] * len(xids)]
        found += [InDoubt(Xid.of(xid), state) for xid, state in zip(xids, texts, strict=False)]
    return found


def _checked(
    channel: ChannelCore, method: Method, xid: Xid, doing: str, rolled_back_is_fine: bool = False
) -> Steps[int]:
    """The code of the answer; one that says that it went otherwise is raised."""
    reply = yield channel.call(method, f"{doing} branch {xid}")
    code = int(reply.flags)
    if rolled_back_is_fine and code in (amqp.XA_RBROLLBACK, amqp.XA_RBTIMEOUT):
        return code
    if code in _OUTCOMES:
        raise TransactionFailed(f"{doing} branch {xid}: it {_OUTCOMES[code]}", code)
    return code


class Committed(NamedTuple):
    """`already`: the marker had that number, or a higher one, before.

    `unrouted`, `refused`: messages that went to no queue, and that a full queue did not take; None where that
    was not known yet when the broker answered.
    """

    already: bool
    committed: int
    rolled_back: int
    unrouted: int | None = None
    refused: int | None = None


def commit_many(
    xids: Sequence[Xid], rollback_xids: Sequence[Xid], marker: str, marker_number: int
) -> Ask[Committed]:
    arguments: FieldTable = {"xids": _texts(xids), "rollback-xids": _texts(rollback_xids)}
    if marker:
        arguments.update({"marker": marker, "marker-number": marker_number})

    def read(reply: Reply) -> Committed:
        already = reply.results.get("already") is True
        counts = (number(reply, name) if name in reply.results else None for name in ("unrouted", "refused"))
        return Committed(already, number(reply, "committed"), number(reply, "rolled-back"), *counts)

    return Ask("dtx.commit", arguments, b"", read)


def rollback_many(xids: Sequence[Xid]) -> Ask[None]:
    return Ask("dtx.rollback", {"xids": _texts(xids)}, b"", lambda reply: None)


def marker_number(marker: str) -> Ask[int | None]:
    def read(reply: Reply) -> int | None:
        return number(reply, "marker-number") if "marker-number" in reply.results else None

    return Ask("dtx.marker", {"marker": marker}, b"", read)


def _texts(xids: Sequence[Xid]) -> list[FieldValue]:
    return [str(xid) for xid in xids]
