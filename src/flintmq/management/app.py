"""The ASGI application: finds the endpoint, asks who it is, calls it, and fences the answer with headers."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

# Registers their endpoints.
import flintmq.management.endpoints.administration
import flintmq.management.endpoints.dead_letters
import flintmq.management.endpoints.definitions
import flintmq.management.endpoints.extensions
import flintmq.management.endpoints.messages
import flintmq.management.endpoints.operations
import flintmq.management.endpoints.overview
import flintmq.management.endpoints.prometheus
import flintmq.management.endpoints.queues_and_connections
import flintmq.management.requests.openapi  # noqa: F401
from flintmq.client.core.errors import ClientError
from flintmq.management.requests.console_files import StaticFiles
from flintmq.management.requests.context import Context
from flintmq.management.requests.faults import (
    Forbidden,
    HttpFault,
    NotAllowed,
    NotAuthorised,
    NotFound,
    fault_of,
)
from flintmq.management.requests.identities import NOBODY, Identity
from flintmq.management.requests.listing import ListResponse, columns_of, json_response, narrowed
from flintmq.management.requests.routes import (
    ADMINISTRATOR,
    MONITORING,
    POLICYMAKER,
    Call,
    Endpoint,
    find,
    names_in,
)

log = logging.getLogger("flintmq.management")

# Nothing from elsewhere, nothing inline, in no frame of others.
HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
    (b"vary", b"accept, accept-encoding, origin"),
]
# A login or logout changes nothing in the broker.
SESSION_PATH = "/api/session"
CONSOLE_HEADER = "x-flintmq-console"
LEVELS = {
    ADMINISTRATOR: "Not administrator user",
    MONITORING: "Not monitor user",
    POLICYMAKER: "Not policymaker user",
}


class App:
    """One for the process."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.console = StaticFiles()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)

        async def fenced(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", [])
                named = {name for name, _ in own}
                message = {**message, "headers": [*own, *(each for each in HEADERS if each[0] not in named)]}
            await send(message)

        try:
            response = await self.answer(request)
        except ClientDisconnect:
            return
        await response(scope, receive, fenced)

    async def answer(self, request: Request) -> Response:
        try:
            return await self.called(request)
        except HttpFault as fault:
            return refusal(fault, request)
        except ClientDisconnect:
            raise
        except ClientError as error:
            refused = fault_of(error)
            if refused.status >= 500:
                log.error("%s %s: %s", request.method, shown_path(request), error)
            return refusal(refused, request)
        except Exception:
            log.exception("a bug ends %s %s", request.method, shown_path(request))
            return refusal(HttpFault("see the broker's log"), request)

    async def called(self, request: Request) -> Response:
        raw_path = request.scope.get("raw_path") or request.scope["path"].encode()
        found = find(raw_path)
        if found is None:
            page = self.console.answer(request)
            if page is None:
                raise NotFound
            return page
        endpoints, values = found
        method = "GET" if request.method == "HEAD" else request.method
        if method == "OPTIONS":
            return Response(headers={"allow": allowed(endpoints)})
        chosen = endpoints.get(method)
        if chosen is None:
            fault = refusal(NotAllowed("Method Not Allowed"), request)
            fault.headers["allow"] = allowed(endpoints)
            return fault
        if chosen.changes:
            refuse_other_sites(request)
        identity = await self.identify(request, chosen)
        call = Call(self.context, request, identity, dict(zip(names_in(chosen.path), values, strict=True)))
        try:
            result = await chosen.handler(call)
        except Exception as error:
            if may_have_changed(chosen, error):
                self.context.changed(chosen.of_messages)
            raise
        if chosen.changes and chosen.path != SESSION_PATH:
            self.context.changed(chosen.of_messages)
        return await self.made(call, result)

    async def made(self, call: Call, result: Any) -> Response:
        """The answer of what a handler returned."""
        if isinstance(result, ListResponse):
            return await result.made()
        if isinstance(result, Response):
            return result
        columns = columns_of(call.query("columns"))
        if columns and isinstance(result, dict):
            result = narrowed(result, columns)
        elif columns and isinstance(result, list):
            result = [narrowed(row, columns) for row in result]
        return json_response(result)

    async def identify(self, request: Request, chosen: Endpoint) -> Identity:
        """Who asks, if that one may use the endpoint."""
        if not chosen.level:
            return NOBODY
        identity = await self.context.identities.of(request, chosen.changes)
        if not identity.has("management"):
            raise NotAuthorised("Not management user")
        if not identity.has(chosen.level):
            raise NotAuthorised(LEVELS.get(chosen.level, "Not management user"))
        return identity


def refuse_other_sites(request: Request) -> None:
    """A browser sends the Basic credentials that it holds with requests of any page. It also says whose page
    that is; tools say nothing of the kind."""
    headers = request.headers
    if headers.get("sec-fetch-site", "").lower() in ("cross-site", "same-site"):
        raise Forbidden("a page of another site may change nothing: header sec-fetch-site")
    origin = headers.get("origin")
    if origin is not None and host_of(origin) != headers.get("host", "").lower():
        raise Forbidden("a page of another site may change nothing: the host of origin is not that of host")


def host_of(origin: str) -> str | None:
    """Host and port as a header Host has them; None for the origin `null` and what is no origin."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def may_have_changed(chosen: Endpoint, error: Exception) -> bool:
    """Whether a call that failed has changed something. What an administrator asks for may be done in part
    and then be refused. Refusals of others, and of logins, must not make the broker take a new snapshot."""
    if not chosen.changes or chosen.path == SESSION_PATH or isinstance(error, ClientDisconnect):
        return False
    if isinstance(error, ClientError):
        error = fault_of(error)
    is_refused = isinstance(error, HttpFault) and error.status < 500
    return not is_refused or chosen.level == ADMINISTRATOR


def allowed(endpoints: dict[str, Endpoint]) -> str:
    return ", ".join(["OPTIONS", *(["HEAD"] if "GET" in endpoints else []), *endpoints])


def refusal(fault: HttpFault, request: Request) -> Response:
    response = json_response({"error": fault.error, "reason": fault.reason}, fault.status)
    if fault.status == 401 and CONSOLE_HEADER not in request.headers:
        # RabbitMQ's: some tools choose their credentials by the realm. The console asks for the password
        # itself, and shows what a user may not do: the browser shall not ask.
        response.headers["www-authenticate"] = 'Basic realm="RabbitMQ Management"'
    return response


def shown_path(request: Request) -> str:
    """For the log: what a peer sent, without line ends."""
    return repr(str(request.scope.get("path", "")))[1:200]
