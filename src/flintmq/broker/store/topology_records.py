"""The durable topology in the journal: exchanges, queues and bindings as field tables.

    key      kind, one octet | field table: what identifies it
    value    field table: the rest

    x  exchange   virtual host, name                        type, auto-delete, internal, arguments;
                                                            number, if it holds messages; life
    q  queue      virtual host, name                        number, auto-delete, arguments; life; creation-id,
                                                            if somebody has asked for it; user: who declared
    b  binding    virtual host, source, destination,        nothing
                  its kind, routing key, arguments;
                  the lives of its ends
    h  a queue's number                                     the newest entry it has handed out
    p  policy     virtual host, name, is it an operator's   pattern, priority, apply-to, definition
    r  a queue's number, an entry                           how often it came back, when it is due again
    f  a content that comes in parts, see staging.py
    u v a t c s   what is administered, see administration/records.py
    n  nothing                                              nothing: the directory was begun by a version
                                                            whose exchange of requests is amq.system alone

A life is a number that tells apart what had the same name one after the other, while bindings of the first
are still being taken out; it is left out where it is 0, as nearly everywhere.
Entries up to that last one which nobody settled were handed out before a crash: they come back with
redelivered set.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from flintmq.wire.tables import FieldTable, decode_table

if TYPE_CHECKING:
    from flintmq.storage.journal.journal import Journal

EXCHANGE = b"x"
QUEUE = b"q"
BINDING = b"b"
HANDED_OUT = b"h"
RETURNED = b"r"
POLICY = b"p"
NAMES = b"n"

# What a binding says of ends that are not the first of their name, see topology_teardown.py.
SOURCE_LIFE = "source-life"
DESTINATION_LIFE = "destination-life"

_NUMBER = struct.Struct("<Q")
_RETURN_KEY = struct.Struct("<QQ")
_RETURN = struct.Struct("<Qq")


def handed_out_key(number: int) -> bytes:
    return HANDED_OUT + _NUMBER.pack(number)


def put_handed_out(journal: Journal, number: int, entry: int) -> None:
    journal.put_value(handed_out_key(number), _NUMBER.pack(entry))


def return_key(number: int, entry: int) -> bytes:
    return RETURNED + _RETURN_KEY.pack(number, entry)


def put_return(journal: Journal, number: int, entry: int, count: int, due_ms: int) -> None:
    """Of a queue that counts: the entry came back so often, and is ready again at that time (0: now)."""
    journal.put_value(return_key(number, entry), _RETURN.pack(count, due_ms))


def forget_return(journal: Journal, number: int, entry: int) -> None:
    journal.delete_value(return_key(number, entry))


def return_of(rest: bytes, octets: bytes) -> tuple[int, int, int, int]:
    """Queue, entry, count and when it is due."""
    count, due_ms = _RETURN.unpack(octets)
    return *returned_entry(rest), count, due_ms


def returned_entry(rest: bytes) -> tuple[int, int]:
    """Queue and entry."""
    number, entry = _RETURN_KEY.unpack(rest)
    return number, entry


def number_of(octets: bytes) -> int:
    number: int = _NUMBER.unpack(octets)[0]
    return number


# Of a million bindings each is read once, at a start: by where its fields lie, as `binding_key` puts them.
# Whatever lies differently is read as any table is.
_HOST = b"\x0cvirtual-hostS"
_NAME = b"\x04nameS"
_SOURCE = b"\x06sourceS"
_DESTINATION = b"\x0bdestinationS"
_TO_QUEUE = b"\x08to-queuet"
_KEY = b"\x0brouting-keyS"
_NO_ARGUMENTS = b"\x09argumentsF" + bytes(4)
_QUEUE_NUMBER = b"\x06numberI"
_QUEUE_USER = b"\x04userS"
_PLAIN_QUEUE = b"\x0bauto-deletet\x00" + _NO_ARGUMENTS


def text_at(octets: bytes, at: int, head: bytes) -> tuple[str, int]:
    """The text of the field that begins there, and where the next one does; an error if it is another."""
    start = at + len(head) + 4
    if octets[at : start - 4] != head:
        raise ValueError("another field")
    end = start + int.from_bytes(octets[start - 4 : start], "big")
    return str(octets[start:end], "utf-8"), end


def plain_binding(key: bytes) -> tuple[str, str, str, bool, str] | None:
    """Virtual host, source, destination, is that a queue, routing key; None if the binding has arguments."""
    if not key.endswith(_NO_ARGUMENTS):
        return None
    try:
        host, at = text_at(key, 5, _HOST)
        source, at = text_at(key, at, _SOURCE)
        destination, at = text_at(key, at, _DESTINATION)
        flag_at = at + len(_TO_QUEUE)
        routing_key, end = text_at(key, flag_at + 1, _KEY)
    except ValueError:
        return None
    if key[at:flag_at] != _TO_QUEUE or end + len(_NO_ARGUMENTS) != len(key):
        return None
    return host, source, destination, key[flag_at] != 0, routing_key


def named_of(octets: bytes) -> FieldTable:
    """What identifies an exchange or a queue."""
    try:
        host, at = text_at(octets, 4, _HOST)
        name, at = text_at(octets, at, _NAME)
    except ValueError:
        return table_of(octets)
    return {"virtual-host": host, "name": name} if at == len(octets) else table_of(octets)


def queue_of(octets: bytes) -> FieldTable:
    """What is stored of a queue."""
    start = 4 + len(_QUEUE_NUMBER)
    end = start + 4 + len(_PLAIN_QUEUE)
    if octets[4:start] == _QUEUE_NUMBER and octets[start + 4 : end] == _PLAIN_QUEUE:
        number = int.from_bytes(octets[start : start + 4], "big", signed=True)
        if len(octets) == end:
            return {"number": number, "auto-delete": False, "arguments": {}}
        at = end + len(_QUEUE_USER)
        user = octets[at + 4 :]
        is_last = octets[at : at + 4] == len(user).to_bytes(4, "big")  # nothing follows the name
        if octets[end:at] == _QUEUE_USER and is_last and user.isascii():
            return {"number": number, "auto-delete": False, "arguments": {}, "user": user.decode()}
    return table_of(octets)


def text_of(value: object) -> str:
    """Text that a record holds; such as is not UTF-8 was written as octets."""
    return value if isinstance(value, str) else octets_of(value).decode("utf-8", "surrogateescape")


def octets_of(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"expected octets, found {type(value).__name__}")
    return value


def whole_of(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"expected a number, found {type(value).__name__}")
    return value


def table_of(octets: bytes) -> FieldTable:
    return decode_table(octets, 0, len(octets))[0]
