"""tools/spark_faults.py: a round in which the wrong process died, or none, is not counted as good."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import faulty_source
import pytest
from faulty_source import Faults, command_of, started
from network_proxy import TO_BROKER, Fault
from peer import HEADERS

TOOL = Path(__file__).resolve().parent.parent.parent / "tools" / "spark_faults.py"
BROKER = "flintmq serve"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tools_spark_faults", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its data classes look for their types
    spec.loader.exec_module(module)
    return module


tool = load()


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process that passes for a broker, and ends when its input does."""
    command = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()", BROKER]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "after-latest.killed"


def order(directory: Path, words: str) -> Faults:
    (directory / "after-latest").write_text(words)
    return Faults(str(directory))


def test_who_was_killed_is_written_down(
    victim: subprocess.Popen[bytes], tmp_path: Path, record: Path
) -> None:
    order(tmp_path, f"spare {victim.pid}").reach("after-latest")
    assert victim.wait(10) == -9
    assert json.loads(record.read_text())[0]["pid"] == victim.pid
    assert tool.is_killed("broker", record)
    assert not tool.is_killed("executor", record)  # another one died


def test_who_lives_was_not_killed(victim: subprocess.Popen[bytes], record: Path) -> None:
    doomed = {"pid": victim.pid, "start": started(victim.pid), "command": command_of(victim.pid)}
    record.write_text(json.dumps([doomed]))
    assert BROKER in doomed["command"]
    assert not tool.is_killed("broker", record)
    victim.kill()
    victim.wait(10)
    assert tool.is_killed("broker", record)


def test_who_was_dead_before_was_not_killed(
    victim: subprocess.Popen[bytes], tmp_path: Path, record: Path
) -> None:
    victim.kill()
    victim.wait(10)
    with pytest.raises(ProcessLookupError):
        order(tmp_path, f"spare {victim.pid}").reach("after-latest")
    assert not tool.is_killed("broker", record)


def test_no_executor_to_kill_is_no_kill(
    victim: subprocess.Popen[bytes], tmp_path: Path, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faulty_source, "EXECUTOR_S_MAX", 0.3)
    with pytest.raises(ProcessLookupError, match="no executor"):
        order(tmp_path, f"spare child-of={victim.pid}").reach("after-latest")
    assert not tool.is_killed("executor", record)


def test_the_end_of_a_driver_is_the_end_of_its_workers() -> None:
    """They are in groups of their own, as those of Spark are."""
    code = (
        "import json, os, subprocess, sys\n"
        "worker = subprocess.Popen([sys.executable, '-c', 'import signal; signal.alarm(30); signal.pause()'],"
        " process_group=0)\n"
        "print(json.dumps({'processes': [os.getpid(), worker.pid]}), flush=True)\n"
        "sys.stdin.read()\n"
    )
    driver = object.__new__(tool.Driver)
    driver.process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with driver.process:
        _, worker = driver.answer(None)["processes"]
        assert os.getpgid(worker) != driver.process.pid
        os.kill(driver.process.pid, signal.SIGSTOP)  # it must not see its worker off
        driver.end()
    deadline_s = time.monotonic() + 10
    while started(worker) is not None and time.monotonic() < deadline_s:
        time.sleep(0.01)  # it is nobody's child here
    assert started(worker) is None


def test_the_network_fails_before_the_query_goes_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        network = tool.Network(SimpleNamespace(port=listener.getsockname()[1]), tmp_path, 1)
        with closing(network), socket.create_connection(("127.0.0.1", network.proxy.port)) as query:
            accepted, _ = listener.accept()
            with accepted:
                network.order("reset")
                order(tmp_path, "network").reach("after-latest")
                [link] = network.proxy.links
                assert sum(len(flow.faults) for flow in link.flows.values()) == 1
                assert not network.has_failed(), "no frame has come to the place of the fault"
                network.order("reset")
                network.proxy.strike(Fault(TO_BROKER, tool.NETWORK["reset"]))
                query.sendall(HEADERS["0-9-1"])
                network.proxy.wait_for_fault()
                assert network.has_failed()


def outcome(**given: Any) -> Any:
    fair = {
        "is_reached": True,
        "is_killed": True,
        "is_done": True,
        "lives": 2,
        "lost": 0,
        "twice": 0,
        "left": 0,
    }
    return tool.Outcome("after-latest", "driver", **{**fair, **given}, is_exact=True, seconds=1.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"is_reached": False}, "NOT REACHED"),
        ({"is_killed": False}, "NOT KILLED"),
        ({"is_done": False}, "NOT DONE"),
        ({"lost": 3}, "3 LOST"),
        ({"twice": 2}, "2 TWICE"),
        ({"left": 1}, "1 LEFT"),
    ],
)
def test_a_bad_round_is_bad_and_says_why(given: dict[str, Any], said: str) -> None:
    assert outcome().is_good
    assert not outcome(**given).is_good
    assert said in tool.table([outcome(**given)])


def test_each_kind_of_point_has_its_own_process() -> None:
    roles = {tool.role_of("process", point) for point in faulty_source.STEPS}
    assert roles == {"source's reader", "task's worker", "sink's coordinator"}
    assert roles | set(tool.VICTIMS) - {"process"} == set(tool.COMMANDS)
