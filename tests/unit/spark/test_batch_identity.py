"""Which batch of a query it is: the same when it is run again, another when its number comes again."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from flintmq.spark.options import STREAM, ReadOptions, WriteOptions
from flintmq.spark.write.batch_identity import Note, RowDigest, local_directory, note_of, planned_in
from flintmq.spark.write.rows import Run
from flintmq.wire.properties import BasicProperties

QUERY = "636c6b2a-f60e-4935-b653-d10a3626fe24"


def digest(*runs: Run) -> str:
    found = RowDigest()
    for run in runs:
        found.add(run)
    return str(found)


def run(bodies: list[bytes], keys: list[str] | None = None, exchange: str = "", **properties: Any) -> Run:
    made = [BasicProperties(**properties) for _ in bodies] if properties else BasicProperties()
    return Run(exchange, bodies, keys, made)


def test_rows_in_another_order_and_other_tasks_are_the_same() -> None:
    bodies = [b"%d" % number for number in range(200)]
    shuffled = bodies[:]
    random.Random(1).shuffle(shuffled)
    one, two = RowDigest(), RowDigest()
    one.add(run(shuffled[:70]))
    two.add(run(shuffled[70:]))
    one.merge(two)
    assert str(one) == digest(run(bodies))
    assert (one.count, one.octets) == (200, sum(map(len, bodies)))


@pytest.mark.parametrize(
    "other",
    [
        run([b"a", b"b", b"b"]),
        run([b"a", b"c"]),
        run([b"a", b"b"], ["k", "l"]),
        run([b"a", b"b"], exchange="x"),
        run([b"a", b"b"], message_id="1"),
        run([b"ab", b""]),
    ],
)
def test_other_rows_are_others(other: Run) -> None:
    assert digest(other) != digest(run([b"a", b"b"]))


def test_keys_belong_to_their_rows() -> None:
    assert digest(run([b"a", b"b"], ["k", "l"])) != digest(run([b"a", b"b"], ["l", "k"]))
    assert digest(run([b"a", b"b"], ["k", "l"])) == digest(run([b"b", b"a"], ["l", "k"]))


FULL = Note(rows="2:ab", sink="s", plan="p", offsets="o")


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (Note(rows="2:cd", sink="s", plan="p", offsets="o"), True),  # run again, computed otherwise
        (Note(rows="2:ab", sink="s", plan="q", offsets="o"), True),  # planned again from the same place
        (Note(rows="2:ab", sink="s", plan="q", offsets="r"), False),  # rows alike, of another place
        (Note(rows="2:cd", sink="s", plan="q", offsets="o"), False),  # a source that counts anew
        (Note(rows="2:ab", sink="s"), True),  # the checkpoint is out of sight: the rows decide
        (Note(rows="2:cd", sink="s"), False),
        (Note(rows="2:ab", sink="t", plan="p", offsets="o"), False),  # to another queue
    ],
)
def test_the_same_batch_or_not(other: Note, is_same: bool) -> None:
    assert FULL.is_same(other) is is_same
    assert other.is_same(FULL) is is_same


def test_a_note_of_another_writer_says_nothing() -> None:
    assert Note.of(FULL.text()) == FULL
    for text in ("", "7", "[1]", "who knows"):
        assert Note.of(text) is None or Note.of(text) == Note()


def write_checkpoint(place: Path, query: str, timestamp_ms: int, offset: str) -> None:
    (place / "offsets").mkdir(parents=True, exist_ok=True)
    (place / "metadata").write_text(json.dumps({"id": query}))
    (place / "offsets" / "3").write_text(f'v1\n{{"batchTimestampMs":{timestamp_ms}}}\n{offset}')


def test_the_plan_is_read_from_a_checkpoint_on_this_machine(tmp_path: Path) -> None:
    options = WriteOptions.of(
        {"queue": "q", "mode": "transactional", "checkpointLocation": tmp_path.as_uri()}
    )
    rows = RowDigest(count=1)
    assert note_of(options, QUERY, 3, rows, 1).plan == ""
    write_checkpoint(tmp_path, QUERY, 7, '{"queues": {"a": {"0": 5}}}')
    first = note_of(options, QUERY, 3, rows, 1)
    assert first.plan
    assert json.loads(first.ends) == {"queues": {"a": {"0": 5}}}
    write_checkpoint(tmp_path, QUERY, 8, '{"queues": {"a": {"0": 5}}}')
    second = note_of(options, QUERY, 3, rows, 1)
    assert second.plan != first.plan
    assert second.offsets == first.offsets
    assert planned_in(str(tmp_path), "another query", 3) is None


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, None),
        ("/a/b", "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("file:/a/b", "/a/b"),
        ("hdfs://namenode/a", None),
        ("s3a://bucket/a", None),
    ],
)
def test_checkpoints_elsewhere_are_out_of_sight(given: str | None, found: str | None) -> None:
    assert local_directory(given) == (None if found is None else Path(found))


def test_some_batches_before_the_last_one_are_known_too() -> None:
    last = Note(rows="1:00", sink="s", plan="p0", offsets="o0")
    for number in range(1, 30):
        this = Note(rows=f"1:{number:032x}", sink="s", plan=f"p{number}" * 12, offsets=f"o{number}" * 12)
        last = this.following(number - 1, last)
        last.ends = "e" * 400
    assert len(last.text()) < 2048
    again = Note.of(last.text())
    assert again == last
    assert sorted(map(int, last.earlier)) == list(range(19, 29))
    found = last.before(25)
    assert found is not None
    assert found.is_same(Note(rows="1:other", sink="s", plan="p25" * 12, offsets="o25" * 12))
    assert not found.is_same(Note(rows="1:other", sink="s", plan="p26" * 12, offsets="o25" * 12))
    assert last.before(3) is None
    elsewhere = Note(rows="1:00", sink="t").following(29, last)
    assert elsewhere.earlier == {}


@pytest.mark.parametrize(
    "name", ["ticks", "\u7a0e" * 85, '"' * 60, "\\" * 100], ids=["plain", "wide", "quotes", "backslashes"]
)
def test_a_note_is_no_longer_than_the_broker_takes(tmp_path: Path, name: str) -> None:
    """Whatever the queues are called: a commit whose note is too long would be refused at each start."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    known: Note | None = None
    for batch in range(1_000_000, 1_000_030):
        ends = json.dumps({"queues": {name: {"0": batch}}, "ids": {name: "a" * 32}}, ensure_ascii=False)
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{ends}")
        options = WriteOptions.of({"queue": "out", "checkpointLocation": str(tmp_path)})
        rows = RowDigest(count=10_000_000, one=1 << 63, two=1 << 63)
        note = note_of(options, QUERY, batch, rows, 1000)
        if known is not None:
            note = note.following(batch - 1, known)
        assert len(note.text().encode()) <= 2048
        known = Note.of(note.text())
        assert known is not None
    assert known is not None
    assert known.before(1_000_028) is not None


def test_offsets_are_told_as_an_option_takes_them() -> None:
    of_ours = json.dumps({"queues": {"a": {"0": 5}, "b": {"0": 7}}, "ids": {"a": "5f"}})
    assert Note(ends=of_ours).places() == '{"a": 5, "b": 7}'
    assert Note(ends=f"{of_ours}\n17").places() == '{"a": 5, "b": 7} and 17'
    assert ReadOptions.of({"queues": "a,b", "startingOffsets": Note(ends=of_ours).places()}, STREAM)
