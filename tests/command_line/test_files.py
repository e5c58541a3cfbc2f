"""`flintmq file send` and `flintmq file receive`: folders, what becomes of files, text, names that lie."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from command_line.conftest import Command

from flintmq.cli.files.file_receiver import FileReceiver, safe_name
from flintmq.cli.files.file_sender import FileSender
from flintmq.client import ConnectionLost, connect
from flintmq.wire.properties import BasicProperties

LARGE = os.urandom(3_500_000)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def queue(flintmq: Command, request: pytest.FixtureRequest) -> str:
    name = "files." + hashlib.sha256(request.node.name.encode()).hexdigest()[:8]
    assert flintmq(f"declare queue {name}").status == 0
    return name


class Killed(BaseException):
    """The process ends here."""


def written(name: str, octets: bytes) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(octets)
    return path


def names(folder: str) -> dict[str, bytes]:
    found = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_a_folder_arrives_as_it_was(flintmq: Command, queue: str) -> None:
    sent = {"a.bin": LARGE, "deep/er/b.txt": b"text\n", "deep/empty": b""}
    for name, octets in sent.items():
        written(f"out/{name}", octets)
    os.utime("out/a.bin", ns=(10**18, 10**18))
    written("out/.hidden", b"not sent")
    said = flintmq(f"file send out --to {queue}")
    assert said.status == 0, said
    assert said.lines[-1] == "3 files sent, 3.3 MiB"
    said = flintmq(f"file receive {queue} in --count 3")
    assert said.status == 0, said
    assert said.lines[-1] == "3 files received, 3.3 MiB"
    assert names("in") == sent
    assert Path("in/a.bin").stat().st_mtime_ns == 10**18


def test_a_file_is_sent_once_unless_it_is_to_be_sent_again(flintmq: Command, queue: str) -> None:
    path = written("a.txt", b"one")
    assert flintmq(f"file send a.txt --to /{queue} --json").document["files"] == 1
    said = flintmq(f"file send a.txt --to /{queue}")
    assert said.lines == ["a.txt: was sent before", "0 files sent, 0 B"]
    assert flintmq(f"file send a.txt --to /{queue} --again --json").document["files"] == 1
    path.write_bytes(b"two")
    assert flintmq(f"file send a.txt --to /{queue} --json").document["files"] == 1
    said = flintmq(f"file receive {queue} in --idle 0 --json")
    assert said.document["files"] == 3
    assert names("in") == {"a.txt": b"one", "a~2.txt": b"one", "a~3.txt": b"two"}


def test_what_was_sent_is_deleted_or_moved(flintmq: Command, queue: str) -> None:
    written("out/a", b"1")
    written("out/b/c", b"2")
    assert flintmq(f"file send out/a --to {queue} --delete").status == 0
    assert flintmq(f"file send out --to {queue} --move sent").status == 0
    assert names("out") == {}
    assert names("sent") == {"b/c": b"2"}


def test_a_watched_folder_is_sent_file_by_file(flintmq: Command, queue: str) -> None:
    written("out/a", b"1")
    said = flintmq(f"file send out --to {queue} --watch")
    assert (said.status, "--delete or --move" in said.err) == (2, True)
    said = flintmq(f"file send out --to {queue} --watch --delete --idle 2.5")
    assert said.lines == ["a: sent, 1 B", "1 files sent, 1 B"]
    assert names("out") == {}


def test_text_is_converted_on_both_sides(flintmq: Command, queue: str) -> None:
    written("a.txt", "für\r\nalle\r".encode("latin-1") * 100_000)
    said = flintmq(f"file send a.txt --to {queue} --from-encoding latin-1 --line-ends lf")
    assert said.status == 0, said
    said = flintmq(f"file receive {queue} in --count 1 --to-encoding utf-16-le --line-ends crlf")
    assert said.status == 0, said
    assert names("in") == {"a.txt": ("für\r\nalle\r\n" * 100_000).encode("utf-16-le")}
    written("b.txt", b"\xff\xfe")
    said = flintmq(f"file send b.txt --to {queue} --from-encoding utf-8")
    assert (said.status, "b.txt: no text in utf-8" in said.err) == (1, True)
    said = flintmq(f"file send b.txt --to {queue} --from-encoding base64")
    assert (said.status, "no such encoding" in said.err) == (2, True)


def test_faults_say_what_to_do(flintmq: Command, queue: str) -> None:
    written("a", b"1")
    said = flintmq("file send nothing --to q")
    assert (said.status, "no such file or folder" in said.err) == (5, True)
    said = flintmq("file send a --to nowhere-at-all")
    assert (said.status, "no queue would get it" in said.err) == (1, True)
    said = flintmq("file receive nowhere-at-all in --count 1")
    assert said.status == 5
    said = flintmq(f"file receive {queue} in --idle 0.1")
    assert (said.status, said.err) == (0, f"flintmq: waiting for messages of queue {queue!r}\n")
    said = flintmq(f"file send a --to {queue} --url amqp://localhost:1 --patience 0.1")
    assert said.status == 3


def test_messages_of_others_become_files_inside_the_folder(
    flintmq: Command, queue: str, broker: BrokerProcess
) -> None:
    Path("in").mkdir()
    Path("elsewhere").mkdir()
    Path("in/link").symlink_to("../elsewhere")
    written("in/taken", b"before")
    lies = ["../out", "/etc/out", "a/../../out", ".flintmq/x", "link/through", "taken", "C:\\out", "a\0b", 7]
    with (
        connect(f"amqp://localhost:{broker.port}") as connection,
        connection.channel(confirm=True) as channel,
    ):
        for lie in lies:
            channel.publish(b"x", routing_key=queue, headers={"x-filename": lie})
        channel.publish(b"plain", routing_key=queue)
    said = flintmq(f"file receive {queue} in --idle 0 --json")
    assert said.document["files"] == len(lies) + 1, said
    assert names("elsewhere") == {}
    assert not Path("out").exists()
    found = names("in")
    assert found.pop("taken") == b"before"
    assert found.pop("taken~2") == b"x"
    assert found.pop("through") == b"x"
    assert len([name for name in found if name.startswith("message-")]) == len(lies) - 1
    assert len(found) == len(lies) - 1


def test_a_wrong_checksum_leaves_the_message(flintmq: Command, queue: str, broker: BrokerProcess) -> None:
    with (
        connect(f"amqp://localhost:{broker.port}") as connection,
        connection.channel(confirm=True) as channel,
    ):
        channel.publish(b"x", routing_key=queue, headers={"x-filename": "a", "x-sha256": "0" * 64})
    said = flintmq(f"file receive {queue} in --count 1")
    assert (said.status, "a: the checksum is not that" in said.err) == (1, True)
    assert names("in") == {}


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a//b", "/a", "a/", "x" * 256, "a/" * 600 + "a", "a\nb", None]
)
def test_names_that_are_no_names(name: object) -> None:
    assert safe_name(name) == ""


@pytest.mark.parametrize("options", ["", "--line-ends lf"])
def test_a_disk_that_fills_up_loses_nothing(
    flintmq: Command, queue: str, broker: BrokerProcess, options: str
) -> None:
    resource = pytest.importorskip("resource")
    with (
        connect(f"amqp://localhost:{broker.port}") as connection,
        connection.channel(confirm=True) as channel,
    ):
        channel.publish(LARGE, routing_key=queue, headers={"x-filename": "a"})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(LARGE) - 1000, before[1]))
    try:
        said = flintmq(f"file receive {queue} in --count 1 {options}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (said.status, "File too large: the message stays in queue" in said.err) == (1, True), said
    assert "--data" not in said.err
    assert "a" not in names("in")
    assert flintmq(f"file receive {queue} in --count 1").status == 0
    assert names("in") == {"a": LARGE}


def test_every_name_finds_a_place(flintmq: Command, queue: str, broker: BrokerProcess) -> None:
    given = ["a", "a/b", "a/b/c", "ä" * 127, "ä" * 127, "d/e", "d"]
    with (
        connect(f"amqp://localhost:{broker.port}") as connection,
        connection.channel(confirm=True) as channel,
    ):
        for name in given:
            channel.publish(name.encode(), routing_key=queue, headers={"x-filename": name})
    said = flintmq(f"file receive {queue} in --idle 0")
    assert said.status == 0, said
    assert sorted(names("in").values()) == sorted(name.encode() for name in given)
    assert names("in")["d~2"] == b"d"


def test_messages_of_one_id_are_not_taken_for_one(
    flintmq: Command, queue: str, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that ends behind the ack leaves a note, one that ends before leaves a part."""
    ask = FileReceiver.ask
    first, second, third = (bytes([number]) * 2_000_000 for number in range(3))

    def ends(self: FileReceiver, service: str, **arguments: Any) -> Any:
        answer = ask(self, service, **arguments)
        if service == "lease.ack" or arguments.get("offset"):
            raise Killed
        return answer

    def publish(octets: bytes) -> None:
        with (
            connect(f"amqp://localhost:{broker.port}") as connection,
            connection.channel(confirm=True) as channel,
        ):
            properties = BasicProperties(headers={"x-filename": "a"}, message_id="always")
            channel.publish(octets, routing_key=queue, properties=properties)

    publish(first)
    with monkeypatch.context() as patch:
        patch.setattr(FileReceiver, "ask", ends)
        with pytest.raises(Killed):
            flintmq(f"file receive {queue} in --count 1")
    assert [path.stat().st_size for path in Path("in/.flintmq").glob("*.part")] == [1_048_576]
    assert flintmq(f"delete queue {queue} --yes").status == 0
    assert flintmq(f"declare queue {queue}").status == 0
    publish(second)

    def acks(self: FileReceiver, service: str, **arguments: Any) -> Any:
        answer = ask(self, service, **arguments)
        if service == "lease.ack":
            raise Killed
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(FileReceiver, "ask", acks)
        with pytest.raises(Killed):
            flintmq(f"file receive {queue} in --count 1")
    assert names("in")["a"] == second
    publish(third)
    assert flintmq(f"file receive {queue} in --count 1").status == 0
    assert names("in")["a~2"] == third


@pytest.mark.parametrize("is_done", [True, False])
def test_an_ack_without_an_answer_is_asked_about(
    flintmq: Command, queue: str, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """The file counts once, whether or not the ack came to the broker; the next message stays."""
    written("out/a", b"first")
    written("out/b", b"second")
    assert flintmq(f"file send out --to {queue}").status == 0
    ask = FileReceiver.ask
    breaks = [True]

    def asks(self: FileReceiver, service: str, **arguments: Any) -> Any:
        if service == "lease.ack" and breaks:
            breaks.clear()
            if is_done:
                ask(self, service, **arguments)
            raise ConnectionLost("the connection broke")
        return ask(self, service, **arguments)

    with monkeypatch.context() as patch:
        patch.setattr(FileReceiver, "ask", asks)
        said = flintmq(f"file receive {queue} in --count 1 --idle 0")
    assert said.status == 0, said
    assert not breaks
    assert names("in") == {"a": b"first"}
    assert flintmq(f"file receive {queue} elsewhere --idle 0").status == 0
    assert names("elsewhere") == {"b": b"second"}


def test_a_file_that_grows_while_it_is_sent_is_not_deleted(
    flintmq: Command, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written("out/log", b"one")
    transfer = FileSender.transfer

    def grows(self: FileSender, *given: Any) -> bool | None:
        found = transfer(self, *given)
        with path.open("ab") as stream:
            stream.write(b" two")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(FileSender, "transfer", grows)
        said = flintmq(f"file send out --to {queue} --delete")
    assert said.status == 0, said
    assert names("out") == {"log": b"one two"}
    assert flintmq(f"file send out --to {queue} --delete").status == 0
    assert names("out") == {}
    assert flintmq(f"file receive {queue} in --idle 0").status == 0
    assert sorted(names("in").values()) == [b"one", b"one two"]


def test_files_are_not_moved_to_where_they_are_sent_from(flintmq: Command, queue: str) -> None:
    written("out/a", b"1")
    said = flintmq(f"file send out --to {queue} --watch --move out/sent --idle 5")
    assert (said.status, "out/sent" in said.err) == (2, True), said
    assert names("out") == {"a": b"1"}


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of files and folders that nobody may read, whoever runs the tests."""
    names: set[str] = set()
    opened, listed = Path.open, os.scandir

    def open_file(self: Path, *given: Any, **options: Any) -> Any:
        if self.name in names:
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *given, **options)

    def list_folder(path: Any) -> Any:
        if Path(path).name in names:
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "open", open_file)
    monkeypatch.setattr(os, "scandir", list_folder)
    return names


def test_what_cannot_be_read_is_told_and_the_others_are_sent(
    flintmq: Command, queue: str, refused: set[str]
) -> None:
    for name in ("a", "locked", "shut/b", "z"):
        written(f"out/{name}", name.encode())
    refused |= {"locked", "shut"}
    said = flintmq(f"file send out --to {queue}")
    assert said.status == 1
    assert said.lines[-1] == "2 files sent, 2 B"
    assert "out/locked: cannot be read: Permission denied" in said.err
    assert "out/shut: cannot be read: Permission denied" in said.err
    refused.clear()
    said = flintmq(f"file send out --to {queue} --json")
    assert (said.status, said.document["files"], said.document["failed"]) == (0, 2, 0)


def test_a_watched_folder_tells_once_of_what_cannot_be_read_and_goes_on(
    flintmq: Command, queue: str, refused: set[str]
) -> None:
    written("out/locked", b"1")
    written("out/other", b"2")
    refused.add("locked")
    said = flintmq(f"file send out --to {queue} --watch --delete --idle 2.5")
    assert (said.status, said.err.count("out/locked: cannot be read")) == (1, 1), said
    assert said.lines == ["other: sent, 1 B", "1 files sent, 1 B"]
    assert sorted(os.listdir("out")) == ["locked"]


def test_a_file_that_cannot_be_deleted_is_sent_once(
    flintmq: Command, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written("out/a", b"1")

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        said = flintmq(f"file send out --to {queue} --watch --delete --idle 2.5")
    assert (said.status, said.lines) == (1, ["a: sent, 1 B", "1 files sent, 1 B"])
    assert said.err == "flintmq: out/a: was sent, but stays: Permission denied\n"


def test_links_to_files_are_sent_and_links_to_folders_are_not(flintmq: Command, queue: str) -> None:
    written("elsewhere/a", b"1")
    Path("out").mkdir()
    Path("out/file").symlink_to("../elsewhere/a")
    Path("out/folder").symlink_to("../elsewhere")
    Path("out/loop").symlink_to(".")
    Path("out/nothing").symlink_to("nowhere")
    said = flintmq(f"file send out --to {queue}")
    assert (said.status, said.lines) == (0, ["file: sent, 1 B", "1 files sent, 1 B"])


@pytest.mark.skipif(os.name == "nt", reason="the colon names a stream of a file there")
def test_a_name_with_a_colon_is_kept(flintmq: Command, queue: str) -> None:
    written("out/12:30.log", b"1")
    assert flintmq(f"file send out --to {queue}").status == 0
    assert flintmq(f"file receive {queue} in --count 1").status == 0
    assert names("in") == {"12:30.log": b"1"}


def test_a_receiver_says_where_it_cannot_write(flintmq: Command, queue: str) -> None:
    written("in", b"a file is in the way")
    said = flintmq(f"file receive {queue} in --count 1")
    assert (said.status, "in/.flintmq: cannot be made: " in said.err) == (1, True), said
    assert "--data" not in said.err
