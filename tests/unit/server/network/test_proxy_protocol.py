"""Headers of the PROXY protocol, right and wrong, and clients that come behind them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import pytest

from flintmq.clock import Clock
from flintmq.config import Config, Limits, Listen
from flintmq.server.network.proxy_protocol import (
    LINE_OCTETS_MAX,
    SIGNATURE,
    ProxyFault,
    client_address,
    is_proxy,
    missing,
)
from flintmq.server.server import Server

HEADER = b"AMQP\x00\x00\x09\x01"
V4 = socket.inet_aton("203.0.113.7") + socket.inet_aton("10.0.0.5") + bytes((200, 34, 22, 40))
V6 = socket.inet_pton(socket.AF_INET6, "2001:db8::7") + bytes(16) + bytes((200, 34, 22, 40))


def v2(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + bytes((command, family)) + len(rest).to_bytes(2, "big") + rest


def read(octets: bytes) -> tuple[str | None, bytes]:
    """The address that a header names, and what follows the header."""
    header = b""
    while size := missing(header):
        more = octets[len(header) : len(header) + size]
        assert more, "the header is not whole"
        header += more
    return client_address(header), octets[len(header) :]


@pytest.mark.parametrize(
    ("octets", "address"),
    [
        (b"PROXY TCP4 203.0.113.7 10.0.0.5 51234 5672\r\n", "203.0.113.7"),
        (b"PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\n", "1.1.1.1"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 0 65535\r\n", "2001:db8::7"),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 whatever\r\n", None),
        (v2(0x21, 0x11, V4), "203.0.113.7"),
        (v2(0x21, 0x11, V4 + b"\x03\x00\x04more"), "203.0.113.7"),
        (v2(0x21, 0x21, V6), "2001:db8::7"),
        (v2(0x20, 0x00, b""), None),
        (v2(0x20, 0x11, V4), None),
        (v2(0x21, 0x00, b""), None),
        (v2(0x21, 0x31, bytes(216)), None),
    ],
)
def test_a_header_names_the_client_and_leaves_what_follows(octets: bytes, address: str | None) -> None:
    assert read(octets + HEADER) == (address, HEADER)


@pytest.mark.parametrize(
    "octets",
    [
        HEADER * 20,
        b"PROXX TCP4 203.0.113.7 10.0.0.5 51234 5672\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.5 51234\r\n",
        b"PROXY TCP4  203.0.113.7 10.0.0.5 51234 5672\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.5 51234 5672 \r\n",
        b"PROXY TCP4 203.0.113.07 10.0.0.5 51234 5672\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.5 051234 5672\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.5 65536 5672\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.5 -1 5672\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::1 1 1\r\n",
        b"PROXY TCP6 203.0.113.7 10.0.0.5 1 1\r\n",
        b"PROXY TCP4 203.0.113.\xb2 10.0.0.5 1 1\r\n",
        b"PROXY UDP4 203.0.113.7 10.0.0.5 1 1\r\n",
        b"PROXY " + b"x" * 200,
        b"PROXY UNKNOWN" + b"\r" * 200,
        v2(0x11, 0x11, V4),
        v2(0x22, 0x11, V4),
        v2(0x21, 0x12, V4),
        v2(0x21, 0x11, V4[:-1]),
        v2(0x21, 0x21, V4),
        v2(0x21, 0x11, bytes(1025)),
        SIGNATURE[:-1] + b"x" + bytes(100),
    ],
)
def test_what_is_not_a_header_is_refused(octets: bytes) -> None:
    with pytest.raises(ProxyFault):
        read(octets)


def test_no_more_is_read_than_the_longest_line() -> None:
    header = b"PROXY "
    while len(header) < LINE_OCTETS_MAX:
        header += b"x" * missing(header)
    assert len(header) == LINE_OCTETS_MAX
    with pytest.raises(ProxyFault):
        missing(header)


@pytest.mark.parametrize(
    ("address", "networks", "yes"),
    [
        ("10.1.2.3", ("10.0.0.0/8",), True),
        ("::ffff:10.1.2.3", ("10.0.0.0/8",), True),
        ("11.1.2.3", ("10.0.0.0/8", "2001:db8::/32"), False),
        ("2001:db8::1", ("10.0.0.0/8", "2001:db8::/32"), True),
        ("?", ("0.0.0.0/0",), False),
    ],
)
def test_who_has_to_speak_it(address: str, networks: tuple[str, ...], yes: bool) -> None:
    assert is_proxy(address, networks) == yes


Scenario = Callable[[Server, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def behind(proxies: tuple[str, ...], scenario: Scenario, timeout_s: float = 10.0) -> None:
    """A server that takes the PROXY protocol from these networks, and one who connects from 127.0.0.1."""

    async def main() -> None:
        listen = Listen(("127.0.0.1",), 0, proxies)
        config = Config()._replace(listen=listen, limits=Limits(handshake_timeout_s=timeout_s))
        server = Server(config, Clock(), asyncio.get_running_loop())
        port = int(server.listen()[0].rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.wait_for(scenario(server, reader, writer), 20)
        finally:
            writer.close()
            await server.stop(0.1)

    asyncio.run(main())


def test_the_address_of_the_client_is_what_the_session_knows() -> None:
    async def scenario(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header = b"PROXY TCP4 203.0.113.7 10.0.0.5 51234 5672\r\n"
        for octet in header[:-1]:
            writer.write(bytes((octet,)))
            await writer.drain()
        assert not server.links
        writer.write(header[-1:] + HEADER)
        assert await reader.readexactly(1) == b"\x01"  # connection.start
        (link,) = server.links
        assert link.session.peer_address == "203.0.113.7"
        assert not server.strangers.arriving
        guest = server.broker.users.get("guest")
        assert guest is not None
        assert not guest.may_come_from(link.session.peer_address)

    behind(("127.0.0.0/8",), scenario)


@pytest.mark.parametrize(
    ("said", "known_as"),
    [
        (b"PROXY TCP4 127.0.0.1 10.0.0.5 51234 5672\r\n", "127.0.0.1"),
        (b"PROXY UNKNOWN\r\n", "unknown"),
        (v2(0x20, 0, b""), "unknown"),
    ],
)
def test_only_a_client_of_this_machine_is_taken_for_one(said: bytes, known_as: str) -> None:
    async def scenario(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said + HEADER)
        assert await reader.readexactly(1) == b"\x01"
        (link,) = server.links
        assert link.session.peer_address == known_as
        guest = server.broker.users.get("guest")
        assert guest is not None
        assert guest.may_come_from(known_as) == (known_as == "127.0.0.1")

    behind(("127.0.0.0/8",), scenario)


def test_a_proxy_that_says_something_else_is_refused() -> None:
    async def scenario(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEADER)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert not server.links
        assert not server.strangers.arriving

    behind(("127.0.0.1/32",), scenario)


def test_a_proxy_that_says_nothing_has_the_time_of_a_handshake() -> None:
    async def scenario(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"PROXY ")
        assert await reader.read() == b""
        assert not server.strangers.arriving

    behind(("127.0.0.1/32",), scenario, 0.2)


def test_a_header_from_others_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"PROXY TCP4 127.0.0.1 127.0.0.1 51234 5672\r\n" + HEADER)
        assert await reader.read() == HEADER

    behind(("10.0.0.0/8",), scenario)
    assert "the PROXY protocol, which [listen] does not allow from there" in caplog.text
