"""CRC32C, of what is written as uncompiled code sees it; compiled code has its own (layout.pxd)."""

from __future__ import annotations


def extend(crc: int, octets: bytes) -> int:
    """The checksum of octets that follow those with the checksum `crc`."""
    # By the first who has octets to check: it takes a millisecond to load, and a broker in memory has none.
    import google_crc32c

    extended: int = google_crc32c.extend(crc, octets)
    return extended
