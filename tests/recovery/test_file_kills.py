"""Small files through `tools/file_kills.py`; one of 8 GiB is sent by hand."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from file_kills import Round

TOOL = Path(__file__).resolve().parent.parent.parent / "tools" / "file_kills.py"
# It takes some seconds, and so much on a machine that is busy with other things. The tool itself says
# what is wrong before pytest ends the test.
LIMIT_S = 300

pytestmark = pytest.mark.timeout(LIMIT_S + 120)


def run(directory: Path, way: str, octets: int, *options: str) -> str:
    command = [sys.executable, str(TOOL), "--way", way, "--bytes", str(octets), "--directory", str(directory)]
    command += ["--limit", str(LIMIT_S), "--quiet", "150", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{octets:,} octets in" in done.stdout
    return done.stdout


@pytest.mark.parametrize("way", ["command", "class"])
def test_a_file_arrives_whole_though_everybody_is_killed(tmp_path: Path, way: str) -> None:
    run(tmp_path, way, 6_291_457, "--kills", "3", "--seed", "2")


@pytest.mark.parametrize("way", ["command", "class"])
def test_a_kill_behind_each_last_step_is_survived(tmp_path: Path, way: str) -> None:
    points = ["--at", "published", "--at", "deleted", "--at", "placed", "--at", "acked"]
    said = run(tmp_path, way, 1_048_577, "--kills", "0", *points)
    assert "kills: broker 0, sender 2, receiver 2" in said
    assert said.count(": 0 octets twice") == 2


@pytest.mark.parametrize("way", ["command", "class"])
def test_a_receiver_that_does_not_hear_of_its_ack_is_done(tmp_path: Path, way: str) -> None:
    said = run(tmp_path, way, 1_048_577, "--kills", "0", "--at", "unheard")
    assert said.count(": 0 octets twice") == 2


class WithoutSender(Round):
    """A receiver waits for a file that nobody sends."""

    def command(self, role: str) -> list[str]:
        return ["-c", "import time; time.sleep(3600)"] if role == "sender" else super().command(role)

    def wait_for_end(self) -> None:
        until_s = time.monotonic() + LIMIT_S
        while self.queue_info()["consumers"] == 0 and time.monotonic() < until_s:
            time.sleep(0.1)
        self.quiet_s = 1.0
        super().wait_for_end()


def test_a_transfer_that_does_not_end_is_told_with_who_waits(tmp_path: Path) -> None:
    faults = WithoutSender(tmp_path, 1000, kills=0, seed=1, way="class").run()
    assert faults[0] == "it does not end: nothing has happened for 1 s"
    told = "\n".join(faults)
    assert "0 octets of 2000 went; killed were []" in told
    assert "'messages-ready': 0" in told
    assert "'consumers': 1" in told
    assert "the sender runs" in told
    (receiver,) = [fault for fault in faults if fault.startswith("the receiver runs")]
    assert " in expect\n" in receiver


class BrokenBroker(Round):
    """A broker that does not come up."""

    def command(self, role: str) -> list[str]:
        return ["-c", "raise SystemExit('the data directory is gone')"]


def test_a_broker_that_does_not_start_ends_the_round_at_once(tmp_path: Path) -> None:
    faults = BrokenBroker(tmp_path, 1000, kills=0, seed=1, way="command").run()
    assert faults[0] == "the broker ended with status 1"
    assert "the data directory is gone" in faults[-1]
