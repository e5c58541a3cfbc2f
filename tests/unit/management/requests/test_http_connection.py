"""Connections that ask for nothing, and many from one peer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.responses import StreamingResponse

from flintmq.management.http_process import HttpServer, config_of, loop_factory
from flintmq.management.requests import http_connection
from flintmq.management.requests.http_connection import HttpConnection

WHOLE = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def slow_app(scope: Any, receive: Any, send: Any) -> None:
    """Answers after three times the time that a head may take."""
    await asyncio.sleep(0.3)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def long_app(scope: Any, receive: Any, send: Any) -> None:
    """An answer without end, as a list is that nobody reads."""

    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield bytes(100_000)
            await asyncio.sleep(0)

    await StreamingResponse(chunks())(scope, receive, send)


@asynccontextmanager
async def serving(app: Any = slow_app) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = HttpServer(config_of(app, None, None))
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await task


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", 0.1)


@pytest.mark.parametrize(
    "said",
    [b"", b"GET / HTTP/1.1\r\nho", WHOLE + b"GET /", b"\r\n"],
    ids=["nothing", "half", "second", "line"],
)
def test_a_head_that_does_not_come(said: bytes) -> None:
    async def use() -> bytes:
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                async with asyncio.timeout(10):
                    answered = b""
                    if said.startswith(WHOLE):
                        writer.write(WHOLE)
                        answered = await reader.readuntil(b"\r\n\r\n")
                    writer.write(said.removeprefix(WHOLE))
                    return answered + await reader.read()  # all, until it is closed
            finally:
                writer.close()

    assert asyncio.run(use()).count(b"204 No Content") == said.count(WHOLE)
    assert not HttpConnection.peers


def test_a_head_that_comes_octet_by_octet() -> None:
    """Octets do not prolong the time."""

    async def use() -> None:
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            end = asyncio.create_task(reader.read())
            try:
                async with asyncio.timeout(10):
                    writer.write(b"GET / HTTP/1.1\r\nx-long: ")
                    while not end.done():
                        writer.write(b"x")
                        await asyncio.sleep(0.02)
                assert end.exception() is not None or end.result() == b""
            finally:
                writer.close()

    asyncio.run(use())


def test_peers_that_hang_up_before_their_answers_are_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """Requests behind the one that is answered are known to uvicorn, which forgets that one for them."""

    async def use() -> None:
        async with serving(long_app) as port:
            for _ in range(3):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(WHOLE * 20)
                await asyncio.sleep(0.05)
                writer.transport.abort()
            async with asyncio.timeout(10):
                await connections(0)
            await asyncio.sleep(0.05)
            assert len(asyncio.all_tasks()) == 2  # the server and this test

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(use())
    assert caplog.records == []


async def connections(count: int) -> None:
    """Until the server has so many."""
    while HttpConnection.peers["127.0.0.1"] != count:  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.01)


def test_connections_of_one_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "PEER_CONNECTIONS_MAX", 2)
    monkeypatch.setattr(http_connection, "HEAD_S", 10.0)

    async def use() -> list[bytes]:
        async with serving() as port, asyncio.timeout(10):
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            await connections(2)
            told = []
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                told.append(await reader.readline())
                writer.close()
                # One ends: the next one gets in.
                held[0][1].close()
                await connections(1)
                reader, writer = held[0] = await asyncio.open_connection("127.0.0.1", port)
                writer.write(WHOLE)
                told.append(await reader.readline())
            for _, writer in held:
                writer.close()
            return told

    refused, answered = b"HTTP/1.1 503 Service Unavailable\r\n", b"HTTP/1.1 204 No Content\r\n"
    assert asyncio.run(use()) == [refused, answered, refused, answered]


async def endless_app(scope: Any, receive: Any, send: Any) -> None:
    """Sends for as long as somebody reads."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while HttpConnection.peers:
        await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})


@pytest.mark.parametrize("reads", [True, False])
def test_a_peer_that_does_not_read_its_answer(reads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a long list would be held for it for ever. One that reads slowly is waited for."""
    monkeypatch.setattr(http_connection, "STALLED_S", 0.5)

    async def use() -> bool:
        with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as peer:
            server = HttpServer(config_of(endless_app, None, None))
            task = asyncio.create_task(server.serve(sockets=[listening]))
            peer.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(peer, listening.getsockname())
            await loop.sock_sendall(peer, WHOLE)
            until_s = loop.time() + (1.5 if reads else 10)
            is_cut = False
            while not is_cut and loop.time() < until_s:
                if reads:
                    await loop.sock_recv(peer, 65_536)
                await asyncio.sleep(0.001)
                is_cut = not HttpConnection.peers
            peer.close()
            server.should_exit = True
            await task
            return is_cut

    assert asyncio.run(use()) is not reads
