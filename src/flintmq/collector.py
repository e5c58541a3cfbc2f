"""What the garbage collector need not look at: the Python half of a twin.

Compiled modules never see this file: `collector.pxd` has the same function in C.
"""

from __future__ import annotations

from typing import Any


def untrack(item: Any) -> None:
    """The collector leaves the item alone from now on: whoever holds it lets go of it without being asked.

    Python has no such call, and the pure build does without.
    """
