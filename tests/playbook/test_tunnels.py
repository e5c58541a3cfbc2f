"""The tunnel class, and the test class of 0-8: octets in, octets out."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook, frame

from flintmq.wire import amqp, methods, properties
from flintmq.wire.methods import BasicGet, ChannelClose, ConnectionClose, Method, TunnelRequest, encode_method
from flintmq.wire.properties import TunnelProperties

EARLY = [amqp.VERSION_0_8, amqp.VERSION_0_9]


def sent_to(client: Client) -> bytes:
    """What waits to be sent to the client; it hears it."""
    output = client.output
    octets = bytes(output.buffer[output.start : output.fill])
    client.heard().clear()
    return octets


# tunnel


@pytest.mark.parametrize("version", EARLY)
def test_a_request_goes_to_the_exchange_that_the_proxy_name_names(playbook: Playbook, version: int) -> None:
    client = playbook.client(version)
    client.declares("q")
    client.binds("q", "amq.direct", "prices")
    client >> (
        frame(amqp.FRAME_METHOD, 1, b"\x00\x6e\x00\x0a\x00\x00\x00\x07\x01mI\x00\x00\x00\x05")
        + frame(
            amqp.FRAME_HEADER,
            1,
            # class 110, weight 0, 4 octets; headers, proxy-name, data-name, durable, broadcast
            b"\x00\x6e\x00\x00" + (4).to_bytes(8, "big") + b"\xf8\x00"
            b"\x00\x00\x00\x07\x01hI\x00\x00\x00\x06" + b"\x0aamq.direct" + b"\x06prices" + b"\x01" + b"\x01",
        )
        + frame(amqp.FRAME_BODY, 1, b"body")
    )
    client.hears_nothing()
    client >> BasicGet(queue="q", no_ack=True)
    found: Any = client.next(1)
    assert (found.method.exchange, found.method.routing_key, found.body) == ("amq.direct", "prices", b"body")
    assert found.properties.headers == {"m": 5, "h": 6, "x-broadcast": True}
    assert found.properties.delivery_mode == 2


def test_a_header_counts_before_meta_data_of_the_same_name(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    client.declares("q")
    tunnel = TunnelProperties(headers={"a": "header"}, proxy_name="", data_name="q")
    client >> Carried(TunnelRequest(meta_data={"a": "meta", "b": 1}), b"", tunnel)
    client >> BasicGet(queue="q", no_ack=True)
    found: Any = client.next(1)
    assert found.properties.headers == {"a": "header", "b": 1}
    assert found.properties.delivery_mode is None


def test_a_proxy_that_is_not_there_closes_the_channel(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    client >> Carried(TunnelRequest(), b"body", TunnelProperties(proxy_name="none"))
    close = client.hears(ChannelClose)
    assert close.reply_code == 404
    assert "no exchange 'none'" in close.reply_text


def test_a_request_takes_the_permission_to_publish(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    client >> Carried(TunnelRequest(), b"body", TunnelProperties(proxy_name="amq.rabbitmq.trace"))
    assert client.hears(ChannelClose).reply_code == 403  # it is internal


def test_meta_data_and_headers_fit_in_a_frame_together(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9, frame_max=4096)
    client.declares("q")
    tunnel = TunnelProperties(headers={"h": "h" * 3000}, data_name="q")
    client >> Carried(TunnelRequest(meta_data={"m": "m" * 3000}), b"body", tunnel)
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (311, 110, 10)


@pytest.mark.parametrize("size", range(14, 30, 3))
def test_a_header_that_is_cut_short_ends_the_connection(playbook: Playbook, size: int) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    header = b"\x00\x6e\x00\x00" + bytes(8) + b"\x70\x00" + b"\x0aamq.direct" + b"\x06prices" + b"\x01"
    client >> frame(1, 1, b"\x00\x6e\x00\x0a\x00\x00\x00\x00") + frame(2, 1, header[:size])
    assert client.hears(ConnectionClose).reply_code in (501, 502)


@pytest.mark.parametrize(
    "method",
    [TunnelRequest(), methods.TestInteger(), methods.TestString(), methods.TestTable()],
    ids=lambda method: method.NAME,
)
def test_neither_class_is_in_0_9_1(client: Client, method: Method) -> None:
    client >> frame(amqp.FRAME_METHOD, 1, encode_method(amqp.VERSION_0_8, method))
    assert client.hears(ConnectionClose).reply_code in (503, 540)


# test


@pytest.mark.parametrize(
    ("operation", "result"), [(1, 1 + 2 + 3 + 4), (2, 1), (3, 4)], ids=["add", "min", "max"]
)
def test_integers(playbook: Playbook, operation: int, result: int) -> None:
    client = playbook.client(amqp.VERSION_0_8)
    client >> frame(
        amqp.FRAME_METHOD,
        1,
        b"\x00\x78\x00\x0a"
        + b"\x01"
        + b"\x00\x02"
        + b"\x00\x00\x00\x03"
        + (4).to_bytes(8, "big")
        + bytes((operation,)),
    )
    assert sent_to(client) == frame(amqp.FRAME_METHOD, 1, b"\x00\x78\x00\x0b" + result.to_bytes(8, "big"))


def test_a_sum_of_integers_wraps_at_64_bits(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_8)
    client >> methods.TestInteger(integer_1=255, integer_2=1, integer_3=0, integer_4=2**64 - 1, operation=1)
    client << methods.TestIntegerOk(result=255)


@pytest.mark.parametrize(
    ("operation", "result"), [(1, b"shortlonger"), (2, b"short"), (3, b"longer")], ids=["add", "min", "max"]
)
def test_strings(playbook: Playbook, operation: int, result: bytes) -> None:
    client = playbook.client(amqp.VERSION_0_8)
    client >> methods.TestString(string_1="short", string_2=b"longer", operation=operation)
    client << methods.TestStringOk(result=result)


@pytest.mark.parametrize(
    ("operations", "result"),
    [((1, 1), (5, b"abbccc")), ((2, 2), (-1, b"a")), ((3, 3), (4, b"ccc"))],
    ids=["add", "min", "max"],
)
def test_tables(playbook: Playbook, operations: tuple[int, int], result: tuple[int, bytes]) -> None:
    client = playbook.client(amqp.VERSION_0_8)
    table = {"i": -1, "j": 2, "k": 4, "s": "a", "t": "bb", "u": "ccc", "none": None}
    client >> methods.TestTable(table=table, integer_op=operations[0], string_op=operations[1])
    client << methods.TestTableOk(integer_result=result[0] % 2**64, string_result=result[1])


def test_a_table_without_numbers_and_texts(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_8)
    client >> methods.TestTable(table={}, integer_op=2, string_op=3)
    client << methods.TestTableOk(integer_result=0, string_result=b"")


@pytest.mark.parametrize("body", [b"", b"\x01\x02\xff", b"\xff" * 70_000], ids=len)
def test_a_content_comes_back_with_the_sum_of_its_octets(playbook: Playbook, body: bytes) -> None:
    client = playbook.client(amqp.VERSION_0_8)
    client >> Carried(methods.TestContent(), body, properties.TestProperties())
    client << Carried(
        methods.TestContentOk(content_checksum=sum(body) % 2**32), body, properties.TestProperties()
    )


def test_a_content_that_is_long_to_sum_up_closes_the_channel(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_8)
    client >> Carried(methods.TestContent(), bytes(262_145), properties.TestProperties())
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (311, 120, 40)
    client >> methods.ChannelCloseOk() >> methods.ChannelOpen()
    client.hears(methods.ChannelOpenOk)
    # Refused before its body comes, which is then dropped.
    client >> frame(1, 1, b"\x00\x78\x00\x28")
    client >> frame(2, 1, b"\x00\x78\x00\x00" + (5_000_000).to_bytes(8, "big") + b"\x00\x00")
    assert client.hears(ChannelClose).reply_code == 311
    client >> frame(3, 1, b"body")
    client.hears_nothing()


@pytest.mark.parametrize(
    "method",
    [
        methods.TestInteger(operation=0),
        methods.TestString(operation=4),
        methods.TestTable(integer_op=1, string_op=9),
        methods.TestTable(integer_op=255, string_op=1),
    ],
    ids=lambda method: method.NAME,
)
def test_an_unknown_operation_ends_the_connection(playbook: Playbook, method: Method) -> None:
    client = playbook.client(amqp.VERSION_0_8)
    client >> method
    close = client.hears(ConnectionClose)
    assert (close.reply_code, close.class_id) == (502, 120)


def test_a_result_that_does_not_fit_in_a_frame_closes_the_channel(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_8, frame_max=4096)
    client >> methods.TestString(string_1="s" * 255, string_2=b"l" * 3800, operation=1)
    client << methods.TestStringOk(result=b"s" * 255 + b"l" * 3800)
    client >> methods.TestString(string_1="s" * 255, string_2=b"l" * 3820, operation=1)
    assert client.hears(ChannelClose).reply_code == 311


def test_a_content_that_is_not_of_the_class_ends_the_connection(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_8)
    client >> frame(1, 1, b"\x00\x78\x00\x28") + frame(2, 1, b"\x00\x3c" + bytes(12))
    assert client.hears(ConnectionClose).reply_code == 505


def test_a_method_where_the_content_was_due_ends_the_connection(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_8)
    client >> frame(1, 1, b"\x00\x78\x00\x28") + frame(1, 1, b"\x00\x78\x00\x28")
    assert client.hears(ConnectionClose).reply_code == 505
