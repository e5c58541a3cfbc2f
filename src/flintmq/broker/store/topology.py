"""Durable wiring in the journal: exchanges, queues and bindings as field tables.

    key      kind, one octet | field table: what identifies it
    value    field table: the rest

    x  exchange   virtual host, name                        type, auto-delete, internal, arguments;
                                                            number, if it holds messages; life
    q  queue      virtual host, name                        number, auto-delete, arguments; life; creation-id,
                                                            if somebody has asked for it
    b  binding    virtual host, source, destination,        nothing
                  its kind, routing key, arguments;
                  the lives of its ends
    h  a queue's number                                     the newest entry it has handed out
    p  policy     virtual host, name, is it an operator's   pattern, priority, apply-to, definition
    r  a queue's number, an entry                           how often it came back, when it is due again
    n  nothing                                              nothing: the directory was begun by a version
                                                            whose exchange of requests is amq.system alone

A life is a number that tells apart what had the same name one after the other, while bindings of the first
are still being taken out; it is left out where it is 0, as nearly everywhere.
Entries up to that last one which nobody settled were handed out before a crash: they come back with
redelivered set.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING

from flintmq.wire.tables import FieldTable, decode_table, encode_table

if TYPE_CHECKING:
    from flintmq.broker.exchanges.binding import Binding
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.policies import Policy
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.store.store import Store
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.storage.journal.journal import Journal

EXCHANGE = b"x"
QUEUE = b"q"
BINDING = b"b"
HANDED_OUT = b"h"
RETURNED = b"r"
POLICY = b"p"
NAMES = b"n"

# What a binding says of ends that are not the first of their name, see dismantling.py.
SOURCE_LIFE = "source-life"
DESTINATION_LIFE = "destination-life"

_NUMBER = struct.Struct("<Q")
_RETURN_KEY = struct.Struct("<QQ")
_RETURN = struct.Struct("<Qq")


class Wiring:
    """Writes the durable wiring of one virtual host."""

    def __init__(self, store: Store, virtual_host: str) -> None:
        self.store = store
        self.journal = store.journal
        self.virtual_host = virtual_host
        self.sequence = 0  # of its newest record: until that is synced, nobody is told of the change

    def put_exchange(self, exchange: Exchange) -> None:
        fields: FieldTable = {
            "type": exchange.type,
            "auto-delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": exchange.arguments,
        }
        if exchange.number:
            fields["number"] = exchange.number
        if exchange.life:
            fields["life"] = exchange.life
        value = encode_table(fields)
        self.sequence = self.journal.put_wiring(self.named(EXCHANGE, exchange.name), value)

    def delete_exchange(self, exchange: Exchange) -> None:
        self.sequence = self.journal.delete_wiring(self.named(EXCHANGE, exchange.name))

    def put_queue(self, queue: Queue) -> None:
        fields: FieldTable = {
            "number": queue.number,
            "auto-delete": queue.auto_delete,
            "arguments": queue.arguments,
        }
        if queue.creation_id is not None:
            fields["creation-id"] = queue.creation_id
        if queue.life:
            fields["life"] = queue.life
        value = encode_table(fields)
        self.sequence = self.journal.put_wiring(self.named(QUEUE, queue.name), value)

    def delete_queue(self, queue: Queue) -> None:
        self.sequence = self.journal.delete_wiring(self.named(QUEUE, queue.name))
        self.sequence = self.journal.delete_wiring(handed_out_key(queue.number))
        self.store.when_synced(self.sequence, partial(self.store.hand_outs.forget, queue.number))

    def put_binding(self, binding: Binding, to_queue: bool) -> None:
        self.sequence = self.journal.put_wiring(self.binding_key(binding, to_queue), b"")

    def delete_binding(self, binding: Binding, to_queue: bool) -> None:
        self.sequence = self.journal.delete_wiring(self.binding_key(binding, to_queue))

    def put_policy(self, policy: Policy) -> None:
        value: FieldTable = {
            "pattern": policy.pattern,
            "priority": policy.priority,
            "apply-to": policy.apply_to,
            "definition": dict(policy.definition),
        }
        self.sequence = self.journal.put_wiring(self.policy_key(policy), encode_table(value))

    def delete_policy(self, policy: Policy) -> None:
        self.sequence = self.journal.delete_wiring(self.policy_key(policy))

    def policy_key(self, policy: Policy) -> bytes:
        return POLICY + encode_table(
            {"virtual-host": self.virtual_host, "name": policy.name, "operator": policy.is_operator}
        )

    def named(self, kind: bytes, name: str) -> bytes:
        return kind + encode_table({"virtual-host": self.virtual_host, "name": name})

    def binding_key(self, binding: Binding, to_queue: bool) -> bytes:
        identity: FieldTable = {
            "virtual-host": self.virtual_host,
            "source": binding.source.name,
            "destination": binding.destination.name,
            "to-queue": to_queue,
            "routing-key": binding.routing_key,
            "arguments": binding.arguments,
        }
        for name, end in ((SOURCE_LIFE, binding.source), (DESTINATION_LIFE, binding.destination)):
            life: int = end.life  # type: ignore[attr-defined]
            if life:
                identity[name] = life
        return BINDING + encode_table(identity)


def is_of_another_life(host: VirtualHost, binding: FieldTable) -> bool:
    """Whether an end of the binding is gone, though there is something of its name."""
    source = host.exchanges.get(str(binding["source"]))
    names: dict[str, Queue] | dict[str, Exchange] = host.queues if binding["to-queue"] else host.exchanges
    destination = names.get(str(binding["destination"]))
    return any(
        end is not None and end.life != binding.get(life, 0)
        for end, life in ((source, SOURCE_LIFE), (destination, DESTINATION_LIFE))
    )


def handed_out_key(number: int) -> bytes:
    return HANDED_OUT + _NUMBER.pack(number)


def put_handed_out(journal: Journal, number: int, entry: int) -> None:
    journal.put_wiring(handed_out_key(number), _NUMBER.pack(entry))


def return_key(number: int, entry: int) -> bytes:
    return RETURNED + _RETURN_KEY.pack(number, entry)


def put_return(journal: Journal, number: int, entry: int, count: int, due_ms: int) -> None:
    """Of a queue that counts: the entry came back so often, and is ready again at that time (0: now)."""
    journal.put_wiring(return_key(number, entry), _RETURN.pack(count, due_ms))


def forget_return(journal: Journal, number: int, entry: int) -> None:
    journal.delete_wiring(return_key(number, entry))


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
    if octets[4:start] == _QUEUE_NUMBER and octets[start + 4 :] == _PLAIN_QUEUE:
        number = int.from_bytes(octets[start : start + 4], "big", signed=True)
        return {"number": number, "auto-delete": False, "arguments": {}}
    return table_of(octets)


def table_of(octets: bytes) -> FieldTable:
    return decode_table(octets, 0, len(octets))[0]
