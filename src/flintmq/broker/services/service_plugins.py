"""Services of other packages: functions named by entry points in the group `flintmq.services`.

The name of the entry point is that of the service. docs/services.md tells how to write one. Whatever is wrong
with one is a line in the log: a plug-in that cannot be loaded is left out, and one that fails at work is
answered by 541.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from flintmq import entry_points
from flintmq.broker.services import arguments
from flintmq.broker.services.request import ARGUMENTS, CHANGING, SERVICES, load_services
from flintmq.errors import ProtocolMisuse

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger("flintmq.plugins")

GROUP = "flintmq.services"
WHAT = "service plug-in"  # in the log
# As those of the broker itself: a noun and a verb.
_NAME = r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)+"  # compiled for the first plug-in
NAME_OCTETS_MAX = 127

# Those that plug-ins have added, which a second broker in a process may add again.
_added: dict[str, str] = {}


def load(wanted: Collection[str] | None) -> list[str]:
    """Makes the services of these entry points known, of all there are if None; their names."""
    names = []
    points = entry_points.chosen(GROUP, wanted, WHAT)
    if points:
        load_services()  # a plug-in has no name of theirs
    for point in points:
        function = entry_points.loaded(point, WHAT, partial(fault_of, point))
        if function is not None:
            _added[point.name] = point.value
            SERVICES[point.name] = function
            ARGUMENTS[point.name] = signature_of(function)
            if getattr(function, "changes", False):
                CHANGING.add(point.name)
            names.append(point.name)
            log.info("service plug-in %r adds the service of that name", point.name)
    return names


def signature_of(function: Any) -> arguments.Table:
    return arguments.table_of(getattr(function, "arguments", ""))


def fault_of(point: EntryPoint, function: Any) -> str:
    """What is wrong with it as a service; empty if nothing is."""
    if not callable(function):
        return f"{function!r:.80} is not a function of a request"
    if not re.fullmatch(_NAME, point.name) or len(point.name) > NAME_OCTETS_MAX:
        return "its name is not made of words with dots between them, such as weather.today"
    if point.name in SERVICES and _added.get(point.name) != point.value:
        return f"there is a service {point.name!r} already"
    try:
        signature_of(function)
    except (ProtocolMisuse, AttributeError, TypeError) as error:
        return f"its `arguments` are no signature: {error}"
    return ""
