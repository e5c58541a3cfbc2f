"""The memory alarm: on above the mark, off well below it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.config import Config, Limits
from flintmq.server import memory
from flintmq.server.memory import MemoryAlarm

MIB = 2**20


class Scripted(MemoryAlarm):
    used = 0

    def used_bytes(self) -> int:
        return self.used


def alarm() -> Scripted:
    return Scripted(Config()._replace(limits=Limits(memory_high_bytes=100 * MIB)))


def test_it_does_not_flutter() -> None:
    watched = alarm()
    told = []
    for used in (50, 100, 101, 99, 91, 101, 90, 95, 100, 120):
        watched.used = used * MIB
        told.append((watched.check(), watched.active))
    assert told == [
        (False, False),
        (False, False),
        (True, True),
        (False, True),
        (False, True),
        (False, True),
        (True, False),
        (False, False),
        (False, False),
        (True, True),
    ]


def test_the_reason_tells_both_numbers() -> None:
    watched = alarm()
    watched.used = 130 * MIB
    watched.check()
    assert watched.reason == "low on memory: 130 MiB used of 100 MiB allowed"
    watched.used = 0
    watched.check()
    assert watched.reason == ""


def test_the_real_use_is_a_plausible_one() -> None:
    assert MIB < MemoryAlarm(Config()).used_bytes() < 2**40


def test_each_mark_has_its_place() -> None:
    watched = alarm()
    seen = []
    for used in (60, 71, 86, 101, 111, 105, 99, 89, 74, 59):
        watched.used = used * MIB
        watched.check()
        marks = (watched.short, watched.urgent, watched.alarm, watched.critical)
        seen.append("".join("+" if mark.is_on else "-" for mark in marks))
    assert seen == ["----", "+---", "++--", "+++-", "++++", "++++", "+++-", "++--", "+---", "----"]


def test_without_proc_it_is_what_psutil_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "STATM", "/nowhere/statm")
    used = iter([300 * MIB, 50 * MIB])
    process = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=next(used)))
    monkeypatch.setitem(sys.modules, "psutil", SimpleNamespace(Process=lambda: process))
    watched = MemoryAlarm(Config()._replace(limits=Limits(memory_high_bytes=100 * MIB)))
    assert (watched.check(), watched.active) == (True, True)
    assert (watched.check(), watched.active) == (True, False), "it is not the most that there ever was"


class Mach:
    """What libSystem of macOS answers."""

    class mach_task_self:
        restype: Any = None

        def __new__(cls) -> Any:
            return 771

    def __init__(self) -> None:
        self.resident = 0

    def task_info(self, task: Any, flavor: int, info: Any, count: Any) -> int:
        assert (task.value, flavor, count._obj.value) == (771, 20, ctypes.sizeof(info._obj) // 4)
        info._obj.resident_size = self.resident
        info._obj.resident_size_max = 2**40
        return 0


def test_on_macos_it_is_what_mach_says(monkeypatch: pytest.MonkeyPatch) -> None:
    mach = Mach()
    monkeypatch.setattr(memory, "STATM", "/nowhere/statm")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(memory, "libc", lambda: mach)
    watched = MemoryAlarm(Config()._replace(limits=Limits(memory_high_bytes=100 * MIB)))
    for mach.resident, active in ((50 * MIB, False), (120 * MIB, True), (50 * MIB, False)):
        watched.check()
        assert (watched.used, watched.active) == (mach.resident, active)


def test_the_limit_is_changed_while_it_watches() -> None:
    watched = alarm()
    watched.used = 120 * MIB
    assert watched.check()
    assert watched.critical.is_on
    watched.limit(Limits(memory_high_bytes=1000 * MIB))
    assert watched.check()
    marks = (watched.short, watched.urgent, watched.alarm, watched.critical)
    assert [mark.is_on for mark in marks] == [False] * 4
    assert watched.watch_bytes == 1000 * MIB // 64
    watched.limit(Limits(memory_high_bytes=119 * MIB))
    assert watched.check()
    assert watched.reason == "low on memory: 120 MiB used of 119 MiB allowed"


def test_where_nobody_tells_there_is_no_alarm(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory, "STATM", "/nowhere/statm")
    monkeypatch.setitem(sys.modules, "psutil", None)
    watched = MemoryAlarm(Config()._replace(limits=Limits(memory_high_bytes=MIB)))
    assert (watched.check(), watched.active) == (False, False)
    assert "there is no memory alarm" in caplog.text


def test_the_module_needs_nothing_that_windows_does_not_have() -> None:
    """No resource, no sysconf, no symbols of the process itself."""
    script = """
import ctypes, importlib.util, os, sys
sys.modules["resource"] = None
sys.modules["psutil"] = None
del os.sysconf
class Refusing(ctypes.CDLL):
    def __init__(self, name, *more):
        if name is None:
            raise TypeError("LoadLibrary() argument 1 must be str, not None")
        super().__init__(name, *more)
ctypes.CDLL = Refusing
spec = importlib.util.spec_from_file_location("memory", sys.argv[1])
memory = importlib.util.module_from_spec(spec)
spec.loader.exec_module(memory)
memory.STATM = "nowhere"
memory.give_back()
assert memory.machine_bytes() == memory.MACHINE_BYTES
assert memory.memory_reader()() == 0
"""
    subprocess.run([sys.executable, "-c", script, memory.__file__], check=True, timeout=60)
