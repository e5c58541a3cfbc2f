"""The two faces of layout agree, and the format's fixed points stay."""

from __future__ import annotations

import re
from pathlib import Path

from flintmq.storage import layout
from flintmq.storage.journal.segment import SegmentHead, segment_name, segment_number


def test_the_twin_has_the_same_numbers() -> None:
    twin = Path(layout.__file__).with_suffix(".pxd").read_text()
    declared = dict(re.findall(r"^    ([A-Z_]+) = (\d+)$", twin, re.MULTILINE))
    python = {
        name: str(value) for name, value in vars(layout).items() if name.isupper() and isinstance(value, int)
    }
    assert declared == python


def test_the_crc_is_castagnoli() -> None:
    assert layout.crc_read(0, b"123456789", 0, 9) == 0xE3069283
    assert layout.crc_written(0, bytearray(b"x123456789"), 1, 10) == 0xE3069283


def test_a_head_is_true_for_its_own_number_only() -> None:
    head = SegmentHead(7, 2, 100, 6, 4096)
    octets = head.encode()
    assert len(octets) == layout.SEGMENT_HEAD
    found = SegmentHead.decode(octets, 7)
    assert found is not None
    assert vars(found) == vars(head)
    assert SegmentHead.decode(octets, 8) is None
    assert SegmentHead.decode(octets[:-1], 7) is None
    assert SegmentHead.decode(bytes(64), 7) is None


def test_names_and_numbers() -> None:
    assert segment_number(segment_name(12)) == 12
    assert segment_number("12.segment") is None
    assert segment_number("spare.1") is None
