"""A virtual host is deleted between the list of virtual hosts and what is asked about each."""

from __future__ import annotations

import asyncio
import json
import marshal
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.client.core.errors import ServiceError
from flintmq.management.app import App
from flintmq.management.endpoints.administration import parameters, policy_rows
from flintmq.management.endpoints.prometheus import queue_rows
from flintmq.management.endpoints.queues_and_connections import bindings, exchanges, queues
from flintmq.management.requests.context import Context, Listening
from flintmq.management.requests.identities import Identity
from flintmq.management.requests.routes import Call
from flintmq.wire import amqp

ADMINISTRATOR = Identity("root", ("administrator",), True, frozenset(), 1, "")


class Link:
    """A broker with the virtual hosts `/` and `gone`, of which it says so when it is asked about it."""

    watch = None

    def __init__(self, code: int) -> None:
        self.code = code

    async def ask(self, service: str, arguments: dict[str, Any], place: Any = None) -> Any:
        if service == "vhost.list":
            rows = [{"virtual-host": name, "state": "running"} for name in ("/", "gone")]
            return SimpleNamespace(results={"rows": rows})
        if arguments["virtual-host"] == "gone":
            raise ServiceError(service, self.code, "no such virtual host")
        if service.endswith(".list"):
            return SimpleNamespace(results={"rows": []})
        body: Any = {} if service == "management.exchange-counts" else []
        return SimpleNamespace(results={"pass": 1, "count": 0}, body=marshal.dumps(body))

    async def ask_for(self, user: str, host: str, service: str, arguments: dict[str, Any], *_: Any) -> Any:
        return await self.ask(service, arguments)


async def policies(call: Call) -> Any:
    return await policy_rows(call, "policy", None)


async def metrics(call: Call) -> Any:
    return [vhost for vhost, _ in await queue_rows(call, [])]


@pytest.mark.parametrize(
    ("handler", "shown"),
    [(queues, []), (exchanges, ["/"]), (bindings, []), (parameters, []), (policies, []), (metrics, ["/"])],
)
def test_the_others_are_told(handler: Any, shown: list[str]) -> None:
    async def told(code: int) -> Any:
        link: Any = Link(code)
        context = Context(link, Listening([], []))
        request: Any = SimpleNamespace(query_params={}, client=None)
        call = Call(context, request, ADMINISTRATOR, {})
        return json.loads(bytes((await App(context).made(call, await handler(call))).body))

    found = asyncio.run(told(amqp.NOT_FOUND))
    assert [row if isinstance(row, str) else row["vhost"] for row in found] == shown
    with pytest.raises(ServiceError):
        asyncio.run(told(amqp.INTERNAL_ERROR))
