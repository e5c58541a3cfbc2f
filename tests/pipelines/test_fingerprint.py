"""A checkpoint is used again only by the flow it was made for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from running import of_text

from flintmq.clock import Clock
from flintmq.pipelines.errors import CheckpointUnfit
from flintmq.pipelines.queries import fingerprint

TEXT = """\
[pipeline]
name = "test"
[[source]]
name = "ticks"
uri = "amqp://me:secret@host:5672/"
queue = "ticks"
format = "json"
schema = "symbol STRING, price DOUBLE"
[[transform]]
name = "kept"
sql = "SELECT * FROM ticks WHERE price > 1"
[[transform]]
name = "counted"
sql = "SELECT symbol, count(*) AS n FROM kept GROUP BY symbol"
[[sink]]
from = "counted"
exchange = "out"
output_mode = "update"
"""


def difference(old: str, new: str) -> str | None:
    assert old in TEXT
    before, after = (of_text(text).flows()[0] for text in (TEXT, TEXT.replace(old, new)))
    return fingerprint.difference(fingerprint.parts(before), fingerprint.parts(after))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("price > 1", "price > 2"),
        ("GROUP BY symbol", "GROUP  BY symbol -- by symbol"),
        ('exchange = "out"', 'exchange = "other"'),
        ("me:secret", "you:other"),
        ("@host:5672/", "@elsewhere:5673/"),
        ("@host:5672/", "@host:5672/%2f"),
        ('name = "test"', 'name = "test"\ntrigger = "5 seconds"'),
    ],
)
def test_what_may_change(old: str, new: str) -> None:
    assert difference(old, new) is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("GROUP BY symbol", "GROUP BY symbol, price", "transform counted has changed"),
        ('queue = "ticks"', 'queue = "others"', "source ticks has changed"),
        ("price DOUBLE", "price FLOAT", "source ticks has changed"),
        ("@host:5672/", "@host:5672/other", "source ticks has changed"),
        ('name = "counted"', 'name = "numbered"', "transform counted is gone"),
    ],
)
def test_what_may_not(old: str, new: str, said: str) -> None:
    text = (
        TEXT.replace(old, new).replace('from = "counted"', 'from = "numbered"') if "numbered" in new else None
    )
    if text is None:
        assert difference(old, new) == said
        return
    parts = [fingerprint.parts(of_text(each).flows()[0]) for each in (TEXT, text)]
    assert fingerprint.difference(*parts) == said


def test_claim(tmp_path: Path) -> None:
    clock, checkpoint = Clock(), str(tmp_path / "c")
    flow = of_text(TEXT).flows()[0]
    changed = of_text(TEXT.replace("GROUP BY symbol", "GROUP BY price")).flows()[0]
    fingerprint.claim(checkpoint, tmp_path, changed, False, clock)  # nothing was run yet
    first = fingerprint.claim(checkpoint, tmp_path, flow, False, clock)
    Path(first.checkpoint).mkdir()
    (Path(first.checkpoint) / "metadata").write_text("{}")
    assert fingerprint.claim(checkpoint, tmp_path, flow, False, clock).id == first.id
    with pytest.raises(CheckpointUnfit, match=r"transform counted has changed.*--reset"):
        fingerprint.claim(checkpoint, tmp_path, changed, False, clock)
    fresh = fingerprint.claim(checkpoint, tmp_path, changed, True, clock)
    assert fresh.id != first.id
    assert not Path(fresh.checkpoint).exists()
    assert list(tmp_path.glob("c/counted.*.old/metadata")), "the old one was set aside, not deleted"


def test_a_checkpoint_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "c" / "counted" / "offsets").mkdir(parents=True)
    with pytest.raises(CheckpointUnfit, match=r"not of this pipeline"):
        fingerprint.claim(str(tmp_path / "c"), tmp_path, of_text(TEXT).flows()[0], False, Clock())


def test_remote_checkpoints(tmp_path: Path) -> None:
    flow = of_text(TEXT).flows()[0]
    record = fingerprint.claim("s3a://bucket/checkpoints/", tmp_path / "r", flow, False, Clock())
    assert record.checkpoint == "s3a://bucket/checkpoints/counted"
    changed = of_text(TEXT.replace("GROUP BY symbol", "GROUP BY price")).flows()[0]
    with pytest.raises(CheckpointUnfit, match="has changed"):
        fingerprint.claim("s3a://bucket/checkpoints/", tmp_path / "r", changed, False, Clock())


def test_another_remote_checkpoint_is_a_new_beginning(tmp_path: Path) -> None:
    """What the flow was when the first was made does not concern the second; that of the first is kept."""
    flow = of_text(TEXT).flows()[0]
    changed = of_text(TEXT.replace("GROUP BY symbol", "GROUP BY price")).flows()[0]
    first = fingerprint.claim("s3a://bucket/one", tmp_path, flow, False, Clock())
    second = fingerprint.claim("s3a://bucket/two", tmp_path, changed, False, Clock())
    assert second.id != first.id
    assert fingerprint.claim("s3a://bucket/one/", tmp_path, flow, False, Clock()).id == first.id
    with pytest.raises(CheckpointUnfit, match="s3a://bucket/one/counted: transform counted has changed"):
        fingerprint.claim("s3a://bucket/one", tmp_path, changed, False, Clock())


def test_no_reset_is_advised_for_a_remote_checkpoint(tmp_path: Path) -> None:
    flow = of_text(TEXT).flows()[0]
    changed = of_text(TEXT.replace("GROUP BY symbol", "GROUP BY price")).flows()[0]
    fingerprint.claim("s3a://bucket/c", tmp_path, flow, False, Clock())
    with pytest.raises(CheckpointUnfit, match=r"Undo that, or name another checkpoint\.$"):
        fingerprint.claim("s3a://bucket/c", tmp_path, changed, False, Clock())
    (record,) = tmp_path.iterdir()
    record.write_text("")
    with pytest.raises(CheckpointUnfit, match=r"Restore it from a copy, or name another checkpoint\.$"):
        fingerprint.claim("s3a://bucket/c", tmp_path, flow, False, Clock())
    fingerprint.claim("s3a://bucket/other", tmp_path, flow, False, Clock())


def test_records_of_format_1_go_on(tmp_path: Path) -> None:
    """Their sources had the broker's address in them."""
    flow = of_text(TEXT).flows()[0]
    record = fingerprint.claim(str(tmp_path), tmp_path, flow, False, Clock())
    Path(record.checkpoint).mkdir()
    file = tmp_path / "counted.flow.json"
    old = {"format": 1, "id": record.id, "parts": fingerprint.parts(flow, has_address=True)}
    file.write_text(json.dumps(old))
    again = fingerprint.claim(str(tmp_path), tmp_path, flow, False, Clock())
    assert again == replace(record, is_begun=True, run=again.run)
    assert json.loads(file.read_text())["format"] == 2


def test_a_changed_sink_is_told(tmp_path: Path) -> None:
    flow = of_text(TEXT).flows()[0]
    record = fingerprint.claim(str(tmp_path), tmp_path, flow, False, Clock())
    assert record.told == ""
    Path(record.checkpoint).mkdir()
    other = of_text(TEXT.replace('exchange = "out"', 'exchange = "other"')).flows()[0]
    told = fingerprint.claim(str(tmp_path), tmp_path, other, False, Clock()).told
    assert told == "the sink was exchange out at the last start, and is exchange other now"
    assert fingerprint.claim(str(tmp_path), tmp_path, other, False, Clock()).told == ""
    Path(record.checkpoint).rmdir()
    anew = fingerprint.claim(str(tmp_path), tmp_path, other, False, Clock())
    assert anew.told == (
        f"it was started before, but its checkpoint {record.checkpoint} is not there: it begins anew, and "
        "rows that it wrote before may be written again"
    )
    assert anew.id != record.id, "a table takes its batches for those of another"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 9, "id": "a", "parts": {}}', "[" * 100_000])
def test_a_record_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    flow = of_text(TEXT).flows()[0]
    (tmp_path / "counted.flow.json").write_text(text)
    with pytest.raises(CheckpointUnfit, match=r"cannot be read: .*--reset"):
        fingerprint.claim(str(tmp_path), tmp_path, flow, False, Clock())
    fingerprint.claim(str(tmp_path), tmp_path, flow, True, Clock())
