"""The topology as the journal has it, read by where its fields lie: the same as any table is read."""

from __future__ import annotations

import pytest

from flintmq.broker.store import topology_records
from flintmq.errors import PeerFault
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


@pytest.mark.parametrize("user", ["", "guest", "ünï"])
@pytest.mark.parametrize("more", [{}, {"life": 3}])
def test_a_queue_that_a_user_has_declared(user: str, more: FieldTable) -> None:
    table: FieldTable = {"number": 7, "auto-delete": False, "arguments": {}, "user": user, **more}
    assert topology_records.queue_of(encode_table(table)) == table


@pytest.mark.parametrize("field", ["virtual-host", "source", "destination", "routing-key"])
def test_a_binding_with_a_name_that_is_not_utf8_is_read_as_any_table(field: str) -> None:
    table: FieldTable = {
        "virtual-host": "/",
        "source": "s",
        "destination": "d",
        "to-queue": True,
        "routing-key": "k",
        "arguments": {},
    }
    key = topology_records.BINDING + encode_table({**table, field: b"\xff"})
    assert topology_records.plain_binding(key) is None
    assert topology_records.table_of(key[1:])[field] == b"\xff"


def test_a_name_or_a_queue_that_is_cut_short_is_refused_as_any_table_is() -> None:
    name = encode_table({"virtual-host": "/", "name": "q"})
    queue = encode_table({"number": 1, "auto-delete": False, "arguments": {}, "user": "guest"})
    for read, whole in ((topology_records.named_of, name), (topology_records.queue_of, queue)):
        for cut in range(len(whole)):
            with pytest.raises(PeerFault):
                read(whole[:cut])


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
