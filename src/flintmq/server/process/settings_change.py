"""Settings that were read again while the broker runs: what changed, what holds now, what waits for a start.

    old, new --> names of the settings that differ --> those that can change now: put into force
                                                   |-> others: told, and left as they were

All that can be wrong with new settings is found before any of them is put into force.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flintmq.auth.users import configured_user, password_policy
from flintmq.broker import static_topology
from flintmq.broker.policies import configured_policies
from flintmq.config import Config, DefaultUser, guest_alone
from flintmq.errors import ConfigFault
from flintmq.server.logs.audit_log import SETTINGS
from flintmq.server.network.certificates import Certificates

if TYPE_CHECKING:
    from flintmq.config import Limits
    from flintmq.server.server import Server

log = logging.getLogger("flintmq.server")

# Of a file with a mistake in it.
STAY = (
    "SIGHUP: the settings that were in force before stay in force, as the file has a mistake: %s; "
    "correct the file and send SIGHUP again, without a restart"
)
# What MemoryAlarm and the journal are told when it has changed.
MEMORY_LIMITS = ("memory_high_share", "memory_high_bytes")
DISK_LIMITS = ("disk_free_bytes_min",)
# Limits that are asked for when they are needed, and these. Others have made buffers of their size.
LIVE_LIMITS = (
    *MEMORY_LIMITS,
    *DISK_LIMITS,
    "connections_max",
    "channels_per_connection_max",
    "consumers_per_channel_max",
    "consumers_per_connection_max",
    "queues_per_virtual_host_max",
    "exchanges_per_virtual_host_max",
    "bindings_per_virtual_host_max",
    "topic_steps_max",
    "settlements_per_transaction_max",
    "message_bytes_max",
    "handshakes_max",
    "handshakes_per_address_max",
    "handshake_timeout_s",
    "heartbeat_s",
)
LIVE_TLS = ("certificate", "key", "authority", "verify", "others")
# Sections that can change as a whole.
LIVE_SECTIONS = (
    "bans",
    "dtx",
    "staging",
    "queue_templates",
    "exchanges",
    "queues",
    "bindings",
    "policies",
    "operator_policies",
)


def differences(old: Config, new: Config) -> list[str]:
    """The names of the settings that differ, as a file has them: section.setting, or users.NAME."""
    found: list[str] = []
    for section in Config._fields:
        before: Any = getattr(old, section)
        after: Any = getattr(new, section)
        if before == after:
            continue
        if hasattr(before, "_fields") and hasattr(after, "_fields"):
            parts = zip(before._fields, before, after, strict=True)
            found += [f"{section}.{name}" for name, one, other in parts if one != other]
        elif isinstance(before, Mapping):
            found += [
                f"{section}.{name}"
                for name in sorted({*before, *after})
                if before.get(name) != after.get(name)
            ]
        else:
            found.append(section)
    return found


def names_nobody(config: Config) -> bool:
    """Whether the settings name no users, so that there is guest."""
    return any(isinstance(each, DefaultUser) for each in config.users.values())


class SettingsChange:
    """One change of the settings of a server: `now` and `later` are the names of the settings concerned."""

    def __init__(self, server: Server, new: Config) -> None:
        self.server = server
        self.old = server.config
        self.new = new
        self.now: list[str] = []
        self.later: list[str] = []
        # All of this may raise a ConfigFault.
        policy = password_policy(new._replace(auth=self.old.auth))
        self.users = {name: configured_user(name, given, policy) for name, given in new.users.items()}
        self.policies = configured_policies(new)
        has_tls = new.tls is not None and self.old.tls is not None
        self.certificates = Certificates(new.tls) if has_tls and new.tls is not None else None
        # If only now, then guest is to come back with what was administered: a start finds that.
        self.names_nobody = names_nobody(new)
        self.named_nobody = names_nobody(self.old)
        hosts = server.broker.administration.virtual_hosts
        self.added_hosts = [name for name in new.virtual_hosts if hosts.can_be_configured(name)]
        for name in differences(self.old, new):
            if name.startswith("users.") and self.names_nobody and self.named_nobody:
                continue  # guest is no setting, though the virtual hosts that it may use are
            (self.now if self.is_live(name) else self.later).append(name)

    def is_live(self, name: str) -> bool:
        section, _, setting = name.partition(".")
        if section == "users":
            return not self.names_nobody
        if section == "virtual_hosts":
            return {*self.old.virtual_hosts, *self.added_hosts} == set(self.new.virtual_hosts)
        return (
            section in LIVE_SECTIONS
            or name == "log.level"
            or (section == "limits" and setting in LIVE_LIMITS)
            or (section == "tls" and setting in LIVE_TLS)
        )

    def apply(self) -> None:
        """Puts into force what can be; a ConfigFault tells of exchanges, queues or bindings."""
        running = self.running()
        server, broker = self.server, self.server.broker
        server.config = running
        broker.configure(running)
        logging.getLogger().setLevel(running.log.level.upper())
        self.apply_resource_limits(running.limits)
        if self.certificates is not None:
            server.show_certificates(self.certificates)
        for name in self.added_hosts:
            broker.open_virtual_host(name)
        broker.administration.reconfigure(self.old, running, self.users)
        if self.old.policies != running.policies or self.old.operator_policies != running.operator_policies:
            broker.policies.reconfigure(self.policies)
        if any(getattr(self.old, each) != getattr(running, each) for each in static_topology.SECTIONS):
            static_topology.declare_again(broker)

    def apply_resource_limits(self, limits: Limits) -> None:
        """Those of memory and disk, if the file has others than before: what a request has set stays else."""
        old = self.old.limits
        if any(getattr(old, name) != getattr(limits, name) for name in MEMORY_LIMITS):
            self.server.limit_memory(limits)
        if any(getattr(old, name) != getattr(limits, name) for name in DISK_LIMITS):
            self.server.limit_disk(limits.disk_free_bytes_min)

    def running(self) -> Config:
        """The settings that hold from now on."""
        old, new = self.old, self.new
        limits = old.limits._replace(**{name: getattr(new.limits, name) for name in LIVE_LIMITS})
        tls = old.tls
        if tls is not None and new.tls is not None:
            tls = tls._replace(**{name: getattr(new.tls, name) for name in LIVE_TLS})
        virtual_hosts = (*old.virtual_hosts, *self.added_hosts)
        users = new.users
        if self.names_nobody:
            users = guest_alone(virtual_hosts) if self.named_nobody else old.users
        served = {*self.server.broker.virtual_hosts, *self.added_hosts}
        changed: dict[str, Any] = {name: getattr(new, name) for name in LIVE_SECTIONS}
        for name in static_topology.SECTIONS:
            changed[name] = tuple(each for each in changed[name] if each.virtual_host in served)
        return old._replace(
            **changed,
            limits=limits,
            tls=tls,
            log=old.log._replace(level=new.log.level),
            virtual_hosts=virtual_hosts,
            users=users,
        )

    def tell(self) -> None:
        audit = self.server.audit
        if audit is not None:
            audit.note(SETTINGS, "settings", True, arguments={"now": self.now, "later": self.later})
        if self.now:
            log.info("SIGHUP: settings that have changed and hold now: %s", ", ".join(self.now))
        if self.later:
            log.warning(
                "SIGHUP: settings that have changed and need a restart to hold: %s",
                ", ".join(self.later),
            )
        if not self.now and not self.later:
            log.info("SIGHUP: the settings have not changed")


def change_settings(server: Server, new: Config) -> bool:
    """Puts new settings into force as far as that can be, and tells; wrong ones change nothing: False."""
    try:
        change = SettingsChange(server, new)
    except ConfigFault as fault:
        log.error(STAY, fault)
        if server.audit is not None:
            server.audit.note(SETTINGS, "settings", False, reason=str(fault))
        return False
    is_administered = server.broker.administration.administrator_access.is_any()
    try:
        change.apply()
    except ConfigFault as fault:
        log.error("not all exchanges, queues and bindings of the settings could be declared: %s", fault)
    change.tell()
    if is_administered and not server.broker.administration.administrator_access.is_any():
        log.warning(
            "SIGHUP: the broker knows no administrator any more who can get in; give a user of the settings "
            'tags = ["administrator"] and permissions, and send SIGHUP again'
        )
    server.scheduler.schedule_pass()
    return True
