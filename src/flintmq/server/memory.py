"""Memory: the alarm that holds publishers back, and giving back what a burst has left behind."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.config import Config

# Off again at nine tenths of the mark, so that it does not flutter.
LOW_SHARE = 0.9


# glibc keeps freed memory for later; after many connections have gone the system should have it again.
_trim = None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_back() -> None:
    """Returns free memory to the system. Takes some milliseconds: for quiet moments."""
    gc.collect()
    if _trim is not None:
        _trim(0)


class MemoryAlarm:
    """Looks at the resident memory of this process when asked."""

    def __init__(self, config: Config) -> None:
        self.active = False
        self.is_memory_short = False
        self.reason = ""
        self.page_bytes = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
        machine_bytes = self.page_bytes * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 4 << 30
        self.high_bytes = config.limits.memory_bytes_high(machine_bytes)

    def used_bytes(self) -> int:
        """Resident memory; where the system does not tell, the most there ever was."""
        try:
            with open("/proc/self/statm", "rb") as statm:
                return int(statm.read().split()[1]) * self.page_bytes
        except OSError:
            try:
                import resource
            except ImportError:
                return 0  # Windows
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
                1 if sys.platform == "darwin" else 1024
            )

    def check(self, other_reason: str = "") -> bool:
        """Looks again; whether the alarm went on or off. `other_reason` is another one to be alarmed."""
        used = self.used_bytes()
        short = used > (self.high_bytes * LOW_SHARE if self.is_memory_short else self.high_bytes)
        active = short or bool(other_reason)
        changed = active != self.active
        self.active = active
        self.is_memory_short = short
        low = f"low on memory: {used >> 20} MiB used of {self.high_bytes >> 20} MiB allowed"
        self.reason = low if short else other_reason
        return changed
