"""The topology as the journal has it, read by where its fields lie: the same as any table is read."""

from __future__ import annotations

import pytest

from flintmq.broker.store import topology_records
from flintmq.wire.tables import FieldTable, encode_table

NAMES = ["", "q", "ünï", "a" * 255, "\x00\x09argumentsF\x00\x00\x00\x00"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("arguments", [{}, {"x-match": "all"}, {"x-via": ["e"]}])
def test_a_binding(name: str, arguments: FieldTable) -> None:
    table: FieldTable = {
        "virtual-host": "/",
        "source": name,
        "destination": name[::-1],
        "to-queue": True,
        "routing-key": name,
        "arguments": arguments,
    }
    found = topology_records.plain_binding(topology_records.BINDING + encode_table(table))
    if arguments:
        assert found is None
    else:
        assert found == ("/", name, name[::-1], True, name)
    assert (
        topology_records.plain_binding(topology_records.BINDING + encode_table(dict(reversed(table.items()))))
        is None
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_name(name: str) -> None:
    for table in ({"virtual-host": "v", "name": name}, {"name": name, "virtual-host": "v"}):
        assert topology_records.named_of(encode_table(table)) == table


@pytest.mark.parametrize("number", [1, 2**31 - 1, 2**40])
@pytest.mark.parametrize("is_auto_delete", [False, True])
@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}])
def test_a_queue(number: int, is_auto_delete: bool, arguments: FieldTable) -> None:
    table: FieldTable = {"number": number, "auto-delete": is_auto_delete, "arguments": arguments}
    assert topology_records.queue_of(encode_table(table)) == table


def test_what_is_cut_short_is_no_binding() -> None:
    table: FieldTable = {
        "virtual-host": "/",
        "source": "s",
        "destination": "d",
        "to-queue": False,
        "routing-key": "k",
        "arguments": {},
    }
    whole = topology_records.BINDING + encode_table(table)
    assert topology_records.plain_binding(whole) == ("/", "s", "d", False, "k")
    for cut in range(len(whole)):
        assert topology_records.plain_binding(whole[:cut]) is None
