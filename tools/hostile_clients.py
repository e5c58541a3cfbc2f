"""Hostile clients against a broker, with a bystander whose waits are measured meanwhile.

    python tools/hostile_clients.py [--small] [--only NAME]...

For each attack a broker of its own with a data directory and TLS: the p99 of the bystander's round trips in
peace and under attack, as the broker's work (what a busy machine adds is taken off, see
tests/stalls/bystander.py) and by the clock; the memory of the broker before and at its peak; how long a
newcomer from another address took to log in meanwhile. A short attack is repeated, so that there are round
trips enough for a percentile.

Attackers on the same machine take processors and caches from the broker. What that adds is told by a control:
another broker, whose newcomers log in as well, beside a process that works as much as the attackers did and
says nothing to the broker. Status 1 if a p99 is more than 5 times that of peace and more than 5 times that of
the control.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from broker_process import BrokerProcess
from hostile.attacks import ATTACKS, SETTINGS, Attack, Target
from peer import Peer
from stalls.bystander import Bystander

from flintmq.cli.local.tls import dev_cert

QUIET_S = 2.0
# An attack is repeated until it has taken as long as this.
ATTACK_S = 4.0
# The share of a processor that attackers take is taken by the control in turns of as long as this.
TURN_S = 0.005
TIMES_MAX = 5.0
# Below this a p99 is not worth to be told apart from the noise of a machine.
QUIET_MS_MIN = 0.2
MIB = 1 << 20


@dataclass
class Watch:
    """Looks at the memory of the broker, and logs in as a newcomer, while an attack goes on."""

    pid: int
    port: int
    peak_bytes: int = 0
    logins_s: list[float] = field(default_factory=list)
    failed: int = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self.follow, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def follow(self, over: threading.Event) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, memory_bytes(self.pid))
            began_s = time.monotonic()
            try:
                with Peer.connect(self.port) as peer:
                    peer.open(1)
                self.logins_s.append(time.monotonic() - began_s)
            except Exception:  # whatever it was: the newcomer was not let in
                self.failed += 1
            if over.wait(0.05):
                return


def memory_bytes(pid: int) -> int:
    statm = Path(f"/proc/{pid}/statm").read_text(encoding="ascii")
    return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def working(share: float) -> Iterator[None]:
    """A process beside it that takes so much of a processor, and touches no broker."""
    command = [sys.executable, __file__, "--work", str(share)]
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            process.kill()


def work(share: float) -> None:
    """Until it is killed."""
    while True:
        began_s = time.thread_time()
        while time.thread_time() - began_s < share * TURN_S:
            pass
        time.sleep((1 - share) * TURN_S)


def worked_s() -> float:
    """By this thread, and by processes that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.thread_time() + children.ru_utime + children.ru_stime


@dataclass
class Outcome:
    quiet_ms: float
    p99_ms: float
    clock_quiet_ms: float
    clock_ms: float
    longest_ms: float
    before_bytes: int
    watch: Watch
    seconds: float
    round_trips: int
    share: float  # of a processor that the attackers took
    log: list[str]

    @property
    def times(self) -> float:
        return self.times_of(self.quiet_ms)

    def times_of(self, other_ms: float) -> float:
        return self.p99_ms / max(other_ms, QUIET_MS_MIN)


@contextlib.contextmanager
def broker(directory: Path) -> Iterator[tuple[BrokerProcess, int]]:
    """A broker with TLS and a data directory, and its port for TLS."""
    dev_cert(directory / "certs", [], [])
    settings = directory / "settings.toml"
    files = f'certificate = "{directory}/certs/server.pem"\nkey = "{directory}/certs/server.key"\n'
    settings.write_text(f"{SETTINGS}[tls]\nport = 0\n{files}")
    options = ("--config", str(settings), "--data", str(directory / "data"), "--host", "127.0.0.1")
    with BrokerProcess(*options) as process:
        found = process.wait_for(re.compile(r"listening on amqps://127\.0\.0\.1:(\d+)"))
        yield process, int(found[1])


def measure(
    process: BrokerProcess,
    tls_port: int,
    attack: Attack,
    size: int,
    quiet_s: float,
    attack_s: float = 0.0,
) -> Outcome:
    """The attack, again and again until it has taken `attack_s`."""
    pid = process.process.pid
    bystander = Bystander(process.port, pid)
    watch = Watch(pid, process.port)
    try:
        with bystander.watching():
            time.sleep(quiet_s)
        quiet_ms, clock_quiet_ms = bystander.p99_ms, bystander.clock_p99_ms
        before_bytes = memory_bytes(pid)
        began_s = time.monotonic()
        began_worked_s = worked_s()
        with watch.watching(), bystander.watching():
            while True:
                with contextlib.closing(Target(process.port, tls_port)) as target:
                    attack.run(target, size)
                if time.monotonic() - began_s >= attack_s:
                    break
            share = (worked_s() - began_worked_s) / (time.monotonic() - began_s)
        return Outcome(
            quiet_ms,
            bystander.p99_ms,
            clock_quiet_ms,
            bystander.clock_p99_ms,
            bystander.longest_ms,
            before_bytes,
            watch,
            time.monotonic() - began_s,
            bystander.round_trips,
            min(share, 1.0),
            process.lines,
        )
    finally:
        bystander.end()


def control_p99_ms(process: BrokerProcess, share: float) -> float:
    """Of a bystander beside newcomers and somebody who works as much as attackers, for himself."""
    pid = process.process.pid
    bystander = Bystander(process.port, pid)
    try:
        with working(share), Watch(pid, process.port).watching(), bystander.watching():
            time.sleep(ATTACK_S)
        return bystander.p99_ms
    finally:
        bystander.end()


COLUMNS = (
    "attack",
    "size",
    "quiet p99 ms",
    "p99 ms",
    "times",
    "attackers' share of a processor",
    "control p99 ms",
    "times of it",
    "longest ms",
    "quiet p99 by the clock",
    "p99 by it",
    "round trips",
    "memory before MiB",
    "peak MiB",
    "slowest newcomer",
    "seconds",
)


def line(name: str, size: int, outcome: Outcome, control_ms: float) -> str:
    logins_s = sorted(outcome.watch.logins_s)
    login = f"{logins_s[-1] * 1000:.0f} ms" if logins_s else "none"
    return (
        f"| {name} | {size} | {outcome.quiet_ms:.2f} | {outcome.p99_ms:.2f} | {outcome.times:.1f} | "
        f"{outcome.share:.2f} | {control_ms:.2f} | {outcome.times_of(control_ms):.1f} | "
        f"{outcome.longest_ms:.1f} | {outcome.clock_quiet_ms:.2f} | {outcome.clock_ms:.2f} | "
        f"{outcome.round_trips} | "
        f"{outcome.before_bytes // MIB} | {outcome.watch.peak_bytes // MIB} | "
        f"{login}, {outcome.watch.failed} of {len(logins_s) + outcome.watch.failed} refused | "
        f"{outcome.seconds:.1f} |"
    )


def main() -> int:
    options = argparse.ArgumentParser(description="Attack a broker while a bystander is measured.")
    options.add_argument("--small", action="store_true", help="as much as the tests do")
    options.add_argument("--only", action="append", choices=list(ATTACKS), metavar="NAME")
    options.add_argument("--work", type=float, metavar="SHARE", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.work is not None:
        work(chosen.work)
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    status = 0
    for name in chosen.only or ATTACKS:
        attack = ATTACKS[name]
        size = attack.small if chosen.small else attack.size
        with tempfile.TemporaryDirectory() as directory, broker(Path(directory)) as (process, tls_port):
            outcome = measure(process, tls_port, attack, size, QUIET_S, ATTACK_S)
        with tempfile.TemporaryDirectory() as directory, broker(Path(directory)) as (process, _):
            control_ms = control_p99_ms(process, outcome.share)
        print(line(name, size, outcome, control_ms), flush=True)
        status |= outcome.times > TIMES_MAX and outcome.times_of(control_ms) > TIMES_MAX
    return status


if __name__ == "__main__":
    sys.exit(main())
