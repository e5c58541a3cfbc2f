"""Memory: how much of it this process has, the marks that it may pass, and giving back what a burst left.

    share of the limit   0.6  0.7  0.75 0.85  0.9   1.0   1.1
    short                 off  on                               messages go to disk: memory_relief.py
    urgent                         off  on                      hardly any stay in memory
    alarm                                    off    on          publishers are not read from
    critical                                        off   on    whatever takes more memory is refused

Each mark goes off below where it came on, so that none flutters. What is measured is resident memory now,
never the most there was: an alarm must be able to end. Knows nothing of queues and connections.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flintmq.config import Config, Limits

log = logging.getLogger("flintmq.memory")

STATM = "/proc/self/statm"
# Linux: the control groups of this process, and where their files are.
CGROUP = "/proc/self/cgroup"
CGROUP_FILES = "/sys/fs/cgroup"
# What a machine is taken to have if the system does not tell: 40% of it are 1.6 GiB.
MACHINE_BYTES = 4 << 30

# Where each mark comes on and goes off, as shares of the limit.
SHORT = (0.7, 0.6)
URGENT = (0.85, 0.75)
ALARM = (1.0, 0.9)
CRITICAL = (1.1, 1.0)

# Memory is looked at whenever this share of the limit may have come: 200 MiB / 64 = 3.1 MiB.
WATCH_PARTS = 64
WATCH_BYTES_MIN = 1 << 20
WATCH_BYTES_MAX = 32 << 20

# What mach calls MACH_TASK_BASIC_INFO, and the size of its answer in words of 32 bits.
MACH_TASK_BASIC_INFO = 20


@cache
def libc() -> Any:
    """The functions of this process; None where it cannot be asked for them."""
    import ctypes  # takes two milliseconds: server.py loads it when the broker has started

    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):
        return None  # Windows


def trim() -> None:
    """Returns free memory to the system. Takes some milliseconds where much is free in small pieces.

    glibc keeps what is freed for later.
    """
    malloc_trim = getattr(libc(), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def give_back() -> None:
    """The same, and before it what only the collector finds. Takes longer: for quiet moments."""
    gc.collect()
    trim()


# Resident memory


class StatmReader:
    """Linux: the file stays open, as it is read many times a second."""

    def __init__(self) -> None:
        self.descriptor = os.open(STATM, os.O_RDONLY)
        self.page_bytes = os.sysconf("SC_PAGE_SIZE")

    def __call__(self) -> int:
        return int(os.pread(self.descriptor, 128, 0).split()[1]) * self.page_bytes

    def close(self) -> None:
        os.close(self.descriptor)


def statm_reader() -> StatmReader | None:
    try:
        return StatmReader()
    except OSError:
        return None


def mach_reader(library: Any) -> Callable[[], int] | None:
    """macOS: what task_info says of this task."""
    if not hasattr(library, "task_info") or not hasattr(library, "mach_task_self"):
        return None
    import ctypes

    class MachTaskBasicInfo(ctypes.Structure):
        """mach_task_basic_info of macOS."""

        _fields_ = (
            ("virtual_size", ctypes.c_uint64),
            ("resident_size", ctypes.c_uint64),
            ("resident_size_max", ctypes.c_uint64),
            ("user_time", ctypes.c_int32 * 2),
            ("system_time", ctypes.c_int32 * 2),
            ("policy", ctypes.c_int32),
            ("suspend_count", ctypes.c_int32),
        )

    library.mach_task_self.restype = ctypes.c_uint32
    task = library.mach_task_self()

    def read() -> int:
        info = MachTaskBasicInfo()
        count = ctypes.c_uint32(ctypes.sizeof(info) // 4)
        if library.task_info(
            ctypes.c_uint32(task), MACH_TASK_BASIC_INFO, ctypes.byref(info), ctypes.byref(count)
        ):
            return 0
        return int(info.resident_size)

    return read


def psutil_reader() -> Callable[[], int] | None:
    """Other systems, where psutil is installed."""
    try:
        process = importlib.import_module("psutil").Process()
    except ImportError:
        return None
    return lambda: int(process.memory_info().rss)


def memory_reader() -> Callable[[], int]:
    """The way by which this system tells a process its resident memory; without any there is no alarm."""
    found: Callable[[], int] | None = statm_reader()
    if found is None and sys.platform == "darwin":
        found = mach_reader(libc())
    if found is None:
        found = psutil_reader()
    if found is None:
        log.warning("this system does not tell how much memory is in use: there is no memory alarm")
        return lambda: 0
    return found


def machine_bytes() -> int:
    """The memory of the machine, or what the container or service that this process is in may have of it."""
    limit = group_bytes()
    return physical_bytes() if limit is None else min(limit, physical_bytes())


def physical_bytes() -> int:
    """The memory of the machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        pass  # Windows has no sysconf, others may not know the name
    try:
        return int(importlib.import_module("psutil").virtual_memory().total)
    except ImportError:
        return MACHINE_BYTES


def group_bytes() -> int | None:
    """The least memory that a control group of this process may have; None where none has a limit.

    A line of CGROUP is NUMBER:CONTROLLERS:PATH: `0::/system.slice/flintmq.service` of version 2,
    `4:memory:/docker/1f3a` of version 1. The groups above the named one limit it too. In a container the path
    may be the one outside, of which nothing is to be seen inside: then the top holds the container's limit.
    """
    limits: list[int] = []
    for line in lines_of(CGROUP):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = CGROUP_FILES, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = f"{CGROUP_FILES}/memory", "memory.limit_in_bytes"
        else:
            continue
        while True:
            # "max" of version 2 is no limit; version 1 has a number that no machine has.
            limits += [
                int(text) for text in lines_of(f"{top}{path.rstrip('/')}/{name}")[:1] if text.isdigit()
            ]
            if path in ("", "/"):
                break
            path = path.rpartition("/")[0]
    return min(limits, default=None)


def lines_of(path: str) -> list[str]:
    """The lines of a small file of the system; none where there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


# Marks


class Mark:
    """On above one amount of memory, off again below a lower one."""

    def __init__(self, shares: tuple[float, float]) -> None:
        self.shares = shares
        self.on_bytes = self.off_bytes = 0
        self.is_on = False

    def set(self, limit_bytes: int) -> None:
        """Its two amounts are shares of this; it stays on or off until the next look."""
        self.on_bytes = int(limit_bytes * self.shares[0])
        self.off_bytes = int(limit_bytes * self.shares[1])

    def look(self, used_bytes: int) -> bool:
        """Whether it is on, now that so much is used."""
        self.is_on = used_bytes > (self.off_bytes if self.is_on else self.on_bytes)
        return self.is_on


class MemoryAlarm:
    """Looks at the resident memory of this process when asked."""

    def __init__(self, config: Config) -> None:
        self.active = False
        self.reason = ""
        self.short = Mark(SHORT)
        self.urgent = Mark(URGENT)
        self.alarm = Mark(ALARM)
        self.critical = Mark(CRITICAL)
        self.read = memory_reader()
        self.used = 0
        self.limit(config.limits)

    def limit(self, limits: Limits) -> None:
        """What the process may have, from the next look on."""
        self.limits = limits
        self.high_bytes = limits.memory_bytes_high(machine_bytes())
        for mark in (self.short, self.urgent, self.alarm, self.critical):
            mark.set(self.high_bytes)
        self.watch_bytes = min(max(self.high_bytes // WATCH_PARTS, WATCH_BYTES_MIN), WATCH_BYTES_MAX)

    def used_bytes(self) -> int:
        """Resident memory."""
        return self.read()

    def close(self) -> None:
        """Nobody asks any more: a program that has embedded the broker may start many."""
        if isinstance(self.read, StatmReader):
            self.read.close()
        self.read = lambda: 0

    def check(self, other_reason: str = "") -> bool:
        """Looks again; whether the alarm went on or off. `other_reason` is another one to be alarmed."""
        self.used = used = self.used_bytes()
        self.short.look(used)
        self.urgent.look(used)
        self.critical.look(used)
        short = self.alarm.look(used)
        active = short or bool(other_reason)
        changed = active != self.active
        self.active = active
        if short:
            self.reason = f"low on memory: {used >> 20} MiB used of {self.high_bytes >> 20} MiB allowed"
        else:
            self.reason = other_reason
        return changed
