"""Damaged files of every kind: the broker starts, says what it found, and serves all the rest."""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from peer import Peer

from flintmq.broker.broker import Broker
from flintmq.broker.streams.stream_queue import StreamQueue
from flintmq.clock import Clock
from flintmq.config import Config, Limits, Storage
from flintmq.errors import StorageFault
from flintmq.server import data_directory
from flintmq.server.data_directory import open_broker
from flintmq.storage.inspection.journal_inspection import repair
from flintmq.storage.journal import damage_note
from flintmq.wire import methods

LIVES = 4
MESSAGES = 60
DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {}


def damage(function: Callable[[Path, random.Random], None]) -> Callable[[Path, random.Random], None]:
    DAMAGES[function.__name__] = function
    return function


@damage
def cut_to_nothing(file: Path, chance: random.Random) -> None:
    os.truncate(file, 0)


@damage
def cut_in_the_head(file: Path, chance: random.Random) -> None:
    os.truncate(file, chance.randrange(1, 64))


@damage
def cut_somewhere(file: Path, chance: random.Random) -> None:
    os.truncate(file, chance.randrange(64, file.stat().st_size))


@damage
def flip_in_the_head(file: Path, chance: random.Random) -> None:
    flip(file, chance.randrange(64), chance)


@damage
def flip_somewhere(file: Path, chance: random.Random) -> None:
    flip(file, chance.randrange(64, file.stat().st_size), chance)


@damage
def flip_often(file: Path, chance: random.Random) -> None:
    for _ in range(20):
        flip(file, chance.randrange(file.stat().st_size), chance)


@damage
def zeros_in_the_middle(file: Path, chance: random.Random) -> None:
    overwrite(file, chance, bytes(2048))


@damage
def noise_in_the_middle(file: Path, chance: random.Random) -> None:
    overwrite(file, chance, chance.randbytes(2048))


@damage
def more_behind_the_end(file: Path, chance: random.Random) -> None:
    with file.open("ab") as stream:
        stream.write(chance.randbytes(chance.randrange(1, 5000)))


@damage
def another_file_in_its_place(file: Path, chance: random.Random) -> None:
    others = sorted(each for each in file.parent.glob("*.segment") if each != file)
    shutil.copy(chance.choice(others), file)


def flip(file: Path, at: int, chance: random.Random) -> None:
    octets = bytearray(file.read_bytes())
    octets[at] ^= 1 << chance.randrange(8)
    file.write_bytes(octets)


def overwrite(file: Path, chance: random.Random, noise: bytes) -> None:
    at = chance.randrange(max(1, file.stat().st_size - len(noise)))
    with file.open("r+b") as stream:
        stream.seek(at)
        stream.write(noise)


def body_of(life: int, number: int) -> bytes:
    return f"{life}/{number}/".encode() + b"x" * (number * 7)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a segment from each of several lives; killed, so nothing is tidied up."""
    place = tmp_path_factory.mktemp("sample") / "data"
    for life in range(LIVES):
        broker = BrokerProcess("--data", str(place))
        with Peer.connect(broker.port) as peer:
            peer.open(1)
            peer.call(1, methods.QueueDeclare(queue="q", durable=True))
            peer.call(1, methods.QueueDeclare(queue=f"q{life}", durable=True))
            peer.call(1, methods.QueueBind(queue="q", exchange="amq.fanout"))
            peer.call(1, methods.QueueBind(queue=f"q{life}", exchange="amq.fanout"))
            peer.call(1, methods.ConfirmSelect())
            for number in range(MESSAGES):
                peer.publish(1, body_of(life, number), exchange="amq.fanout", delivery_mode=2)
            while peer.expect(1, methods.BasicAck).delivery_tag < MESSAGES:
                pass
        if life == LIVES - 1:
            broker.stop()
        else:
            broker.process.kill()
            broker.process.wait()
            for reader in broker.readers:
                reader.join()
    return place


def segments(place: Path) -> list[Path]:
    return sorted(place.glob("*.segment"))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[Path], Broker]]:
    brokers: list[Broker] = []

    def begin(place: Path) -> Broker:
        config = Config(storage=Storage(directory=place), limits=Limits(disk_free_bytes_min=0))
        broker = open_broker(config, Clock(), lambda: None)
        brokers.append(broker)
        return broker

    yield begin
    for broker in brokers:
        assert broker.store is not None
        broker.store.close()


def contents(broker: Broker, name: str) -> list[bytes]:
    queue = broker.virtual_hosts["/"].queues.get(name)
    found: list[bytes] = []
    while queue is not None and (delivery := queue.take()) is not None:
        assert delivery.message is not None
        found.append(bytes(delivery.message.content[delivery.message.header_size :]))
    return found


def everything(broker: Broker) -> dict[str, list[bytes]]:
    return {name: contents(broker, name) for name in sorted(broker.virtual_hosts["/"].queues)}


WHOLE = [body_of(life, number) for life in range(LIVES) for number in range(MESSAGES)]


def test_the_sample_is_whole(sample: Path, tmp_path: Path, opened: Any) -> None:
    place = tmp_path / "data"
    shutil.copytree(sample, place)
    found = everything(opened(place))
    assert found["q"] == WHOLE
    for life in range(LIVES):
        # Bound in its own life, it gets what comes then and later.
        assert found[f"q{life}"] == WHOLE[life * MESSAGES :]


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("which", range(LIVES))
def test_a_damaged_segment_costs_only_what_was_in_it(
    sample: Path, tmp_path: Path, opened: Any, caplog: pytest.LogCaptureFixture, kind: str, which: int
) -> None:
    caplog.set_level(logging.INFO)
    place = tmp_path / "data"
    shutil.copytree(sample, place)
    file = segments(place)[which]
    DAMAGES[kind](file, random.Random(f"{kind}/{which}"))
    found = everything(opened(place))
    recovered = [body for name in found if name.startswith("lost-and-found") for body in found[name]]
    reached = set().union(*map(set, found.values()))
    for life in range(LIVES):
        if life != which:
            missing = set(WHOLE[life * MESSAGES : (life + 1) * MESSAGES]) - reached
            assert not missing, f"{len(missing)} messages of a segment that was not damaged"
    for name, bodies in found.items():
        known = [body for body in bodies if body in WHOLE]
        assert known == sorted(set(bodies), key=WHOLE.index), f"{name}: invented, doubled or out of order"
    if len(found.get("q", ())) < len(WHOLE):
        assert "damage in" in caplog.text or "set aside" in caplog.text
    if "q" not in found:
        assert recovered


def test_a_missing_segment(
    sample: Path, tmp_path: Path, opened: Any, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "data"
    shutil.copytree(sample, place)
    name = segments(place)[1].name
    segments(place)[1].unlink()
    assert contents(opened(place), "q") == WHOLE[:MESSAGES] + WHOLE[2 * MESSAGES :]
    assert f"{name} is missing" in caplog.text
    assert caplog.records[0].levelno == logging.ERROR


@pytest.mark.parametrize(
    ("name", "octets"),
    [
        ("lock", b"\xff\x00 not a pid"),
        ("lock", b""),
        ("spare.7", b"\x00" * 100),
        ("overflow/0000000000000001.segment", b"\xff" * 5000),
        ("overflow/lock", b"?"),
        ("00000000000000000001.spool", b"left over"),
        ("00000000000000000001.spool.copy", b"left over"),
        ("0000000000000001-64.damaged", b"from an earlier repair"),
        ("0000000000000900.segment", b""),
        ("0000000000000900.segment", b"FLINTMQJ" + b"\x00" * 200),
        ("nonsense.segment", b"nonsense"),
        ("README", b"somebody put it here"),
    ],
)
def test_other_files(sample: Path, tmp_path: Path, opened: Any, name: str, octets: bytes) -> None:
    place = tmp_path / "data"
    shutil.copytree(sample, place)
    (place / name).write_bytes(octets)
    assert contents(opened(place), "q") == WHOLE


def test_a_broker_starts_on_damage_serves_the_rest_and_starts_clean_after(
    sample: Path, data: Path, start: Any, drain: Any, journal: Any
) -> None:
    shutil.copytree(sample, data)
    file = segments(data)[2]
    overwrite(file, random.Random(5), bytes(1500))
    checked = journal("check")
    assert checked.returncode == 1
    assert f"{file.name}: octets" in checked.stdout
    assert "not sound" in checked.stdout
    assert journal("inspect").returncode == 0

    life = start()
    life.wait_for(re.compile("damage in"))
    life.wait_for(re.compile("set aside: "))
    with life.connect() as peer:
        taken = [body for body, _ in drain(peer, "q3")]
        assert taken == WHOLE[3 * MESSAGES :]
    life.kill()
    assert list(data.glob("*.damaged"))
    checked = journal("check")
    assert checked.returncode == 0, checked.stdout
    assert "set aside earlier" in checked.stdout
    life = start()
    assert "damage in" not in life.said_text()
    with life.connect() as peer:
        left = [body for body, _ in drain(peer, "q")]
    assert left == [body for body in WHOLE if body in set(left)]
    assert len(left) > 3 * MESSAGES


def test_repair_sets_damage_aside_and_says_so(sample: Path, data: Path, start: Any, journal: Any) -> None:
    shutil.copytree(sample, data)
    flip(segments(data)[1], 3000, random.Random(1))
    assert journal("check").returncode == 1
    mended = journal("repair")
    assert mended.returncode == 0
    assert "damage in" in mended.stdout
    assert "set aside: " in mended.stdout
    assert journal("check").returncode == 0
    assert "found by an earlier start or repair: damage in" in journal("repair").stdout
    start().stop()
    assert "nothing was damaged" in journal("repair").stdout


LOST = [b"%d" % number for number in range(20)]


@pytest.fixture
def spoilt(data: Path, start: Any, publish: Any) -> Path:
    """A data directory with a queue and a stream of which the disk has spoilt the records."""
    life = start()
    for name, kind in (("kept", "classic"), ("spoilt", "classic"), ("spoilt-log", "stream")):
        with life.connect() as peer:
            peer.call(1, methods.QueueDeclare(queue=name, durable=True, arguments={"x-queue-type": kind}))
            publish(peer, name, LOST)
    life.kill()
    (file,) = segments(data)
    octets = bytearray(file.read_bytes())
    for name in (b"spoilt", b"spoilt-log"):
        octets[octets.index(name)] ^= 1  # in the record that declares it, which comes first
    file.write_bytes(octets)
    return data


def mend_here(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody was there before."""


def mend_by_repair(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert repair(str(data)).is_damaged


def mend_by_a_start_that_fails(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(storage=Storage(directory=data), limits=Limits(disk_free_bytes_min=0))
    with monkeypatch.context() as patched:
        patched.setattr(data_directory, "load_definitions", refuse)
        with pytest.raises(StorageFault, match="not now"):
            open_broker(config, Clock(), lambda: None)


def refuse(broker: Broker) -> None:
    raise StorageFault("not now")


@pytest.mark.parametrize("mend", [mend_here, mend_by_repair, mend_by_a_start_that_fails])
def test_what_has_lost_its_queue_is_rescued_whoever_has_mended_the_journal(
    spoilt: Path,
    mend: Callable[[Path, pytest.MonkeyPatch], None],
    opened: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mend(spoilt, monkeypatch)
    caplog.clear()
    broker = opened(spoilt)
    assert "damage in 0000000000000001.segment" in caplog.text
    queues = broker.virtual_hosts["/"].queues
    assert sorted(queues) == ["kept", "lost-and-found-2", "lost-and-found-3"]
    stream = queues["lost-and-found-3"]
    assert isinstance(stream, StreamQueue)
    assert (stream.log.first, stream.log.end) == (0, len(LOST))
    assert contents(broker, "lost-and-found-2") == contents(broker, "kept") == LOST


def test_what_was_rescued_stays_and_damage_is_told_once(spoilt: Path, start: Any, drain: Any) -> None:
    first = start()
    first.wait_for(re.compile("damage in"))
    first.stop()
    second = start()
    assert "damage in" not in second.said_text()
    with second.connect() as peer:
        found = peer.call(1, methods.QueueDeclare(queue="lost-and-found-3", passive=True))
        assert found.message_count == len(LOST)
        assert [body for body, _ in drain(peer, "lost-and-found-2")] == LOST
    second.stop()


def test_what_has_lost_its_queue_is_rescued_after_a_repair_too(
    sample: Path, tmp_path: Path, start: Any, data: Path, drain: Any, journal: Any
) -> None:
    shutil.copytree(sample, data)
    segments(data)[0].unlink()  # it has the record of the queue `q`
    assert "is missing" in journal("repair").stdout
    assert journal("check").returncode == 0
    again = journal("repair").stdout
    assert "found by an earlier start or repair: 0000000000000001.segment is missing" in again
    assert "nothing was damaged" not in again
    life = start()
    life.wait_for(re.compile("have lost their queue to damage: they are in queue 'lost-and-found-"))
    while (data / damage_note.NAME).exists():
        time.sleep(0.01)
    life.kill()
    life = start()  # what is saved is a queue like any other
    assert "have lost their queue" not in life.said_text()
    assert "is gone: dropped" not in life.said_text()
    with life.connect() as peer:
        kept = [body for body, _ in drain(peer, "lost-and-found-1")]
    assert kept == WHOLE[MESSAGES:]
    life.stop()
