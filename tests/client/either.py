"""One test for both clients: the sync client with the face of the async one.

    def test_something(either: Either) -> None:
        async def test() -> None:
            connection = await either.connect(uri)
            ...
        either.run(test)

What is awaited in the async client may be awaited of a Plain too; it is done when the call returns. Nothing
else runs meanwhile, so a test that needs two things at once starts the other one in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from flintmq.client import Channel, Connection, Consumer, Exchange, Queue, aio, connect
from flintmq.client.aio import transport as aio_transport
from flintmq.client.sync import transport as sync_transport
from flintmq.client.sync.dtx import Branches
from flintmq.client.sync.services import Browser, Lease, Stream

LIMIT_S = 60.0
PLAIN = (Channel, Connection, Consumer, Exchange, Queue, Branches, Browser, Lease, Stream)


class Plain:
    """An object of the sync client, whose blocking methods are awaited."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not inspect.ismethod(found):
            return wrapped(found)
        same = getattr(async_class(type(self.inner)), name, None)

        async def awaited(*given: Any, **named: Any) -> Any:
            return wrapped(found(*map(unwrapped, given), **named))

        def called(*given: Any, **named: Any) -> Any:
            return wrapped(found(*map(unwrapped, given), **named))

        is_async = inspect.iscoroutinefunction(same) or name == "channel"
        return awaited if is_async else called

    def __aiter__(self) -> Plain:
        return self

    async def __anext__(self) -> Any:
        try:
            return next(self.inner)
        except StopIteration:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Plain:
        self.inner.__enter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.inner.__exit__(*error)


def async_class(kind: type) -> type:
    if kind.__name__ == "Branches":
        from flintmq.client.aio.dtx import Branches as found

        return found
    return getattr(aio, kind.__name__)  # type: ignore[no-any-return]


def wrapped(result: Any) -> Any:
    return Plain(result) if isinstance(result, PLAIN) else result


def unwrapped(given: Any) -> Any:
    return given.inner if isinstance(given, Plain) else given


class Either:
    """One of the clients."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def transport(self) -> ModuleType:
        """The module that has the sockets."""
        return aio_transport if self.name == "aio" else sync_transport

    async def connect(self, *given: Any, **options: Any) -> Any:
        if self.name == "aio":
            return await aio.connect(*given, **options)
        return Plain(connect(*given, **options))

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        async def limited() -> None:
            async with asyncio.timeout(LIMIT_S):
                await test()

        asyncio.run(limited())

    def __repr__(self) -> str:
        return self.name
