"""Plug-ins: what other installed packages name in their entry points, found and loaded.

Whatever is wrong with a plug-in is a line in the log, and the plug-in is left out.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Collection, Iterator
from functools import cache
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger("flintmq.plugins")


def chosen(group: str, wanted: Collection[str] | None, what: str) -> list[EntryPoint]:
    """The entry points of a group that are wanted, all if None; `what` is the word for one in the log."""
    found = {point.name: point for point in installed(group)}
    for name in sorted(set(wanted or ()) - found.keys()):
        log.error("%s %r is not installed: no entry point of the group %s has the name", what, name, group)
    return [point for name, point in sorted(found.items()) if wanted is None or name in wanted]


def loaded(point: EntryPoint, what: str, fault_of: Callable[[Any], str]) -> Any:
    """What an entry point names; None, and a line in the log, if that cannot be loaded or has a fault."""
    try:
        named = point.load()
    except (Exception, SystemExit) as error:
        log.error("%s %r cannot be loaded: %s: %s", what, point.name, type(error).__name__, error)
        return None
    fault = fault_of(named)
    if fault:
        log.error("%s %r is left out: %s", what, point.name, fault)
        return None
    return named


def installed(group: str) -> Collection[EntryPoint]:
    """The entry points of a group; importlib.metadata is loaded, for 25 ms, if there is one at all."""
    if not is_named(tuple(sys.path), group):
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=group)


def is_named(path: tuple[str, ...], group: str) -> bool:
    """Whether a package on the path may have entry points of a group."""
    if any(finder is not PathFinder and hasattr(finder, "find_distributions") for finder in sys.meta_path):
        return True  # this finder may know packages that are nowhere on the path
    heads = heads_on(path)
    return heads is None or f"[{group}]".encode() in heads


@cache
def heads_on(path: tuple[str, ...]) -> frozenset[bytes] | None:
    """The heads of all groups that packages on the path name; None if only importlib.metadata can tell.

    Read once for all groups: there are as many files as packages.
    """
    heads: set[bytes] = set()
    for place in path:
        try:
            with os.scandir(place or ".") as entries:
                found = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
        except NotADirectoryError:
            return None  # an archive, which importlib.metadata looks into
        except OSError:  # not there, as many a place on the path
            continue
        for name in found:
            heads.update(heads_in(os.path.join(name, "entry_points.txt")))
    return frozenset(heads)


def heads_in(file_name: str) -> Iterator[bytes]:
    """The lines of a file that begin a group; none of a package without such a file."""
    try:
        with open(file_name, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        head = line.strip()
        if head.startswith(b"["):
            yield head
