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
