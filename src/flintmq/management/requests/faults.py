"""What goes wrong with a request, as RabbitMQ answers it: a status and {"error", "reason"}."""

from __future__ import annotations

from flintmq.client.core.errors import (
    CallTimeout,
    ChannelClosed,
    ClientError,
    ConnectFailed,
    ConnectionClosed,
    LoginRefused,
    PublishFailed,
    RequestUnknown,
    ServiceError,
)
from flintmq.wire import amqp


class HttpFault(Exception):
    """Ends a request with a status."""

    status = 500
    error = "internal_error"

    def __init__(self, reason: str = "", error: str = "", status: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error or self.error
        self.status = status or self.status


class BadRequest(HttpFault):
    status = 400
    error = "bad_request"


class NotAuthorised(HttpFault):
    status = 401
    error = "not_authorized"


class NotFound(HttpFault):
    status = 404
    error = "Object Not Found"

    def __init__(self, reason: str = "Not Found") -> None:
        super().__init__(reason)


class Forbidden(HttpFault):
    status = 403
    error = "forbidden"


class NotAllowed(HttpFault):
    status = 405
    error = "method_not_allowed"


class TooLarge(HttpFault):
    status = 413
    error = "payload_too_large"


class TooSlow(HttpFault):
    status = 408
    error = "request_timeout"


class Unavailable(HttpFault):
    status = 503
    error = "service_unavailable"


def fault_of(error: ClientError) -> HttpFault:
    """What the broker refused, as a status."""
    code, text = 0, str(error)
    if isinstance(error, ServiceError | ChannelClosed | ConnectionClosed):
        code = int(getattr(error, "code", 0) or 0)
        text = str(getattr(error, "text", "") or text)
    if isinstance(error, ConnectFailed) and "vhost" in text:  # connection.open was refused
        return NotFound("no such virtual host") if "not found" in text else NotAuthorised(text)
    if isinstance(error, CallTimeout):
        return Unavailable(f"the broker does not answer: {text}")
    if isinstance(error, RequestUnknown) or (isinstance(error, PublishFailed) and error.unknown):
        return Unavailable(text)
    if isinstance(error, LoginRefused):
        return NotAuthorised("the user may not log in any more")
    if code == amqp.NOT_FOUND:
        return NotFound(text)
    if code in (amqp.ACCESS_REFUSED, amqp.NOT_ALLOWED):
        return NotAuthorised(text)
    if code == amqp.INTERNAL_ERROR:
        return HttpFault(text)
    if isinstance(error, ConnectFailed) or (isinstance(error, ConnectionClosed) and not code):
        return Unavailable(text)
    return BadRequest(text)
