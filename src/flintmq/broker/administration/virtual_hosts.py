"""Virtual hosts: added and deleted while the broker runs.

    add ----> running ----> delete ----> gone for everybody; the name is taken ----> the name is free
                            record: deleting      connections, branches, queues,        no record
                                                  exchanges, permissions, policies

A virtual host that was deleted is taken down in portions (scheduling/chores.py). Until the last of it has
left the journal, nothing new may have its name, and a start goes on with taking it down. Virtual hosts of the
settings are fixed, and so is the one that a broker without settings has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from flintmq.broker.administration import records
from flintmq.broker.administration.faults import fixed, missing, unfit
from flintmq.broker.channels.firehose import Firehose
from flintmq.config import NAME_OCTETS_MAX

if TYPE_CHECKING:
    from flintmq.broker.administration.administration import Administration
    from flintmq.broker.administration.records import FoundRecords
    from flintmq.broker.scheduling.chores import Chore, Wait
    from flintmq.broker.virtual_host import VirtualHost

log = logging.getLogger("flintmq.administration")

# In one step: some 20 microseconds each.
BRANCHES = 8
MARKERS = 64
QUEUES = 8
EXCHANGES = 8
# How long the chore waits for others that are at work in the virtual host, and after a bug.
LOOK_MS = 5
AGAIN_MS = 1000


class VirtualHosts:
    """The virtual hosts of one broker, as administrators see them."""

    def __init__(self, administration: Administration) -> None:
        self.administration = administration
        self.broker = administration.broker
        self.records = administration.records
        self.ending: dict[str, VirtualHost] = {}  # those that are being taken down
        # Those of which the journal holds something, though nobody has named them since the start.
        self.unserved: set[str] = set()
        self.unfinished: list[str] = []  # the same, as recovery has found them

    def require(self, name: str) -> None:
        self.find(name)

    def find(self, name: str) -> VirtualHost:
        host = self.broker.virtual_hosts.get(name)
        if host is None:
            raise missing("virtual host", name)
        return host

    def is_fixed(self, name: str) -> bool:
        return name in self.broker.config.virtual_hosts

    def names_after(self, name: str) -> Iterator[str]:
        """The virtual hosts behind a name, in the order of names; also those that are being taken down."""
        return self.broker.host_names.after(name or None)

    def can_be_configured(self, name: str) -> bool:
        """Whether settings that are read again may have it opened: nothing of it is anywhere."""
        return not (name in self.broker.virtual_hosts or name in self.ending or name in self.unserved)

    # Changes

    def check_new(self, name: str) -> None:
        """Raises unless a virtual host of this name may be added."""
        if not 0 < len(name.encode("utf-8", "surrogatepass")) <= NAME_OCTETS_MAX:
            raise unfit(f"the name of a virtual host has 1 to {NAME_OCTETS_MAX} octets")
        if not name.isprintable():
            raise unfit("the name of a virtual host has printable letters alone")
        if name in self.broker.virtual_hosts:
            raise unfit(f"virtual host '{name}' is there already")
        if name in self.ending:
            raise unfit(f"virtual host '{name}' is being deleted: add it when it is gone")
        if name in self.unserved:
            raise unfit(
                f"the data directory holds virtual host '{name}', which the settings named: name it there"
            )

    def add(self, name: str) -> VirtualHost:
        self.check_new(name)
        self.records.put(records.VIRTUAL_HOST, {"name": name}, {})
        try:
            return self.broker.open_virtual_host(name)
        except BaseException:  # or the next start would open what nobody was told is there
            self.broker.virtual_hosts.pop(name, None)
            self.broker.host_names.discard(name)
            self.records.delete(records.VIRTUAL_HOST, {"name": name})
            raise

    def changeable(self, name: str) -> None:
        self.require(name)
        if self.is_fixed(name):
            raise fixed(f"virtual host '{name}'")

    def delete(self, name: str, asker: int = 0) -> None:
        """Deletes it with all that is in it; its connections are closed, that of the asker last."""
        self.changeable(name)
        self.records.put(records.VIRTUAL_HOST, {"name": name}, {"deleting": True})
        self.take_down(name, asker)

    def trace(self, name: str, is_on: bool) -> None:
        """Has the firehose of the virtual host told of all messages, until the broker ends, or no more."""
        host = self.find(name)
        if is_on and host.router.is_traced:
            return
        host.router.trace(Firehose(host.router, self.broker.clients) if is_on else None)

    def take_down(self, name: str, asker: int = 0) -> None:
        host = self.broker.virtual_hosts.pop(name)
        host.router.trace(None)
        self.ending[name] = host
        self.broker.pass_work.chores.begin(self.taken_down(host, asker))

    def taken_down(self, host: VirtualHost, asker: int) -> Chore:
        """The whole of it. A bug on the way does not end it: what is left is taken down after a pause."""
        store = self.broker.store
        while True:
            try:
                yield from self.administration.host_closed(host, asker)
                yield from self.emptied(host)
                yield from self.administration.host_forgotten(host)
                if store is not None:
                    # Records may be lost in any order: what is gone has to be gone for good before its name
                    # is free.
                    yield partial(store.when_synced, store.last())
                self.records.delete(records.VIRTUAL_HOST, {"name": host.name})
                break
            except Exception:
                log.exception("a bug holds up the end of virtual host %r: once more in a while", host.name)
                yield self.pause(AGAIN_MS)
        del self.ending[host.name]
        self.broker.host_names.discard(host.name)

    def emptied(self, host: VirtualHost) -> Chore:
        """Branches, markers, queues and exchanges; some of them wait for others that are at work."""
        while True:
            yield from without_branches(host)
            yield from without_markers(host)
            while host.queues:
                for queue in list(islice(host.queues.values(), QUEUES)):
                    if not queue.deleted:
                        host.delete_queue(queue)
                yield None
            while host.exchanges:
                for exchange in list(islice(host.exchanges.values(), EXCHANGES)):
                    if not exchange.deleted:
                        host.remove_exchange(exchange)
                yield None
            if not (host.queues or host.exchanges or host.branches.branches or host.falling.count):
                return
            yield self.pause(LOOK_MS)

    def pause(self, milliseconds: int) -> Wait:
        timetable = self.broker.timetable

        def wait(go_on: Callable[[], None]) -> None:
            timetable.at(timetable.now_ms() + milliseconds, go_on)

        return wait

    # Recovery

    def restore(self, found: FoundRecords) -> None:
        """Before there are queues. Those that were being taken down are filled again, to be taken down."""
        for identity, value in found.of(records.VIRTUAL_HOST):
            name = identity.get("name")
            if not isinstance(name, str):
                log.error("a virtual host of the journal is left out: it has no name")
                continue
            is_ending = value.get("deleting") is True
            if self.is_fixed(name):
                if is_ending:
                    log.warning("virtual host %r, which was being deleted, is in the settings: kept", name)
                    self.records.delete(records.VIRTUAL_HOST, identity)
                continue
            self.broker.open_virtual_host(name)
            if is_ending:
                self.unfinished.append(name)

    def resume(self) -> None:
        """After recovery: what was being taken down goes on."""
        unfinished, self.unfinished = self.unfinished, []
        for name in unfinished:
            self.take_down(name)


def without_branches(host: VirtualHost) -> Iterator[None]:
    """Rolls back what is not decided. What is decided comes to its end by itself, as does a large commit."""
    from flintmq.broker.transactions.dtx_branch import BranchState  # it comes with the branches

    branches = host.branches
    for at, branch in enumerate(list(branches.branches.values()), 1):
        if branches.branches.get(branch.xid) is not branch or branch.state is BranchState.DECIDED:
            continue
        if branch.state is BranchState.HEURISTIC:
            branches.forget(branch)
        elif not branch.is_own:
            branches.undo(branch)
        if at % BRANCHES == 0:
            yield


def without_markers(host: VirtualHost) -> Iterator[None]:
    for at, name in enumerate([*host.branches.markers, *host.branches.brief_markers], 1):
        host.branches.forget_marker(name)
        if at % MARKERS == 0:
            yield
