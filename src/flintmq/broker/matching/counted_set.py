"""A counted set: which items were added and how often, in as little memory as it takes.

Nearly every binding key leads to one destination through one binding, so a counted set is one of

    None               nothing
    the item itself    one item, added once
    {item: count}      anything more

and the functions here return the counted set that follows. Items are hashable and never None or a dict.
A count is kept since two bindings that differ in arguments alone lead to the same destination,
and the destination stays until the last of them is gone.
"""

from __future__ import annotations

from typing import Any, TypeAlias

CountedSet: TypeAlias = Any


def add(counted: CountedSet, item: Any) -> CountedSet:
    """The counted set with `item` counted once more."""
    if counted is None:
        return item
    if type(counted) is not dict:
        counted = {counted: 1}
    counted[item] = counted.get(item, 0) + 1
    return counted


def remove(counted: CountedSet, item: Any) -> CountedSet:
    """The counted set with `item` counted once less; KeyError when it was never added."""
    if type(counted) is not dict:
        if counted is not item:
            raise KeyError(item)
        return None
    count = counted[item]
    if count > 1:
        counted[item] = count - 1
    else:
        del counted[item]
    if len(counted) == 1:
        for last, uses in counted.items():
            return last if uses == 1 else counted
    return counted


def holds(counted: CountedSet, item: Any) -> bool:
    """Whether the item was added."""
    return item in counted if type(counted) is dict else counted is item


def size(counted: CountedSet) -> int:
    """How many different items there are."""
    if counted is None:
        return 0
    return len(counted) if type(counted) is dict else 1


def collect(counted: CountedSet, found: dict[Any, Any]) -> None:
    """Puts every item into `found` as a key; what the values are has no meaning."""
    if type(counted) is dict:
        found.update(counted)
    elif counted is not None:
        found[counted] = 1
