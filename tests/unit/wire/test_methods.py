"""Methods: what they know of themselves, and how bad payloads are refused."""

from __future__ import annotations

import pytest

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp
from flintmq.wire.fields import Content
from flintmq.wire.methods import (
    METHODS,
    NAMES,
    BasicConsume,
    BasicDeliver,
    BasicPublish,
    BasicQos,
    BasicRecover,
    BasicRecoverAsync,
    ChannelOpen,
    ConnectionClose,
    ConnectionOpen,
    ConnectionRedirect,
    MessageTransfer,
    QueueDeclare,
    TxSelect,
    code_of,
    decode_method,
    encode_method,
    lookup,
)

VERSIONS = (8, 9, 91)


def test_a_method_knows_itself() -> None:
    assert QueueDeclare.NAME == "queue.declare"
    assert (QueueDeclare.CLASS_ID, QueueDeclare.METHOD_ID) == (50, 10)
    assert QueueDeclare.SYNC
    assert not QueueDeclare.CONTENT
    assert QueueDeclare.REPLIES == ("queue.declare-ok",)
    assert (QueueDeclare.FROM_CLIENT, QueueDeclare.FROM_SERVER) == (True, False)
    assert BasicPublish.CONTENT
    assert not BasicPublish.SYNC
    assert (BasicDeliver.FROM_CLIENT, BasicDeliver.FROM_SERVER) == (False, True)
    assert BasicRecover.REPLIES == ("basic.recover-ok",)
    assert ConnectionOpen.REPLIES == ("connection.open-ok", "connection.redirect")


def test_every_field_has_a_default_and_its_own_table() -> None:
    first, second = QueueDeclare(), QueueDeclare()
    assert (first.ticket, first.queue, first.durable, first.arguments) == (0, "", False, {})
    first.arguments["x"] = 1
    assert second.arguments == {}
    assert first != second


def test_equality_is_by_class_and_fields() -> None:
    assert QueueDeclare(queue="a") == QueueDeclare(queue="a")
    assert QueueDeclare(queue="a") != QueueDeclare(queue="b")
    assert NAMES["queue.bind-ok"]() != NAMES["exchange.bind-ok"]()
    with pytest.raises(TypeError):
        hash(QueueDeclare())


def test_repr_names_the_fields() -> None:
    assert repr(BasicQos(prefetch_count=5)) == "BasicQos(prefetch_size=0, prefetch_count=5, global_=False)"


def test_a_method_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        QueueDeclare().qeueu = "typo"  # type: ignore[attr-defined]


def test_replies_and_names_exist() -> None:
    assert len(NAMES) == len(METHODS)
    for method in METHODS:
        for reply in method.REPLIES:
            assert reply in NAMES
            assert set(NAMES[reply].VERSIONS) & set(method.VERSIONS)


@pytest.mark.parametrize(
    ("version", "code", "method"),
    [
        (8, amqp.CONNECTION_CLOSE_0_8, ConnectionClose),
        (8, amqp.CONNECTION_REDIRECT_0_8, ConnectionRedirect),
        (9, amqp.CONNECTION_CLOSE, ConnectionClose),
        (91, amqp.CONNECTION_CLOSE, ConnectionClose),
        (8, 60 << 16 | 100, BasicRecoverAsync),
        (9, 60 << 16 | 100, BasicRecoverAsync),
        (91, 60 << 16 | 100, BasicRecoverAsync),
        (9, 60 << 16 | 110, BasicRecover),
        (91, 10 << 16 | 42, None),
        (9, 120 << 16 | 10, MessageTransfer),
        (8, 120 << 16 | 10, NAMES["test.integer"]),
        (91, 120 << 16 | 10, None),
        (91, 30 << 16 | 10, NAMES["access.request"]),
    ],
)
def test_lookup(version: int, code: int, method: type | None) -> None:
    assert lookup(version, code) is method


def test_code_of_goes_by_version() -> None:
    assert code_of(8, "connection.close") == amqp.CONNECTION_CLOSE_0_8
    assert code_of(91, "connection.close") == amqp.CONNECTION_CLOSE
    with pytest.raises(ProtocolMisuse, match=r"no message\.transfer in version 91"):
        code_of(91, "message.transfer")
    with pytest.raises(ProtocolMisuse, match=r"no queue\.dance"):
        code_of(91, "queue.dance")


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_are_what_the_tables_say(version: int) -> None:
    for method in METHODS:
        if version in method.VERSIONS:
            assert lookup(version, code_of(version, method.NAME)) is method
        else:
            with pytest.raises(ProtocolMisuse):
                encode_method(version, method())


def refused(version: int, payload: bytes) -> ConnectionFault:
    with pytest.raises(ConnectionFault) as raised:
        decode_method(version, payload)
    return raised.value


def test_an_unknown_method_of_a_known_class_is_not_implemented() -> None:
    fault = refused(91, bytes.fromhex("003c 0fff"))
    assert (fault.code, fault.class_id, fault.method_id) == (amqp.NOT_IMPLEMENTED, 60, 0x0FFF)


def test_a_class_of_another_version_is_not_implemented() -> None:
    assert refused(91, bytes.fromhex("0046 000a")).code == amqp.NOT_IMPLEMENTED
    assert refused(8, bytes.fromhex("0065 000a")).code == amqp.NOT_IMPLEMENTED


def test_an_unknown_class_is_a_command_invalid() -> None:
    fault = refused(91, bytes.fromhex("1234 000a"))
    assert fault.code == amqp.COMMAND_INVALID
    assert fault.text == "there is no class 4660"


@pytest.mark.parametrize("octets", range(4))
def test_a_payload_without_a_method_is_a_syntax_error(octets: int) -> None:
    assert refused(91, bytes(octets)).code == amqp.SYNTAX_ERROR


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ("", "ticket"),
        ("00", "ticket"),
        ("0000", "queue"),
        ("0000 04 6a6f", "queue"),
        ("0000 00", "passive"),
        ("0000 00 00", "arguments"),
        ("0000 00 00 000000", "arguments"),
        ("0000 00 00 00000005 00", "arguments"),
    ],
)
def test_a_truncated_method_names_the_field(arguments: str, field: str) -> None:
    fault = refused(91, bytes.fromhex("0032 000a" + arguments))
    assert fault.code == amqp.SYNTAX_ERROR
    assert fault.text.startswith(f"queue.declare {field} ")
    assert (fault.class_id, fault.method_id) == (50, 10)


@pytest.mark.parametrize(("octets", "field"), [(1, "channel_max"), (5, "frame_max"), (7, "heartbeat")])
def test_a_truncated_run_names_the_field(octets: int, field: str) -> None:
    assert refused(91, bytes.fromhex("000a 001f") + bytes(octets)).text.startswith(
        f"connection.tune-ok {field} "
    )


def test_octets_after_the_arguments_are_refused_in_0_9_1_only() -> None:
    payload = encode_method(91, TxSelect()) + b"\x00"
    fault = refused(91, payload)
    assert fault.code == amqp.FRAME_ERROR
    assert fault.text == "tx.select has 1 octets after its last argument"
    assert (fault.class_id, fault.method_id) == (90, 10)
    assert decode_method(8, payload) == decode_method(9, payload) == TxSelect()


def test_the_table_that_some_0_8_clients_add_to_consume_is_checked() -> None:
    payload = encode_method(8, BasicConsume(queue="q"))
    assert decode_method(8, payload) == BasicConsume(queue="q")
    assert refused(8, payload + b"\x00").text.startswith("basic.consume arguments ")


def test_reserved_arguments_are_dropped() -> None:
    payload = bytes.fromhex("000a 0028 012f 0161 01")
    assert decode_method(8, payload) == ConnectionOpen(virtual_host="/", capabilities="a", insist=True)
    assert decode_method(91, payload) == ConnectionOpen(virtual_host="/")
    assert encode_method(
        91, ConnectionOpen(virtual_host="/", capabilities="a", insist=True)
    ) == bytes.fromhex("000a 0028 012f 00 00")
    assert decode_method(91, bytes.fromhex("0014 000a 0161")) == ChannelOpen()


def test_a_body_is_octets_or_a_reference() -> None:
    method = MessageTransfer(body=Content(b"ref", is_reference=True))
    payload = encode_method(9, method)
    assert decode_method(9, payload) == method
    spoilt = payload[:-8] + b"\x02" + payload[-7:]
    assert "neither octets nor a reference" in refused(9, spoilt).text
    assert refused(9, payload[:-1]).text == "message.transfer body is cut short"
    assert refused(9, payload[:-4]).text == "message.transfer body is cut short"


@pytest.mark.parametrize(
    "method",
    [
        QueueDeclare(queue="q" * 256),
        QueueDeclare(queue="é" * 128),
        QueueDeclare(queue="\ud800"),
        QueueDeclare(ticket=65536),
        QueueDeclare(arguments={"x": object()}),  # type: ignore[dict-item]
        BasicQos(prefetch_size=-1),
        BasicDeliver(delivery_tag=1 << 64),
    ],
)
def test_what_cannot_be_encoded_is_our_mistake(method: QueueDeclare) -> None:
    with pytest.raises(ProtocolMisuse):
        encode_method(91, method)
