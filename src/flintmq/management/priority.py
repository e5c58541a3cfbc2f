"""How the management process gives way to the broker where processors are scarce.

    nice     a smaller share of a processor that both want: a third of what the broker has
    batch    when the process wakes up it does not interrupt the broker

The process is never kept from working: on a machine without a free processor it still has its share.
Where the system refuses one of the two, the process works without it.
"""

from __future__ import annotations

import contextlib
import os

NICENESS = 5


def give_way() -> None:
    """From now on this process goes behind those of the usual priority."""
    with contextlib.suppress(OSError):  # seccomp may forbid it
        os.nice(NICENESS)
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):  # musl has no such call, and gVisor no such policy
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
