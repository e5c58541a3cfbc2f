"""Addresses and ports of the two ends of a connection, as its socket tells them."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.wire.tables import FieldTable


def ends(descriptor: int) -> FieldTable:
    """`peer` and `here`, each an address, with `peer-port` and `port`; nothing of a socket that has ended."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            peer, here = copy.getpeername(), copy.getsockname()
    except OSError:
        return {}
    if not isinstance(peer, tuple) or not isinstance(here, tuple):
        return {}  # both ends are in this machine, and have no addresses
    return {"peer": peer[0], "peer-port": peer[1], "here": here[0], "port": here[1]}
