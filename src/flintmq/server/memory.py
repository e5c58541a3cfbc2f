"""The memory alarm: on when the process uses more than its share, off when it is well below again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.config import Config

# Off again at nine tenths of the mark, so that it does not flutter.
LOW_SHARE = 0.9


class MemoryAlarm:
    """Looks at the resident memory of this process when asked."""

    def __init__(self, config: Config) -> None:
        self.active = False
        self.reason = ""
        self.page_bytes = os.sysconf("SC_PAGE_SIZE")
        machine_bytes = self.page_bytes * os.sysconf("SC_PHYS_PAGES")
        self.high_bytes = config.limits.memory_bytes_high(machine_bytes)

    def used_bytes(self) -> int:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * self.page_bytes

    def check(self) -> bool:
        """Looks again; whether the alarm went on or off."""
        used = self.used_bytes()
        active = used > (self.high_bytes * LOW_SHARE if self.active else self.high_bytes)
        changed = active != self.active
        self.active = active
        self.reason = (
            f"low on memory: {used >> 20} MiB used of {self.high_bytes >> 20} MiB allowed" if active else ""
        )
        return changed
