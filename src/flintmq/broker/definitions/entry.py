"""One item of a definitions file: read from JSON, checked against a draft, then put into force."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from flintmq.checks import Unfit

if TYPE_CHECKING:
    from flintmq.broker.broker import Broker
    from flintmq.broker.definitions.draft import Draft
    from flintmq.broker.definitions.fields import Fields
    from flintmq.broker.virtual_host import VirtualHost


class Entry:
    """`rank` is its turn among the others; `within` is the virtual host that a file of one is for."""

    section: ClassVar[str] = ""
    rank: ClassVar[int] = 0

    def __init__(self, fields: Fields, within: str) -> None:
        self.label = ""  # how a report calls it
        self.notes: list[str] = []
        self.is_begun = False  # a part of it is in force, which a report tells if the rest cannot be
        self.read(fields, within)
        unread = fields.rest()
        if unread:
            self.notes.append(f"means nothing here and is left out: {', '.join(unread)}")

    def read(self, fields: Fields, within: str) -> None:
        raise NotImplementedError

    def check(self, draft: Draft) -> None:
        """Raises an Unfit, a fault of a peer or of a service if it cannot be done; enters it if it can."""
        raise NotImplementedError

    def apply(self, broker: Broker) -> bool:
        """Puts it into force, and says whether that has changed anything; raises as `check` does."""
        raise NotImplementedError


class Elsewhere(Exception):
    """The item is of another virtual host than the one that the import is for."""


def host_of(fields: Fields, within: str) -> str:
    """The virtual host of an item; items of a file of one virtual host do not name it."""
    if not within:
        return fields.name("vhost")
    named = fields.name("vhost") if fields.has("vhost") else within
    if named != within:
        raise Elsewhere
    return within


def quoted(kind: str, name: str, virtual_host: str = "") -> str:
    where = f" in virtual host '{virtual_host}'" if virtual_host else ""
    return f"{kind} '{name}'{where}"


def host_named(broker: Broker, name: str) -> VirtualHost:
    host = broker.virtual_hosts.get(name)
    if host is None:
        raise Unfit("its virtual host was deleted meanwhile")
    return host
