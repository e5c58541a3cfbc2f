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
    g  nothing                                              the number up to which queues and exchanges, also
                                                            those that are gone, may have had theirs
    n  nothing                                              nothing: the directory was begun by a version
                                                            whose exchange of requests is amq.system alone

A life is a number that tells apart what had the same name one after the other, while bindings of the first
are still being taken out; it is left out where it is 0, as nearly everywhere.
Numbers of what is gone are not given again: damage may bring back entries that it had.
Entries up to that last one which nobody settled were handed out before a crash: they come back with
redelivered set.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from flintmq.wire import octets
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
GIVEN = b"g"

# So many numbers are noted as given at once: most ends of queues note nothing.
GIVEN_AHEAD = 1000

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


def note_given(journal: Journal, number: int) -> None:
    """What has this number is about to go; the next start is not to give it again."""
    noted = journal.values.get(GIVEN)
    if noted is None or number > number_of(noted):
        journal.put_value(GIVEN, _NUMBER.pack(number + GIVEN_AHEAD))


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


def field_end(source: octets.Readable, at: int, size: int, head: bytes) -> int:
    """Where the text of the field that begins there ends; 0 if it is another field, or is cut short."""
    start = at + len(head) + 4
    if start > size or not octets.equal(source, at, start - 4, head):
        return 0
    end = start + octets.read_long(source, start - 4)
    return end if end <= size else 0


def plain_binding(key: bytes) -> tuple[str, str, str, bool, str] | None:
    """Virtual host, source, destination, is that a queue, routing key; None if the binding has arguments."""
    if not key.endswith(_NO_ARGUMENTS):
        return None
    whole = octets.readable_bytes(key)
    size = len(key)
    host_end = field_end(whole, 5, size, _HOST)
    source_end = field_end(whole, host_end, size, _SOURCE) if host_end else 0
    destination_end = field_end(whole, source_end, size, _DESTINATION) if source_end else 0
    flag_at = destination_end + len(_TO_QUEUE)
    if not destination_end or flag_at >= size:
        return None
    end = field_end(whole, flag_at + 1, size, _KEY)
    if not octets.equal(whole, destination_end, flag_at, _TO_QUEUE) or end + len(_NO_ARGUMENTS) != size:
        return None
    host = octets.text_or_none(whole, 5 + len(_HOST) + 4, host_end)
    source = octets.text_or_none(whole, host_end + len(_SOURCE) + 4, source_end)
    destination = octets.text_or_none(whole, source_end + len(_DESTINATION) + 4, destination_end)
    routing_key = octets.text_or_none(whole, flag_at + 1 + len(_KEY) + 4, end)
    if host is None or source is None or destination is None or routing_key is None:
        return None
    return host, source, destination, key[flag_at] != 0, routing_key


def named_of(key: bytes) -> FieldTable:
    """What identifies an exchange or a queue."""
    whole = octets.readable_bytes(key)
    size = len(key)
    host_end = field_end(whole, 4, size, _HOST)
    if not host_end or field_end(whole, host_end, size, _NAME) != size:
        return table_of(key)
    host = octets.text_or_none(whole, 4 + len(_HOST) + 4, host_end)
    name = octets.text_or_none(whole, host_end + len(_NAME) + 4, size)
    return table_of(key) if host is None or name is None else {"virtual-host": host, "name": name}


def queue_of(value: bytes) -> FieldTable:
    """What is stored of a queue."""
    whole = octets.readable_bytes(value)
    size = len(value)
    start = 4 + len(_QUEUE_NUMBER)
    end = start + 4 + len(_PLAIN_QUEUE)
    if (
        size < end
        or octets.read_long(whole, 0) != size - 4
        or not octets.equal(whole, 4, start, _QUEUE_NUMBER)
        or not octets.equal(whole, start + 4, end, _PLAIN_QUEUE)
    ):
        return table_of(value)
    number = octets.read_signed_long(whole, start)
    if size == end:
        return {"number": number, "auto-delete": False, "arguments": {}}
    if field_end(whole, end, size, _QUEUE_USER) != size:  # something follows the name
        return table_of(value)
    user = octets.text_or_none(whole, end + len(_QUEUE_USER) + 4, size)
    if user is None:
        return table_of(value)
    return {"number": number, "auto-delete": False, "arguments": {}, "user": user}


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
