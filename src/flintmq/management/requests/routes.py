"""What can be asked for: the table of endpoints, how a path finds its endpoint, and one call of it.

Paths are split before they are decoded: a virtual host called `/` is %2F in a path, and one segment.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import orjson
from starlette.requests import Request
from starlette.responses import Response

from flintmq.management.requests.faults import BadRequest, NotAuthorised, TooLarge, TooSlow
from flintmq.management.requests.identities import peer_of

if TYPE_CHECKING:
    from flintmq.client.aio.connection import Connection
    from flintmq.client.core.services import Reply
    from flintmq.management.broker_state.broker_link import Place
    from flintmq.management.requests.context import Context
    from flintmq.management.requests.identities import Identity

Handler = Callable[["Call"], Awaitable[Any]]

# Of a request: definitions of a large broker are some megabytes, all else is small.
BODY_BYTES_MAX = 33_554_432
# How long a body may take: so many seconds, and so many octets in each of them.
BODY_S = 20.0
BODY_BYTES_PER_S = 65_536
SEGMENTS_MAX = 16
# Below 2**63, and quick to read.
NUMBER = re.compile(r"-?[0-9]{1,18}")

ANYBODY = ""
MANAGEMENT = "management"
MONITORING = "monitoring"
POLICYMAKER = "policymaker"
ADMINISTRATOR = "administrator"


@dataclass(frozen=True)
class Endpoint:
    """One method of one path."""

    method: str
    path: str
    level: str  # the tag that it takes
    handler: Handler
    query: tuple[str, ...] = ()
    body: dict[str, Any] | None = None  # its schema
    changes: bool = False
    of_messages: bool = False  # it changes messages alone, as each client of AMQP does

    @property
    def summary(self) -> str:
        return (self.handler.__doc__ or "").strip().split("\n")[0]


@dataclass
class _Node:
    """The endpoints of paths that begin alike."""

    fixed: dict[str, _Node] = field(default_factory=dict)
    named: tuple[str, _Node] | None = None
    endpoints: dict[str, Endpoint] = field(default_factory=dict)


ENDPOINTS: list[Endpoint] = []
_ROOT = _Node()

LIST_QUERY = ("page", "page_size", "name", "use_regex", "pagination", "sort", "sort_reverse", "columns")
SAMPLED = ("msg_rates_age", "msg_rates_incr", "lengths_age", "lengths_incr")


def endpoint(
    method: str,
    path: str,
    level: str = MANAGEMENT,
    *,
    query: tuple[str, ...] = (),
    body: dict[str, Any] | None = None,
    of_messages: bool = False,
) -> Callable[[Handler], Handler]:
    """Registers a handler; its docstring is the summary. `{name}` in the path is one segment of any text."""

    def register(handler: Handler) -> Handler:
        changes = method not in ("GET", "HEAD")
        made = Endpoint(method, path, level, handler, query, body, changes, of_messages)
        node = _ROOT
        for segment in path.strip("/").split("/"):
            if segment.startswith("{"):
                if node.named is None:
                    node.named = (segment[1:-1], _Node())
                node = node.named[1]
            else:
                node = node.fixed.setdefault(segment, _Node())
        node.endpoints[method] = made
        ENDPOINTS.append(made)
        return handler

    return register


def find(raw_path: bytes) -> tuple[dict[str, Endpoint], list[str]] | None:
    """The endpoints of a path by method, and the texts of its named segments in order."""
    segments = raw_path.split(b"?")[0].strip(b"/").split(b"/")
    if len(segments) > SEGMENTS_MAX:
        return None
    try:
        texts = [unquote_to_bytes(segment).decode() for segment in segments]
    except UnicodeDecodeError:
        return None
    node, values = _ROOT, []
    for text in texts:
        if text in node.fixed:
            node = node.fixed[text]
        elif node.named is not None:
            values.append(text)
            node = node.named[1]
        else:
            return None
    return (node.endpoints, values) if node.endpoints else None


def names_in(path: str) -> list[str]:
    return [segment[1:-1] for segment in path.split("/") if segment.startswith("{")]


class Call:
    """One request to one endpoint, by somebody."""

    def __init__(
        self, context: Context, request: Request, identity: Identity, params: dict[str, str]
    ) -> None:
        self.context = context
        self.request = request
        self.identity = identity
        self.params = params

    def __getitem__(self, name: str) -> str:
        return self.params[name]

    def query(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        text = self.query(name)
        if not text:
            return default
        found = number_in(text)
        if not isinstance(found, int) or not least <= found <= most:
            raise BadRequest(f"{name} must be a number from {least} to {most}")
        return found

    def sampled(self, prefix: str) -> tuple[int, int]:
        """How far back samples go (0: none are wanted) and how far apart they are, in seconds."""
        age_s = self.number(f"{prefix}_age", 0, 0, 86_400)
        return age_s, self.number(f"{prefix}_incr", 5, 1, 86_400)

    @property
    def is_paged(self) -> bool:
        """Whether one page of a list is wanted."""
        return bool(self.query("page")) or self.flag("pagination")

    def flag(self, name: str) -> bool:
        return self.query(name) == "true"

    @property
    def vhost(self) -> str:
        """The virtual host of the path, if the user may see it."""
        return self.visible(self.params["vhost"])

    def visible(self, vhost: str) -> str:
        if not self.identity.sees(vhost):
            raise NotAuthorised("User not authorised to access virtual host")
        return vhost

    async def json(self, most: int = BODY_BYTES_MAX) -> dict[str, Any]:
        """The body, which is an object, or nothing."""
        octets = await self.octets(most)
        if not octets:
            return {}
        try:
            found = orjson.loads(octets)
        except ValueError:
            raise BadRequest("body is not valid JSON", "bad_request") from None
        if not isinstance(found, dict):
            raise BadRequest("body must be a JSON object")
        return found

    async def octets(self, most: int = BODY_BYTES_MAX) -> bytes:
        """The body as it came; refused as soon as it is too large or too slow, or others fill memory."""
        gathered = bytearray()
        loop, bodies = asyncio.get_running_loop(), self.context.bodies
        until_s = loop.time() + BODY_S
        with bodies.gathering(self.identity.user) as grow:
            try:
                async with asyncio.timeout_at(until_s) as limit:
                    async for chunk in self.request.stream():
                        gathered += chunk
                        if len(gathered) > most:
                            raise TooLarge(f"body is larger than {most} bytes")
                        grow(len(chunk))
                        limit.reschedule(until_s + len(gathered) / BODY_BYTES_PER_S)
            except TimeoutError:
                raise TooSlow(f"the body did not come in time: {BODY_BYTES_PER_S} bytes a second") from None
            return bytes(gathered)

    async def ask(
        self, service: str, arguments: dict[str, Any] | None = None, vhost: str = "", body: bytes = b""
    ) -> dict[str, Any]:
        """Asks the broker in the name of the user."""
        return (await self.reply(service, arguments, vhost, body)).results

    async def reply(
        self,
        service: str,
        arguments: dict[str, Any] | None = None,
        vhost: str = "",
        body: bytes = b"",
        place: Place | None = None,
    ) -> Reply:
        """The same, with the body of the answer."""
        who = self.identity
        return await self.context.link.ask_for(
            who.user, vhost, service, arguments, body, who.visitor, place, peer_of(self.request)
        )

    def connection(self, publishes: bool = False) -> AbstractAsyncContextManager[Connection]:
        """A connection in the name of the user, to the virtual host of the path."""
        who = self.identity
        return self.context.link.connection_of(
            who.user, self.vhost, publishes, who.visitor, peer_of(self.request)
        )

    async def rows(
        self, service: str, arguments: dict[str, Any] | None = None, vhost: str = ""
    ) -> list[dict[str, Any]]:
        """All rows of a list service, page after page."""
        found: list[dict[str, Any]] = []
        given = {"limit": 1000, **(arguments or {})}
        while True:
            results = await self.ask(service, given, vhost)
            found += results["rows"]
            if "next" not in results:
                return found
            given["after"] = results["next"]


def required(body: dict[str, Any], *names: str) -> None:
    for name in names:
        if name not in body:
            raise BadRequest(f"key_missing: {name}")


def text_of(body: dict[str, Any], name: str, default: str | None = None) -> str:
    found = body.get(name)
    if found is None:
        found = default
    if found is None:
        raise BadRequest(f"key_missing: {name}")
    if not isinstance(found, str):
        raise BadRequest(f"{name} must be a text")
    return found


def number_in(value: Any) -> Any:
    """Tools write numbers as JSON does, or as text; what is no number is returned as it is."""
    return int(value) if isinstance(value, str) and NUMBER.fullmatch(value) else value


def flag_of(body: dict[str, Any], name: str) -> bool:
    """Tools write truth as JSON does, or as text."""
    found = body.get(name, False)
    if found in (True, "true"):
        return True
    if found in (False, "false", None):
        return False
    raise BadRequest(f"{name} must be true or false")


def table_of(body: dict[str, Any], name: str) -> dict[str, Any]:
    found = body.get(name) or {}
    if not isinstance(found, dict):
        raise BadRequest(f"{name} must be an object")
    return found


def no_content(status: int = 204) -> Response:
    return Response(status_code=status)
