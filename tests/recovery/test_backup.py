"""`flintmq backup` of a broker that works, `flintmq restore`, and what is left when either of them fails."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from command_line.conftest import run
from recovery.conftest import Life, Start

from flintmq.client import Connection, ServiceError, connect
from flintmq.clock import Clock
from flintmq.storage.disk import Disk

LARGE = bytes(5 << 20)  # has a file of its own


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker") / "data"


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[Life]:
    with Life(data) as life:
        yield life


@pytest.fixture
def life(broker: Life, monkeypatch: pytest.MonkeyPatch) -> Life:
    monkeypatch.setenv("FLINTMQ_URL", url(broker))
    return broker


def url(life: Life) -> str:
    return f"amqp://localhost:{life.port}"


class Load:
    """Publishes numbers with confirms, and consumes and acks those of one queue, until it is left."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.confirmed: set[int] = set()
        self.acking: set[int] = set()  # their acks may have left
        self.acked: set[int] = set()  # the broker has worked on their acks
        self.over = threading.Event()
        self.failures: list[BaseException] = []
        self.threads = [
            threading.Thread(target=self.guarded, args=(each,)) for each in (self.publish, self.ack)
        ]

    def guarded(self, work: Callable[[Connection], None]) -> None:
        try:
            with connect(url(self.life)) as connection:
                work(connection)
        except BaseException as failure:
            self.failures.append(failure)

    def publish(self, connection: Connection) -> None:
        with connection.channel(confirm=True) as channel:
            for first in range(0, 10_000_000, 20):
                if self.over.is_set():
                    return
                bodies = [str(number).encode() for number in range(first, first + 20)]
                for queue in ("kept", "work", "log"):
                    channel.publish_many(bodies, routing_key=queue, persistent=True)
                self.confirmed.update(range(first, first + 20))

    def ack(self, connection: Connection) -> None:
        with connection.channel(prefetch=10) as channel, channel.consume("work") as consumer:
            while not self.over.is_set():
                # Half of them stay.
                more = len(self.confirmed) // 2 - len(self.acking)
                for message in consumer.take(min(more, 5), timeout_s=0.1) if more > 0 else ():
                    self.acking.add(int(bytes(message.body)))
                    message.ack()
                connection.request("broker.info")
                self.acked = set(self.acking)

    def __enter__(self) -> Load:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        assert not self.failures


def until(condition: Callable[[], bool]) -> None:
    clock = Clock()
    due_s = clock.monotonic_s() + 30
    while not condition():
        assert clock.monotonic_s() < due_s
        clock.sleep(0.02)


def numbers_in(life: Life, queue: str) -> Counter[int]:
    with connect(url(life)) as connection, connection.channel(prefetch=1000) as channel:
        ready: Any = connection.request("queue.info", {"queue": queue}).results["messages-ready"]
        taken: list[int] = []
        arguments = {"x-stream-offset": "first"} if queue == "log" else None
        with channel.consume(queue, arguments=arguments, timeout_s=10) as consumer:
            while len(taken) < ready:
                for message in consumer.take(500, timeout_s=1):
                    taken.append(int(bytes(message.body)))
                    message.ack()
        return Counter(taken)


def test_under_load(life: Life, start: Start, tmp_path: Path) -> None:
    with connect(url(life)) as connection, connection.channel(confirm=True) as channel:
        for queue in ("kept", "work", "large"):
            channel.queue(queue, durable=True)
        channel.queue("log", durable=True, arguments={"x-queue-type": "stream"})
        channel.publish(LARGE, routing_key="large", persistent=True)
        connection.request("user.add", {"user": "loaded", "password": "a long one"})
        with Load(life) as load:
            taken = [backed_up(load, tmp_path / name) for name in ("copy", "copy.tar")]
            until(lambda: len(load.confirmed) > len(taken[-1].confirmed) + 100)  # nobody is in its way
        for queue in ("kept", "work", "large", "log"):
            channel.delete_queue(queue)
    for each in taken:
        restored = tmp_path / f"{each.backup.name}.restored" / "data"
        restored.parent.mkdir()
        said = run(f"restore {each.backup} {restored}")
        assert said.status == 0, said
        each.require_all(start(directory=restored))


@dataclass
class Taken:
    """A backup, and what was known when it was made."""

    backup: Path
    confirmed: set[int]  # before it began
    acked: set[int]
    acking: set[int]  # before it ended

    def require_all(self, life: Life) -> None:
        kept, work, log = (numbers_in(life, queue) for queue in ("kept", "work", "log"))
        assert set(kept.values()) == set(work.values()) == set(log.values()) == {1}
        assert self.confirmed <= kept.keys()
        assert self.confirmed <= log.keys()
        assert self.confirmed - self.acking <= work.keys()
        assert not self.acked & work.keys()
        with connect(url(life)) as connection, connection.channel() as channel:
            large = channel.get("large")
            assert large is not None
            assert bytes(large.body) == LARGE
            rows: Any = connection.request("user.list").results["rows"]
            assert "loaded" in [row["user"] for row in rows]


def backed_up(load: Load, target: Path) -> Taken:
    before = len(load.acked)
    until(lambda: len(load.confirmed) >= 200 and len(load.acked) >= before + 20)
    confirmed, acked = set(load.confirmed), set(load.acked)
    said = run(f"backup {target} --json")
    assert (said.status, said.err) == (0, ""), said
    assert said.document["damaged"] is False
    return Taken(target, confirmed, acked, set(load.acking))


def test_what_is_copied_stays_until_the_copy_is_made(life: Life, data: Path) -> None:
    with connect(url(life)) as connection, connection.channel(confirm=True) as channel:
        channel.queue("many", durable=True)
        channel.queue("log", durable=True, arguments={"x-queue-type": "stream"})
        channel.publish_many([bytes(1 << 20)] * 40, routing_key="many", persistent=True)  # over a segment
        channel.publish(LARGE, routing_key="many", persistent=True)
        channel.publish(b"x", routing_key="log")
        begun = connection.request("backup.begin").results
        rows: Any = connection.request("backup.files").results["rows"]
        files = {row["name"] for row in rows}
        assert begun["files"] == len(rows) >= 5
        channel.purge_queue("many")
        channel.delete_queue("log")
        channel.publish_many([bytes(1 << 20)] * 40, routing_key="many", persistent=True)
        channel.purge_queue("many")
        Clock().sleep(1.0)  # ticks in which they would go
        assert all((data / name).exists() for name in files)
        connection.request("backup.end")
        going = [data / name for name in files if "spool" in name or "streams" in name]
        segments = [data / name for name in files if name.endswith(".segment") and "/" not in name]
        assert len(going) == 2
        until(lambda: not any(each.exists() for each in going))
        until(lambda: not all(each.exists() for each in segments))
        channel.delete_queue("many")


def test_one_at_a_time_and_for_whoever_began_it(life: Life) -> None:
    with connect(url(life)) as first, connect(url(life)) as second:
        first.request("backup.begin")
        with pytest.raises(ServiceError, match=r"connection \d+ makes a backup: wait until it is done"):
            second.request("backup.begin")
        with pytest.raises(ServiceError, match="no backup under way"):
            second.request("backup.files")
        first.close()
        until(lambda: begins(second))
        second.request("backup.end")
        with pytest.raises(ServiceError, match="404"):
            second.request("backup.end")


def begins(connection: Connection) -> bool:
    try:
        connection.request("backup.begin")
    except ServiceError:
        return False
    return True


# A process that is killed when it syncs the second of its files.
KILLED = """
import os, signal, sys
from flintmq.cli import main
from flintmq.storage.disk import Disk
class Killed(Disk):
    synced = 0
    def sync(self, handle):
        super().sync(handle)
        Killed.synced += 1
        if Killed.synced == 2:
            os.kill(os.getpid(), signal.SIGKILL)
import flintmq.cli.operating.backup
flintmq.cli.operating.backup.Disk = Killed
main(sys.argv[1:])
"""


def killed(*words: str) -> None:
    process = subprocess.run([sys.executable, "-c", KILLED, *words], timeout=60)
    assert process.returncode == -signal.SIGKILL


def fill(life: Life) -> None:
    with connect(url(life)) as connection, connection.channel(confirm=True) as channel:
        channel.queue("kept", durable=True)
        channel.publish_many([b"x"] * 10, routing_key="kept", persistent=True)


def test_killed_in_the_middle(life: Life, tmp_path: Path) -> None:
    fill(life)
    target, part = tmp_path / "copy", tmp_path / "copy.part"
    killed("backup", str(target))
    assert not target.exists()
    said = run(f"restore {part} {tmp_path / 'restored'}")
    assert said.status == 1
    assert "is no finished backup: there is no backup.json in it" in said.err
    assert "there is no such backup" in run(f"restore {target} {tmp_path / 'restored'}").err
    assert f"{part} is there: another copy is being made, or one did not end" in run(f"backup {target}").err
    assert run(f"backup {tmp_path / 'other'}").status == 0  # the broker has let go
    killed("restore", str(tmp_path / "other"), str(tmp_path / "restored"))
    assert not (tmp_path / "restored").exists()
    assert "restored.part is there" in run(f"restore {tmp_path / 'other'} {tmp_path / 'restored'}").err


def test_a_full_disk_hurts_nobody(life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(life)

    def full(disk: Disk, handle: int, at: int, octets: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), disk.path_of(handle))

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "write", full)
        for name in ("copy", "copy.tar"):
            said = run(f"backup {tmp_path / name}")
            assert said.status == 1
            assert "No space left on device" in said.err
    with monkeypatch.context() as patch:
        patch.setattr(Disk, "free_octets", lambda disk, path: 1000)
        said = run(f"backup {tmp_path / 'copy'}")
        assert said.status == 1
        assert f"{tmp_path} has 1000 B free, and the backup takes" in said.err
    assert not list(tmp_path.glob("copy*"))
    fill(life)
    assert run("alarms").status == 0
    assert run(f"backup {tmp_path / 'copy'}").status == 0


def test_what_is_refused(life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(life)
    (tmp_path / "copy").mkdir()
    assert "is there already: nothing is written over" in run(f"backup {tmp_path / 'copy'}").err
    assert "there is no such directory" in run(f"backup {tmp_path / 'none' / 'copy'}").err
    with connect(url(life)) as connection:
        connection.request("user.add", {"user": "clerk", "password": "a long one"})
        permission = {"configure": ".*", "write": ".*", "read": ".*"}
        connection.request("permission.set", {"user": "clerk", "virtual-host": "/", **permission})
    monkeypatch.setenv("FLINTMQ_USER", "clerk")
    monkeypatch.setenv("FLINTMQ_PASSWORD", "a long one")
    said = run(f"backup {tmp_path / 'other'}")
    assert said.status == 4
    assert "user 'clerk' has not the tag administrator" in said.err
    monkeypatch.delenv("FLINTMQ_USER")
    monkeypatch.delenv("FLINTMQ_PASSWORD")
    with monkeypatch.context() as patch:
        patch.setattr("flintmq.cli.operating.backup.holder_of", lambda directory: "1")
        assert "run flintmq backup there, as the user" in run(f"backup {tmp_path / 'other'}").err
    with BrokerProcess() as in_memory:
        monkeypatch.setenv("FLINTMQ_URL", f"amqp://localhost:{in_memory.port}")
        said = run(f"backup {tmp_path / 'other'}")
        assert said.status == 1
        assert "the broker has no data directory: nothing is on disk" in said.err
    assert run(f"backup {tmp_path / 'other'}").status == 3
    assert not list(tmp_path.glob("other*"))


@pytest.fixture
def copy(life: Life, tmp_path: Path) -> Path:
    """A backup that is a directory, and beside it one that is an archive."""
    fill(life)
    assert run(f"backup {tmp_path / 'copy'}").status == run(f"backup {tmp_path / 'copy.tar'}").status == 0
    return tmp_path / "copy"


def refused(backup: Path, words: str) -> None:
    target = backup.parent / "restored"
    said = run(f"restore {backup} {target}")
    assert said.status == 1
    assert words in said.err, said
    assert not target.exists()
    assert not Path(f"{target}.part").exists()


def test_a_backup_that_is_not_whole_is_not_restored(copy: Path) -> None:
    archive = copy.with_suffix(".tar")
    octets = archive.read_bytes()
    archive.write_bytes(octets[: octets.index(b"backup.json")])  # what follows may be little but padding
    refused(archive, "is no finished backup")
    archive.write_bytes(octets.replace(b"kept", b"Kept"))
    refused(archive, "is damaged or missing")
    archive.write_bytes(b"something else")
    refused(archive, "is no finished backup")
    segment = next((copy / "data").glob("*.segment"))
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"kept", b"Kept"))
    refused(copy, f"{segment.name} is damaged or missing")
    segment.write_bytes(content[:-1])
    refused(copy, "is cut short")
    segment.unlink()
    refused(copy, "is missing from the backup")
    manifest = json.loads((copy / "backup.json").read_text())
    for taken_ms in ("-1", "1e30", "Infinity"):
        text = json.dumps(manifest).replace(str(manifest["taken_ms"]), taken_ms)
        (copy / "backup.json").write_text(text)
        refused(copy, "backup.json cannot be read")
    (copy / "backup.json").write_text("{")
    refused(copy, "backup.json cannot be read")


def test_a_backup_writes_nothing_but_a_data_directory(copy: Path) -> None:
    manifest = json.loads((copy / "backup.json").read_text())
    manifest["files"][0]["name"] = "../../outside"
    (copy / "backup.json").write_text(json.dumps(manifest))
    refused(copy, "holds '../../outside', which is no file of a data directory")
    manifest["format"] = 2
    (copy / "backup.json").write_text(json.dumps(manifest))
    refused(copy, "a backup of format 2, this FlintMQ knows format 1")
    archive = copy.with_suffix(".tar")
    for name, kind in (("data/../../outside", tarfile.REGTYPE), ("data/hand-outs", tarfile.SYMTYPE)):
        with tarfile.open(archive, "w") as made:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            made.addfile(member)
        refused(archive, "is no ")


def test_a_data_directory_is_not_written_over(copy: Path, data: Path) -> None:
    said = run(f"restore {copy} {data}")
    assert said.status == 1
    assert "is there already, and not empty: nothing is written over" in said.err
