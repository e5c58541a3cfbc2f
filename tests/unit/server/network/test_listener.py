"""How listening sockets are set up, and with them those that they accept."""

from __future__ import annotations

import socket
import sys

import pytest

from flintmq.server.network.listener import bound


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not let one choose")
@pytest.mark.parametrize(("host", "is_paced"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_traffic_within_the_machine_is_not_paced(host: str, is_paced: bool) -> None:
    with socket.socket() as plain:
        usual = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    with bound(host, 0) as listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            chosen = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert chosen == (usual if is_paced else b"reno".ljust(16, b"\0"))
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
