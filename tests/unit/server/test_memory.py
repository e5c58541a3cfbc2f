"""The memory alarm: on above the mark, off well below it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
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


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"memory.max": "536870912\n"}, 512 * MIB),  # a container
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/\n", {}, None),  # the machine itself
        (
            "0::/system.slice/flintmq.service\n",
            {
                "system.slice/memory.max": "1073741824\n",
                "system.slice/flintmq.service/memory.max": "max\n",
            },
            1024 * MIB,
        ),
        (
            "5:devices:/a\n4:memory:/docker/1f3a\n0::/\n",
            {
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
                "memory/docker/1f3a/memory.limit_in_bytes": "268435456\n",
            },
            256 * MIB,
        ),
        (
            "3:cpu,memory:/docker/1f3a\n",  # version 1 in a container, which sees its own group at the top
            {"memory/memory.limit_in_bytes": "268435456\n"},
            256 * MIB,
        ),
    ],
)
def test_a_container_has_what_its_control_group_may_have(
    groups: str,
    files: dict[str, str],
    expected: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "cgroup").write_text(groups)
    for name, text in files.items():
        (tmp_path / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / name).write_text(text)
    monkeypatch.setattr(memory, "CGROUP", str(tmp_path / "cgroup"))
    monkeypatch.setattr(memory, "CGROUP_FILES", str(tmp_path / "files"))
    monkeypatch.setattr(memory, "physical_bytes", lambda: 64 << 30)
    assert memory.group_bytes() == expected
    assert memory.machine_bytes() == (expected or 64 << 30)
    assert MemoryAlarm(Config()).high_bytes == int(0.4 * (expected or 64 << 30))


def test_a_control_group_with_more_than_the_machine_limits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "memory.max").write_text(f"{1 << 60}\n")
    monkeypatch.setattr(memory, "CGROUP", str(tmp_path / "cgroup"))
    monkeypatch.setattr(memory, "CGROUP_FILES", str(tmp_path))
    assert memory.machine_bytes() == memory.physical_bytes()


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
memory.STATM = memory.CGROUP = "nowhere"
memory.give_back()
assert memory.machine_bytes() == memory.MACHINE_BYTES
assert memory.memory_reader()() == 0
"""
    subprocess.run([sys.executable, "-c", script, memory.__file__], check=True, timeout=60)
