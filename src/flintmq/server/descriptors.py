"""How many descriptors the process may have: sockets and files together."""

from __future__ import annotations

import os

# What connections leave to files: journal, streams, bodies on their way. A quarter of the limit where that is
# less. Beside them is what a process has open before anybody connects.
FILES = 1024
# What that is at most, of a broker with few listeners: some 20.
OPEN_FIRST = 64
UNLIMITED = 1 << 30


def limit() -> int:
    """How many descriptors this process may have."""
    try:
        import resource
    except ImportError:  # there is no such limit
        return UNLIMITED
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def count() -> int:
    """How many this process has open; 0 where the system does not tell."""
    for directory in ("/proc/self/fd", "/dev/fd"):
        try:
            # Linux from 6.2 on has the number as the size: to list 60,000 takes tens of milliseconds.
            size = os.stat(directory).st_size if directory.startswith("/proc") else 0
            return size or len(os.listdir(directory)) - 1  # one is open to list them
        except OSError:
            continue
    return 0


def left_to_connections(most: int) -> int:
    """How many of `most` descriptors clients may take, asked before there are any: one at least."""
    return max(most - min(FILES, most // 4) - count(), 1)


def raise_limit(connections: int) -> None:
    """As many descriptors as so many connections need, if the system lets us have them."""
    try:
        import resource
    except ImportError:  # there is no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + FILES + OPEN_FIRST
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < possible:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
