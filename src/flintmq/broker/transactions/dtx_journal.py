"""Branches and markers in the journal.

A branch is an owner of entries, as queues are, with a number from OWNERS on. It owns what was published
in it, and once it is prepared one entry more, its manifest:

    header    | 0xFFFFFFFF | 1 | field table: virtual host, xid, user, state, code, since, counts |
    payload   | record | record | ...

    record    kind u8, queue u32, entry u64, flags u8
              1 ack   2 reject   3 requeue     of that entry in that queue
              4 publish                        the entry's flags of basic.publish, where it has any

A branch without a manifest was never prepared: its entries are let go. One whose manifest names more
messages than it owns was cut off while it was being prepared, which is the same.

A marker is a record of the topology, under the key `m` and a field table of virtual host and name: the
number, whose it is, when it was used last (the journal's number and the time), how long it is kept, and the
note of its committer. Branches and markers tell the life of their user (administration/records.py).
"""

from __future__ import annotations

import logging
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping
from itertools import compress
from typing import TYPE_CHECKING, Protocol

from flintmq.broker.messages import entry_number
from flintmq.broker.queues.paged_tail import PagedTail
from flintmq.broker.store.topology_records import octets_of, text_of, whole_of
from flintmq.broker.transactions.dtx_branch import ANY_LIFE, Branch, BranchState, Lock, Settlement
from flintmq.broker.transactions.xid import xid_of
from flintmq.field_tuple import FieldTuple
from flintmq.wire.tables import FieldTable, decode_table, encode_table

if TYPE_CHECKING:
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.store.store import Store
    from flintmq.broker.transactions.dtx_branches import Branches

log = logging.getLogger("flintmq.dtx")

MARKER = b"m"

_HEAD = struct.Struct("<II")
_HEAD_MARK = 0xFFFFFFFF
_VERSION = 1
_RECORD = struct.Struct("<BIQB")
_KIND_AT, _QUEUE_AT, _ENTRY_AT, _FLAGS_AT = 0, 1, 5, 13
_PUBLISH = 4
# States of branches that have locked what they name. What a decided one has settled already is its queue's no
# longer.
LOCKING = (BranchState.PREPARED.value, BranchState.DECIDED.value)
# Messages that are read at a time to know how large they are: 32 MiB at most, as larger bodies lie in files.
LOADED_ENTRIES = 8


class Marker(FieldTuple):
    """How far somebody has committed."""

    number: int
    user: str
    note: str = ""  # of the committer: what it was that has this number
    used_ms: int = 0
    keep_s: int = 0  # how long after its last use it is kept; 0: as long as the settings say
    life: int = ANY_LIFE  # of the user


def put_manifest(store: Store, virtual_host: str, branch: Branch) -> int:
    """Puts what the branch is now into the journal; the older manifest, if any, is let go."""
    identity: FieldTable = {
        "virtual-host": virtual_host,
        "xid": branch.xid.octets(),
        "user": branch.user,
        "life": branch.life,
        "state": branch.state.value,
        "code": branch.code,
        "since-ms": branch.since_ms,
        "published": branch.published(),
        "octets": branch.octets,
        "operations": branch.operations,
    }
    if branch.routes is not None:
        identity["routes"] = [[route, *counts] for route, counts in branch.routes.items()]
    if branch.is_own:
        identity["own"] = True
    header = _HEAD.pack(_HEAD_MARK, _VERSION) + encode_table(identity)
    sequence = store.journal.append_entry(branch.owners, header, _records(branch))
    older, branch.manifest = branch.manifest, sequence
    try:
        if older:
            store.journal.append_settle(branch.owner(), older)
    except Exception:
        branch.manifest = older  # one of the two goes, whichever it is
        store.journal.append_settle(branch.owner(), sequence)
        raise
    return sequence


def _records(branch: Branch) -> bytes:
    # There may be a million of them, and everybody waits: column by column, as _RECORD has them.
    locks = [lock for lock in branch.locks if lock.entry]
    settled = bytearray(_RECORD.size * len(locks))
    settled[_KIND_AT :: _RECORD.size] = bytes([lock.settlement for lock in locks])
    _fill(settled, _QUEUE_AT, array("I", [lock.queue.number for lock in locks]))
    _fill(settled, _ENTRY_AT, array("Q", [lock.entry for lock in locks]))
    flags = branch.flags.replace(b"\0", b"")  # hardly ever are there any
    published = bytearray(_RECORD.pack(_PUBLISH, 0, 0, 0)) * len(flags)
    if flags:
        _fill(published, _ENTRY_AT, array("Q", compress(branch.entries, branch.flags)))
        published[_FLAGS_AT :: _RECORD.size] = flags
    return bytes(settled + published)


def _fill(records: bytearray, start: int, numbers: array[int]) -> None:
    """Puts the numbers into a column of the records: the first octet of each, then the second, and so on."""
    if sys.byteorder == "big":
        numbers.byteswap()
    octets = numbers.tobytes()
    for at in range(numbers.itemsize):
        records[start + at :: _RECORD.size] = octets[at :: numbers.itemsize]


def marker_key(virtual_host: str, name: str) -> bytes:
    return MARKER + encode_table({"virtual-host": virtual_host, "name": name})


def put_marker(store: Store, virtual_host: str, name: str, marker: Marker) -> None:
    used = store.journal.next_sequence
    fields: FieldTable = {"number": marker.number, "user": marker.user, "used": used}
    fields.update({"note": marker.note, "used-ms": marker.used_ms, "keep-s": marker.keep_s})
    fields["life"] = marker.life
    value = encode_table(fields)
    store.journal.put_value(marker_key(virtual_host, name), value)


class BranchHost(Protocol):
    """A virtual host, as far as its branches need it."""

    @property
    def name(self) -> str: ...

    @property
    def queues(self) -> Mapping[str, Queue]: ...

    @property
    def branches(self) -> Branches: ...


class FoundBranches:
    """What recovery hears of branches and markers, and what it makes of them."""

    def __init__(self) -> None:
        self.entries: dict[int, array[int]] = {}
        self.manifests: dict[int, tuple[int, FieldTable]] = {}
        self.markers: list[tuple[FieldTable, FieldTable]] = []
        # By the branch's number: settlement, queue's number, entry.
        self.locks: dict[int, list[tuple[Settlement, int, int]]] = {}
        self.flags: dict[int, dict[int, int]] = {}
        self.is_incomplete = False  # the journal has holes, or entries that cannot be read

    def marker(self, key: bytes, octets: bytes) -> None:
        self.markers.append((_table(key[1:]), _table(octets)))

    def entry(self, sequence: int, owner: int, header: bytes) -> None:
        mark, version = _HEAD.unpack_from(header)
        if mark != _HEAD_MARK:
            self.entries.setdefault(owner, array("Q")).append(sequence)
        elif version != _VERSION:
            log.error("branch %d was prepared by another version of FlintMQ: it stays on disk", owner)
        else:
            self.manifests[owner] = (sequence, _table(header[_HEAD.size :]))

    def take_locked(
        self, tails: dict[int, PagedTail], ranked: dict[int, dict[int, PagedTail]], store: Store
    ) -> None:
        """Reads the manifests, and takes what branches have locked from the paged tails of queues.

        `ranked`: further paged tails of queues with priorities, by the queue's number and then by priority.
        """
        self.drop_unfinished(store)
        taken: dict[int, set[int]] = {}
        for owner, (sequence, identity) in self.manifests.items():
            locks = self.locks[owner] = []
            flags = self.flags[owner] = {}
            for kind, queue, entry, value in _RECORD.iter_unpack(store.journal.read_entry(sequence)[1]):
                if kind == _PUBLISH:
                    flags[entry] = value
                elif identity["state"] in LOCKING and queue in store.journal.owners_of(entry):
                    locks.append((Settlement(kind), queue, entry))
                    taken.setdefault(queue, set()).add(entry_number.of_journal(entry))
        for number, entries in taken.items():
            keep_others(tails, number, entries, store)
            for priority in list(ranked.get(number, ())):
                keep_others(ranked[number], priority, entries, store)

    def drop_unfinished(self, store: Store) -> None:
        """Branches that were never prepared, or not to the end, leave nothing behind."""
        newest: dict[tuple[str, bytes], int] = {}
        for owner, (_, identity) in sorted(self.manifests.items(), key=_by_manifest):
            named = text_of(identity["virtual-host"]), octets_of(identity["xid"])
            older = newest.get(named)
            newest[named] = owner
            if older is not None:
                # The older one had ended before the other began: what it has settled is back in its queues.
                log.error("branch %s is there twice after damage: the older is rolled back", xid_of(named[1]))
                store.journal.append_settle(older, self.manifests.pop(older)[0])
        for owner, (sequence, identity) in list(self.manifests.items()):
            owned = len(self.entries.get(owner, ()))
            if identity["state"] != BranchState.PREPARED.value or owned == identity["published"]:
                continue
            if self.is_incomplete:
                log.error(
                    "branch %s has lost %s of its messages to damage",
                    xid_of(octets_of(identity["xid"])),
                    whole_of(identity["published"]) - owned,
                )
                continue
            del self.manifests[owner]
            store.journal.append_settle(owner, sequence)
        for owner in self.entries.keys() - self.manifests.keys():
            entries = self.entries.pop(owner)
            log.log(
                logging.ERROR if self.is_incomplete else logging.INFO,
                "%d messages of a branch that was not prepared are dropped",
                len(entries),
            )
            store.journal.settle_many(owner, entries)

    def named_hosts(self) -> set[str]:
        """The virtual hosts of which there are branches or markers."""
        identities = [*[each for _, each in self.manifests.values()], *[each for each, _ in self.markers]]
        return {text_of(identity["virtual-host"]) for identity in identities}

    def restore(self, virtual_hosts: Mapping[str, BranchHost], store: Store) -> None:
        """Gives branches and markers to their virtual hosts; those of others stay in the journal, unseen."""
        queues = {
            queue.number: queue
            for host in virtual_hosts.values()
            for queue in host.queues.values()
            if queue.number
        }
        for owner, (sequence, identity) in sorted(self.manifests.items(), key=_by_manifest):
            store.branch_owners.add(owner)
            host = virtual_hosts.get(text_of(identity["virtual-host"]))
            if host is None:
                log.warning("virtual host %r is not configured: a branch of it is left out", identity)
                continue
            branch = self.branch_of(owner, sequence, identity)
            branch.locks = list(self.locks_of(owner, queues, store))
            if branch.state is BranchState.PREPARED and branch.published() != identity["published"]:
                # What damage has cost is told once; the next start must find the branch as it is now.
                with store.journal.group():
                    put_manifest(store, host.name, branch)
            host.branches.restore(branch)
        for identity, rest in sorted(self.markers, key=_by_use):
            host = virtual_hosts.get(text_of(identity["virtual-host"]))
            if host is not None:
                host.branches.restore_marker(text_of(identity["name"]), _marker(rest))

    def branch_of(self, owner: int, sequence: int, identity: FieldTable) -> Branch:
        branch = Branch(
            xid_of(octets_of(identity["xid"])),
            text_of(identity["user"]),
            0,
            owner,
            whole_of(identity["since-ms"]),
            whole_of(identity.get("life", ANY_LIFE)),
        )
        branch.is_own = "own" in identity
        branch.state = BranchState(identity["state"])
        branch.code = whole_of(identity["code"])
        branch.manifest = sequence
        branch.octets = whole_of(identity["octets"])
        branch.operations = whole_of(identity["operations"])
        branch.routes = _routes(identity.get("routes"))
        branch.entries = self.entries.get(owner, array("Q"))
        flags = self.flags[owner]
        branch.flags = bytearray(flags.get(entry, 0) for entry in branch.entries)
        return branch

    def locks_of(self, owner: int, queues: dict[int, Queue], store: Store) -> Iterable[Lock]:
        for settlement, number, entry in self.locks[owner]:
            queue = queues.get(number)
            if queue is None:
                store.journal.append_settle(number, entry)  # its queue was deleted meanwhile
            else:
                queue.take_out(1)
                yield Lock(settlement, queue, entry, None)


def _by_manifest(found: tuple[int, tuple[int, FieldTable]]) -> int:
    return found[1][0]


def _marker(rest: FieldTable) -> Marker:
    """Older versions wrote no note, no time and no life."""
    note, used_ms, keep_s = rest.get("note", ""), rest.get("used-ms", 0), rest.get("keep-s", 0)
    return Marker(
        whole_of(rest["number"]),
        text_of(rest["user"]),
        text_of(note),
        whole_of(used_ms),
        whole_of(keep_s),
        whole_of(rest.get("life", ANY_LIFE)),
    )


def _routes(found: object) -> dict[bytes, tuple[int, int]] | None:
    """Of a manifest; an older version wrote none."""
    if not isinstance(found, list):
        return None
    return {octets_of(route): (whole_of(count), whole_of(octets)) for route, count, octets in found}


def _by_use(found: tuple[FieldTable, FieldTable]) -> int:
    return whole_of(found[1]["used"])


def _table(octets: bytes) -> FieldTable:
    return decode_table(octets, 0, len(octets))[0]


def keep_others(tails: dict[int, PagedTail], key: int, entries: set[int], store: Store) -> None:
    """Takes the entries from one of the paged tails, if it is there."""
    if key in tails:
        kept = PagedTail()
        locked: list[int] = []
        for entry in tails[key]:
            if entry in entries:
                locked.append(entry)
            else:
                kept.push(entry)
        kept.octets = tails[key].octets - body_octets(locked, store)
        tails[key] = kept


def body_octets(entries: list[int], store: Store) -> int:
    """What the bodies of these messages come to."""
    octets = 0
    for start in range(0, len(entries), LOADED_ENTRIES):
        for message in store.load(entries[start : start + LOADED_ENTRIES]):
            if message is not None:
                octets += message.body_size()
    return octets
