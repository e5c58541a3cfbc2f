"""The broker as process 1, which it is in a container: the kernel drops signals that it does not ask for, and
whatever it starts is for it to reap."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from broker_process import STOP_TIMEOUT_S, BrokerProcess

MANAGEMENT = re.compile(r"management on http://127\.0\.0\.1:(\d+)")
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    """A namespace of processes of our own, as a container has it."""
    reason = "unshare is missing: it comes with util-linux"
    if shutil.which("unshare") is not None:
        tried = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, timeout=30, check=False)
        if tried.returncode == 0:
            return
        reason = f"a namespace of processes takes root: {tried.stderr.strip()}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class FirstProcess(BrokerProcess):
    command = (*NAMESPACE, sys.executable, "-m", "flintmq")

    def broker(self) -> int:
        """The broker's number outside of its namespace."""
        [number] = children_of(self.process.pid)
        return number

    def stop(self, expected: int = 0) -> None:
        """`unshare` passes no signals on, and ends with the status of the broker."""
        if self.process.poll() is None:
            os.kill(self.broker(), signal.SIGTERM)
        status = self.process.wait(STOP_TIMEOUT_S)
        for reader in self.readers:
            reader.join()
        assert status == expected, self.lines


def children_of(process: int) -> list[int]:
    return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def test_sigterm_ends_it_in_order(tmp_path: Path) -> None:
    with FirstProcess("--data", str(tmp_path / "data")) as broker:
        pass
    assert any("flintmq is stopping" in line for line in broker.lines)


def test_the_process_of_the_http_api_is_reaped() -> None:
    broker = FirstProcess("--management-port", "0")
    with broker:
        broker.wait_for(MANAGEMENT)
        first = broker.broker()
        [before] = children_of(first)
        os.kill(before, signal.SIGKILL)
        broker.wait_for(re.compile("management process has ended with status -9: it is started again"))
        assert not Path(f"/proc/{before}").exists(), "a zombie is left"
        due_s = time.monotonic() + 30
        while not children_of(first):
            assert time.monotonic() < due_s, broker.lines
            time.sleep(0.02)
        [after] = children_of(first)
    assert not Path(f"/proc/{after}").exists()


def test_sigterm_ends_a_start(tmp_path: Path) -> None:
    """A start may take long: here it waits for a file whose writer says nothing."""
    definitions = tmp_path / "definitions.json"
    os.mkfifo(definitions, 0o600)
    command = [*FirstProcess.command, "serve", "--port", "0", "--definitions", str(definitions)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        writer = definitions.open("wb")  # comes back when the broker reads
        [broker] = children_of(process.pid)
        os.kill(broker, signal.SIGTERM)
        try:
            assert process.wait(STOP_TIMEOUT_S) == 128 + signal.SIGTERM
        finally:
            writer.close()
            process.kill()
