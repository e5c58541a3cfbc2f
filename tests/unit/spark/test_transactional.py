"""How the rows of a task become branches."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.client.core.dtx import Xid
from flintmq.spark.options import WriteOptions
from flintmq.spark.write import transactional
from flintmq.spark.write.rows import Run
from flintmq.wire.properties import BasicProperties

OPTIONS = WriteOptions.of({"exchange": "out", "mode": "transactional"})


class Recorded:
    """A branch that keeps what is published in it."""

    made: list[Recorded]

    def __init__(self, options: WriteOptions, xid: Xid) -> None:
        self.xid = xid
        self.channel = self
        self.bodies: list[bytes] = []
        self.keys: list[str] = []
        self.is_prepared = False
        self.made.append(self)

    def begin(self) -> None:
        """It is there."""

    def prepare(self) -> None:
        self.is_prepared = True

    def close(self) -> None:
        assert self.is_prepared

    def publish_many(self, bodies: list[bytes], *_: Any, routing_keys: list[str], **__: Any) -> int:
        assert len(bodies) == len(routing_keys)
        self.bodies += bodies
        self.keys += routing_keys
        return len(bodies)


@pytest.mark.parametrize(("size", "rows_in_a_branch_max"), [(1, 20), (30, 6), (1000, 1)])
def test_a_long_run_is_shared_by_branches(
    monkeypatch: pytest.MonkeyPatch, size: int, rows_in_a_branch_max: int
) -> None:
    """Sorted rows of a task come as one run, and a broker has limits for a branch."""
    monkeypatch.setattr(transactional, "Branch", Recorded)
    monkeypatch.setattr(transactional, "BRANCH_ROWS_MAX", 10)
    monkeypatch.setattr(transactional, "BRANCH_OCTETS_MAX", 100)
    Recorded.made = []
    bodies = [b"%d" % number + bytes(size - 1) for number in range(73)]
    keys = [f"key.{number}" for number in range(73)]
    staged = transactional.Stage(OPTIONS, b"job", 0, 0, is_digested=True)
    staged.publish(Run("out", bodies[:3], keys[:3], BasicProperties()))
    staged.publish(Run("out", bodies[3:], keys[3:], [BasicProperties() for _ in bodies[3:]]))
    staged.prepare()
    assert [body for branch in Recorded.made for body in branch.bodies] == bodies
    assert [key for branch in Recorded.made for key in branch.keys] == keys
    assert max(len(branch.bodies) for branch in Recorded.made) <= rows_in_a_branch_max
    assert len(staged.xids) == len(Recorded.made)
    assert staged.digest.count == 73


def test_all_old_branches_are_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of the list has as many as fit into a frame."""
    there = [f"{transactional.FORMAT}:{number:04d}" for number in range(2500)]
    left = list(there)

    def request(options: WriteOptions, service: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if service == "dtx.rollback":
            assert len(arguments["xids"]) <= transactional.BRANCHES_MAX
            left[:] = [xid for xid in left if xid not in arguments["xids"]]
            return {}
        assert service == "dtx.list"
        listed = [xid for xid in there if xid > arguments.get("after", "")]
        rows = [{"xid": xid, "since-ms": 0, "state": "prepared"} for xid in listed[:600]]
        return {"rows": rows, "next": listed[599]} if len(listed) > 600 else {"rows": rows}

    monkeypatch.setattr(transactional, "request", request)
    monkeypatch.setattr(transactional, "_looked_s", {})
    transactional.roll_back_old(OPTIONS)
    assert left == []
