"""The file that knows what was handed out before the journal does."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from flintmq.storage.disk import Disk
from flintmq.storage.journal.delivered_marks import HEAD, PAGE_OCTETS, SLOT, DeliveredMarks


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hand-outs"


def opened(path: Path, disk: Disk | None = None) -> DeliveredMarks:
    return DeliveredMarks(disk or Disk(), str(path))


def found(path: Path, last: int = 1 << 60) -> dict[int, int]:
    again = opened(path)
    marks = again.recover(last)
    again.write()
    again.close()
    return marks


def test_what_is_written_is_there_without_a_close(path: Path) -> None:
    delivered_marks = opened(path)
    delivered_marks.put(3, 70)
    delivered_marks.put(5, 90)
    delivered_marks.put(3, 71)
    assert found(path) == {}  # not yet
    delivered_marks.write()
    assert found(path) == {3: 71, 5: 90}
    assert path.read_bytes()[: len(HEAD) + 2 * SLOT.size] == HEAD + SLOT.pack(3, 71) + SLOT.pack(5, 90)


def test_it_grows_and_uses_again_what_was_forgotten(path: Path) -> None:
    delivered_marks = opened(path)
    for number in range(1, 601):
        delivered_marks.put(number, number + 1000)
    delivered_marks.write()
    assert path.stat().st_size == 3 * PAGE_OCTETS
    for number in range(1, 601):
        delivered_marks.forget(number)
    delivered_marks.forget(1)
    for number in range(601, 1201):
        delivered_marks.put(number, number)
    delivered_marks.write()
    assert path.stat().st_size == 3 * PAGE_OCTETS
    assert found(path) == {number: number for number in range(601, 1201)}


def test_only_pages_that_have_changed_are_written(path: Path) -> None:
    class Watching(Disk):
        places: list[int] = []  # noqa: RUF012

        def write(self, handle: int, at: int, octets: bytes | bytearray | memoryview) -> None:
            self.places.append(at)
            super().write(handle, at, octets)

    disk = Watching()
    delivered_marks = opened(path, disk)
    for number in range(1, 1001):
        delivered_marks.put(number, 1)
    delivered_marks.write()
    assert disk.places == [0, PAGE_OCTETS, 2 * PAGE_OCTETS, 3 * PAGE_OCTETS]
    disk.places.clear()
    delivered_marks.write()
    delivered_marks.put(300, 2)
    delivered_marks.put(301, 2)
    delivered_marks.write()
    assert disk.places == [PAGE_OCTETS]


def test_marks_beyond_the_last_entry_are_cut_for_good(path: Path) -> None:
    """Those entries are lost, and others will have their numbers."""
    delivered_marks = opened(path)
    delivered_marks.put(1, 500)
    delivered_marks.put(2, 90)
    delivered_marks.write()
    assert found(path, last=100) == {1: 100, 2: 90}
    assert found(path) == {1: 100, 2: 90}


@pytest.mark.parametrize("octets", [b"something else entirely", HEAD[:8] + SLOT.pack(9, 9)])
def test_a_file_of_another_kind_is_written_anew_and_told(
    path: Path, octets: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(octets)
    assert found(path) == {}
    assert "is written anew" in caplog.text
    assert path.read_bytes().startswith(HEAD)


def test_a_file_cut_anywhere_gives_what_is_whole(path: Path) -> None:
    delivered_marks = opened(path)
    for number in (1, 2, 3):
        delivered_marks.put(number, number)
    delivered_marks.write()
    whole = path.read_bytes()
    for size in range(len(HEAD) + 3 * SLOT.size):
        path.write_bytes(whole[:size])
        left = found(path)
        assert {number: left[number] for number in left if (number + 1) * SLOT.size <= size} == {
            number: number for number in (1, 2, 3) if (number + 1) * SLOT.size <= size
        }
        assert len(left) <= 3


def test_a_write_that_fails_is_told_once_and_made_good(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Disk):
        is_full = False

        def write(self, handle: int, at: int, octets: bytes | bytearray | memoryview) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().write(handle, at, octets)

    disk = Failing()
    delivered_marks = opened(path, disk)
    delivered_marks.write()
    disk.is_full = True
    delivered_marks.put(1, 7)
    delivered_marks.write()
    delivered_marks.write()
    assert delivered_marks.is_failing
    assert caplog.text.count("No space left on device") == 1
    disk.is_full = False
    delivered_marks.put(2, 8)
    delivered_marks.write()
    assert not delivered_marks.is_failing
    assert found(path) == {1: 7, 2: 8}


def test_a_file_that_cannot_be_read_is_told_and_holds_up_no_start(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Unreadable(Disk):
        def read(self, handle: int, at: int, count: int) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    delivered_marks = opened(path)
    delivered_marks.put(3, 70)
    delivered_marks.write()
    delivered_marks.close()
    again = opened(path, Unreadable())
    assert again.recover(1 << 60) == {}
    assert caplog.text.count("cannot be read: Input/output error") == 1
    again.put(5, 90)
    again.write()
    again.close()
    assert found(path) == {5: 90}
