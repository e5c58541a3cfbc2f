"""Endpoints that change one of many, or several: what they ask the broker, and what if one is gone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.client.core.errors import ServiceError
from flintmq.management.endpoints import queues_and_connections
from flintmq.management.endpoints.administration import users_delete
from flintmq.management.endpoints.queues_and_connections import (
    connections_of_user_delete,
    queue_action,
    queue_delete,
)
from flintmq.management.requests.faults import NotFound
from flintmq.management.requests.identities import Identity
from flintmq.management.requests.listing import Listing
from flintmq.management.requests.routes import Call
from flintmq.wire import amqp

ADMINISTRATOR = Identity("root", ("administrator",), True, frozenset(), 1, "")


class Asked(Call):
    """A call whose broker refuses what is about `refused` with a code."""

    def __init__(self, code: int, refused: Any, body: dict[str, Any]) -> None:
        request: Any = SimpleNamespace(headers={})
        super().__init__(SimpleNamespace(), request, ADMINISTRATOR, {"user": "ann"})  # type: ignore[arg-type]
        self.code, self.refused, self.body = code, refused, body
        self.done: list[Any] = []

    async def json(self, most: int = 0) -> dict[str, Any]:
        return self.body

    async def ask(self, service: str, arguments: Any = None, vhost: str = "", body: bytes = b"") -> Any:
        which = arguments.get("number", arguments.get("user"))
        if which == self.refused:
            raise ServiceError(service, self.code, "refused")
        self.done.append(which)
        return {}


def test_connections_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [SimpleNamespace(number=number, user="ann") for number in (1, 2, 3)]

    async def connection_rows(call: Call, vhost: str | None) -> Listing[Any]:
        return Listing(rows, lambda row: {}, lambda row: "")

    monkeypatch.setattr(queues_and_connections, "connection_rows", connection_rows)
    call = Asked(amqp.NOT_FOUND, 2, {})
    assert asyncio.run(connections_of_user_delete(call)).status_code == 204
    assert call.done == [1, 3]
    with pytest.raises(ServiceError):
        asyncio.run(connections_of_user_delete(Asked(amqp.ACCESS_REFUSED, 2, {})))


def test_users() -> None:
    call = Asked(amqp.NOT_FOUND, "bob", {"users": ["ann", "bob", "cid"]})
    assert asyncio.run(users_delete(call)).status_code == 204
    assert call.done == ["ann", "cid"]
    with pytest.raises(ServiceError):
        asyncio.run(users_delete(Asked(amqp.PRECONDITION_FAILED, "bob", {"users": ["bob"]})))


def test_a_queue_is_asked_for_by_its_name() -> None:
    """Each change over HTTP makes the snapshot of queues a stale one: of 100,000 it takes half a second."""
    asked: list[Any] = []

    async def ask(service: str, arguments: Any) -> Any:
        asked.append((service, arguments))
        raise ServiceError(service, amqp.NOT_FOUND, "no such queue")

    async def use() -> None:
        call = Asked(0, None, {"action": "sync"})
        call.params = {"vhost": "/", "name": "q"}
        call.context = SimpleNamespace(link=SimpleNamespace(ask=ask))  # type: ignore[assignment]
        for handler in (queue_delete, queue_action):
            with pytest.raises(NotFound):
                await handler(call)

    asyncio.run(use())
    assert asked == [("management.queue-info", {"queue": "q", "virtual-host": "/"})] * 2
