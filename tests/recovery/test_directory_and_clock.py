"""The data directory is taken away, fsync fails, the clock is set back: told, and nothing is lost."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from peer import Peer

from flintmq.storage.sync_notes import Notes
from flintmq.wire import amqp, methods
from flintmq.wire.methods import decode_method

BLOCKED = re.compile("publishers are blocked: (.*)")
UNBLOCKED = re.compile("publishers are no longer blocked")
STREAM = {"x-queue-type": "stream"}


def declared(life: Any, queue: str, arguments: dict[str, Any]) -> Peer:
    peer: Peer = life.connect()
    peer.call(1, methods.QueueDeclare(queue=queue, durable=True, arguments=arguments))
    peer.call(1, methods.ConfirmSelect())
    peer.publish(1, b"before", key=queue, delivery_mode=2)
    peer.expect(1, methods.BasicAck)
    return peer


def answers(peer: Peer, last: type) -> list[Any]:
    """What comes on any channel, up to the first of a kind."""
    found: list[Any] = []
    while not found or not isinstance(found[-1], last):
        frame = peer.next_frame()
        if frame.kind == amqp.FRAME_METHOD:
            found.append(decode_method(peer.version, frame.payload))
    return found


@pytest.mark.parametrize("arguments", [{}, STREAM])
def test_a_directory_that_is_removed_is_told_and_nothing_is_confirmed(
    start: Any, data: Path, arguments: dict[str, Any]
) -> None:
    life = start()
    peer = declared(life, "q", arguments)
    shutil.rmtree(data)
    peer.publish(1, b"lost", key="q", delivery_mode=2)
    found = answers(peer, methods.ConnectionBlocked)
    assert not [each for each in found if isinstance(each, methods.BasicAck)], "confirmed, and not there"
    assert str(data) in found[-1].reason
    assert str(data) in life.wait_for(BLOCKED)[1]
    # A new one in its place holds nothing of what was promised.
    data.mkdir()
    time.sleep(2.5)  # some ticks, and two further attempts, that must say nothing
    with life.said:
        said = list(life.lines)
    assert not [line for line in said if "Traceback" in line]
    assert len([line for line in said if BLOCKED.search(line)]) <= 2, "\n".join(said)
    assert not [line for line in said if UNBLOCKED.search(line)]
    assert not list(data.glob("*.segment"))
    life.process.terminate()
    assert life.process.wait(15) is not None


@pytest.mark.parametrize("arguments", [{}, STREAM])
def test_a_directory_that_is_back_is_used_on(start: Any, data: Path, arguments: dict[str, Any]) -> None:
    life = start()
    peer = declared(life, "q", arguments)
    away = data.with_name("away")
    data.rename(away)
    peer.publish(1, b"while it was away", key="q", delivery_mode=2)
    life.wait_for(BLOCKED)
    away.rename(data)
    found = answers(peer, methods.BasicAck)
    assert any(isinstance(each, methods.ConnectionBlocked) for each in found)
    life.wait_for(UNBLOCKED)
    life.kill()
    life = start()
    assert "damage" not in life.said_text()
    assert "is missing" not in life.said_text()
    with life.connect() as reader:
        reader.call(1, methods.BasicQos(prefetch_count=10))
        offset = {"x-stream-offset": "first"} if arguments else {}
        reader.call(1, methods.BasicConsume(queue="q", arguments=offset))
        assert [reader.delivery(1)[1].body for _ in range(2)] == [b"before", b"while it was away"]
    life.stop()


def test_files_that_are_removed_alone_are_told_too(start: Any, data: Path) -> None:
    life = start()
    peer = declared(life, "q", {})
    for file in data.iterdir():
        if file.is_file():
            file.unlink()
    peer.publish(1, b"lost", key="q", delivery_mode=2)
    found = answers(peer, methods.ConnectionBlocked)
    assert not [each for each in found if isinstance(each, methods.BasicAck)]
    life.kill()


PATCHED = """
import os, sys, time
{patch}
from flintmq.cli import main
sys.exit(main(sys.argv[1:]))
"""


def patched(patch: str) -> tuple[str, ...]:
    """The command `flintmq`, on a machine with a fault."""
    return sys.executable, "-c", PATCHED.format(patch=patch)


FAILING = """
def fails(handle):
    raise OSError(5, "Input/output error")
os.fdatasync = fails
"""


@pytest.mark.parametrize("is_new", [True, False])
def test_a_start_while_fsync_fails_names_the_file(start: Any, data: Path, is_new: bool) -> None:
    if not is_new:
        life = start()
        declared(life, "q", {})
        life.stop()
    command = [*patched(FAILING), "serve", "--port", "0", "--data", str(data)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"flintmq: {data}/"), last
    assert "Input/output error" in last


def until_noted(data: Path, time_ms: int) -> bool:
    """Waits until the broker has noted that it is so late; it does once a second."""
    for _ in range(200):
        if Notes((data / "segments.promised").read_bytes()).time_ms >= time_ms:
            return True
        time.sleep(0.05)
    return False


class Later(BrokerProcess):
    """A broker whose clock is an hour behind."""

    command = patched("now = time.time_ns\ntime.time_ns = lambda: now() - 3600 * 10**9")


@pytest.mark.parametrize("by", ["SIGTERM", "SIGKILL"])
def test_a_clock_set_back_over_a_restart_delays_nothing(start: Any, data: Path, by: str) -> None:
    life = start()
    with life.connect() as peer:
        delayed = {"x-delayed-type": "direct"}
        peer.call(
            1,
            methods.ExchangeDeclare(exchange="x", type="x-delayed-message", durable=True, arguments=delayed),
        )
        for name, arguments in {
            "q": {},
            "ttl": {"x-message-ttl": 4000, "x-dead-letter-exchange": ""},
        }.items():
            given: Any = dict(arguments)
            if given:
                given["x-dead-letter-routing-key"] = "q"
            peer.call(1, methods.QueueDeclare(queue=name, durable=True, arguments=given))
        peer.call(1, methods.QueueBind(queue="q", exchange="x", routing_key="k"))
        peer.call(1, methods.ConfirmSelect())
        peer.publish(1, b"delayed", exchange="x", key="k", delivery_mode=2, headers={"x-delay": 4000})
        peer.publish(1, b"expired", key="ttl", delivery_mode=2)
        while peer.expect(1, methods.BasicAck).delivery_tag < 2:
            pass
        assert until_noted(data, time.time_ns() // 1_000_000)
    if by == "SIGTERM":
        life.stop()
    else:
        life.kill()
    with Later("--data", str(data)) as later, Peer.connect(later.port) as peer:
        later.wait_for(re.compile("the clock is 3[56][0-9][0-9] s behind"))
        peer.open(1)
        peer.call(1, methods.BasicConsume(queue="q", no_ack=True))
        assert {peer.delivery(1)[1].body for _ in range(2)} == {b"delayed", b"expired"}
