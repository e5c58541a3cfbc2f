"""Methods and content headers of AMQP/Fast 0.9 octet by octet, by sections 3.17 and 3.19 to 3.21.

Fields of a method have values that differ, so that none stands in the place of another.
"""

from __future__ import annotations

from typing import Any

import pytest
from fast09.conversation import octets, table

from flintmq.errors import ProtocolMisuse
from flintmq.wire.fast09 import content_header, frames, methods, tables
from flintmq.wire.fast09.content_header import ContentHeader
from flintmq.wire.fast09.methods import KINDS, Method, method

CONSUME = {"ticket": 258, "namespace": "n", "queue": "q", "prefetch_size": 3, "prefetch_count": 4}
DELIVER = {"delivery_tag": 5, "redelivered": True, "proxy": "p", "namespace": "n", "queue": "q"}
CLOSE = {"reply_code": 404, "reply_text": "no", "class_id": 5, "method_id": 7, "synctag": 9}
QUEUE = {"ticket": 258, "namespace": "n", "queue": "q"}
REGISTER = {**QUEUE, "proxy": "p", "arguments": {"a": 1}}
PUBLISH = {"ticket": 258, "proxy": "p", "immediate": True}

# A method, and its octets without flags and synctag: class, method, fields.
VECTORS = [
    (
        method("connection.start", version_minor=9, mechanisms=b"PLAIN", locales=b"en"),
        "01 01 | 00 09 0005 'PLAIN' 0002 'en'",
    ),
    (method("connection.start-ok", mechanism="PLAIN", locale="en"), "01 02 | 05 'PLAIN' 02 'en'"),
    (method("connection.secure", challenge=b"\0c"), "01 03 | 0002 00 'c'"),
    (method("connection.secure-ok", response=b"\0r"), "01 04 | 0002 00 'r'"),
    (
        method(
            "connection.tune",
            frame_max=1,
            channel_max=2,
            access_max=3,
            consumer_max=4,
            heartbeat=5,
            txn_limit=6,
            file_support=True,
        ),
        "01 05 | 00000001 0002 0003 0004 0005 0006 02",
    ),
    (
        method(
            "connection.tune-ok",
            frame_max=1,
            channel_max=2,
            ticket_max=3,
            heartbeat=4,
            jms_support=True,
            stream_support=True,
            prefetch_max=5,
        ),
        "01 06 | 00000001 0002 0003 0004 05 00000005",
    ),
    (method("connection.open", virtual_path="/v", client_id="c"), "01 07 | 02 '/v' 01 'c'"),
    (method("connection.open-ok", client_id="c"), "01 08 | 01 'c'"),
    (
        method("connection.unknown", class_id=5, method_id=7, synctag=9, reply_code=540, reply_text="no"),
        "01 09 | 05 07 0009 021c 02 'no'",
    ),
    (method("connection.close", **CLOSE), "01 0a | 0194 02 'no' 05 07 0009"),
    (method("connection.close-ok"), "01 0b"),
    (method("channel.open", prefetch_max=1, out_of_band="o", tx_mode=2), "02 01 | 00000001 01 'o' 02"),
    (method("channel.open-ok"), "02 02"),
    (method("channel.flow", flow_pause=True), "02 03 | 01"),
    (method("channel.close", **CLOSE), "02 04 | 0194 02 'no' 05 07 0009"),
    (method("channel.close-ok"), "02 05"),
    (method("access.grant", realm="r", passive=True, write=True), "03 01 | 01 'r' 0a"),
    (method("access.grant", realm="r", exclusive=True, active=True, read=True), "03 01 | 01 'r' 15"),
    (method("access.grant-ok", ticket=258), "03 02 | 0102"),
    (
        method("proxy.assert", ticket=258, proxy="p", class_name="c", if_exists=True, auto_delete=True),
        "04 01 | 0102 01 'p' 01 'c' 05",
    ),
    (method("proxy.assert-ok"), "04 02"),
    (method("proxy.delete", ticket=258, proxy="p", if_unused=True), "04 03 | 0102 01 'p' 01"),
    (method("proxy.delete-ok"), "04 04"),
    (
        method("queue.assert", **QUEUE, template="t", if_exists=True, private=True),
        "05 01 | 0102 01 'n' 01 'q' 01 't' 05",
    ),
    (
        method("queue.assert", **QUEUE, template="t", durable=True, auto_delete=True),
        "05 01 | 0102 01 'n' 01 'q' 01 't' 0a",
    ),
    (
        method("queue.assert-ok", queue="q", proxy="p", message_count=1, consumer_count=2),
        "05 02 | 01 'q' 01 'p' 00000001 00000002",
    ),
    (
        method("queue.register", **REGISTER),
        "05 03 | 0102 01 'n' 01 'q' 01 'p' " + table("01 'a' 'I' 00000001"),
    ),
    (method("queue.register-ok"), "05 04"),
    (method("queue.purge", **QUEUE), "05 05 | 0102 01 'n' 01 'q'"),
    (method("queue.purge-ok", message_count=3), "05 06 | 00000003"),
    (method("queue.delete", **QUEUE, if_unused=True), "05 07 | 0102 01 'n' 01 'q' 01"),
    (method("queue.delete", **QUEUE, if_empty=True), "05 07 | 0102 01 'n' 01 'q' 02"),
    (method("queue.delete-ok", message_count=3), "05 08 | 00000003"),
    (method("jms.consume", **CONSUME, no_local=True), "06 01 | 0102 01 'n' 01 'q' 0003 0004 01"),
    (method("jms.consume", **CONSUME, auto_ack=True), "06 01 | 0102 01 'n' 01 'q' 0003 0004 02"),
    (method("jms.consume", **CONSUME, exclusive=True), "06 01 | 0102 01 'n' 01 'q' 0003 0004 04"),
    (method("jms.consume-ok", consumer_tag=6), "06 02 | 0006"),
    (method("jms.cancel", consumer_tag=6), "06 03 | 0006"),
    (method("jms.cancel-ok"), "06 04"),
    (method("jms.publish", **PUBLISH), "06 05 | 0102 01 'p' 01"),
    (method("jms.deliver", **DELIVER), "06 06 | 0000000000000005 01 01 'p' 01 'n' 01 'q'"),
    (method("jms.browse", **QUEUE, no_local=True), "06 07 | 0102 01 'n' 01 'q' 01"),
    (method("jms.browse", **QUEUE, auto_ack=True), "06 07 | 0102 01 'n' 01 'q' 02"),
    (
        method("jms.browse-ok", delivery_tag=5, redelivered=True, message_count=7),
        "06 08 | 0000000000000005 01 00000007",
    ),
    (method("jms.browse-empty"), "06 09"),
    (method("jms.ack", delivery_tag=5, multiple=True), "06 0a | 0000000000000005 01"),
    (method("jms.reject", delivery_tag=5, requeue=True), "06 0b | 0000000000000005 01"),
    (method("file.consume", **CONSUME, no_local=True), "07 01 | 0102 01 'n' 01 'q' 0003 0004 01"),
    (method("file.consume", **CONSUME, auto_ack=True), "07 01 | 0102 01 'n' 01 'q' 0003 0004 02"),
    (method("file.consume", **CONSUME, exclusive=True), "07 01 | 0102 01 'n' 01 'q' 0003 0004 04"),
    (method("file.consume-ok", consumer_tag=6), "07 02 | 0006"),
    (method("file.cancel", consumer_tag=6), "07 03 | 0006"),
    (method("file.cancel-ok"), "07 04"),
    (method("file.open", identifier="i", content_size=8), "07 05 | 01 'i' 0000000000000008"),
    (method("file.open-ok", staged_size=8), "07 06 | 0000000000000008"),
    (method("file.stage"), "07 07"),
    (method("file.publish", **PUBLISH, identifier="i"), "07 08 | 0102 01 'p' 01 01 'i'"),
    (
        method("file.deliver", **DELIVER, identifier="i"),
        "07 09 | 0000000000000005 01 01 'p' 01 'n' 01 'q' 01 'i'",
    ),
    (method("file.ack", delivery_tag=5, multiple=True), "07 0a | 0000000000000005 01"),
    (method("file.reject", delivery_tag=5, requeue=True), "07 0b | 0000000000000005 01"),
    (
        method("stream.consume", **CONSUME, consume_rate=9, no_local=True),
        "08 01 | 0102 01 'n' 01 'q' 0003 0004 00000009 01",
    ),
    (
        method("stream.consume", **CONSUME, consume_rate=9, exclusive=True),
        "08 01 | 0102 01 'n' 01 'q' 0003 0004 00000009 02",
    ),
    (method("stream.consume-ok", consumer_tag=6), "08 02 | 0006"),
    (method("stream.cancel", consumer_tag=6), "08 03 | 0006"),
    (method("stream.cancel-ok"), "08 04"),
    (method("stream.publish", **PUBLISH), "08 05 | 0102 01 'p' 01"),
    (method("stream.deliver", **DELIVER), "08 06 | 0000000000000005 01 01 'p' 01 'n' 01 'q'"),
    (method("tx.commit"), "09 01"),
    (method("tx.commit-ok"), "09 02"),
    (method("tx.abort"), "09 03"),
    (method("tx.abort-ok"), "09 04"),
    (method("dtx.start", dtx_identifier="x"), "0a 01 | 01 'x'"),
    (method("dtx.start-ok"), "0a 02"),
    (
        method("test.integer", integer_1=1, integer_2=2, integer_3=3, integer_4=4, operation=5),
        "0b 01 | 01 0002 00000003 0000000000000004 05",
    ),
    (method("test.integer-ok", result=6), "0b 02 | 0000000000000006"),
    (method("test.string", string_1="a", string_2=b"b", operation=5), "0b 03 | 01 'a' 0001 'b' 05"),
    (method("test.string-ok", result=b"r"), "0b 04 | 0001 'r'"),
    (
        method("test.table", table={"a": 1}, integer_op=2, string_op=3),
        "0b 05 | " + table("01 'a' 'I' 00000001") + " 02 03",
    ),
    (method("test.table-ok", integer_result=6, string_result=b"r"), "0b 06 | 0000000000000006 0001 'r'"),
    (method("test.content"), "0b 07"),
    (method("test.content-ok", content_checksum=6), "0b 08 | 00000006"),
]
# The document uses or names these, and has no numbers for them (docs/fast09.md).
UNNUMBERED = {"channel.synch", "queue.cancel", "queue.cancel-ok"}


@pytest.mark.parametrize(
    ("said", "text"), VECTORS, ids=lambda each: getattr(each, "kind", None) and each.kind.name
)
def test_methods_have_the_numbers_and_fields_of_the_document(said: Method, text: str) -> None:
    wanted = octets(text)
    whole = wanted[:2] + octets("00 0102") + wanted[2:]
    assert methods.encode(said, 0, 258) == whole
    assert methods.decode(said.kind, whole) == said


def test_every_method_has_a_vector() -> None:
    assert {said.kind.name for said, _ in VECTORS} | UNNUMBERED == KINDS.keys()


@pytest.mark.parametrize(
    ("class_id", "text", "properties"),
    [
        (
            6,
            "fffc 02 'ty' 02 'en' 02 05 01 'c' 01 'r' 01 'd' 02 'ex' 01 'm' 02 'ti' 02 'tp' 01 'u' 01 'a' "
            + table("01 'h' 'I' 00000001"),
            {
                "content_type": "ty",
                "content_encoding": "en",
                "delivery_mode": 2,
                "priority": 5,
                "correlation_id": "c",
                "reply_to": "r",
                "destination": "d",
                "expiration": "ex",
                "message_id": "m",
                "timestamp": "ti",
                "type": "tp",
                "user_id": "u",
                "app_id": "a",
                "headers": {"h": 1},
            },
        ),
        (
            7,
            "ff80 02 'ty' 02 'en' 05 01 'r' 01 'd' 01 'm' 01 'f' 0000000000000007 "
            + table("01 'h' 'I' 00000001"),
            {
                "content_type": "ty",
                "content_encoding": "en",
                "priority": 5,
                "reply_to": "r",
                "destination": "d",
                "message_id": "m",
                "file_name": "f",
                "revised_time": 7,
                "headers": {"h": 1},
            },
        ),
        (
            8,
            "fc00 02 'ty' 02 'en' 05 01 'd' 02 'ti' " + table("01 'h' 'I' 00000001"),
            {
                "content_type": "ty",
                "content_encoding": "en",
                "priority": 5,
                "destination": "d",
                "timestamp": "ti",
                "headers": {"h": 1},
            },
        ),
    ],
    ids=["jms", "file", "stream"],
)
def test_properties_stand_in_the_order_of_the_document(
    class_id: int, text: str, properties: dict[str, Any]
) -> None:
    header = ContentHeader(class_id, 9, properties)
    whole = octets(f"{class_id:02x} 00 0000000000000009 {text}")
    assert content_header.encode(header) == whole
    assert content_header.decode(whole) == header


def test_constants_have_the_names_of_the_document() -> None:
    kinds = ("METHOD", "HEADER", "BODY", "OOB_METHOD", "OOB_HEADER", "OOB_BODY", "TRACE", "HEARTBEAT", "META")
    assert [getattr(frames, name) for name in kinds] == list(range(1, 10))
    assert (methods.SYNCHREQ, methods.UNREAL, methods.TRACER) == (1 << 7, 1 << 6, 1 << 5)


def test_strings_have_so_many_octets_and_no_more() -> None:
    short, long = "s" * 255, b"l" * 65_535
    said = method("test.string", string_1=short, string_2=long)
    assert methods.decode(said.kind, methods.encode(said)) == said
    for longer in (
        method("test.string", string_1=short + "s"),
        method("test.string", string_2=long + b"l"),
    ):
        with pytest.raises(ProtocolMisuse):
            methods.encode(longer)


def test_names_of_fields_have_so_many_octets_and_no_more() -> None:
    for start in "aZ$#":
        named = {start + "1" * 127: 1}
        whole = tables.encode(named)
        assert tables.decode(whole, 0, len(whole)) == (named, len(whole))
    with pytest.raises(ProtocolMisuse, match="no name"):
        tables.encode({"a" * 129: 1})
