"""How listening sockets are set up, and with them those that they accept."""

from __future__ import annotations

import asyncio
import socket
import sys

import pytest

from flintmq.clock import Clock
from flintmq.config import Config, Listen
from flintmq.server.network.listener import bound
from flintmq.server.server import Server


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


def test_a_connection_that_cannot_be_served_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        config = Config()._replace(listen=Listen(("127.0.0.1",), 0, fast09_port=0))
        server = Server(config, Clock(), asyncio.get_running_loop())
        ports = [int(url.rsplit(":", 1)[1]) for url in server.listen()]
        monkeypatch.setitem(sys.modules, "flintmq.server.fast09.session", None)  # which is how to hide it
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", ports[1])
            assert await asyncio.wait_for(reader.read(), 20) == b""
            writer.close()
            assert not server.links
        finally:
            await server.stop(0.1)

    asyncio.run(main())
    assert "a bug keeps 127.0.0.1 from connecting" in caplog.text
