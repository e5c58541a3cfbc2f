"""Messages of the message class as basic ones, and back."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.wire import amqp
from flintmq.wire.fields import Content, encode_shortstr
from flintmq.wire.message_class import basic_header, body_octets, properties_of, transfer_octets
from flintmq.wire.methods import MessageTransfer, decode_method
from flintmq.wire.properties import BasicProperties, decode_basic_properties, encode_properties

HEAD = b"\x00\x3c\x00\x00" + bytes(8)


def decoded(header: bytes, body: bytes = b"", **options: Any) -> MessageTransfer:
    route = encode_shortstr("exchange") + encode_shortstr("key")
    octets = transfer_octets(header, encode_shortstr("d"), True, route, 9, **options)
    method = decode_method(amqp.VERSION_0_9, octets + body_octets(body))
    assert isinstance(method, MessageTransfer)
    return method


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"content_type": "t", "content_encoding": "e", "priority": 9, "correlation_id": "c"},
        {"reply_to": "r", "message_id": "m", "timestamp": 2**63, "user_id": "u", "app_id": "a"},
        {"ttl": 5000, "delivery_mode": 2, "application_headers": {"h": [1, {"x": b"\xff"}], "n": None}},
        {"transaction_id": "t" * 255, "security_token": b"\x00\xff" * 100},
        {"transaction_id": "t", "application_headers": {"x-transaction-ids": 1}},
    ],
)
def test_a_transfer_comes_out_as_it_went_in(arguments: dict[str, Any]) -> None:
    sent = MessageTransfer(**arguments)
    header = basic_header(sent, 4)
    assert header[:12] == b"\x00\x3c\x00\x00" + (4).to_bytes(8, "big")
    found = decoded(header, b"body")
    for field in (*arguments, "application_headers"):
        assert getattr(found, field) == getattr(sent, field), field
    assert (found.destination, found.exchange, found.routing_key) == ("d", "exchange", "key")
    assert (found.redelivered, found.expiration, found.body) == (True, 9, Content(b"body"))


def test_what_is_not_there_is_not_in_the_header() -> None:
    assert basic_header(MessageTransfer(), 0) == HEAD + b"\x00\x00"
    assert decode_basic_properties(basic_header(MessageTransfer(priority=1), 0), 12, 15).priority == 1


def test_the_type_of_a_basic_message_is_among_its_headers() -> None:
    header = HEAD + encode_properties(BasicProperties(type="order", headers={"a": 1}, cluster_id="c"))
    assert decoded(header).application_headers == {"x-type": "order", "a": 1}


@pytest.mark.parametrize(
    ("expiration", "ttl"), [("0", 0), ("70", 70), ("", 0), ("soon", 0), ("9" * 30, 2**64 - 1)]
)
def test_an_expiration_is_a_ttl(expiration: str, ttl: int) -> None:
    assert decoded(HEAD + encode_properties(BasicProperties(expiration=expiration))).ttl == ttl


def test_headers_of_these_names_that_are_no_text_stay_headers() -> None:
    headers = {"x-transaction-id": 1, "x-security-token": [1]}
    found = decoded(HEAD + encode_properties(BasicProperties(headers=headers)))  # type: ignore[arg-type]
    assert found.application_headers == headers
    assert (found.transaction_id, found.security_token) == ("", b"")


def test_numbers_for_types() -> None:
    header = HEAD + encode_properties(BasicProperties(headers={"k": True}))
    route = encode_shortstr("") * 2
    octets = transfer_octets(header, b"\x00", False, route, numeric=True)
    assert b"\x01k\x08\x01" in octets
    assert decoded(header, numeric=True).application_headers == {"k": True}


def test_all_properties_but_two_have_an_argument() -> None:
    given = properties_of(
        MessageTransfer(
            content_type="1", content_encoding="2", application_headers={"h": 1}, delivery_mode=2, priority=1,
            correlation_id="3", reply_to="4", ttl=5, message_id="6", timestamp=7, user_id="8", app_id="9",
        )
    )  # fmt: skip
    assert {name for name in given.FIELDS if getattr(given, name) is None} == {"type", "cluster_id"}
