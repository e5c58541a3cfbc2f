"""Transforms of other packages: functions named by entry points in the group `flintmq.transforms`."""

from __future__ import annotations

import logging
from collections.abc import Collection

from flintmq import entry_points
from flintmq.broker.exchanges.transform_exchange import TRANSFORMS

log = logging.getLogger("flintmq.plugins")

GROUP = "flintmq.transforms"
WHAT = "transform"  # in the log


def load(wanted: Collection[str] | None) -> list[str]:
    """Makes the transforms of these entry points known, of all there are if None; their names."""
    names = []
    for point in entry_points.chosen(GROUP, wanted, WHAT):
        function = entry_points.loaded(point, WHAT, fault_of)
        if function is not None:
            TRANSFORMS[point.name] = function
            names.append(point.name)
            log.info("plug-in %r adds the transform of that name", point.name)
    return names


def fault_of(function: object) -> str:
    return "" if callable(function) else f"{function!r:.80} is not a function"
