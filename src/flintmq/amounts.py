"""Amounts for people: octets and spans of time in the units that suit."""

from __future__ import annotations

NOTHING = "-"


def size(octets: float) -> str:
    """Octets in the unit that suits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if octets < 1024:
            return f"{octets:.0f} {unit}" if unit == "B" else f"{octets:.1f} {unit}"
        octets /= 1024
    return f"{octets:.1f} TiB"


def age(milliseconds: float | None) -> str:
    """A time span in its two largest units."""
    if milliseconds is None:
        return NOTHING
    seconds = int(milliseconds // 1000)
    if seconds < 60:
        return f"{milliseconds / 1000:.1f} s" if seconds < 10 else f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 86400:
        return f"{seconds // 3600} h {seconds % 3600 // 60} min"
    return f"{seconds // 86400} d {seconds % 86400 // 3600} h"
