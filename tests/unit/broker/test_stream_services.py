"""Services for batch readers: what they answer, when they wait, whom they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker.broker import Broker
from flintmq.broker.channels.channel import Channel
from flintmq.broker.services.request import SERVICES, Request, load_services
from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.errors import ChannelFault, ServiceFault
from flintmq.protocol.outbox import Output
from flintmq.storage.disk import Disk
from flintmq.storage.options import JournalOptions
from flintmq.storage.streams.store import StreamStore
from flintmq.wire.columns import Columns

HEADER = b"\x00\x3c\x00\x00" + bytes(8) + b"\x00\x00"


class Asked(Request):
    """A request whose answers are kept."""

    def __init__(self, channel: Channel, name: str, arguments: dict[str, Any]) -> None:
        assert channel.virtual_host.broker is not None
        self.broker = channel.virtual_host.broker
        self.channel = channel
        self.name = name
        self.arguments = arguments
        self.body = b""
        self.answers: list[tuple[dict[str, Any], bytes]] = []

    def reply(self, results: dict[str, Any], body: bytes = b"") -> None:
        self.end_wait()
        self.answers.append((results, body))


class Clockwork(Clock):
    now_s = 1_000_000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)


class Setting:
    """A broker with one stream."""

    def __init__(self, path: Path) -> None:
        self.clock = Clockwork()
        self.broker = Broker(Config(), self.clock)
        disk_options = JournalOptions(threaded=False)
        self.broker.attach_streams(StreamStore(str(path / "streams"), Disk(), disk_options, self.clock))
        user = self.broker.users.get("guest")
        assert user is not None
        host = self.broker.virtual_hosts["/"]
        self.channel = Channel(1, 1, host, user, Output([], None))
        self.queue = host.declare_queue("s", True, False, False, {"x-queue-type": "stream"}, 1)

    def publish(self, *bodies: bytes) -> None:
        for body in bodies:
            header = HEADER[:4] + len(body).to_bytes(8, "big") + HEADER[12:]
            self.channel.publish(b"\x00\x01s", 0, header + body, len(header))
        self.broker.finish_pass()
        assert self.broker.streams is not None
        self.broker.streams.collect()

    def ask(self, name: str, **arguments: Any) -> Asked:
        named = {key.rstrip("_").replace("_", "-"): value for key, value in arguments.items()}
        request = Asked(self.channel, name, {"stream": "s", **named})
        load_services()
        SERVICES[name](request)
        return request

    def answer(self, name: str, **arguments: Any) -> tuple[dict[str, Any], bytes]:
        return self.ask(name, **arguments).answers[0]


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tmp_path)
    yield made
    assert made.broker.streams is not None
    made.broker.streams.close()


def test_offsets_of_an_empty_and_a_filled_stream(setting: Setting) -> None:
    assert setting.answer("stream.offsets")[0]["first"] == setting.answer("stream.offsets")[0]["end"] == 0
    setting.publish(b"one", b"two")
    results, _ = setting.answer("stream.offsets")
    assert (results["first"], results["end"], results["messages"]) == (0, 2, 2)
    assert results["octets"] > 0


def test_offsets_wait_until_there_is_more(setting: Setting) -> None:
    setting.publish(b"one")
    waiting = setting.ask("stream.offsets", beyond=1, wait_ms=5000)
    assert waiting.answers == []
    setting.publish(b"two")
    assert [results["end"] for results, _ in waiting.answers] == [2]
    setting.clock.now_s += 10
    setting.broker.timetable.run()
    assert len(waiting.answers) == 1
    assert setting.ask("stream.offsets", beyond=1, wait_ms=5000).answers


def test_offsets_wait_no_longer_than_asked(setting: Setting) -> None:
    waiting = setting.ask("stream.offsets", beyond=0, wait_ms=5000)
    setting.clock.now_s += 4
    setting.broker.timetable.run()
    assert waiting.answers == []
    setting.clock.now_s += 2
    setting.broker.timetable.run()
    assert waiting.answers[0][0]["end"] == 0
    setting.publish(b"late")
    assert len(waiting.answers) == 1


def test_a_stream_that_goes_is_told_of(setting: Setting) -> None:
    waiting = setting.ask("stream.offsets", beyond=0, wait_ms=5000)
    setting.channel.virtual_host.delete_queue(setting.queue)
    assert waiting.answers[0][0]["error-code"] == 404


# As request.py and chores.py have them.
PATIENT_MAX = 256
CREDIT = 64


def test_so_many_requests_of_one_connection_wait(setting: Setting) -> None:
    waiting = [setting.ask("stream.offsets", beyond=0, wait_ms=5000) for _ in range(PATIENT_MAX)]
    with pytest.raises(ServiceFault, match=r"stream.offsets: 256 requests of this connection wait"):
        setting.ask("stream.offsets", beyond=0, wait_ms=5000)
    assert setting.ask("stream.offsets").answers, "one that does not wait is answered"
    setting.publish(b"one")
    answered = len([each for each in waiting if each.answers])
    assert 0 < answered <= CREDIT, "an answer in each step of a chore"
    for _ in range(PATIENT_MAX // CREDIT + 1):
        setting.broker.finish_pass()
    assert [len(each.answers) for each in waiting] == [1] * PATIENT_MAX
    assert not setting.broker.clients.patient
    assert not setting.ask("stream.offsets", beyond=1, wait_ms=5000).answers


def test_a_request_whose_time_is_up_before_its_turn_is_answered_once(setting: Setting) -> None:
    waiting = [setting.ask("stream.offsets", beyond=0, wait_ms=5000) for _ in range(PATIENT_MAX)]
    setting.publish(b"one")
    setting.clock.now_s += 10
    setting.broker.timetable.run()
    for _ in range(PATIENT_MAX // CREDIT + 1):
        setting.broker.finish_pass()
    assert [len(each.answers) for each in waiting] == [1] * PATIENT_MAX


def test_requests_of_a_connection_that_ends_wait_no_longer(setting: Setting) -> None:
    waiting = [setting.ask("stream.offsets", beyond=0, wait_ms=5000) for _ in range(3)]
    setting.broker.clients.leave(setting.channel.origin)
    assert not setting.broker.clients.patient
    assert setting.broker.streams is not None
    assert not setting.broker.streams.watchers
    setting.publish(b"one")
    setting.clock.now_s += 10
    setting.broker.timetable.run()
    assert not [each for each in waiting if each.answers]


def test_offset_for_time(setting: Setting) -> None:
    setting.publish(b"one")
    setting.clock.now_s += 60
    between_ms = setting.clock.wall_ms() - 30_000
    setting.publish(b"two")
    assert setting.answer("stream.offset-for-time", time_ms=between_ms)[0] == {"offset": 1}
    at = datetime.fromtimestamp(between_ms / 1000, UTC)
    assert setting.answer("stream.offset-for-time", time=at)[0] == {"offset": 1}
    assert setting.answer("stream.offset-for-time", time_ms=0)[0] == {"offset": 0}
    assert setting.answer("stream.offset-for-time", time_ms=1 << 50)[0] == {"offset": 2}


def test_fetch_gives_columns(setting: Setting) -> None:
    setting.publish(*[b"%d" % number for number in range(100)])
    results, body = setting.answer("stream.fetch", from_=10, to=20)
    assert results == {"first": 10, "next": 20, "count": 10, "end": 100}
    found = Columns(body)
    assert list(found.numbers("offset")) == list(range(10, 20))
    assert found.values("value") == [b"%d" % number for number in range(10, 20)]
    assert found.values("routing_key") == [b"s"] * 10
    _, body = setting.answer("stream.fetch", columns=["value", "properties"])
    assert Columns(body).names == ("value", "properties")
    results, _ = setting.answer("stream.fetch", from_=0, max_bytes=300)
    assert 0 < results["count"] < 100
    assert results["next"] == results["count"]


def test_bytes_of_a_range(setting: Setting) -> None:
    setting.publish(*[bytes(50_000) for _ in range(40)])
    whole = setting.answer("stream.bytes")[0]["octets"]
    half = setting.answer("stream.bytes", from_=0, to=20)[0]["octets"]
    assert whole > 2_000_000
    assert abs(half - whole / 2) < whole / 4


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("stream.fetch", {"from_": -1}),
        ("stream.fetch", {"from_": 5, "to": 4}),
        ("stream.fetch", {"max_bytes": 1 << 40}),
        ("stream.fetch", {"columns": ["nothing"]}),
        ("stream.fetch", {"columns": ["value", "value"]}),
        ("stream.offsets", {"wait_ms": 1 << 30}),
        ("stream.offset-for-time", {}),
        ("stream.offsets", {"stream": 7}),
    ],
)
def test_wrong_arguments_are_named(setting: Setting, name: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ServiceFault, match="argument"):
        setting.ask(name, **wrong)


def test_only_streams_that_may_be_read(setting: Setting) -> None:
    with pytest.raises(ChannelFault, match="no queue"):
        setting.ask("stream.offsets", stream="absent")
    setting.channel.virtual_host.declare_queue("classic", False, False, False, {}, 1)
    with pytest.raises(ServiceFault, match="not a stream"):
        setting.ask("stream.offsets", stream="classic")
    setting.channel.user.permissions = {}
    with pytest.raises(ChannelFault, match="ACCESS_REFUSED"):
        setting.ask("stream.offsets")
