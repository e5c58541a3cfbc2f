"""What a crash or the disk left behind never stops a start, and is never served as truth."""

from __future__ import annotations

import errno
import random
import struct
from pathlib import Path

import pytest

from flintmq.errors import StorageFault
from flintmq.storage import layout
from flintmq.storage.disk import Disk
from flintmq.storage.inspection import journal_inspection
from flintmq.storage.journal import damage_note, migrate, record, segment

from .test_journal import opened


def filled(directory: Path, count: int = 400) -> list[int]:
    """A journal of several synced batches in more than one segment."""
    journal, _, _ = opened(directory)
    journal.put_value(b"key", b"value")
    sequences = []
    for n in range(count):
        sequences.append(journal.append_entry((1,), b"%d" % n, b"x" * 300))
        if n % 20 == 0:
            journal.commit_now()
    journal.close()
    return sequences


def forget_promises(directory: Path) -> None:
    """As if the power had failed before the last sync, or an earlier FlintMQ had written it all."""
    (directory / "segments.promised").unlink()


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.segment"))


def test_a_torn_tail_is_cut_once(tmp_path: Path) -> None:
    sequences = filled(tmp_path)
    last = segments(tmp_path)[-1]
    size = max(view.end for view in journal_inspection.check(str(tmp_path)).segments[-1:])
    forget_promises(tmp_path)
    with last.open("r+b") as file:
        file.truncate(size - 100)
    journal, told, report = opened(tmp_path)
    assert [sequence for sequence, _, _, _ in told.entries] == sequences[:-1]
    assert report.torn_octets > 0
    assert report.damaged == []
    journal.close()
    journal, told, report = opened(tmp_path)
    assert (report.torn_octets, report.damaged, len(told.entries)) == (0, [], len(sequences) - 1)
    journal.close()


def test_damage_in_the_middle_is_set_aside_and_the_rest_is_served(tmp_path: Path) -> None:
    sequences = filled(tmp_path)
    first = segments(tmp_path)[0]
    octets = bytearray(first.read_bytes())
    octets[5000] ^= 0x10
    first.write_bytes(octets)
    journal, told, report = opened(tmp_path)
    assert len(told.entries) == len(sequences) - 1
    assert len(report.damaged) == len(report.set_aside) == 1
    hole = report.damaged[0]
    assert (tmp_path / report.set_aside[0]).read_bytes() == bytes(octets[hole.at : hole.end])
    assert any("damage in" in line for line in report.lines())
    journal.close()
    journal, told, report = opened(tmp_path)
    assert report.damaged == []
    assert len(told.entries) == len(sequences) - 1
    journal.close()


def test_a_damaged_commit_costs_its_own_group_alone(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    groups = []
    for _ in range(2):
        journal.begin_group()
        groups.append([journal.append_entry((1,), b"", b"x") for _ in range(3)])
        journal.commit_group()
    journal.commit_now()
    journal.close()
    commit = next(each for each in journal_inspection.inspect(str(tmp_path)) if each.kind == "commit")
    path = segments(tmp_path)[0]
    octets = bytearray(path.read_bytes())
    octets[commit.at + 20] ^= 1
    path.write_bytes(octets)
    journal, told, report = opened(tmp_path)
    assert [sequence for sequence, _, _, _ in told.entries] == groups[1]
    assert report.groups_dropped == 1
    journal.close()


def test_a_damaged_head_costs_nothing(tmp_path: Path) -> None:
    sequences = filled(tmp_path)
    for path in segments(tmp_path):
        with path.open("r+b") as file:
            file.write(b"rubbish")
    journal, told, _ = opened(tmp_path)
    assert [sequence for sequence, _, _, _ in told.entries] == sequences
    assert told.keys == {b"key": b"value"}
    journal.close()


@pytest.mark.parametrize("cut", range(1, 80))
def test_a_tail_may_be_cut_at_any_octet(tmp_path: Path, cut: int) -> None:
    sequences = filled(tmp_path, 3)
    path = segments(tmp_path)[-1]
    end = journal_inspection.check(str(tmp_path)).segments[-1].end
    forget_promises(tmp_path)
    with path.open("r+b") as file:
        file.truncate(end - cut)
    for _ in range(2):
        journal, told, report = opened(tmp_path)
        assert [sequence for sequence, _, _, _ in told.entries] == sequences[:-1]
        assert report.damaged == []
        journal.close()


@pytest.mark.parametrize("seed", range(25))
def test_any_file_may_be_mangled(tmp_path: Path, seed: int) -> None:
    sequences = filled(tmp_path, 250)
    chance = random.Random(seed)
    path = chance.choice(segments(tmp_path))
    octets = bytearray(path.read_bytes())
    way = seed % 4
    if way == 0:
        del octets[chance.randrange(len(octets)) :]
    elif way == 1:
        at = chance.randrange(len(octets))
        octets[at : at + 3000] = chance.randbytes(3000)
    elif way == 2:
        octets[:] = bytes(len(octets))
    else:
        at = chance.randrange(len(octets) // 8) * 8
        octets[at:at] = octets[:4096]
    path.write_bytes(octets)
    journal, told, _ = opened(tmp_path)
    recovered = [sequence for sequence, _, _, _ in told.entries]
    assert recovered == sorted(set(recovered) & set(sequences))
    for sequence, header, payload in zip(
        recovered, told.entries, (payload for _, payload in journal.read_entries(recovered)), strict=True
    ):
        assert header[2] == b"%d" % sequences.index(sequence)
        assert payload == b"x" * 300
    journal.close()


def test_a_newer_format_is_refused_in_plain_words(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    path = segments(tmp_path)[0]
    before = _with_version(path, layout.FORMAT_VERSION + 1)
    with pytest.raises(StorageFault, match="start the newer FlintMQ"):
        opened(tmp_path)
    assert path.read_bytes() == before


def test_an_older_format_goes_through_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, 3)
    path = segments(tmp_path)[0]
    _with_version(path, 0)
    assert segment.format_version(path.read_bytes(), 1) == 0
    monkeypatch.setattr(migrate, "oldest_version", lambda disk, directory: 0)
    with pytest.raises(StorageFault, match="too old"):
        migrate.migrate(Disk(), str(tmp_path))


def _with_version(path: Path, version: int) -> bytes:
    octets = bytearray(path.read_bytes())
    octets[8:12] = struct.pack("<I", version)
    crc = layout.crc_read(record.seed_of(1), bytes(octets[:60]), 0, 60)
    octets[60:64] = struct.pack("<I", crc)
    path.write_bytes(octets)
    return bytes(octets)


def test_check_sees_what_repair_mends(tmp_path: Path) -> None:
    filled(tmp_path)
    sound = journal_inspection.check(str(tmp_path))
    assert sound.sound
    assert sound.entries == 400
    assert sound.keys == 1
    path = segments(tmp_path)[0]
    octets = bytearray(path.read_bytes())
    octets[9000] ^= 1
    path.write_bytes(octets)
    broken = journal_inspection.check(str(tmp_path))
    assert not broken.sound
    assert path.read_bytes() == bytes(octets), "a check changes nothing"
    assert "are no record" in broken.lines()[-1]
    report = journal_inspection.repair(str(tmp_path))
    assert len(report.set_aside) == 1
    assert journal_inspection.check(str(tmp_path)).sound


def test_inspect_names_every_record(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    entry = journal.append_entry((1, 2), b"head", b"payload")
    journal.put_value(b"key", b"value")
    journal.begin_group()
    journal.append_settle(1, entry)
    journal.commit_group()
    journal.commit_now()
    journal.close()
    views = list(journal_inspection.inspect(str(tmp_path)))
    assert [view.kind for view in views] == ["batch", "entry", "put", "settle", "commit"]
    assert views[1].text == "owners 1 2; header 4, payload 7"
    assert views[3].grouped
    assert "1:1-1" in views[3].line()


def test_repair_wants_a_journal(tmp_path: Path) -> None:
    with pytest.raises(StorageFault, match="holds no journal"):
        journal_inspection.repair(str(tmp_path))


class Counted(str):
    """A text that counts what it is compared with."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def test_very_many_losses_are_noted_without_comparing_each_with_all(tmp_path: Path) -> None:
    count = 2000
    losses: list[str] = [Counted(f"loss {number}") for number in range(count)]
    disk = Disk()
    assert damage_note.write(disk, str(tmp_path), losses) == []
    Counted.compared = 0
    assert damage_note.write(disk, str(tmp_path), losses[1:]) == ["loss 0"]
    assert damage_note.read(disk, str(tmp_path)) == losses
    assert Counted.compared < 5 * count


def test_a_note_that_cannot_be_read_counts_and_does_not_stop_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when root has repaired the journal of another user."""
    filled(tmp_path)
    damage_note.write(Disk(), str(tmp_path), ["lost"])
    open_to_read = Disk.open_to_read

    def denied(disk: Disk, path: str) -> int:
        if path.endswith(damage_note.NAME):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return open_to_read(disk, path)

    monkeypatch.setattr(Disk, "open_to_read", denied)
    for _ in range(2):
        journal, _, report = opened(tmp_path)
        assert report.earlier == ["damage.noted cannot be read: Permission denied"]
        journal.close()
    journal, _, _ = opened(tmp_path)
    journal.forget_damage()
    journal.close()
    journal, _, report = opened(tmp_path)
    assert report.earlier == []
    journal.close()
