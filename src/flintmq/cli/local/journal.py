"""`flintmq journal inspect|check|repair DIR`: a data directory, for people.

    inspect   every record in order, topology in words; the streams                           changes nothing
    check     every checksum; status 1 and a report when something is damaged               changes nothing
    repair    sets damaged parts aside in files of their own, and says which and why

`repair` does what a start of the broker would do, so it is for looking at the outcome before that.
A directory that a broker is using may be inspected and checked (its last octets may be half written
then), but not repaired.
"""

from __future__ import annotations

import glob
import os
import struct
from collections.abc import Iterator

from flintmq.broker.administration import records
from flintmq.broker.queues import leases
from flintmq.broker.store import topology_records
from flintmq.broker.transactions import dtx_journal
from flintmq.errors import FlintError, StorageFault
from flintmq.storage.backup import DATA, MANIFEST
from flintmq.storage.disk import Disk
from flintmq.storage.file_lock import try_lock
from flintmq.storage.inspection.journal_inspection import KIND_NAMES, RecordView, check, inspect, repair
from flintmq.storage.inspection.stream_inspection import check_streams, repair_streams
from flintmq.storage.journal.segment import segment_name, segment_number
from flintmq.storage.layout import DELETE, PUT
from flintmq.storage.spool import STAGED
from flintmq.wire.tables import FieldTable

DAMAGED = 1
# Of what is administered these stay untold: hashes of passwords, values of parameters, which may have
# passwords in them, and the numbers that tell users of one name apart.
UNTOLD = frozenset(("hash", "value", "life"))
HEADING = f"{'octet':>10}  {'length':>8}  {'sequence':>12}  kind"


def show(directory: str) -> Iterator[str]:
    """`inspect`: the lines of every segment, then what it all adds up to."""
    holder = holder_of(directory)
    if holder:
        yield f"in use by process {holder}: what follows may end in the middle of something"
    disk = Disk()
    segment = 0
    for record in inspect(directory, disk):
        if record.segment != segment:
            segment = record.segment
            yield ""
            yield segment_name(segment)
            yield HEADING
        yield worded(record)
    yield ""
    yield from findings(directory, disk)[1]


def verify(directory: str) -> tuple[int, list[str]]:
    """`check`: the exit status and the report."""
    holder = holder_of(directory)
    is_sound, lines = findings(directory, Disk())
    if holder:
        lines.insert(0, f"in use by process {holder}: its last octets may look torn")
    return 0 if is_sound else DAMAGED, lines


def findings(directory: str, disk: Disk) -> tuple[bool, list[str]]:
    """Whether journal and streams are sound, and what is said of them; last the verdict on both."""
    result = check(directory, disk)
    streams = check_streams(directory, disk)
    is_mendable = result.is_mendable or any(report.damaged for report in streams)
    lines = [*result.lines(), *[line for report in streams for line in report.lines()], *set_aside(directory)]
    if is_mendable:
        lines.append("not sound: `repair` sets the damaged parts aside")
    elif not result.sound:
        lines.append("not sound: messages whose bodies are files of their own are lost, and nothing else")
    else:
        lines.append("sound")
    return result.sound and not is_mendable, lines


def mend(directory: str) -> list[str]:
    """`repair`: what was done, or a StorageFault that says who holds the directory."""
    holder_of(directory)
    report = repair(directory)
    streams = repair_streams(directory)
    lost = check(directory, Disk()).bodies_lost()
    lines = [*report.lines(), *[line for each in streams for line in each.lines()], *lost]
    if not (report.is_damaged or report.earlier or lost or any(each.damaged for each in streams)):
        lines.append("nothing was damaged")
    return lines


def holder_of(directory: str) -> str:
    """The process that uses the directory, or nothing; a fault if this is no data directory."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        raise StorageFault(f"{directory}: there is no such directory") from None
    except NotADirectoryError:
        raise StorageFault(f"{directory}: not a directory; give the one that --data names") from None
    if not any(name == "lock" or segment_number(name) is not None for name in names):
        data = os.path.join(directory, DATA) if MANIFEST in names else ""
        hint = f"; it is a backup, whose data directory is {data}" if data else ""
        raise StorageFault(f"{directory}: no data directory, there is no journal in it{hint}")
    if "lock" not in names:
        return ""
    with open(os.path.join(directory, "lock"), "rb") as lock:
        if not try_lock(lock.fileno(), shared=True):
            return lock.read(64).decode("ascii", "replace").strip() or "unknown"
    return ""


def set_aside(directory: str) -> list[str]:
    """What earlier repairs have left for people to look at."""
    found = glob.glob("*.damaged", root_dir=directory)
    found += glob.glob(os.path.join("streams", "*", "*.damaged"), root_dir=directory)
    return [f"set aside earlier: {name}" for name in sorted(found)]


# -- topology in words -------------------------------------------------------------------------------


def worded(record: RecordView) -> str:
    if record.kind not in (KIND_NAMES[PUT], KIND_NAMES[DELETE]) or not record.key:
        return record.line()
    try:
        text = value_text(record.key, record.value)
    except (ValueError, KeyError, struct.error, FlintError) as error:
        text = f"topology that cannot be read ({error}): {record.text}"
    return record.line(text)


def value_text(key: bytes, value: bytes) -> str:
    """One change of durable topology; `value` is empty where it is deleted."""
    kind, rest = key[:1], key[1:]
    if kind == topology_records.HANDED_OUT:
        newest = f" up to entry {topology_records.number_of(value)}" if value else ""
        return f"queue number {topology_records.number_of(rest)} has handed out{newest}"
    if kind == topology_records.RETURNED:
        return return_text(rest, value)
    if kind == STAGED:
        identity = topology_records.table_of(rest)
        staged = f": {int.from_bytes(value[8:16], 'little')} octets" if any(value[:8]) else ""
        return f"content {identity['identifier']!r} of user {identity['user']!r}{place(identity)}{staged}"
    if kind == topology_records.GIVEN:
        return f"numbers up to {topology_records.number_of(value)} are not given to new queues"
    if kind == topology_records.NAMES:
        return "requests go to the exchange amq.system alone"
    if kind == leases.LEASE:
        number, reader = leases.split_key(rest)
        return f"lease of {reader!r} on queue number {number}"
    if kind == dtx_journal.MARKER:
        identity = topology_records.table_of(rest)
        return f"marker {identity['name']!r}{place(identity)}{particulars(value)}"
    if kind in records.KINDS:
        return f"{administered_text(kind, topology_records.table_of(rest))}{particulars(value)}"
    if kind not in (
        topology_records.EXCHANGE,
        topology_records.QUEUE,
        topology_records.BINDING,
        topology_records.POLICY,
    ):
        return f"of a kind not known here: {key!r}"
    identity = topology_records.table_of(rest)
    if kind == topology_records.BINDING:
        return binding_text(identity)
    if kind == topology_records.POLICY:
        what = "operator policy" if identity["operator"] else "policy"
    else:
        what = "exchange" if kind == topology_records.EXCHANGE else "queue"
    return f"{what} {identity['name']!r}{place(identity)}{particulars(value)}"


def administered_text(kind: bytes, identity: FieldTable) -> str:
    """What was administered at run time: a user, a right, a limit."""
    if kind == records.USER:
        return f"user {identity['name']!r}"
    if kind == records.VIRTUAL_HOST:
        return f"virtual host {identity['name']!r}"
    if kind == records.LIMITS:
        owner = "user" if identity["kind"] == "user" else "virtual host"
        return f"limits of {owner} {identity['name']!r}"
    if kind == records.PERMISSION:
        return f"permission of user {identity['user']!r}{place(identity)}"
    if kind == records.TOPIC_PERMISSION:
        where = f"exchange {identity['exchange']!r}{place(identity)}"
        return f"topic permission of user {identity['user']!r} on {where}"
    name = f"parameter {identity['name']!r} of component {identity['component']!r}"
    return f"{name}{place(identity)}" if identity["virtual-host"] else f"{name} of the whole broker"


def return_text(rest: bytes, value: bytes) -> str:
    """How often an entry came back to a queue that counts it."""
    if not value:
        number, entry = topology_records.returned_entry(rest)
        return f"entry {entry} has left queue number {number}, which counted its returns"
    number, entry, count, due_ms = topology_records.return_of(rest, value)
    later = f", to be tried again at {due_ms} ms" if due_ms else ""
    return f"entry {entry} came back {count} times to queue number {number}{later}"


def binding_text(identity: FieldTable) -> str:
    end = "queue" if identity["to-queue"] else "exchange"
    arguments = f", arguments {identity['arguments']!r}" if identity["arguments"] else ""
    return (
        f"binding from exchange {identity['source']!r} to {end} {identity['destination']!r}, "
        f"routing key {identity['routing-key']!r}{arguments}{place(identity)}"
    )


def place(identity: FieldTable) -> str:
    host = identity["virtual-host"]
    return "" if host == "/" else f" of virtual host {host!r}"


def particulars(value: bytes) -> str:
    """What a value says beyond the usual: a flag that is off and what is empty are left out."""
    if not value:
        return ""
    said = []
    for name, found in topology_records.table_of(value).items():
        if name in UNTOLD:
            continue
        if found is True:
            said.append(name)
        elif found is not False and found not in ({}, []):
            said.append(f"{name} {found!r}")
    return ": " + ", ".join(said) if said else ""
