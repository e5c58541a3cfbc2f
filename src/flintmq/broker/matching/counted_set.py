"""A tally: which items were added and how often, in as little memory as it takes.

Nearly every binding key leads to one destination through one binding, so a tally is one of

    None               nothing
    the item itself    one item, added once
    {item: count}      anything more

and the functions here return the tally that follows. Items are hashable and never None or a dict.
A count is kept since two bindings that differ in arguments alone lead to the same destination,
and the destination stays until the last of them is gone.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Tally: TypeAlias = Any


def add(tally: Tally, item: Any) -> Tally:
    """The tally with `item` counted once more."""
    if tally is None:
        return item
    if type(tally) is not dict:
        tally = {tally: 1}
    tally[item] = tally.get(item, 0) + 1
    return tally


def remove(tally: Tally, item: Any) -> Tally:
    """The tally with `item` counted once less; KeyError when it was never added."""
    if type(tally) is not dict:
        if tally is not item:
            raise KeyError(item)
        return None
    count = tally[item]
    if count > 1:
        tally[item] = count - 1
    else:
        del tally[item]
    if len(tally) == 1:
        for last, uses in tally.items():
            return last if uses == 1 else tally
    return tally


def holds(tally: Tally, item: Any) -> bool:
    """Whether the item was added."""
    return item in tally if type(tally) is dict else tally is item


def size(tally: Tally) -> int:
    """How many different items there are."""
    if tally is None:
        return 0
    return len(tally) if type(tally) is dict else 1


def collect(tally: Tally, found: dict[Any, Any]) -> None:
    """Puts every item into `found` as a key; what the values are has no meaning."""
    if type(tally) is dict:
        found.update(tally)
    elif tally is not None:
        found[tally] = 1
