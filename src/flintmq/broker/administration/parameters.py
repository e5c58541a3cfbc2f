"""Parameters: named values of components, for one virtual host or for the whole broker.

The broker keeps them for those who read them: tools, and parts of the broker that are told by parameters what
to do. It does not know what a value means.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from flintmq.broker.administration import records
from flintmq.broker.administration.faults import missing, unfit
from flintmq.config import NAME_OCTETS_MAX
from flintmq.wire.tables import encode_value

if TYPE_CHECKING:
    from flintmq.broker.administration.records import FoundRecords, Records
    from flintmq.wire.tables import FieldTable, FieldValue

log = logging.getLogger("flintmq.administration")

# A value lies in memory and in each checkpoint of the journal.
VALUE_OCTETS_MAX = 65_536
PARAMETERS_MAX = 10_000
FORGOTTEN_AT_ONCE = 64

# What stands for the whole broker in place of the name of a virtual host, which is never empty.
WHOLE_BROKER = ""
CLUSTER_NAME = ("global", "cluster_name")

Key = tuple[str, str, str]  # virtual host, component, name


class Parameters:
    """All of them, by virtual host, component and name."""

    def __init__(self, written: Records, require_host: Callable[[str], None]) -> None:
        self.records = written
        self.require_host = require_host
        self.values: dict[Key, FieldValue] = {}

    def check(self, virtual_host: str, component: str, name: str, value: FieldValue) -> None:
        """Raises unless the parameter may be set; whether there is the virtual host is another question."""
        for what, given in (("component", component), ("name", name)):
            is_short = 0 < len(given.encode("utf-8", "surrogatepass")) <= NAME_OCTETS_MAX
            if not is_short or not given.isprintable():
                raise unfit(f"{what}: expected 1 to {NAME_OCTETS_MAX} octets of printable letters")
        if len(encode_value(value)) > VALUE_OCTETS_MAX:
            raise unfit(f"value: expected at most {VALUE_OCTETS_MAX} octets")
        if (virtual_host, component, name) not in self.values:
            check_count(len(self.values) + 1)

    def set(self, virtual_host: str, component: str, name: str, value: FieldValue) -> None:
        if virtual_host != WHOLE_BROKER:
            self.require_host(virtual_host)
        self.check(virtual_host, component, name, value)
        key = (virtual_host, component, name)
        self.records.put(records.PARAMETER, identity_of(key), {"value": value})
        self.values[key] = value

    def clear(self, virtual_host: str, component: str, name: str) -> None:
        key = (virtual_host, component, name)
        if key not in self.values:
            raise missing("parameter", f"{component}/{name}")
        self.records.delete(records.PARAMETER, identity_of(key))
        del self.values[key]

    def cluster_name(self) -> str:
        """What RabbitMQ's tools and definitions call the broker; empty if nobody has given it a name."""
        name = self.values.get((WHOLE_BROKER, *CLUSTER_NAME), "")
        return name if isinstance(name, str) else ""

    def forget_host(self, virtual_host: str) -> Iterator[None]:
        for at, key in enumerate([key for key in self.values if key[0] == virtual_host], 1):
            self.clear(*key)
            if at % FORGOTTEN_AT_ONCE == 0:
                yield

    def restore(self, found: FoundRecords) -> None:
        for identity, value in found.of(records.PARAMETER):
            key = [identity.get(each) for each in ("virtual-host", "component", "name")]
            texts = [each for each in key if isinstance(each, str)]
            if len(texts) < 3 or "value" not in value:
                log.error("a parameter of the journal is left out: the record of it is not well formed")
            else:
                self.values[texts[0], texts[1], texts[2]] = value["value"]


def check_count(count: int) -> None:
    """Raises unless there may be so many."""
    if count > PARAMETERS_MAX:
        raise unfit(f"there are {PARAMETERS_MAX} parameters already")


def identity_of(key: Key) -> FieldTable:
    virtual_host, component, name = key
    return {"virtual-host": virtual_host, "component": component, "name": name}
