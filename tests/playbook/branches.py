"""What clients say in distributed transactions, for the playbooks of these."""

from __future__ import annotations

from typing import Any

from playbook.dialogue import Carried, Client

from flintmq.broker.transactions.xid import Xid
from flintmq.wire import amqp, methods
from flintmq.wire.methods import BasicAck, BasicGet, Method

X1 = Xid(1, b"global", b"one").octets()
X2 = Xid(1, b"global", b"two").octets()
OK = amqp.XA_OK

SETTINGS = """
[dtx]
branches_max = 2
operations_per_branch_max = 3
branch_bytes_max = 100
markers_max = 2
"""

USERS = """
[users.ann]
password = "ann"
permissions."/" = {configure = ".*", write = ".*", read = ".*"}
[users.bob]
password = "bob"
permissions."/" = {configure = ".*", write = ".*", read = ".*"}
[users.root]
password = "root"
tags = ["administrator"]
permissions."/" = {configure = ".*", write = ".*", read = ".*"}
"""


def start(xid: bytes = X1, **flags: bool) -> Method:
    return methods.DtxDemarcationStart(xid=xid, **flags)


def end(xid: bytes = X1, **flags: bool) -> Method:
    return methods.DtxDemarcationEnd(xid=xid, **flags)


def prepare(xid: bytes = X1) -> Method:
    return methods.DtxCoordinationPrepare(xid=xid)


def commit(xid: bytes = X1, one_phase: bool = False) -> Method:
    return methods.DtxCoordinationCommit(xid=xid, one_phase=one_phase)


def rollback(xid: bytes = X1) -> Method:
    return methods.DtxCoordinationRollback(xid=xid)


def started(code: int = OK) -> Method:
    return methods.DtxDemarcationStartOk(flags=code)


def ended(code: int = OK) -> Method:
    return methods.DtxDemarcationEndOk(flags=code)


def prepared(code: int = OK) -> Method:
    return methods.DtxCoordinationPrepareOk(flags=code)


def committed(code: int = OK) -> Method:
    return methods.DtxCoordinationCommitOk(flags=code)


def rolled_back(code: int = OK) -> Method:
    return methods.DtxCoordinationRollbackOk(flags=code)


def select(client: Client, number: int = 1) -> None:
    client[number] >> methods.DtxDemarcationSelect()
    client[number] << methods.DtxDemarcationSelectOk()


def refused(client: Client, code: int, number: int = 1) -> str:
    closed = client.hears(methods.ChannelClose, number)
    assert closed.reply_code == code, closed
    client[number] >> methods.ChannelCloseOk()
    return closed.reply_text


def taken(client: Client, queue: str = "q") -> tuple[int, bytes, bool]:
    """The next message, not acked: its tag, its body, whether it was handed out before."""
    client >> BasicGet(queue=queue)
    found = client.next(1)
    assert isinstance(found, Carried), found
    assert isinstance(found.method, methods.BasicGetOk)
    return found.method.delivery_tag, found.body, found.method.redelivered


def in_branch(client: Client, *bodies: bytes, xid: bytes = X1) -> None:
    client >> start(xid)
    client << started()
    client.publishes("q", *bodies)
    client >> end(xid)
    client << ended()


def settled_in_branch(worker: Client, settle: Any) -> None:
    worker.publishes("q", b"m")
    tag, _, _ = taken(worker)
    worker >> start()
    worker << started()
    worker >> settle(tag)
    worker >> end()
    worker << ended()


SETTLING = {
    "ack": lambda tag: BasicAck(delivery_tag=tag),
    "reject": lambda tag: methods.BasicReject(delivery_tag=tag, requeue=False),
    "requeue": lambda tag: methods.BasicReject(delivery_tag=tag, requeue=True),
}


def recovered(client: Client, anew: bool = True, last: bool = False) -> dict[bytes, str]:
    client >> methods.DtxCoordinationRecover(startscan=anew, endscan=last)
    found = client.hears(methods.DtxCoordinationRecoverOk).xids
    xids, states = found["xids"], found["states"]
    assert isinstance(xids, list)
    assert isinstance(states, list)
    return dict(zip(xids, states, strict=True))  # type: ignore[arg-type]
