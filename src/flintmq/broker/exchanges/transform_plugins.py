"""Transforms of other packages: functions named by entry points in the group `flintmq.transforms`."""

from __future__ import annotations

import logging
from collections.abc import Collection

from flintmq.broker.exchanges.exchange_plugins import installed
from flintmq.broker.exchanges.transform_exchange import TRANSFORMS

log = logging.getLogger("flintmq.plugins")

GROUP = "flintmq.transforms"


def load(wanted: Collection[str] | None) -> list[str]:
    """Makes the transforms of these entry points known, of all there are if None; their names."""
    found = {point.name: point for point in installed(GROUP)}
    for name in sorted(set(wanted or ()) - found.keys()):
        log.error("transform %r is not installed: no entry point of the group %s has the name", name, GROUP)
    loaded = []
    for name, point in sorted(found.items()):
        if wanted is not None and name not in wanted:
            continue
        try:
            function = point.load()
        except (Exception, SystemExit) as error:
            log.error("transform %r cannot be loaded: %s: %s", name, type(error).__name__, error)
            continue
        if not callable(function):
            log.error("transform %r is left out: %.80r is not a function", name, function)
            continue
        TRANSFORMS[name] = function
        loaded.append(name)
        log.info("plug-in %r adds the transform of that name", name)
    return loaded
