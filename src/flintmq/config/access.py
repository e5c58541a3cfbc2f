"""[access]: the realms of AMQP 0-8 and 0-9, and whether their clients need tickets to them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from flintmq import checks
from flintmq.config.policies import name_pattern
from flintmq.config.tables import Section, section, table


class RealmSettings(Section):
    """[access.realms.NAME]: the names of exchanges and queues that a ticket to the realm is good for."""

    configure: Annotated[str, name_pattern] = ""
    write: Annotated[str, name_pattern] = ""
    read: Annotated[str, name_pattern] = ""
    users: Annotated[tuple[str, ...] | None, checks.texts(checks.text())] = None  # None: everybody


# What the clients of that time ask for without having been told of any realm.
USUAL_REALMS = MappingProxyType({name: RealmSettings(".*", ".*", ".*") for name in ("/data", "/admin")})


class Access(Section):
    """[access]"""

    enforced: Annotated[bool, checks.switch] = False
    realms: Mapping[str, RealmSettings] = USUAL_REALMS


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
