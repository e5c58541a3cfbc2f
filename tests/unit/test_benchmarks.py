"""The benchmark must not believe a broker: each kind of wrong answer ends a run with a failure that names it.

A broker of a few methods, with faults on request, stands in for the real one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.client import AccessRefused, connect

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
results: Any = importlib.import_module("results")
scenarios: Any = importlib.import_module("scenarios")
run: Any = importlib.import_module("run")
brokers: Any = importlib.import_module("brokers")

FAULTY_MESSAGE = 5  # the publication, counted from 1, that a fault strikes
PLAIN_ANSWERS = {  # request: its answer, where that has no content of interest
    (10, 40): (10, 41, b"\x00"),
    (10, 50): (10, 51, b""),
    (20, 10): (20, 11, bytes(4)),
    (40, 10): (40, 11, b""),
    (40, 20): (40, 21, b""),
    (50, 20): (50, 21, b""),
    (60, 10): (60, 11, b""),
    (85, 10): (85, 11, b""),
}


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return bytes([kind]) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return frame(1, channel, class_id.to_bytes(2, "big") + method_id.to_bytes(2, "big") + arguments)


def shortstr(octets: bytes, start: int) -> bytes:
    return octets[start + 1 : start + 1 + octets[start]]


class FakeBroker(socketserver.ThreadingTCPServer):
    """Direct queues, auto-acknowledged deliveries, confirms; `fault` names what it does wrong."""

    daemon_threads = True

    def __init__(self, fault: str = "") -> None:
        super().__init__(("127.0.0.1", 0), FakeConnection)
        self.fault = fault
        self.lock = threading.Lock()
        self.waiting: dict[bytes, list[tuple[bytes, bytes, bytes]]] = {}
        self.consumers: dict[bytes, tuple[FakeConnection, int]] = {}
        self.tags: dict[bytes, int] = {}
        self.kept: tuple[bytes, bytes, bytes] | None = None

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def publish(self, number: int, route: bytes, header: bytes, body: bytes) -> None:
        """Queue a publication, spoilt where the fault strikes; `number` counts the publications from 1."""
        message = (route, header, body)
        strikes = number == FAULTY_MESSAGE
        if strikes and self.fault == "body":
            message = (route, header, body[:-1] + bytes([body[-1] ^ 1]))
        if strikes and self.fault == "stamp":
            message = (route, header, bytes([body[0] ^ 1]) + body[1:])
        if strikes and self.fault == "route":
            message = (route[:-1] + b"?", header, body)
        if strikes and self.fault == "header":
            message = (route, header[:-1] + b"\x07", body)
        if strikes and self.fault in ("drop", "swap"):
            self.kept = message
            return
        name = shortstr(route, 1 + route[0])
        self.waiting[name].append(message)
        if strikes and self.fault == "repeat":
            self.waiting[name].append(message)
        if self.kept and self.fault == "swap":
            self.waiting[name].append(self.kept)
            self.kept = None
        self.deliver(name)

    def deliver(self, name: bytes) -> None:
        if name not in self.consumers:
            return
        consumer, channel = self.consumers[name]
        for route, header, body in self.waiting[name]:
            self.tags[name] = tag = self.tags[name] + 1
            strikes = tag == FAULTY_MESSAGE
            if self.fault == "stall" and tag >= FAULTY_MESSAGE:
                continue
            octets = method(channel, 60, 60, b"\x05bench" + tag.to_bytes(8, "big") + b"\x00" + route)
            octets += frame(2, channel, header)
            if self.fault == "halves":
                octets += frame(3, channel, body[:7]) + frame(3, channel, body[7:])
            else:
                octets += frame(3, channel, body)
            if strikes and self.fault == "frame end":
                octets = octets[:-1] + b"\x00"
            if strikes and self.fault == "close":
                octets = method(channel, 20, 40, (404).to_bytes(2, "big") + b"\x07no luck" + bytes(4))
            consumer.request.sendall(octets)
        self.waiting[name].clear()


class FakeConnection(socketserver.BaseRequestHandler):
    server: FakeBroker

    def setup(self) -> None:
        self.confirming = False
        self.published = 0
        self.content: list[bytes] = []

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the load tool hangs up as soon as it has found a fault
            self.converse()

    def converse(self) -> None:
        stream = self.request.makefile("rb")
        assert stream.read(8) == b"AMQP\x00\x00\x09\x01"
        start = b"\x00\x09" + bytes(4) + b"\x00\x00\x00\x05PLAIN\x00\x00\x00\x05en_US"
        self.request.sendall(method(0, 10, 10, start))
        while head := stream.read(7):
            payload = stream.read(int.from_bytes(head[3:], "big") + 1)[:-1]
            with self.server.lock:
                self.take(head[0], int.from_bytes(head[1:3], "big"), payload)

    def take(self, kind: int, channel: int, payload: bytes) -> None:
        request = (int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big"))
        if kind != 1 or request == (60, 40):
            self.content.append(payload)
            if kind == 3:
                self.take_publication()
        elif request == (10, 11):
            self.request.sendall(method(0, 10, 30, b"\x07\xff\x00\x02\x00\x00\x00\x00"))
        elif request in ((50, 10), (50, 40)):
            self.request.sendall(self.queue_answer(channel, request[1], shortstr(payload, 6)))
        elif request == (60, 20):
            name = shortstr(payload, 6)
            self.server.consumers[name] = (self, channel)
            self.server.tags[name] = 0
            self.request.sendall(method(channel, 60, 21, b"\x05bench"))
            self.server.deliver(name)
        elif request in PLAIN_ANSWERS:
            self.confirming |= request == (85, 10)
            class_id, method_id, arguments = PLAIN_ANSWERS[request]
            self.request.sendall(method(channel, class_id, method_id, arguments))

    def queue_answer(self, channel: int, method_id: int, name: bytes) -> bytes:
        count = len(self.server.waiting.get(name, [])).to_bytes(4, "big")
        self.server.waiting.setdefault(name, [])
        if method_id == 40:
            self.server.consumers.pop(name, None)
        named = bytes([len(name)]) + name if method_id == 10 else b""
        return method(channel, 50, method_id + 1, named + count + (bytes(4) if method_id == 10 else b""))

    def take_publication(self) -> None:
        publish, header, body = self.content
        self.content = []
        self.published += 1
        self.server.publish(self.published, publish[6:-1], header, body)
        if self.confirming:
            self.confirm()

    def confirm(self) -> None:
        """Of three publications, the first is confirmed alone, the others together."""
        tag, fault = self.published, self.server.fault
        if tag % 3 == 2 or (fault == "no confirm" and tag > FAULTY_MESSAGE):
            return
        answer = method(1, 60, 80, tag.to_bytes(8, "big") + bytes([tag % 3 == 0]))
        if fault == "nack" and tag > FAULTY_MESSAGE:
            answer = method(1, 60, 120, tag.to_bytes(8, "big") + b"\x00")
        if fault == "early confirm" and tag > FAULTY_MESSAGE:
            answer = method(1, 60, 80, (tag + 1000).to_bytes(8, "big") + b"\x00")
        self.request.sendall(answer * (2 if fault == "confirm twice" else 1))


@pytest.fixture(scope="module")
def load_tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("gcc"):
        pytest.skip("the load tool needs gcc")
    tool: Path = run.build_load_tool(tmp_path_factory.mktemp("load"))
    return tool


@pytest.fixture
def fake_broker(request: pytest.FixtureRequest) -> Iterator[FakeBroker]:
    with FakeBroker(getattr(request, "param", "")) as broker:
        threading.Thread(target=broker.serve_forever, args=(0.01,), daemon=True).start()
        yield broker
        broker.shutdown()


def load(tool: Path, broker: FakeBroker, arguments: str) -> dict[str, Any]:
    command = [str(tool), "--port", str(broker.port), "--pid", str(os.getpid()), "--stall-seconds", "1"]
    done = subprocess.run(
        [*command, *arguments.split()], capture_output=True, text=True, timeout=30, check=False
    )
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if report["ok"] else 1)
    return report


def test_counts_every_delivery_and_confirm_of_a_right_broker(
    load_tool: Path, fake_broker: FakeBroker
) -> None:
    report = load(
        load_tool, fake_broker, "--count 300 --queues 3 --consumers 2 --confirms 20 --body-bytes 40"
    )
    assert (report["published"], report["delivered"], report["confirmed"]) == (300, 300, 300)
    assert (report["confirm_frames"], report["confirm_frames_multiple"]) == (200, 100)
    assert report["deliver_per_s"] > 0
    assert report["rss_kib_peak"] > 0


@pytest.mark.parametrize("fake_broker", ["halves"], indirect=True)
def test_takes_a_body_in_several_frames(load_tool: Path, fake_broker: FakeBroker) -> None:
    assert load(load_tool, fake_broker, "--count 30")["delivered"] == 30


def test_measures_latency_at_a_rate(load_tool: Path, fake_broker: FakeBroker) -> None:
    report = load(load_tool, fake_broker, "--rate 500 --seconds 0.5 --batch 1")
    assert report["delivered"] == 250
    assert 0 < report["latency"]["p50_us"] <= report["latency"]["p99_us"] <= report["latency"]["max_us"]
    assert report["dropout"]["on_time"] == 250
    assert report["dropout"]["gaps"] == 0


def test_measures_a_backlog_and_drains_it(load_tool: Path, fake_broker: FakeBroker) -> None:
    report = load(load_tool, fake_broker, "--backlog --count 500 --body-bytes 100")
    assert report["delivered"] == 500
    assert "bytes_per_message" in report["backlog"]


def test_holds_connections_and_hears_from_each(load_tool: Path, fake_broker: FakeBroker) -> None:
    held = load(load_tool, fake_broker, "--producers 0 --held 20")["held"]
    assert held["connections"] == 20
    assert held["connections_per_s"] > 0


@pytest.mark.parametrize(
    ("fake_broker", "failure"),
    [
        ("drop", "1 messages of stream 0 are missing before 5"),
        ("repeat", "sequence 4 came after 4"),
        ("swap", "1 messages of stream 0 are missing before 5"),
        ("body", "corrupted body: its filler is wrong"),
        ("stamp", "corrupted body: its check word is wrong"),
        ("route", "names another exchange or routing key"),
        ("header", "the content header differs"),
        ("frame end", "broken frame: it ends with octet 00"),
        ("close", "the broker closed: 404 no luck"),
        ("stall", "stalled: 4 of 30 deliveries came"),
    ],
    indirect=["fake_broker"],
)
def test_refuses_wrong_deliveries(load_tool: Path, fake_broker: FakeBroker, failure: str) -> None:
    report = load(load_tool, fake_broker, "--count 30 --body-bytes 40")
    assert not report["ok"]
    assert failure in report["failure"]


@pytest.mark.parametrize(
    ("fake_broker", "failure"),
    [
        ("confirm twice", "publication 1 was confirmed twice"),
        ("early confirm", "was confirmed, but the last one is"),
        ("no confirm", "stalled: no answer in 1 s"),
        ("nack", "basic.nack"),
    ],
    indirect=["fake_broker"],
)
def test_refuses_wrong_confirms(load_tool: Path, fake_broker: FakeBroker, failure: str) -> None:
    report = load(load_tool, fake_broker, "--count 30 --confirms 20")
    assert not report["ok"]
    assert failure in report["failure"]


@pytest.mark.parametrize("fake_broker", ["drop"], indirect=True)
def test_counts_gaps_where_they_are_tolerated(load_tool: Path, fake_broker: FakeBroker) -> None:
    report = load(load_tool, fake_broker, "--rate 200 --seconds 0.2 --latency-from-due --tolerate-gaps")
    assert (report["published"], report["delivered"]) == (40, 39)
    assert (report["dropout"]["gaps"], report["dropout"]["missing"]) == (1, 1)
    assert report["dropout"]["on_time_percent"] == pytest.approx(97.5)


def test_runs_a_scenario_from_the_command_line(
    fake_broker: FakeBroker, load_tool: Path, tmp_path: Path
) -> None:
    del load_tool  # only to skip where there is no compiler
    found = tmp_path / "found.json"
    script = [sys.executable, str(BENCHMARKS / "run.py"), "--port", str(fake_broker.port)]
    script += ["--pid", str(os.getpid()), "--without-rabbitmq", "--only", "a16", "--rounds", "2"]
    done = subprocess.run(
        [*script, "--time", "0.1", "--markdown", "--json", str(found)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "| a16 | 16 B, transient, autoack | deliveries/s |" in done.stdout
    assert "- Command: `python benchmarks/run.py --port" in done.stdout
    [figure] = json.loads(found.read_text())["figures"]
    assert len(figure["brokers"]["broker"]["values"]) == 2


def test_brokers_take_turns_and_loads_are_shared() -> None:
    tested = [run.Contender(brokers.Broker(name, 1, 1), None) for name in ("one", "two")]
    order: list[tuple[str, str]] = []

    def fake_run(contender: Any, load: Any) -> dict[str, Any]:
        order.append((load.name, contender.name))
        if contender.name == "two" and len(order) > 2:
            return {"ok": False, "failure": "lost one"}
        return {"ok": True, "latency": {"p50_us": 10.0 if contender.name == "one" else 20.0, "p99_us": 50.0}}

    chosen = scenarios.choose(scenarios.figures(), "f")
    [rows] = list(run.compare(chosen, tested, 2, fake_run))
    for turn in (order[:2], order[2:]):
        assert sorted(turn) == [("f", "one"), ("f", "two")]
    assert [row.figure.name for row in rows] == ["f50", "f99"]
    assert rows[0].ratio == pytest.approx(2.0)  # lower latency is better
    assert results.failures(rows) == ["f50 on two: lost one", "f99 on two: lost one"]


def test_a_broker_has_settled_when_its_memory_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    seen_kib = iter([100, 120, 120, 120, 120, 130, 130, 130, 130, 130])  # before and after each look
    monkeypatch.setattr(brokers.Broker, "resident_kib", lambda broker: next(seen_kib))
    monkeypatch.setattr(brokers, "LOOK_SECONDS", 0.001)
    brokers.Broker("starting", 1, os.getpid()).settle(looks=2)
    assert list(seen_kib) == []


def test_memory_is_measured_on_a_broker_that_has_just_started(
    fake_broker: FakeBroker, load_tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "FRESH_LOOKS", 1)
    standing = brokers.Broker("standing", 1, os.getpid())  # nothing listens on port 1
    fresh = brokers.Broker("fresh", fake_broker.port, os.getpid())
    contender = run.Contender(standing, lambda: contextlib.nullcontext(fresh))
    backlog = scenarios.Load("x", "--backlog --count 20", fresh=True)
    assert run.measure_in_turn(load_tool, contender, backlog, 1)["ok"] is True
    flow = scenarios.Load("x", "--count 20")
    assert "connect" in run.measure_in_turn(load_tool, contender, flow, 1)["failure"]


def test_a_figure_missing_from_a_report_is_a_failure() -> None:
    [figure] = scenarios.choose(scenarios.figures(), "h")
    row = results.Row(figure, {"one": results.Samples()})
    run.take(row, "one", {"ok": True, "backlog": {}})
    assert row.samples["one"].median is None
    assert "no backlog.bytes_per_message" in row.samples["one"].failures[0]


def test_median_spread_and_ratio() -> None:
    [figure] = scenarios.choose(scenarios.figures(), "a16")
    row = results.Row(
        figure, {"one": results.Samples([900.0, 1000.0, 1100.0]), "two": results.Samples([100.0, 90.0])}
    )
    assert row.samples["one"].median == 1000
    assert row.samples["one"].spread_percent == pytest.approx(20)
    assert row.ratio == pytest.approx(1000 / 95)
    assert results.cells(row)[3:8] == ["1,000", "20%", "95", "11%", "10.5x"]
    nothing = results.Row(figure, {"one": results.Samples(), "two": results.Samples([1.0])})
    assert nothing.ratio is None
    assert results.cells(nothing)[3:8] == ["-", "-", "1", "0%", "-"]


def test_choosing_scenarios() -> None:
    available = scenarios.figures(500)
    assert [figure.name for figure in scenarios.choose(available, "gm,a16")] == ["gm", "a16"]
    assert "--held 400" in scenarios.choose(available, "many")[0].load.arguments
    assert len(scenarios.choose(available, "")) == len(available)
    with pytest.raises(ValueError, match="no scenario 'zz'"):
        scenarios.choose(available, "zz")


def test_refuses_half_of_a_running_broker(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.arguments(["--port", "5672"])
    assert "--port and --pid belong together" in capsys.readouterr().err


def test_permissions_are_for_brokers_that_are_started(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.arguments(["--port", "5672", "--pid", "1", "--permissions"])
    assert "--permissions is for brokers that are started here" in capsys.readouterr().err


def test_permissions_allow_what_the_loads_use_and_no_more(tmp_path: Path) -> None:
    options = run.arguments(["--permissions", "--only", "a16"])
    with run.contenders(options, tmp_path) as tested:
        assert [contender.name for contender in tested] == ["FlintMQ", "with permissions"]
        for contender, is_allowed in zip(tested, (True, False), strict=True):
            with connect(f"amqp://guest:guest@127.0.0.1:{contender.standing.port}") as connection:
                connection.channel().queue("bench0")
                with contextlib.nullcontext() if is_allowed else pytest.raises(AccessRefused):
                    connection.channel().queue("other")


def test_another_build_takes_its_turns_instead_of_rabbitmq(tmp_path: Path) -> None:
    options = run.arguments(["--beside", f"{brokers.FLINTMQ_COMMAND} --fast09-port 0"])
    with run.contenders(options, tmp_path) as tested:
        assert [contender.name for contender in tested] == ["FlintMQ", "beside"]
        commands = [Path(f"/proc/{each.standing.pid}/cmdline").read_bytes() for each in tested]
        assert [b"--fast09-port" in command for command in commands] == [False, True]


def test_says_why_a_broker_did_not_start(tmp_path: Path) -> None:
    command = f"{sys.executable} -c \"raise SystemExit('no such option')\""
    with (
        pytest.raises(brokers.BrokerFailure, match="ended with status 1: no such option"),
        brokers.flintmq(command, tmp_path / "broker"),
    ):
        pass


def test_finds_the_port_that_a_broker_chose(fake_broker: FakeBroker) -> None:
    assert fake_broker.port in brokers.listening_ports(os.getpid())
    assert brokers.speaks_amqp(fake_broker.port) == ""


def test_reads_product_and_version_from_the_start_method() -> None:
    table = b"\x07productS\x00\x00\x00\x07FlintMQ\x07versionS\x00\x00\x00\x051.2.3"
    assert brokers.longstr_after(table, b"\x07productS") == "FlintMQ"
    assert brokers.longstr_after(table, b"\x07versionS") == "1.2.3"
    assert brokers.longstr_after(table, b"\x08platformS") == ""
