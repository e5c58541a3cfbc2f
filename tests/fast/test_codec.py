"""The octets of AMQP/Fast: tables, commands and message headers, and their way to Basic and back."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from fast.conversation import HEAD, octets
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.client.fast.core import FastCore, Place
from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire.fast import commands, crossing, message_head, tables
from flintmq.wire.fast.message_head import MessageHead
from flintmq.wire.properties import BasicProperties, decode_basic_properties, encode_properties
from flintmq.wire.tables import FieldValue

NOW_MS = 1_700_000_000_000

names = st.from_regex(r"[A-Za-z$#][A-Za-z0-9_]{0,40}", fullmatch=True)
values = st.one_of(
    st.text(max_size=40),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**32 - 1).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    st.builds(
        lambda unscaled, places: Decimal(unscaled).scaleb(-places),
        st.integers(0, 2**31 - 1),
        st.integers(0, 9),
    ),
)
table_values = st.dictionaries(names, values, max_size=8)


def test_the_table_that_the_document_prints() -> None:
    table = commands.encode(commands.ConnectionResponse("", {"LOGIN": "Johan", "PASSWORD": "Ok"}))
    assert octets("001c 05 'LOGIN' 'S' 0005 'Johan' 08 'PASSWORD' 'S' 0002 'Ok'") in table


@settings(max_examples=30, deadline=None)
@given(table_values)
def test_a_table_is_the_same_after_a_round_trip(table: tables.Table) -> None:
    assert tables.decode(tables.encode(table)) == table


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_any_octets_are_a_table_or_a_fault(found: bytes) -> None:
    with contextlib.suppress(ConnectionFault):
        assert isinstance(tables.decode(found), dict)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_any_octets_are_a_command_or_a_fault(found: bytes) -> None:
    with contextlib.suppress(ConnectionFault):
        command = commands.decode(found)
        assert commands.decode(commands.encode(command)[2:-1]) == command


@pytest.mark.parametrize(
    "entry",
    ["00 'I' 00000000", "02 '1x' 'I' 00000000", "01 'x' 'Q' 00", "01 'x'", "01 'x' 'S' 0005 'a'", "05 'x'"],
)
def test_an_entry_that_is_wrong_is_a_fault(entry: str) -> None:
    with pytest.raises(ConnectionFault, match="field table"):
        tables.decode(octets(entry))


@pytest.mark.parametrize("value", [2**31, Decimal("1e40"), Decimal("NaN"), "x" * 65_536])
def test_what_a_table_cannot_hold_is_not_written(value: tables.Value) -> None:
    with pytest.raises(ProtocolMisuse):
        tables.encode({"a": value})


def test_a_long_command_has_a_long_size() -> None:
    frame = commands.encode(commands.HandleIndex(1, 0, b"x" * 65_530))
    assert frame[:6] == octets("ffff 00010004")
    assert len(frame) == 6 + 0x10004


@settings(max_examples=30, deadline=None)
@given(table_values, st.booleans(), st.integers(0, 9), st.sampled_from([0, 1_800_000_000]))
def test_a_header_crosses_and_comes_back(
    headers: tables.Table, persistent: bool, priority: int, expiration: int
) -> None:
    head = MessageHead(7, persistent, priority, expiration, "text/plain", "utf-8", "id", headers)
    block = message_head.encode(head)
    basic = crossing.basic_header(block[4:], "", "", NOW_MS)
    assert message_head.decode(block[:4] + crossing.fast_head(basic, NOW_MS + 5000)) == head


def test_what_is_a_property_of_basic_is_a_field() -> None:
    properties = BasicProperties(
        correlation_id="c", reply_to="r", type="t", user_id="u", app_id="a", cluster_id="l", timestamp=5
    )
    basic = octets("003c 0000 0000000000000000") + encode_properties(properties)
    head = message_head.decode(bytes(4) + crossing.fast_head(basic, NOW_MS))
    assert head.headers == {
        "$CORRELATION_ID": "c",
        "$REPLY_TO": "r",
        "$TYPE": "t",
        "$USER_ID": "u",
        "$APP_ID": "a",
        "$CLUSTER_ID": "l",
        "$TIMESTAMP": datetime.fromtimestamp(5, UTC),
    }
    back = crossing.basic_header(message_head.encode(head)[4:], "", "", NOW_MS)
    assert decode_basic_properties(back, 12, len(back)) == properties


@pytest.mark.parametrize(
    ("value", "crossed"),
    [
        (2**40, str(2**40)),
        (1.5, "1.5"),
        (True, 1),
        (None, ""),
        ({"a": [1, "b"]}, '{"a": [1, "b"]}'),
        (b"\xff", b"\xff"),
        ("x" * 70_000, None),
    ],
)
def test_what_a_field_cannot_hold_becomes_a_text(value: FieldValue, crossed: object) -> None:
    properties = encode_properties(BasicProperties(headers={"x": value}))
    head = crossing.fast_head(octets("003c 0000 0000000000000000") + properties, NOW_MS)
    headers = message_head.decode(bytes(4) + head).headers
    assert headers == ({} if crossed is None else {"x": crossed})


@pytest.mark.parametrize(
    ("expiration", "timestamp", "seconds"),
    [("1000", None, 1_700_000_001), ("1000", 5, 6), ("1", 5, 6), (None, 5, 0)],
)
def test_an_expiration_of_basic_is_a_time(
    expiration: str | None, timestamp: int | None, seconds: int
) -> None:
    properties = encode_properties(BasicProperties(expiration=expiration, timestamp=timestamp))
    head = crossing.fast_head(octets("003c 0000 0000000000000000") + properties, NOW_MS)
    assert message_head.decode(bytes(4) + head).expiration == seconds


def test_a_priority_above_9_is_a_fault() -> None:
    with pytest.raises(ConnectionFault, match="priority 10"):
        crossing.basic_header(octets("00 0a 00000000 00 00 00 0000"), "", "", NOW_MS)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=60))
def test_any_octets_are_a_message_header_or_a_fault(found: bytes) -> None:
    end = message_head.end_of(found, 0, len(found))
    assert end == -1 or 15 <= end <= len(found)
    if end > 0:
        with contextlib.suppress(ConnectionFault):
            head = message_head.decode(found[:end])
            assert crossing.basic_header(found[4:end], "", "", NOW_MS)
            assert head.priority <= 9


def test_the_shortest_header() -> None:
    assert message_head.encode(MessageHead()) == bytes(4) + octets(HEAD)


def test_a_short_string_has_no_zeros() -> None:
    with pytest.raises(ConnectionFault, match="NUL"):
        commands.decode(octets("0d 0001 02 2f00 00 0000"))
    with pytest.raises(ProtocolMisuse, match="NUL"):
        commands.encode(commands.ConnectionOpen(1, "/\0"))


def opened_client() -> tuple[FastCore, Place]:
    """A client that thinks it has a handle."""
    core = FastCore("guest", "guest", "/", "", 0)
    core.receive(commands.encode(commands.ConnectionTune({"FRAME_MAX": 1024})))
    core.receive(commands.encode(commands.ConnectionReply(1, 200, "Ok")))
    core.take_output()
    return core, core.open_place(core.handles, 1)


def test_a_client_takes_what_a_server_prepares() -> None:
    core, handle = opened_client()
    block = message_head.encode(MessageHead(8))
    core.receive(commands.encode(commands.HandlePrepare(1, len(block) + 3)) + block + b"abc")
    assert core.take_output() == octets("0008 2c 0001 00000003 ce")
    notify = commands.HandleNotify(1, 9, 5, recovery=True, delivered=True, dest_name="q")
    core.receive(commands.encode(notify) + b"defgh")
    assert [(each.body, each.number) for each in handle.inbox] == [(b"abcdefgh", 9)]


def test_a_small_upload_is_not_prepared() -> None:
    core, _ = opened_client()
    assert core.fits(MessageHead(), bytes(1009))
    assert not core.fits(MessageHead(), bytes(1010))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=100))
def test_whatever_a_server_says_a_client_raises_nothing(said: bytes) -> None:
    core, _ = opened_client()
    core.receive(said)
    assert core.is_over in (True, False)


def test_the_page_names_tests_that_are_there() -> None:
    here = Path(__file__).resolve().parent
    page = (here.parents[1] / "docs" / "fast.md").read_text()
    tests = "".join(file.read_text() for file in here.glob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", page)
    assert len(named) > 10
    assert [name for name in named if f"def {name}(" not in tests] == []
