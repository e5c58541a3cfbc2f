"""Messages of the message class of AMQP 0-9, which has its properties in the arguments of message.transfer.

    | ticket 2 | destination 1+n | redelivered, immediate 1 | ttl 8 | priority 1 | timestamp 8 | mode 1 |
    | expiration 8 | exchange 1+n | routing key 1+n | message id 1+n | correlation id 1+n | reply to 1+n |
    | type 1+n | encoding 1+n | user id 1+n | app id 1+n | transaction id 1+n | security token 4+n |
    | headers 4+n | kind of body 1 | body, or the name of a reference 4+n |

The broker keeps them with a basic header, so that consumers of either class get what was published in the
other. What is empty or 0 in a transfer is not in the header. The id of a transaction and the security token,
which a basic header has no place for, go into the headers; so does the type of a basic message on its way
out. Headers of a message that goes out are copied undecoded.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from flintmq.errors import ConnectionFault
from flintmq.wire import amqp
from flintmq.wire.content_class import Pieces, split
from flintmq.wire.fields import encode_shortstr
from flintmq.wire.header_edits import place_of, without_entry
from flintmq.wire.headers import entry_places
from flintmq.wire.properties import BasicProperties, encode_properties
from flintmq.wire.tables import number_table

if TYPE_CHECKING:
    from flintmq.wire.methods import MessageTransfer
    from flintmq.wire.tables import FieldTable

# The headers that basic consumers find these arguments in.
TRANSACTION_ID = "x-transaction-id"
SECURITY_TOKEN = "x-security-token"
# The header that consumers of the message class find the type of a basic message in.
TYPE = "x-type"

# A type with a length of four octets in front of its value: text, and octets.
_LONG_TYPES = b"Sx"
_TRANSIENT = b"\x01"
_NOTHING = b"\x00"
_LONGLONG_MAX = (1 << 64) - 1

_HEAD = struct.Struct(">HHQ")
_LONG = struct.Struct(">I")
_LONGLONG = struct.Struct(">Q")
_BODY = struct.Struct(">BI")


def properties_of(transfer: MessageTransfer) -> BasicProperties:
    """The properties that a basic message with these arguments has."""
    headers: FieldTable = dict(transfer.application_headers)
    if transfer.transaction_id:
        headers[TRANSACTION_ID] = transfer.transaction_id
    if transfer.security_token:
        headers[SECURITY_TOKEN] = transfer.security_token
    return BasicProperties(
        content_type=transfer.content_type or None,
        content_encoding=transfer.content_encoding or None,
        headers=headers or None,
        delivery_mode=transfer.delivery_mode or None,
        priority=transfer.priority or None,
        correlation_id=transfer.correlation_id or None,
        reply_to=transfer.reply_to or None,
        expiration=str(transfer.ttl) if transfer.ttl else None,
        message_id=transfer.message_id or None,
        timestamp=transfer.timestamp or None,
        user_id=transfer.user_id or None,
        app_id=transfer.app_id or None,
    )


def basic_header(transfer: MessageTransfer, body_size: int) -> bytes:
    """The header that the broker keeps the message with."""
    return _HEAD.pack(amqp.CLASS_BASIC, 0, body_size) + encode_properties(properties_of(transfer))


def transfer_octets(
    header: bytes,
    destination: bytes,
    redelivered: bool,
    route: bytes,
    expiration_s: int = 0,
    numeric: bool = False,
) -> bytes:
    """message.transfer with its ids, up to its body, of a message with this basic header.

    `destination` is an encoded short string and `route` two: exchange and routing key.
    """
    header, transaction_id = taken(header, TRANSACTION_ID)
    header, security_token = taken(header, SECURITY_TOKEN)
    pieces = split(amqp.CLASS_BASIC, header)
    return b"".join(
        (
            _LONG.pack(amqp.MESSAGE_TRANSFER),
            bytes(2),
            destination,
            b"\x01" if redelivered else _NOTHING,
            _LONGLONG.pack(ttl_of(pieces)),
            pieces.get("priority", _NOTHING),
            pieces.get("timestamp", bytes(8)),
            pieces.get("delivery_mode", _TRANSIENT),
            _LONGLONG.pack(expiration_s),
            route,
            pieces.get("message_id", _NOTHING),
            pieces.get("correlation_id", _NOTHING),
            pieces.get("reply_to", _NOTHING),
            pieces.get("content_type", _NOTHING),
            pieces.get("content_encoding", _NOTHING),
            pieces.get("user_id", _NOTHING),
            pieces.get("app_id", _NOTHING),
            bytes((min(len(transaction_id), 255),)) + transaction_id[:255],
            _LONG.pack(len(security_token)) + security_token,
            headers_of(pieces, numeric),
        )
    )


def body_octets(body: bytes, is_reference: bool = False) -> bytes:
    """The last argument of a transfer: the body itself, or the name of the reference that has it."""
    return _BODY.pack(is_reference, len(body)) + body


def headers_of(pieces: Pieces, numeric: bool) -> bytes:
    """The table of headers, with the type of the message in front of them if it has one."""
    table = pieces.get("headers", bytes(4))
    kind = pieces.get("type")
    if kind is not None:
        entry = encode_shortstr(TYPE) + b"S" + _LONG.pack(kind[0]) + kind[1:]
        table = _LONG.pack(len(table) - 4 + len(entry)) + entry + table[4:]
    if numeric and len(table) > 4:
        try:
            return number_table(table, 0, len(table), "headers")
        except ConnectionFault:
            return table  # no peer can read such headers: they stay as they came
    return table


def ttl_of(pieces: Pieces) -> int:
    """Milliseconds that the message was given; 0 for any number."""
    text = pieces.get("expiration", _NOTHING)[1:]
    return min(int(text), _LONGLONG_MAX) if text.isdigit() else 0


def taken(header: bytes, name: str) -> tuple[bytes, bytes]:
    """The header without an entry of its headers, and what that held; as it is where that is no text."""
    start, end = place_of(header, amqp.FLAG_HEADERS)
    if name.encode() not in header[start:end]:
        return header, b""
    places = entry_places(header, len(header), name.encode())
    if not places or header[places[0][1]] not in _LONG_TYPES:
        return header, b""
    _, type_at, after = places[0]
    return without_entry(header, name), header[type_at + 5 : after]
