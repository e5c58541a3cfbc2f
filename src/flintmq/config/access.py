"""[access]: the realms of AMQP 0-8 and 0-9, and whether their clients need tickets to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from flintmq import checks
from flintmq.config.policies import pattern
from flintmq.config.tables import section, setting, table


@dataclass(frozen=True, slots=True)
class RealmSettings:
    """[access.realms.NAME]: the names of exchanges and queues that a ticket to the realm is good for."""

    configure: str = setting("", pattern)
    write: str = setting("", pattern)
    read: str = setting("", pattern)
    users: tuple[str, ...] | None = setting(None, checks.texts(checks.text()))  # None: everybody


# What the clients of that time ask for without having been told of any realm.
USUAL_REALMS = MappingProxyType({name: RealmSettings(".*", ".*", ".*") for name in ("/data", "/admin")})


@dataclass(frozen=True, slots=True)
class Access:
    """[access]"""

    enforced: bool = setting(False, checks.switch)
    realms: Mapping[str, RealmSettings] = field(default_factory=lambda: USUAL_REALMS)


def read_access(value: object) -> Access:
    access = section(Access, value, "access", apart=("realms",))
    given = table(value, "access")
    if "realms" not in given:
        return access
    realms = {
        name: section(RealmSettings, one, f"access.realms.{name}")
        for name, one in table(given["realms"], "access.realms").items()
    }
    return Access(access.enforced, MappingProxyType(realms))
