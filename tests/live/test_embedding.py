"""flintmq.Broker: a broker in the event loop of a program, and nothing of it left behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.build import event_loop
from flintmq.client import aio
from flintmq.errors import ConfigFault, StorageFault
from flintmq.server.process.lifecycle import loop_factory

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.SelectorEventLoop]
if event_loop() == "uvloop":
    LOOPS.append(loop_factory())
SETTINGS = """
virtual_hosts = ["orders/eu"]
[users."o:k"]
password = "s@cret/"
permissions."orders/eu" = {configure = ".*", write = ".*", read = ".*"}
"""


def run(coroutine: Any, loop: Callable[[], asyncio.AbstractEventLoop] = LOOPS[0]) -> Any:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(coroutine)


async def publish(uri: str, body: bytes) -> None:
    async with (
        await aio.connect(uri, recovery=None) as connection,
        connection.channel(confirm=True) as channel,
    ):
        await channel.queue("q", durable=True)
        await channel.publish(body, routing_key="q", persistent=True)


async def fetch(uri: str) -> bytes:
    async with await aio.connect(uri, recovery=None) as connection, connection.channel() as channel:
        message = await (await channel.queue("q", durable=True)).get()
        assert message is not None
        return message.body


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_from_start_to_end_on_either_loop(
    loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    handlers, thresholds = list(logging.getLogger().handlers), gc.get_threshold()

    async def program() -> int:
        async with flintmq.Broker(data=tmp_path / "data") as broker:
            await publish(broker.uri, b"kept")
            assert broker.urls == [f"amqp://127.0.0.1:{broker.port}"]
        assert not is_listening(broker.port)
        async with flintmq.Broker(data=tmp_path / "data") as again:
            assert await fetch(again.uri) == b"kept"
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert left == []
        return broker.port

    run(program(), loop)
    assert logging.getLogger().handlers == handlers
    assert gc.get_threshold() == thresholds
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_settings_as_text_and_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "flintmq.toml").write_text(SETTINGS)

    async def program(settings: str | Path) -> None:
        async with flintmq.Broker(settings, port=0, hosts=("0.0.0.0",)) as broker:
            assert broker.uri == f"amqp://o%3Ak:s%40cret%2F@127.0.0.1:{broker.port}/orders%2Feu"
            await publish(broker.uri, b"x")
            assert await fetch(broker.uri) == b"x"

    run(program(SETTINGS))
    run(program(tmp_path / "flintmq.toml"))


def test_mistakes_are_told_and_nothing_stays_open(tmp_path: Path) -> None:
    with pytest.raises(ConfigFault, match=r"limits.connections_max"):
        flintmq.Broker("[limits]\nconnections_max = 0\n")
    with pytest.raises(ConfigFault, match=r"none.toml: cannot be read"):
        flintmq.Broker(tmp_path / "none.toml")
    with pytest.raises(ConfigFault, match="use `flintmq serve` for the HTTP API"):
        flintmq.Broker("[management]\n")
    with pytest.raises(AttributeError, match="no attribute 'Brokers'"):
        flintmq.Brokers  # noqa: B018

    async def program() -> None:
        async with flintmq.Broker() as first:
            with pytest.raises(RuntimeError, match="runs already"):
                await first.__aenter__()
            taken = flintmq.Broker(port=first.port, data=tmp_path / "data")
            with pytest.raises(OSError, match=r"cannot listen on 127.0.0.1"):
                await taken.__aenter__()
            with pytest.raises(RuntimeError, match="listens nowhere"):
                taken.uri  # noqa: B018
            async with flintmq.Broker(data=tmp_path / "data"):  # the directory is free again
                pass

    run(program())


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system does not list descriptors")
def test_every_descriptor_is_closed(tmp_path: Path) -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def program() -> None:
        async with flintmq.Broker(data=tmp_path / "data"):  # what is loaded or made once stays
            pass
        before = opened()
        for _ in range(3):
            async with flintmq.Broker(data=tmp_path / "data"):
                with pytest.raises(StorageFault, match="is in use"):
                    await flintmq.Broker(data=tmp_path / "data").__aenter__()
        assert opened() == before

    run(program())


def test_the_collector_finds_what_was_the_broker_and_what_is_the_programs(tmp_path: Path) -> None:
    async def program() -> weakref.ref[Any]:
        async with flintmq.Broker(data=tmp_path / "data") as broker:
            return weakref.ref(broker.server)

    frozen = gc.get_freeze_count()
    server = run(program())
    assert gc.get_freeze_count() == frozen
    gc.collect()
    assert server() is None


def test_an_end_that_is_cancelled_closes_everything_all_the_same(tmp_path: Path) -> None:
    async def program() -> None:
        broker = flintmq.Broker(data=tmp_path / "data")
        await broker.__aenter__()
        silent = socket.create_connection(("127.0.0.1", broker.port))
        silent.sendall(b"AMQP\x00\x00\x09\x01")  # and never answers connection.close
        await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(broker.__aexit__(None, None, None), 0.2)
        silent.close()
        assert not is_listening(broker.port)
        async with flintmq.Broker(data=tmp_path / "data"):
            pass

    run(program())
