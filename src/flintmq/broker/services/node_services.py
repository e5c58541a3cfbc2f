"""Services on the process that the broker runs in, and on how much of the machine it may have.

    broker.node         the process, its files, where it listens, what its memory is used for
    memory-limit.set    publishers wait above this much memory
    disk-limit.set      publishers wait below this much free space of the disk

A limit that is set here holds until the broker ends, or until its settings are read again and have another.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

from flintmq import checks
from flintmq.auth import Tag
from flintmq.broker.services.administration_services import administration
from flintmq.broker.services.management_services import counted_hosts
from flintmq.broker.services.request import Request, service
from flintmq.config import Limits
from flintmq.config.tables import types_of
from flintmq.errors import ServiceFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.wire.tables import FieldTable

# More free space than memory is asked for where all of it may have to be written down.
MEMORY_SHARE_MAX = 100.0


class Process(Protocol):
    """The process that the broker runs in: what it tells, and what can be changed while it runs."""

    def condition(self) -> FieldTable:
        """Alarms, memory and disk."""

    def node(self) -> FieldTable:
        """The process, its files, and where it listens."""

    def machine_bytes(self) -> int:
        """The memory of the machine."""

    def limit_memory(self, limits: Limits) -> None:
        """Publishers wait above what these limits say, until the settings or another request change it."""

    def limit_disk(self, free_bytes_min: int) -> None:
        """The same below so much free space."""


def process_of(request: Request) -> Process:
    process = request.broker.process
    if process is None:
        raise ServiceFault(amqp.NOT_IMPLEMENTED, f"{request.name}: the broker runs in no process of its own")
    return process


@service("broker.node", "")
def broker_node(request: Request) -> Chore:
    """The process: `pid`, `listeners`, `files-open`, `directory`, and `memory` by what it is used for."""
    administration(request, Tag.MONITORING)
    broker, process = request.broker, process_of(request)
    hosts = yield from counted_hosts(request)
    found: FieldTable = {**process.node(), "memory": memory_uses(request, hosts)}
    if broker.store is not None:
        found["directory"] = os.path.abspath(broker.store.journal.directory)
    request.reply(found)


def memory_uses(request: Request, hosts: dict[str, Any]) -> FieldTable:
    """Octets by what they hold, as far as they are counted: about."""
    store = request.broker.store
    waiting = 0
    if store is not None:
        waiting = store.journal.waiting_octets() + store.overflow.journal.waiting_octets()
    return {
        "queues": sum(host["ready_bytes"] for host in hosts.values()),
        "unacked": sum(host["unacked_bytes"] for host in hosts.values()),
        "outputs": request.broker.pass_work.room.held_bytes,
        "journal": waiting,
    }


# Limits


@service("memory-limit.set", "share? any, bytes? any", changes=True, administers=True)
def memory_limit_set(request: Request) -> None:
    """Publishers wait above a `share` of the machine's memory, or above `bytes`, until the broker ends."""
    administration(request)
    process, limits = process_of(request), request.broker.config.limits
    if chosen(request, "share", "bytes") == "share":
        share = request.checked("share", check_of("memory_high_share"))
        process.limit_memory(limits._replace(memory_high_share=share, memory_high_bytes=None))
    else:
        octets = request.checked("bytes", check_of("memory_high_bytes"))
        process.limit_memory(limits._replace(memory_high_bytes=octets))
    condition = process.condition()
    found: FieldTable = {name: condition[name] for name in ("memory-bytes-high", "memory-bytes")}
    request.reply({**found, "machine-bytes": process.machine_bytes()})


@service("disk-limit.set", "bytes? any, memory-share? any", changes=True, administers=True)
def disk_limit_set(request: Request) -> None:
    """Publishers wait below `bytes` of free disk space, or a `memory-share` of the memory, until the end."""
    administration(request)
    process = process_of(request)
    if request.broker.store is None:
        raise ServiceFault(
            amqp.PRECONDITION_FAILED,
            f"{request.name}: the broker has no data directory, so no disk whose room could run out",
        )
    if chosen(request, "bytes", "memory-share") == "bytes":
        octets = request.checked("bytes", check_of("disk_free_bytes_min"))
    else:
        share = request.checked("memory-share", checks.number(0, MEMORY_SHARE_MAX))
        octets = int(process.machine_bytes() * share)
    process.limit_disk(octets)
    condition = process.condition()
    told = ("disk-bytes-free-min", "disk-bytes-free")
    request.reply({name: condition[name] for name in told if name in condition})


def chosen(request: Request, *names: str) -> str:
    """The one of these arguments that is given."""
    given = [name for name in names if name in request.arguments]
    if len(given) != 1:
        raise ServiceFault(
            amqp.PRECONDITION_FAILED, f"{request.name}: expected one of the arguments {' and '.join(names)}"
        )
    return given[0]


def check_of(setting: str) -> checks.Check:
    """What a limit of the settings may be."""
    found: checks.Check = types_of(Limits)[setting].__metadata__[0]
    return found
