"""Who changed what, from where: the one place that hears of each change, and of each refusal.

    request to a service --> done, or refused --> Changes.tell --> the log, one line for each change
    settings read again  --> in force ----------/              \\-> observers: an audit log and the like

A change never has secrets in it: passwords, their hashes and values of parameters are left out where it is
made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from flintmq.field_tuple import FieldTuple

log = logging.getLogger("flintmq.administration")

# Of a line of the log: a pattern may have a thousand letters.
LINE_LETTERS_MAX = 1000
# Whoever changes something without being a user: the file of settings.
SETTINGS = "settings"


class Change(FieldTuple):
    """What somebody has changed, or was refused."""

    what: str  # the service, such as `user.add`, or `settings`
    user: str  # who asked; empty for settings
    peer_address: str = ""
    connection: int = 0
    virtual_host: str = ""  # of the connection that asked
    arguments: Mapping[str, Any] = MappingProxyType({})
    code: int = 0  # why it was refused, an AMQP reply code; 0: it was done
    text: str = ""

    def line(self) -> str:
        """As the log has it. Texts are shown by `repr`, so that no control code gets into the log."""
        given = " ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        text = f"user {self.user!r} at {self.peer_address or 'no address'}: {self.what} {given}".rstrip()
        return text if len(text) <= LINE_LETTERS_MAX else f"{text[:LINE_LETTERS_MAX]}..."


Observer = Callable[[Change], None]


class Changes:
    """Tells observers. One that fails keeps neither the change nor the other observers from going on."""

    def __init__(self) -> None:
        self.observers: list[Observer] = []

    def tell(self, change: Change) -> None:
        if not change.code and change.what != SETTINGS:  # of which the server tells
            log.info("%s", change.line())
        for observer in self.observers:
            try:
                observer(change)
            except Exception:
                log.exception("a bug keeps an observer from hearing of %s", change.what)
