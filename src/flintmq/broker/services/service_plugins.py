"""Services of other packages: functions named by entry points in the group `flintmq.services`.

The name of the entry point is that of the service. docs/services.md tells how to write one. Whatever is wrong
with one is a line in the log: a plug-in that cannot be loaded is left out, and one that fails at work is
answered by 541.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from flintmq.broker.exchanges.exchange_plugins import installed
from flintmq.broker.services import arguments
from flintmq.broker.services.request import ARGUMENTS, CHANGING, SERVICES
from flintmq.errors import ProtocolMisuse

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger("flintmq.plugins")

GROUP = "flintmq.services"
# As those of the broker itself: a noun and a verb.
_NAME = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)+")
NAME_OCTETS_MAX = 127

# Those that plug-ins have added, which a second broker in a process may add again.
_added: dict[str, str] = {}


def load(wanted: Collection[str] | None) -> list[str]:
    """Makes the services of these entry points known, of all there are if None; their names."""
    found = {point.name: point for point in installed(GROUP)}
    for name in sorted(set(wanted or ()) - found.keys()):
        log.error(
            "service plug-in %r is not installed: no entry point of the group %s has the name", name, GROUP
        )
    loaded = []
    for name, point in sorted(found.items()):
        if (wanted is None or name in wanted) and add(point):
            loaded.append(name)
            log.info("service plug-in %r adds the service of that name", name)
    return loaded


def add(point: EntryPoint) -> bool:
    """Whether the service is known now; if not, the log says why."""
    try:
        function: Any = point.load()
    except (Exception, SystemExit) as error:
        log.error("service plug-in %r cannot be loaded: %s: %s", point.name, type(error).__name__, error)
        return False
    try:
        signature = arguments.table_of(getattr(function, "arguments", ""))
        wrong = fault_of(point, function)
    except (ProtocolMisuse, AttributeError, TypeError) as error:
        wrong = f"its `arguments` are no signature: {error}"
    if wrong:
        log.error("service plug-in %r is left out: %s", point.name, wrong)
        return False
    _added[point.name] = point.value
    SERVICES[point.name] = function
    ARGUMENTS[point.name] = signature
    if getattr(function, "changes", False):
        CHANGING.add(point.name)
    return True


def fault_of(point: EntryPoint, function: Any) -> str:
    """What is wrong with it as a service; empty if nothing is."""
    if not callable(function):
        return f"{function!r:.80} is not a function of a request"
    if not _NAME.fullmatch(point.name) or len(point.name) > NAME_OCTETS_MAX:
        return "its name is not made of words with dots between them, such as weather.today"
    if point.name in SERVICES and _added.get(point.name) != point.value:
        return f"there is a service {point.name!r} already"
    return ""
