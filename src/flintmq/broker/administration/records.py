"""What is administered at run time, as it lies in the journal: field tables, beside those of the topology.

    key      kind, one octet | field table: what identifies it
    value    field table: the rest

    u  user          name                 hash, tags, loopback-only, life; or deleted, of one that the broker
                                          would have without any settings
    v  virtual host  name                 deleting, while it is being taken down
    a  permission    user, virtual host   configure, write, read, and the life of the user; or cleared, of one
                                          that the broker would have without any settings
    t  topic         user, virtual host,  write, read, and the life of the user
       permission    exchange
    c  limits        user or virtual       each limit, and the life of the user
                     host, name
    s  parameter     virtual host,        value; the name of the virtual host is empty for the whole broker
                     component, name

A life is a number that tells users of the same name apart. The permissions of a user that was deleted leave
the journal in portions; until then their life says that a new user of the name does not have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from flintmq.broker.store.topology_records import table_of
from flintmq.wire.tables import FieldTable, encode_table

if TYPE_CHECKING:
    from flintmq.broker.store.store import Store

USER = b"u"
VIRTUAL_HOST = b"v"
PERMISSION = b"a"
PARAMETER = b"s"
TOPIC_PERMISSION = b"t"
LIMITS = b"c"
# Records that one step takes out of the journal: some 2 microseconds each.
FORGOTTEN_AT_ONCE = 128
KINDS = frozenset((USER, VIRTUAL_HOST, PERMISSION, TOPIC_PERMISSION, LIMITS, PARAMETER))


class Records:
    """Writes them; without a store there is nothing to write to."""

    def __init__(self, store: Store | None) -> None:
        self.store = store

    def put(self, kind: bytes, identity: FieldTable, value: FieldTable) -> None:
        if self.store is not None:
            self.store.journal.put_value(kind + encode_table(identity), encode_table(value))

    def delete(self, kind: bytes, identity: FieldTable) -> None:
        if self.store is not None:
            self.store.journal.delete_value(kind + encode_table(identity))

    def grouped(self) -> AbstractContextManager[object]:
        """What is written inside is recovered whole or not at all."""
        return nullcontext() if self.store is None else self.store.journal.group()

    def forget(
        self, kind: bytes, identities: Iterable[FieldTable], is_needed: Callable[[FieldTable], bool]
    ) -> Iterator[None]:
        """Takes the records of somebody who is gone out of the journal, in portions.

        `is_needed`: somebody new of that name has written one of them again meanwhile.
        """
        for at, identity in enumerate(identities, 1):
            if not is_needed(identity):
                self.delete(kind, identity)
            if at % FORGOTTEN_AT_ONCE == 0:
                yield


class FoundRecords:
    """The records that recovery has found, in the order of the journal."""

    def __init__(self) -> None:
        self.found: dict[bytes, list[tuple[bytes, bytes]]] = {kind: [] for kind in KINDS}

    def add(self, key: bytes, octets: bytes) -> None:
        self.found[key[:1]].append((key, octets))

    def of(self, kind: bytes) -> list[tuple[FieldTable, FieldTable]]:
        """What identifies each, and the rest of it."""
        return [(table_of(key[1:]), table_of(octets)) for key, octets in self.found[kind]]

    def named_hosts(self) -> set[str]:
        """The virtual hosts for which something was administered."""
        kinds = (PERMISSION, TOPIC_PERMISSION, PARAMETER)
        named = {each.get("virtual-host") for kind in kinds for each, _ in self.of(kind)}
        named |= {each.get("name") for each, _ in self.of(LIMITS) if each.get("kind") == "virtual-host"}
        return {name for name in named if isinstance(name, str) and name}  # empty: the whole broker
