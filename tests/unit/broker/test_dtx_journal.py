"""The manifest of a branch: one record for each settlement, and for each message that has flags."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

from flintmq.broker.transactions.dtx_branch import Branch, Lock, Settlement
from flintmq.broker.transactions.dtx_journal import _records
from flintmq.broker.transactions.xid import Xid

RECORD = struct.Struct("<BIQB")


def branch() -> Branch:
    return Branch(Xid(1, b"branch", b"1"), "guest", 1, 7, 0)


def lock(settlement: Settlement, number: int, entry: int) -> Lock:
    queue: Any = SimpleNamespace(number=number)
    return Lock(settlement, queue, entry, None)


def test_settlements_and_flags() -> None:
    whole = branch()
    whole.locks = [
        lock(Settlement.ACK, 0x01020304, 0x0102030405060708),
        lock(Settlement.REJECT, 5, 0),  # not in the journal
        lock(Settlement.REJECT, 2**32 - 1, 1),
        lock(Settlement.REQUEUE, 1, 2**64 - 1),
    ]
    whole.flags = bytearray((0, 1, 0, 3))
    whole.entries.extend((10, 11, 12, 0x1112131415161718))
    assert list(RECORD.iter_unpack(_records(whole))) == [
        (1, 0x01020304, 0x0102030405060708, 0),
        (2, 2**32 - 1, 1, 0),
        (3, 1, 2**64 - 1, 0),
        (4, 0, 11, 1),
        (4, 0, 0x1112131415161718, 3),
    ]


def test_nothing_settled_and_no_flags() -> None:
    whole = branch()
    whole.flags = bytearray(3)
    whole.entries.extend((1, 2, 3))
    assert _records(whole) == b""
