"""The management process goes behind the broker."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import Any

import pytest

from flintmq.management import priority

# Linux has no higher one: nice() stops there.
NICENESS_MAX = 19
SCRIPT = """
import os
from flintmq.management import priority

before = os.nice(0)
priority.give_way()
print(before, os.nice(0), os.sched_getscheduler(0))
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="the system has no such priority")
def test_it_is_nicer_and_interrupts_nobody() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    before, after, scheduler = map(int, done.stdout.split())
    assert after == min(NICENESS_MAX, before + priority.NICENESS)
    assert scheduler == os.SCHED_BATCH


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EINVAL, errno.EPERM])
def test_it_goes_on_where_the_system_refuses(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """musl has no such call, gVisor does not know the policy, and seccomp may forbid both."""
    asked: list[str] = []

    def refusing(name: str) -> Any:
        def refuse(*_: Any) -> None:
            asked.append(name)
            raise OSError(code, os.strerror(code))

        return refuse

    monkeypatch.setattr(os, "nice", refusing("nice"))
    monkeypatch.setattr(os, "SCHED_BATCH", 3, raising=False)
    monkeypatch.setattr(os, "sched_param", lambda _: None, raising=False)
    monkeypatch.setattr(os, "sched_setscheduler", refusing("batch"), raising=False)
    priority.give_way()
    assert asked == ["nice", "batch"]
