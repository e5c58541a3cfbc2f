"""Where a message is kept, as one number, its entry: the Python half of a twin.

    0                     in memory only
    n << 1                entry n of the journal
    n << 1 | 1            entry n of the overflow
    1 << 63 | n << 1 | 1  number n of the bodies that the store holds, see store/spooling.py

What is not in the journal ends with the process. Compiled modules see `entry_number.pxd`, the same in C.
"""

from __future__ import annotations

_HELD = 1 << 63


def of_journal(sequence: int) -> int:
    return sequence << 1


def of_overflow(sequence: int) -> int:
    return sequence << 1 | 1


def of_hold(number: int) -> int:
    return _HELD | number << 1 | 1


def sequence_of(entry: int) -> int:
    """Its number in the journal or in the overflow."""
    return entry >> 1


def is_in_journal(entry: int) -> bool:
    return entry != 0 and entry & 1 == 0


def is_transient(entry: int) -> bool:
    """Whether it is kept outside memory until the process ends: in the overflow, or held."""
    return entry & 1 == 1


def is_held(entry: int) -> bool:
    return entry >= _HELD
