"""Definitions that come in: parts of a file, read as they come, checked as a whole, then put into force.

    part 0, part 1 ... --> entries, by their rank --> check all --> refused? --> nothing is done
                                                               \\-> apply, users first, bindings last

Each step of it is a portion (scheduling/chores.py). What others change between the check and the end may
still refuse an entry: the report then says what was done and what was not.
"""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, Any

from flintmq.broker.administration.limits import HOST, USER
from flintmq.broker.definitions.account_entries import (
    LIMITS_COMPONENT,
    OPERATOR_POLICY_COMPONENT,
    GlobalParameterEntry,
    HostEntry,
    LimitsEntry,
    OperatorPolicyEntry,
    ParameterEntry,
    PermissionEntry,
    PolicyEntry,
    TopicPermissionEntry,
    UserEntry,
    limits_item,
)
from flintmq.broker.definitions.draft import Draft
from flintmq.broker.definitions.entry import Elsewhere, Entry
from flintmq.broker.definitions.fields import Fields
from flintmq.broker.definitions.report import Report
from flintmq.broker.definitions.topology_entries import BindingEntry, ExchangeEntry, QueueEntry
from flintmq.checks import Unfit
from flintmq.definition_parts import decode
from flintmq.errors import PeerFault, ProtocolMisuse, ServiceFault, StorageFault
from flintmq.wire.tables import encode_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flintmq.auth import Tag
    from flintmq.broker.administration.limits import Owner
    from flintmq.broker.broker import Broker
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.config import PermissionSettings
    from flintmq.wire.tables import FieldValue

log = logging.getLogger("flintmq.definitions")

# In one step: some 100 microseconds each, a pattern more.
STEP = 4

# Sections of a file: lists of items.
SECTIONS = (
    "users",
    "vhosts",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
    "exchanges",
    "queues",
    "bindings",
)
# Sections that a file of one virtual host does not have.
OF_ALL = frozenset(("users", "vhosts", "global_parameters"))
# What a file says of itself, and of where it is from.
ABOUT = frozenset(
    (
        "rabbit_version",
        "rabbitmq_version",
        "product_name",
        "product_version",
        "rabbitmq_definition_format",
        "original_cluster_name",
        "original_vhost_name",
        "explanation",
        "flintmq_version",
        "flintmq_notes",
    )
)
# What a file of one virtual host says of it.
OF_HOST = ("metadata", "description", "tags", "default_queue_type", "limits")
ENTRIES: dict[str, Callable[[Fields, str], Entry]] = {
    "users": UserEntry,
    "vhosts": HostEntry,
    "permissions": PermissionEntry,
    "topic_permissions": TopicPermissionEntry,
    "global_parameters": GlobalParameterEntry,
    "policies": PolicyEntry,
    "exchanges": ExchangeEntry,
    "queues": QueueEntry,
    "bindings": BindingEntry,
}
PARAMETERS: dict[str, Callable[[Fields, str], Entry]] = {
    LIMITS_COMPONENT: LimitsEntry,
    OPERATOR_POLICY_COMPONENT: OperatorPolicyEntry,
}
RANKS = 1 + max(each.rank for each in (LimitsEntry, BindingEntry))


class Import:
    """One import. `within` is the virtual host that it is for, empty for the whole broker."""

    def __init__(self, broker: Broker, within: str) -> None:
        self.broker = broker
        self.within = within
        self.report = Report()
        self.entries: list[list[Entry]] = [[] for _ in range(RANKS)]
        self.parts = 0
        self.octets = 0
        self.touched_ms = 0

    # Reading

    def add_part(self, octets: bytes) -> Chore:
        """Reads one part, which is a definitions file by itself; Unfit says why it is none."""
        document = decode(octets)
        self.parts += 1
        self.octets += len(octets)
        about_host = {key: document.pop(key) for key in OF_HOST if key in document}
        if about_host:
            self.read_host(about_host)
        for section in SECTIONS:
            given = document.pop(section, [])
            if not isinstance(given, list):
                raise Unfit(f"{section}: expected an array")
            if given and self.within and section in OF_ALL:
                why = f"{len(given)} of them are left out: the import is for virtual host '{self.within}'"
                self.report.note(section, section, why)
                continue
            yield from self.read_section(section, given)
        for key in document:
            if key not in ABOUT:
                self.report.note("", f"key {ascii(key)[:80]}", "means nothing here and is left out")

    def read_host(self, about: dict[str, Any]) -> None:
        """What the file says of its one virtual host."""
        if not self.within:
            why = "is of one virtual host: name the one to import it into"
            self.report.refuse("vhosts", f"key '{next(iter(about))}'", why)
            return
        self.read_item("vhosts", 0, {**about, "name": self.within})

    def read_section(self, section: str, given: list[Any]) -> Chore:
        elsewhere = 0
        for at, item in enumerate(given):
            try:
                self.read_item(section, at, item)
            except Elsewhere:
                elsewhere += 1
            if at % STEP == STEP - 1:
                yield None
        if elsewhere:
            why = f"{elsewhere} of them are left out: they are of other virtual hosts than '{self.within}'"
            self.report.note(section, section, why)

    def read_item(self, section: str, at: int, item: object) -> None:
        where = f"{section}[{at}]"
        try:
            fields = Fields(item)
            if isinstance(fields.given.get("name"), str):
                where += f" '{fields.given['name'][:255]}'"
            make = ENTRIES.get(section)
            if make is None:
                component = fields.given.get("component")
                make = PARAMETERS.get(component, ParameterEntry) if isinstance(component, str) else None
            entry = (make or ParameterEntry)(fields, self.within)
            if isinstance(entry, HostEntry) and entry.limits:
                limits = LimitsEntry(Fields(limits_item(entry.name, entry.limits)), self.within)
                self.entries[limits.rank].append(limits)
        except Unfit as unfit:
            self.report.refuse(section, where, str(unfit))
        else:
            self.entries[entry.rank].append(entry)

    # Checking and applying

    def checked(self) -> Chore:
        """Finds all that cannot be done; what is left in `entries` can."""
        draft = Draft(self.broker)
        for rank in self.entries:
            fit: list[Entry] = []
            for at, entry in enumerate(rank):
                if self.is_fit(entry, draft):
                    fit.append(entry)
                if at % STEP == STEP - 1:
                    yield None
            rank[:] = fit

    def is_fit(self, entry: Entry, draft: Draft) -> bool:
        try:
            for name in ("arguments", "metadata", "value"):
                check_table(getattr(entry, name, None))
            entry.check(draft)
        except (Unfit, PeerFault, ServiceFault) as fault:
            self.report.refuse(entry.section, entry.label, told(fault))
            return False
        for note in entry.notes:
            self.report.note(entry.section, entry.label, note)
        return True

    def applied(self) -> Chore:
        """Puts into force what `checked` has left."""
        self.report.is_applied = True
        done = 0
        for rank in self.entries:
            for entry in rank:
                try:
                    if isinstance(entry, UserEntry) and entry.password is not None:
                        administration = self.broker.administration
                        entry.password_hash = yield from administration.hashed(entry.password)
                    self.report.count(entry.section, entry.apply(self.broker))
                except (Unfit, PeerFault, ServiceFault, StorageFault) as fault:
                    self.not_applied(entry, told(fault))
                done += 1
                if done % STEP == 0:
                    yield None

    def keeps_administrator_access(self) -> bool:
        """Whether somebody can administer afterwards."""
        tags: dict[str, frozenset[Tag]] = {}
        permissions: dict[str, dict[str, PermissionSettings]] = {}
        limits: dict[Owner, Mapping[str, int]] = {}
        for entry in chain(*[self.entries[each.rank] for each in (UserEntry, PermissionEntry, LimitsEntry)]):
            if isinstance(entry, UserEntry):
                tags[entry.name] = entry.tags
                limits[USER, entry.name] = entry.limits
            elif isinstance(entry, PermissionEntry):
                permissions.setdefault(entry.user, {})[entry.host] = entry.settings
            elif isinstance(entry, LimitsEntry):
                limits[HOST, entry.host] = entry.limits
        return self.broker.administration.administrator_access.is_kept(tags, permissions, limits)

    def not_applied(self, entry: Entry, why: str) -> None:
        """What was fit before is not any more, and a part of it may be in force."""
        if entry.is_begun:
            self.report.count(entry.section, is_changed=True)
            why = f"a part of it is done, the rest is not: {why}"
        self.report.refuse(entry.section, entry.label, why)

    def run(self, is_dry: bool, is_partial: bool) -> Chore:
        """All of it, after the last part."""
        yield from self.checked()
        if not is_partial and not self.keeps_administrator_access():
            why = "would leave no administrator who can get in: give partial to do it anyway"
            self.report.refuse("users", "administrators", why)
        if not is_dry and (is_partial or not self.report.refused_count):
            yield from self.applied()
            if next(self.broker.administration.administrator_access.all(), None) is None:
                self.report.note("users", "administrators", "nobody is left who may administer over AMQP")
            log.info("definitions were imported: %s", self.report.summary())


def check_table(table: FieldValue) -> None:
    """Raises if the journal could not hold it."""
    try:
        encode_value(table)
    except ProtocolMisuse as misuse:
        raise Unfit(str(misuse)) from None


def told(fault: Exception) -> str:
    return fault.text if isinstance(fault, PeerFault | ServiceFault) else str(fault)
