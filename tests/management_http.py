"""A small HTTP client for tests of the management API."""

from __future__ import annotations

import base64
import http.client
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    octets: bytes

    def json(self) -> Any:
        return json.loads(self.octets)


@dataclass
class Http:
    """Requests to the management process, as a user."""

    port: int
    amqp_port: int
    user: str = "guest"
    password: str = "guest"
    headers: dict[str, str] = field(default_factory=dict)

    def __call__(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            sent = dict(self.headers)
            if self.user:
                credentials = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
                sent["authorization"] = f"Basic {credentials}"
            octets = None
            if body is not None:
                octets = body if isinstance(body, bytes) else json.dumps(body).encode()
                sent["content-type"] = "application/json"
            connection.request(method, path, octets, sent | (headers or {}))
            response = connection.getresponse()
            return Answer(
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read(),
            )
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """What a GET of the API answers with 200."""
        answer = self("GET", f"/api/{path}")
        assert answer.status == 200, (path, answer)
        return answer.json()

    def ok(self, method: str, path: str, body: Any = None) -> int:
        """The status of a change that was made."""
        answer = self(method, f"/api/{path}", body)
        assert answer.status in (200, 201, 204), (method, path, answer)
        return answer.status

    def as_user(self, user: str, password: str = "secret") -> Http:
        return Http(self.port, self.amqp_port, user, password)
