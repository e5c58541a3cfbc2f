"""Messages as they come back from disk."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from flintmq.broker.store import entry_head
from flintmq.broker.store.store import restored
from flintmq.wire import traits

ROUTE = b"\x01x\x03key"
CONTENT = b"\x00\x3c\x00\x00" + b"\x00" * 7 + b"\x04" + b"\x00\x00" + b"body"
TRAITS = traits.PERSISTENT | traits.NOTED


@pytest.mark.parametrize(
    ("entry", "origin"),
    [(10 << 1, 0), (11 << 1, 7), (3 << 1 | 1, 7)],
    ids=["of an earlier life", "of this one", "of the overflow, which has no earlier life"],
)
def test_who_published_it_is_known_while_the_broker_runs(entry: int, origin: int) -> None:
    head = entry_head.pack(14, TRAITS, 1_700_000_000_000, 7, ROUTE)
    message = restored(entry, head, CONTENT, 10)
    assert (message.arrived_ms, message.origin) == (1_700_000_000_000, origin)
    assert (message.traits, message.lifetime_ms) == (traits.PERSISTENT, -1)
    assert (message.exchange_name(), message.routing_key(), message.body_size()) == ("x", "key", 4)


def test_what_earlier_versions_have_kept_is_read() -> None:
    plain = restored(2, struct.pack("<II", 14, traits.PERSISTENT) + ROUTE, CONTENT, 10)
    assert (plain.arrived_ms, plain.origin, plain.routing_key()) == (0, 0, "key")
    timed = traits.PERSISTENT | traits.TIMED
    message = restored(2, struct.pack("<IIqq", 14, timed, 1000, 50) + ROUTE, CONTENT, 10)
    assert (message.arrived_ms, message.lifetime_ms, message.traits) == (1000, 50, timed)


def test_traits_have_one_number_in_both_halves_of_the_twin() -> None:
    declared = Path(traits.__file__).with_suffix(".pxd").read_text()
    assert f"NOTED = {traits.NOTED:#x}" in declared
