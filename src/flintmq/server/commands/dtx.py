"""The classes of distributed transactions: dtx, dtx-demarcation and dtx-coordination, one function a method.

0-8 and 0-9 have the dtx class, which can start a transaction and nothing else: its end is told by another
channel, or asked of the broker's services (broker/services/dtx_services.py). 0-9 has the two XA classes as
well, and 0-9-1 here, too: the server announces that as `flintmq.dtx`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.transactions.dtx_work import DtxWork
from flintmq.broker.transactions.xid import xid_of, xid_of_identifier
from flintmq.errors import ConnectionFault
from flintmq.server.commands.command import AwaitedMethod, broker_channel, command, is_open, wrong_mode
from flintmq.wire import amqp, methods

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel as BrokerChannel
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.transactions.dtx_branch import Branch
    from flintmq.broker.transactions.dtx_branches import Branches
    from flintmq.protocol.channel import Channel
    from flintmq.server.commands.command import Session
    from flintmq.wire.tables import FieldTable

# Of a frame with recover-ok: head and end 8, class and method 4, the table's length 4, two names with the
# letters and lengths of their arrays 24.
RECOVER_BYTES_APART = 40


def branches_of(owner: BrokerChannel) -> Branches:
    branches: Branches = owner.virtual_host.branches
    return branches


def named_branch(channel: Channel, xid: bytes) -> tuple[Branches, Branch]:
    owner = broker_channel(channel)
    branches = branches_of(owner)
    return branches, branches.find(xid_of(xid), owner.user)


def select(owner: BrokerChannel) -> None:
    if owner.confirms.active:
        raise wrong_mode("cannot switch from confirm to dtx mode")
    if owner.transaction is None:
        owner.transaction = DtxWork(owner, branches_of(owner))
    elif not isinstance(owner.transaction, DtxWork):
        raise wrong_mode("cannot switch from tx to dtx mode")


def work_of(channel: Channel) -> DtxWork:
    work = broker_channel(channel).transaction
    if not isinstance(work, DtxWork):
        raise wrong_mode("channel is not in dtx mode: select comes first")
    return work


def answer(session: Session, channel: Channel, method: methods.Method, sequence: int) -> None:
    """What it says must be on disk before it leaves."""
    session.send(channel.number, method)
    store = session.broker.store
    if store is not None:
        store.hold_back(session.output, sequence)


# dtx


@command("dtx.select")
def dtx_select(session: Session, channel: Channel, method: methods.DtxSelect) -> None:
    select(broker_channel(channel))
    session.send(channel.number, methods.DtxSelectOk())


@command("dtx.start")
def dtx_start(session: Session, channel: Channel, method: methods.DtxStart) -> None:
    """The next transaction of the channel, whatever it worked in before; another channel may be in it."""
    work = work_of(channel)
    xid = xid_of_identifier(method.dtx_identifier)
    work.branches.leave(work)
    code = work.branches.start(work, xid, xid in work.branches.branches, False, endless=True)
    if code != amqp.XA_OK:
        raise wrong_mode(f"branch {xid} is rollback-only")
    session.send(channel.number, methods.DtxStartOk())


# dtx-demarcation


@command("dtx-demarcation.select")
def demarcation_select(session: Session, channel: Channel, method: methods.DtxDemarcationSelect) -> None:
    select(broker_channel(channel))
    session.send(channel.number, methods.DtxDemarcationSelectOk())


@command("dtx-demarcation.start")
def demarcation_start(session: Session, channel: Channel, method: methods.DtxDemarcationStart) -> None:
    if method.join and method.resume:
        raise ConnectionFault(amqp.COMMAND_INVALID, "join and resume exclude each other")
    work = work_of(channel)
    code = work.branches.start(work, xid_of(method.xid), method.join, method.resume)
    session.send(channel.number, methods.DtxDemarcationStartOk(flags=code))


@command("dtx-demarcation.end")
def demarcation_end(session: Session, channel: Channel, method: methods.DtxDemarcationEnd) -> None:
    if method.fail and method.suspend:
        raise ConnectionFault(amqp.COMMAND_INVALID, "fail and suspend exclude each other")
    work = work_of(channel)
    code = work.branches.end(work, xid_of(method.xid), method.fail, method.suspend)
    session.send(channel.number, methods.DtxDemarcationEndOk(flags=code))


# dtx-coordination


@command("dtx-coordination.prepare")
def prepare(session: Session, channel: Channel, method: methods.DtxCoordinationPrepare) -> None:
    branches, branch = named_branch(channel, method.xid)
    if branches.is_much_to_lock(branch):
        AwaitedMethod(session, channel, method).begin(prepared(session, channel, branches, branch))
        return
    code, sequence = branches.prepare(branch)
    answer(session, channel, methods.DtxCoordinationPrepareOk(flags=code), sequence)


def prepared(session: Session, channel: Channel, branches: Branches, branch: Branch) -> Chore:
    owner = broker_channel(channel)
    code, sequence = yield from branches.prepare_in_portions(branch)
    if is_open(session, channel, owner):
        answer(session, channel, methods.DtxCoordinationPrepareOk(flags=code), sequence)


@command("dtx-coordination.commit")
def commit(session: Session, channel: Channel, method: methods.DtxCoordinationCommit) -> None:
    branches, branch = named_branch(channel, method.xid)
    if branches.is_much_to_commit(branch):
        AwaitedMethod(session, channel, method).begin(
            committed(session, channel, branches, branch, method.one_phase)
        )
        return
    code, sequence = branches.commit(branch, method.one_phase)
    tell_committed(session, channel, branches, branch, code, sequence)


def committed(
    session: Session, channel: Channel, branches: Branches, branch: Branch, one_phase: bool
) -> Chore:
    owner = broker_channel(channel)
    code, sequence = yield from branches.commit_in_portions(branch, one_phase)
    if is_open(session, channel, owner):
        tell_committed(session, channel, branches, branch, code, sequence)


def tell_committed(
    session: Session, channel: Channel, branches: Branches, branch: Branch, code: int, sequence: int
) -> None:
    owner = channel.owner

    def tell() -> None:
        if channel.owner is owner:
            answer(session, channel, methods.DtxCoordinationCommitOk(flags=code), sequence)

    branches.outcomes.when_done([branch], tell)


@command("dtx-coordination.rollback")
def rollback(session: Session, channel: Channel, method: methods.DtxCoordinationRollback) -> None:
    branches, branch = named_branch(channel, method.xid)
    code, sequence = branches.rollback(branch)
    answer(session, channel, methods.DtxCoordinationRollbackOk(flags=code), sequence)


@command("dtx-coordination.forget")
def forget(session: Session, channel: Channel, method: methods.DtxCoordinationForget) -> None:
    branches, branch = named_branch(channel, method.xid)
    answer(session, channel, methods.DtxCoordinationForgetOk(), branches.forget(branch))


@command("dtx-coordination.recover")
def recover(session: Session, channel: Channel, method: methods.DtxCoordinationRecover) -> None:
    """As many xids as fit in a frame; asked again without startscan, the next ones, until there is none."""
    owner = broker_channel(channel)
    room = session.output.frame_bytes_max - RECOVER_BYTES_APART
    scan = (owner.origin, owner.number)
    branches = branches_of(owner)
    found = branches.recover(scan, owner.user, method.startscan, room)
    if method.endscan:
        branches.scans.pop(scan, None)
    xids: FieldTable = {
        "xids": [branch.xid.octets() for branch in found],
        "states": [branch.state_text() for branch in found],
    }
    session.send(channel.number, methods.DtxCoordinationRecoverOk(xids=xids))


@command("dtx-coordination.get-timeout")
def get_timeout(session: Session, channel: Channel, method: methods.DtxCoordinationGetTimeout) -> None:
    _, branch = named_branch(channel, method.xid)
    session.send(channel.number, methods.DtxCoordinationGetTimeoutOk(timeout=branch.timeout_s))


@command("dtx-coordination.set-timeout")
def set_timeout(session: Session, channel: Channel, method: methods.DtxCoordinationSetTimeout) -> None:
    branches, branch = named_branch(channel, method.xid)
    branches.set_timeout(branch, method.timeout)
    session.send(channel.number, methods.DtxCoordinationSetTimeoutOk())
