"""What a request does to the process: new snapshots, memory, time."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from flintmq.client.core.errors import ConnectionClosed, ServiceError
from flintmq.management.app import App
from flintmq.management.endpoints import overview
from flintmq.management.requests.context import Context

USER = {"user": "u", "sees-all": True, "virtual-hosts": [], "changes": 0, "login": "1 0"}
GOOD = json.dumps({"username": "u", "password": "right"}).encode()


class Broker:
    """Knows one user, and does what it is asked, or raises."""

    def __init__(self, error: Exception | None, tag: str) -> None:
        self.logins: list[Any] = []
        self.error = error
        self.identity = {**USER, "tags": [tag]}

    async def ask(self, service: str, arguments: dict[str, Any], among: Any = None) -> Any:
        is_right = arguments["password"] == b"right"
        return SimpleNamespace(results=self.identity if is_right else {"refused": "no", "pause-ms": 0})

    async def ask_for(self, *asked: Any) -> Any:
        if self.error is not None:
            raise self.error
        return SimpleNamespace(results={"rows": [], "created": True})


def answered(
    method: str, path: str, chunks: list[bytes], error: Exception | None = None, tag: str = "administrator"
) -> tuple[int, bool]:
    """The status, and whether the next snapshot is a new one; after `chunks` nothing more comes."""

    async def receive() -> Any:
        if not chunks:
            await asyncio.sleep(3600)
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    async def use() -> tuple[int, bool]:
        context = Context(Broker(error, tag), SimpleNamespace(http=[]))  # type: ignore[arg-type]
        connections = context.snapshots.connections
        connections.change_shown = connections.change
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "client": ("127.0.0.1", 1),
            "headers": [(b"authorization", b"Basic dTpyaWdodA==")],
        }
        response = await App(context).answer(Request(scope, receive))
        return response.status_code, connections.is_stale

    return asyncio.run(use())


def test_logins_take_no_new_snapshots() -> None:
    wrong = GOOD.replace(b"right", b"wrong")
    assert answered("POST", "/api/session", [b"{}"]) == (400, False)
    assert answered("POST", "/api/session", [wrong]) == (401, False)
    assert answered("POST", "/api/session", [GOOD]) == (200, False)
    assert answered("DELETE", "/api/session", [b""]) == (204, False)


def test_refused_changes_take_no_new_snapshots() -> None:
    refused = ServiceError("policy.clear", 403, "no")
    path, tag = "/api/policies/v/p", "policymaker"
    assert answered("DELETE", path, [b""], tag=tag) == (204, True)
    assert answered("PUT", path, [b"["], tag=tag) == (400, False)
    assert answered("DELETE", path, [b""], refused, tag) == (401, False)
    assert answered("DELETE", path, [b""], RuntimeError("a bug"), tag) == (500, True)
    # A part of it may have been done.
    assert answered("PUT", "/api/users/x", [b'{"tags": ""}'], refused) == (401, True)
    assert answered("PUT", "/api/users/x", [b'{"tags": ""}'], ConnectionClosed("gone")) == (503, True)


def test_the_body_of_a_login_is_short() -> None:
    long = [GOOD[:-1], *[b" " * 1000] * 20, b"}"]
    assert answered("POST", "/api/session", long) == (413, False)
    assert len(long) > 3, "the rest was not read"


def test_the_body_of_a_login_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "LOGIN_S_MAX", 0.02)
    assert answered("POST", "/api/session", []) == (408, False)
