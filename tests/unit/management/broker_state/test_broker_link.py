"""Which connections the management process has, without a broker."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from typing import Any

import pytest

from flintmq.client.core.errors import ConnectFailed
from flintmq.management.broker_state import broker_link
from flintmq.management.broker_state.broker_link import BrokerLink, Place


class Closed:
    is_open = False

    async def close(self) -> None: ...


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Place]:
    """Places whose connection was asked for, in order."""
    found: list[Place] = []

    async def open_it(self: Place) -> Any:
        found.append(self)
        return Closed()

    monkeypatch.setattr(Place, "open", open_it)
    return found


def test_publishes_have_a_connection_of_their_own(opened: list[Place]) -> None:
    """In an alarm the connection of publishes is not read from, and a purge must not wait for it."""

    async def use() -> None:
        control, _ = socket.socketpair()
        with control, _:
            link = BrokerLink(control)
            for publishes in (False, True, False, True):
                async with link.connection_of("u", "/", publishes, 0, "10.0.0.1"):
                    pass

    asyncio.run(use())
    assert opened[0] is opened[2]
    assert opened[1] is opened[3]
    assert opened[0] is not opened[1]


def test_there_are_so_many_connections_at_most(opened: list[Place], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many the one that was used least recently ends."""
    monkeypatch.setattr(broker_link, "ACTING_MAX", 3)

    async def use() -> list[str]:
        control, other = socket.socketpair()
        with control, other:
            link = BrokerLink(control)
            for name in "abcdea":
                async with link.connection_of(name, "/", False, 0, "10.0.0.1"):
                    pass
            return [key[0] for key in link.acting]

    assert asyncio.run(use()) == ["d", "e", "a"]


def test_addresses_beyond_the_limit_share_a_connection(
    opened: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many machines a user asks from at once, the broker is not asked for more connections."""
    monkeypatch.setattr(broker_link, "ACTING_MAX", 2)

    async def use() -> list[str]:
        control, other = socket.socketpair()
        with control, other:
            link = BrokerLink(control)
            async with contextlib.AsyncExitStack() as stack:
                for number in range(5):
                    await stack.enter_async_context(
                        link.connection_of("u", "/", False, 0, f"10.0.0.{number}")
                    )
            return [key[4] for key in link.acting]

    assert asyncio.run(use()) == ["10.0.0.0", "10.0.0.1", ""]
    assert opened[2] is opened[3] is opened[4]


def test_a_connection_that_is_in_use_again_is_not_closed(
    opened: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are idle, and while the first is closed somebody takes the second."""
    monkeypatch.setattr(broker_link, "IDLE_S", -1.0)

    async def use() -> bool:
        control, other = socket.socketpair()
        closing, may_close = asyncio.Event(), asyncio.Event()
        closed: list[str] = []

        async def close(self: Place) -> None:
            closing.set()
            await may_close.wait()
            closed.append(self.user)

        monkeypatch.setattr(Place, "close", close)
        with control, other:
            link = BrokerLink(control)

            async def used(user: str) -> None:
                async with link.connection_of(user, "/", False, 0, ""):
                    await asyncio.sleep(0)

            await used("a")
            link.acting["b", "/", False, 0, ""] = second = Place(link, "b", "/")
            second.used_s = link.clock.monotonic_s()
            third = asyncio.create_task(used("c"))
            await closing.wait()
            async with link.connection_of("b", "/", False, 0, ""):
                may_close.set()
                await third
                return "b" in closed

    assert not asyncio.run(use())


def test_no_descriptor_is_left_for_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is refused as while the broker takes no connections."""

    def no_pair() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def use() -> None:
        control, other = socket.socketpair()
        monkeypatch.setattr(socket, "socketpair", no_pair)
        with control, other:
            await BrokerLink(control).ask("management.totals")

    with pytest.raises(ConnectFailed, match="Too many open files"):
        asyncio.run(use())
