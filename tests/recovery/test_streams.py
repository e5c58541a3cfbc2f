"""Streams of a broker that dies: what was confirmed is there, with its offset and in order."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pika = pytest.importorskip("pika")

STREAM = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 100_000}


def connect(port: int) -> Any:
    parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0, socket_timeout=10)
    return pika.BlockingConnection(parameters)


def read_all(port: int, offset: str | int = "first", queue: str = "s") -> list[tuple[int, bytes]]:
    connection = connect(port)
    channel = connection.channel()
    count = channel.queue_declare(queue, durable=True, passive=True).method.message_count
    channel.basic_qos(prefetch_count=500)
    got: list[tuple[int, bytes]] = []
    arguments = {"x-stream-offset": offset}
    for method, properties, body in channel.consume(queue, arguments=arguments, inactivity_timeout=5):
        if method is None:
            break
        got.append((properties.headers["x-stream-offset"], body))
        channel.basic_ack(method.delivery_tag)
        if len(got) == count:
            break
    connection.close()
    return got


def publish(port: int, first: int, count: int) -> None:
    """Each is confirmed before the next."""
    connection = connect(port)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("s", durable=True, arguments=STREAM)
    for number in range(first, first + count):
        channel.basic_publish("", "s", b"%d" % number + bytes(1000))
    connection.close()


def numbers(got: list[tuple[int, bytes]]) -> list[int]:
    assert all(offset == int(body.rstrip(b"\0")) for offset, body in got)
    return [offset for offset, _ in got]


def test_confirmed_messages_survive_kill_9_again_and_again(start: Callable[..., Any]) -> None:
    confirmed = 0
    for _ in range(4):
        life = start()
        publish(life.port, confirmed, 150)
        confirmed += 150
        life.kill()
    life = start()
    assert numbers(read_all(life.port)) == list(range(confirmed))
    assert read_all(life.port, confirmed - 1)[0][0] == confirmed - 1
    life.stop()


def test_kill_9_under_load_loses_no_confirmed_message(start: Callable[..., Any]) -> None:
    life = start()
    publish(life.port, 0, 1)
    connection = connect(life.port)
    channel = connection.channel()
    confirmed: list[int] = []
    channel.confirm_delivery()
    for number in range(1, 400):
        channel.basic_publish("", "s", b"%d" % number + bytes(1000))
        confirmed.append(number)
        if number == 300:
            life.process.kill()
            break
    life.kill()
    life = start()
    found = numbers(read_all(life.port))
    assert found == list(range(len(found)))
    assert len(found) > confirmed[-1]
    life.stop()


def test_damage_costs_no_start_and_is_told(start: Callable[..., Any], data: Path) -> None:
    life = start()
    publish(life.port, 0, 300)
    life.stop()
    segments = sorted((data / "streams").glob("*/*.segment"))
    assert len(segments) >= 3
    newest = bytearray(segments[-1].read_bytes())
    newest[100] ^= 255
    segments[-1].write_bytes(newest)
    older = bytearray(segments[0].read_bytes())
    older[2000] ^= 255
    segments[0].write_bytes(older)
    command = [sys.executable, "-m", "flintmq", "journal", "check", str(data)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 1
    lines = checked.stdout.splitlines()
    assert any(line.startswith("stream 1: damaged") for line in lines)
    assert "sound" not in lines
    assert lines[-1] == "not sound: `repair` sets the damaged parts aside"
    life = start()
    found = numbers(read_all(life.port))
    assert found == sorted(set(found))
    assert len(found) >= 296
    publish(life.port, 300, 5)
    assert numbers(read_all(life.port, 300)) == list(range(300, 305))
    life.stop()


def test_a_deleted_stream_does_not_come_back(start: Callable[..., Any], data: Path) -> None:
    life = start()
    publish(life.port, 0, 20)
    connection = connect(life.port)
    connection.channel().queue_delete("s")
    connection.close()
    life.kill()
    life = start()
    publish(life.port, 0, 3)
    assert numbers(read_all(life.port)) == [0, 1, 2]
    life.stop()
    assert len(list((data / "streams").iterdir())) == 1


def test_streams_are_listed_by_inspect(start: Callable[..., Any], data: Path) -> None:
    life = start()
    publish(life.port, 0, 20)
    life.stop()
    command = [sys.executable, "-m", "flintmq", "journal", "inspect", str(data)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "stream 1: offsets 0 to 20 in 1 segments" in shown


def test_a_new_stream_does_not_get_the_place_of_one_that_is_gone(
    start: Callable[..., Any], data: Path
) -> None:
    """Its files are removed, but if the power fails they may be back: whoever is there then reads them."""
    life = start()
    publish(life.port, 0, 1)
    life.stop()
    (place,) = (data / "streams").iterdir()
    leftover = place.with_name(f"{int(place.name) + 1:016d}")
    leftover.mkdir()
    (leftover / "left").write_bytes(b"something")
    life = start()
    connection = connect(life.port)
    connection.channel().queue_declare("new", durable=True, arguments=STREAM)
    connection.channel().basic_publish("", "new", b"first")
    connection.close()
    life.stop()
    places = sorted(int(each.name) for each in (data / "streams").iterdir())
    assert places == [int(place.name), int(leftover.name) + 1]


def test_a_stream_of_which_nothing_is_left_is_told_as_empty(
    start: Callable[..., Any], data: Path, journal: Any
) -> None:
    life = start()
    publish(life.port, 0, 5)
    life.stop()
    (segment,) = (data / "streams").glob("*/*.segment")
    segment.write_bytes(bytes(segment.stat().st_size))
    assert "offsets 0 to 5 are lost: 5 messages" in journal("repair").stdout
    checked = journal("check")
    assert (checked.returncode, checked.stdout.splitlines()[-1]) == (0, "sound")
    assert "stream 1: offsets 5 to 5 in 0 segments" in checked.stdout


def test_a_stream_that_has_lost_its_queue_to_damage_is_rescued(start: Callable[..., Any], data: Path) -> None:
    life = start()
    publish(life.port, 0, 20)
    life.stop()
    segments = sorted(data.glob("*.segment"))
    assert len(segments) == 1
    segments[0].unlink()  # it has the record of the queue
    life = start()
    assert "stream 1 has lost its queue to damage: it is queue 'lost-and-found-1'" in life.said_text()
    life.stop()
    for _ in range(2):
        life = start()
        assert numbers(read_all(life.port, queue="lost-and-found-1")) == list(range(20))
        life.stop()
