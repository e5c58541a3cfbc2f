"""The real disk: which file an open one is."""

from __future__ import annotations

from pathlib import Path

from flintmq.storage.disk import Disk


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
