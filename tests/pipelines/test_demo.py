"""The demo, small: all parts start, bars and gaps come back, and nothing is left when it ends."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flintmq.client import connect
from flintmq.client.core.errors import NotFound
from flintmq.clock import Clock
from flintmq.pipelines.demo.demo import (
    EXCHANGE,
    LOOK_S,
    STREAM,
    Demo,
    DemoOptions,
    Part,
    Watcher,
    memory_bytes,
)
from flintmq.pipelines.demo.feed import FEEDS, Market
from flintmq.pipelines.errors import PipelineFailed


def test_market() -> None:
    market = Market(100, seed=7, gap_chance=0.01)
    ticks = [json.loads(body) for body in market.ticks(20_000, 1000)]
    busy = sum(int(tick["symbol"][1:]) < 10 for tick in ticks)
    assert 0.45 < busy / len(ticks) < 0.55, "half of the traffic on a tenth of the symbols"
    missing = gaps = 0
    for feed in range(FEEDS):
        numbers = [tick["seq"] for tick in ticks if tick["feed"] == f"F{feed}"]
        steps = [after - before for before, after in pairwise(numbers)]
        gaps += sum(step > 1 for step in steps)
        missing += sum(step - 1 for step in steps)
    assert (gaps, missing) == (market.gaps, market.left_out)
    assert gaps > 50
    assert Market(5, 1, "csv").ticks(1, 1000)[0].count(b",") == 5


SCREEN = """
import sys
from flintmq.pipelines.demo.demo import Snapshot
from flintmq.pipelines.demo.view import TerminalView, view_for
from flintmq.pipelines.run.status import FlowStatus, PipelineStatus

view = view_for(is_plain=False)
assert isinstance(view, TerminalView)
bar = {"start": "2026-01-01T10:11:12.000Z", "open": 499.99, "high": 1499.99, "low": 9.5, "close": 499.98,
       "volume": 123456.0, "vwap": 499.123456, "ticks": 4711.0}
gap = {"feed": "F1", "first": 123456789, "last": 123456799, "missing": 11, "at": "2026-01-01T10:11:12.000Z"}
flow = FlowStatus("running", 700, 123456789, 123456.7, 12345, 1234567, 123.4)
lost = FlowStatus("waiting", 700, 123456789, 0.0, 12345, 1234567, 123.4, 3, "no connection to it [/x] " * 20)
view.tell("the broker listens on amqp://127.0.0.1:5672/[virtual host]: any AMQP client may join, " * 2)
with view:
    for number in range(3):
        view.show(Snapshot(
            1234.5, 123456789, 123456.7, 1234, 1230, 4711, 4700, 123456789,
            [PipelineStatus("bars", "bars.toml", flows={"bars": flow}),
             PipelineStatus("dropout", "dropout.toml", flows={"gaps": lost})],
            {"broker": 1 << 40, "pipelines": 1 << 40, "feed": 1 << 40},
            {f"S{n:05}": {**bar, "symbol": f"S{n:05}"} for n in range(6 * number)},
            [gap] * 20 * number,
        ))
view.tell("ending: feed, pipelines, broker")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="opens a terminal of its own")
@pytest.mark.parametrize(("lines", "columns"), [(24, 80), (10, 40), (50, 132)])
def test_the_view_fits_its_terminal(lines: int, columns: int) -> None:
    drawn = screens(SCREEN, lines, columns)
    frames = [frame.strip("\n") for frame in drawn if frame.strip("\n")]
    assert len(frames) >= 3
    before_the_end = [frame for frame in drawn if frame.strip("\n")][:-1]
    assert all(frame.endswith("\n") for frame in before_the_end), "the cursor is on a line of its own"
    for frame in frames:
        shown = (
            frame[frame.index("FlintMQ demo") :].removesuffix("\nending: feed, pipelines, broker").split("\n")
        )
        assert len(shown) <= lines, frame
        assert max(map(len, shown)) <= columns, frame
    if lines >= 24:
        assert re.search(
            r"^bars +123,457 +123,456,789 +1,234,567 rows, 123.4 s +12345 ms +running", frames[-1], re.M
        )
        assert re.search(r"^S00005 +10:11:12 +499.99 +1499.99", frames[-1], re.M)
        assert re.search(r"^F1 +123456789 +123456799 +11 +10:11:12$", frames[-1], re.M)


def screens(program: str, lines: int, columns: int) -> list[str]:
    """What a program draws on a terminal of this size, each time that it goes back to the first line."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm"},
    ) as process:
        os.close(theirs)
        drawn = b""
        try:
            while piece := os.read(ours, 65536):
                drawn += piece
        except OSError as error:
            if error.errno != errno.EIO:  # which says that the other end is closed
                raise
        finally:
            os.close(ours)
    assert process.returncode == 0, drawn.decode()
    pieces = re.split(r"(?:\x1b\[2K|\x1b\[1A)+", drawn.decode().replace("\r", ""))
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", piece) for piece in pieces]


def processes_of(directory: Path) -> list[int]:
    """Processes whose command line speaks of this directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(directory).encode() in entry.read_bytes() and int(entry.parent.name) != os.getpid():
                found.append(int(entry.parent.name))
        except OSError:
            continue  # it ended while we looked
    return found


DEMO = [sys.executable, "-m", "flintmq", "demo", "--rate", "3000", "--plain"]


def look_at(uri: str) -> None:
    """The broker of a demo: names of its own, and room for one demo."""
    with connect(uri) as connection:
        rows: Any = connection.request("queue.list").results["rows"]
        names = {row["name"] for row in rows}
        assert {"flintmq.demo.ticks", "flintmq.demo.running"} <= names
        assert not names & {"ticks", "orders", "bars"}
    second = subprocess.run([*DEMO, "--uri", uri], capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1
    assert f"a demo runs on amqp://127.0.0.1:{uri.rpartition(':')[2]}/ already" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_part_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    """Its last line comes before its end is known."""
    program = "import os, sys, time; print('no room', flush=True); os.close(1); os.close(2); time.sleep(0.3)"
    part = Part("broker", [sys.executable, "-c", program], tmp_path / "log")
    began_s = time.monotonic()
    try:
        with pytest.raises(PipelineFailed, match="the broker did not start: no room"):
            part.wait_for(re.compile("listening"))
    finally:
        part.stop()
    assert time.monotonic() - began_s < 60


def test_a_log_that_cannot_be_written_holds_no_part_up(tmp_path: Path) -> None:
    heard: list[str] = []
    program = "print('listening'); print('x' * 1_000_000); print('done', flush=True)"
    part = Part("feed", [sys.executable, "-c", program], tmp_path / "gone" / "log", heard.append)
    try:
        assert part.wait_for(re.compile("done"))
    finally:
        part.stop()
    assert heard[0] == "listening\n"


def test_what_the_demo_declares_on_the_broker_of_somebody_else_goes_with_it(uri: str) -> None:
    demo = Demo(DemoOptions(rate=1, uri=uri), Clock())
    demo.uri = uri
    with contextlib.ExitStack() as stack:
        stack.callback(demo.stop)
        demo._declare()
        with connect(uri) as connection:
            connection.channel().queue(STREAM, passive=True)
            connection.channel().exchange(EXCHANGE, passive=True)
    with connect(uri) as connection:
        with pytest.raises(NotFound):
            connection.channel().queue(STREAM, passive=True)
        with pytest.raises(NotFound):
            connection.channel().exchange(EXCHANGE, passive=True)
    assert not demo.directory.exists()


def test_the_watcher_shows_the_newest_bar_and_takes_no_offence_at_others(uri: str) -> None:
    with connect(uri) as connection, connection.channel(confirm=True) as channel:
        channel.exchange(EXCHANGE, "topic", durable=True)
        watcher = Watcher(uri, ["A"])
        try:
            time.sleep(2 * LOOK_S)  # silence ends nothing
            bar = dict.fromkeys(("open", "high", "low", "close", "volume", "vwap", "ticks"), 1)
            gap = {"feed": "F1", "first": 1, "last": 2, "missing": 2, "at": "2026-01-01T00:00:00Z"}
            for key, body in (
                ("bar.A", b"not JSON"),
                ("bar.A", b'{"symbol": "A"}'),
                ("bar.A", b"[1]"),
                ("bar.A", json.dumps({**bar, "symbol": "A", "start": "2026-01-01T00:00:02Z"}).encode()),
                ("bar.A", json.dumps({**bar, "symbol": "A", "start": "2026-01-01T00:00:01Z"}).encode()),
                ("bar.A", b"[" * 100_000),
                ("gap.F1", b'{"feed": "F1", "missing": "many"}'),
                ("gap.F1", json.dumps({**gap, "last": float("inf")}).encode()),
                ("gap.F1", json.dumps(gap).encode()),
            ):
                channel.publish(body, EXCHANGE, key)
            deadline_s = time.monotonic() + 30
            while not watcher.gaps and time.monotonic() < deadline_s:
                time.sleep(0.02)
            assert [each["start"] for each in watcher.bars.values()] == ["2026-01-01T00:00:02Z"]
            assert (watcher.gaps_found, watcher.numbers_missed) == (1, 2)
        finally:
            watcher.close()
        channel.exchange(EXCHANGE, passive=True).delete()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_memory_is_that_of_all_descendants_in_whatever_session() -> None:
    held = "held = bytearray(b'x') * (200 << 20)"
    child = f"{held}; print('held', flush=True); input()"
    program = (
        "import subprocess, sys; "
        f"subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True, check=False)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert memory_bytes(process.pid) > 200 << 20
        process.communicate("\n")


class LeapingClock(Clock):
    """Each look at it is seven seconds after the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        self.now_s += 7.0
        return self.now_s


def test_a_slow_start_of_spark_is_told_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintmq.pipelines.demo.demo.SPARK_START_TIMEOUT_S", 60.0)
    demo = Demo(DemoOptions(rate=1, state=str(tmp_path)), LeapingClock())
    told: list[str] = []
    demo.told = told.append
    demo._part("pipelines", ["timeit", "-n", "1", "-r", "1", "import time; time.sleep(600)"])
    try:
        with pytest.raises(PipelineFailed, match="the pipelines did not start in 60 s"):
            demo._wait_for_pipelines()
    finally:
        demo.parts[0].process.kill()
        demo.stop()
    assert told == [
        f"Spark has been starting for {seconds} s: all flows are not running yet" for seconds in (21, 42)
    ]


@pytest.mark.parametrize("wrong", [("--rate", "0"), ("--symbols", "0"), ("--rate", "-5")])
def test_a_market_without_ticks_or_symbols_is_refused_before_anything_starts(
    wrong: tuple[str, str],
) -> None:
    refused = subprocess.run([*DEMO, *wrong], capture_output=True, text=True, timeout=120, check=False)
    assert refused.returncode == 2
    assert f"{' '.join(wrong)}: expected a whole number from 1" in refused.stderr
    assert refused.stdout == ""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for what is left in /proc")
def test_demo(tmp_path: Path) -> None:
    """Interrupted as by Ctrl-C once gaps and bars were seen."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    demo = subprocess.Popen(
        [*DEMO, "--symbols", "100", "--port", str(port), "--state", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    alarm = threading.Timer(240.0, demo.kill)
    alarm.start()
    lines: list[str] = []
    assert demo.stdout is not None
    try:
        for line in demo.stdout:
            lines.append(line)
            shown = re.search(r"gaps (\d+) of (\d+) \| bars (\d+)", line)
            if shown is not None and int(shown[3]) == 6 and " s |" in line:
                assert len(processes_of(tmp_path)) >= 3
                used = re.search(r"MiB broker (\d+) pipelines (\d+) feed (\d+)", line)
                assert used is not None, line
                assert int(used[2]) > 300, "a Java that runs Spark is among the pipelines"
                look_at(f"amqp://guest:guest@127.0.0.1:{port}")
                break
        demo.send_signal(signal.SIGINT)
        lines += list(demo.stdout)
        assert demo.wait() == 0, "".join(lines)
    finally:
        alarm.cancel()
        demo.kill()
        demo.wait()
    assert lines[-1] == "ending: feed, pipelines, broker\n", "".join(lines)
    assert processes_of(tmp_path) == []
