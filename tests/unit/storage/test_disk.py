"""The real disk: which file an open one is, and commits by both kinds of disk."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from flintmq.storage import file_calls
from flintmq.storage.disk import Commit, Disk, SystemDisk


def test_an_open_file_is_there_until_its_name_or_directory_leads_elsewhere(tmp_path: Path) -> None:
    disk = Disk()
    directory = tmp_path / "data"
    directory.mkdir()
    path = str(directory / "lock")
    handle = disk.open(path, create=True)
    assert disk.is_there(path, handle)
    directory.rename(tmp_path / "moved")
    assert not disk.is_there(path, handle)
    directory.mkdir()
    disk.close(disk.open(path, create=True))
    assert not disk.is_there(path, handle), "another file of that name"
    (directory / "lock").unlink()
    directory.rmdir()
    (tmp_path / "moved").rename(directory)
    assert disk.is_there(path, handle), "as it was"
    disk.close(handle)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(sys.platform != "linux", reason="where the system tells what is open")
def test_a_directory_that_cannot_be_locked_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()

    def full(handle: int, at: int, octets: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "write", full)
    before = open_files()
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            disk.lock(str(tmp_path / "lock"))
    assert open_files() == before


def test_a_close_that_fails_after_the_sync_is_no_failure(tmp_path: Path) -> None:
    class Refusing(Disk):
        def close(self, handle: int) -> None:
            super().close(handle)
            raise OSError(errno.EIO, "Input/output error")

    disk = Refusing()
    disk.prewrite(str(tmp_path / "spare"), 5000)
    disk.sync_directory(str(tmp_path))
    assert (tmp_path / "spare").read_bytes() == bytes(5000)


def test_a_handle_that_is_used_again_is_another_file(tmp_path: Path) -> None:
    disk = Disk()
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    handle = disk.open(first, create=True)
    assert disk.is_there(first, handle)
    disk.close(handle)
    again = disk.open(second, create=True)
    assert again == handle, "the system gives the lowest number that is free"
    assert disk.is_there(second, again)
    assert not disk.is_there(first, again)
    disk.close(again)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize("kind", ["directory", "pipe"])
def test_what_is_no_file_is_named_and_never_waited_for(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / "segment")
    (os.mkdir if kind == "directory" else os.mkfifo)(path)
    disk = Disk()
    for opening in (
        lambda: disk.open(path),
        lambda: disk.open(path, create=True),
        lambda: disk.open_to_read(path),
    ):
        with pytest.raises(OSError, match="segment") as raised:
            opening()
        assert raised.value.filename == path


@pytest.fixture(params=[Disk, SystemDisk])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return Stage(request.param(), tmp_path)


class Stage:
    """A directory with a lock, a file of data and one of notes."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self.disk = disk
        self.directory = directory / "data"
        self.directory.mkdir()
        self.lock_path = str(self.directory / "lock")
        self.data, self.notes = self.directory / "segment", self.directory / "notes"
        self.lock, self.handle, self.notes_handle = (
            disk.open(str(path), create=True) for path in (self.lock_path, self.data, self.notes)
        )

    def commit(self, handle: int | None = None, notes: int | None = None) -> tuple[int, bool]:
        commit = Commit(
            self.handle if handle is None else handle,
            8,
            bytearray(b"..octets.."),
            2,
            8,
            self.notes_handle if notes is None else notes,
            4,
            b"note",
        )
        return self.disk.commit(commit, self.lock_path, self.lock)


def test_a_commit_writes_its_octets_and_the_note(stage: Stage) -> None:
    sync_us, is_noted = stage.commit()
    assert is_noted
    assert sync_us >= 0
    assert stage.data.read_bytes() == bytes(8) + b"octets"
    assert stage.notes.read_bytes() == bytes(4) + b"note"


def test_a_commit_into_a_file_that_takes_no_write_names_it_and_notes_nothing(stage: Stage) -> None:
    handle = stage.disk.open_to_read(str(stage.data))
    with pytest.raises(OSError, match="Bad file descriptor") as raised:
        stage.commit(handle=handle)
    assert (raised.value.errno, raised.value.filename) == (errno.EBADF, str(stage.data))
    assert stage.notes.read_bytes() == b""


@pytest.mark.skipif(sys.platform != "linux", reason="a sync of /dev/zero fails on Linux")
def test_a_commit_that_cannot_be_synced_notes_nothing(stage: Stage) -> None:
    handle = stage.disk.open("/dev/zero")  # which takes every write, and knows no sync
    with pytest.raises(OSError, match="Invalid argument") as raised:
        stage.commit(handle=handle)
    assert (raised.value.errno, raised.value.filename) == (errno.EINVAL, "/dev/zero")
    assert stage.notes.read_bytes() == b""


def test_a_commit_in_a_directory_that_was_replaced_fails_and_notes_nothing(stage: Stage) -> None:
    stage.directory.rename(stage.directory.with_name("moved"))
    for make in (lambda: None, stage.directory.mkdir, lambda: Path(stage.lock_path).touch()):
        make()
        with pytest.raises(FileNotFoundError) as raised:
            stage.commit()
        assert raised.value.filename == str(stage.directory)
    assert (stage.directory.with_name("moved") / "notes").read_bytes() == b""


def test_a_commit_whose_path_cannot_be_followed_fails_with_the_reason(stage: Stage) -> None:
    stage.directory.rename(stage.directory.with_name("moved"))
    stage.directory.symlink_to(stage.directory)
    with pytest.raises(OSError, match="symbolic links") as raised:
        stage.commit()
    assert (raised.value.errno, raised.value.filename) == (errno.ELOOP, stage.lock_path)


def test_a_commit_whose_note_is_refused_tells_so(stage: Stage) -> None:
    notes = stage.disk.open_to_read(str(stage.notes))
    _, is_noted = stage.commit(notes=notes)
    assert not is_noted
    assert stage.data.read_bytes() == bytes(8) + b"octets"


def test_the_two_faces_of_file_calls_agree() -> None:
    twin = Path(file_calls.__file__).with_suffix(".pxd").read_text()
    for name, value in vars(file_calls).items():
        if name.isupper():
            assert f"{name} = {value}\n" in twin
