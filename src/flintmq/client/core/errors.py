"""What the client raises. The last line of each says what happened, where, and what to do about it.

    ClientError
      BadSettings             a URI or an option is wrong
      ConnectFailed           the server cannot be reached, or does not speak AMQP with us
        LoginRefused          user, password or virtual host
      ConnectionClosed        the connection is over
        ConnectionLost        ... without a word: the network, or the broker, is gone
          TransactionLost     ... in the middle of a transaction
          CommitUnknown       ... while a commit was on its way
      ChannelClosed           the server closed the channel: a call was refused
        NotFound, AccessRefused, ResourceLocked, PreconditionFailed
      PublishFailed           messages were refused, returned, or their fate is unknown
      ConsumerCancelled       the server ended a consumer: its queue is gone
      CallTimeout             no answer in time
      MessageTooLarge         a message or its headers do not fit what was agreed
      TransactionFailed       a branch of a distributed transaction went otherwise than asked
      ServiceError            the broker refused a request to one of its services
      RequestUnknown          nobody can tell whether the broker did what a service was asked for
      ForkedConnection        used in a process that did not open it

No text of an error carries a password: what is quoted of a URI never reaches past its user.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flintmq.errors import FlintError
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.client.core.message import Message


class ClientError(FlintError):
    """Anything the client raises on purpose."""


class BadSettings(ClientError, ValueError):
    """A URI or an option is wrong; the text says which."""


class ConnectFailed(ClientError, OSError):
    """There is no connection to be had; `code` and `text` are the server's, 0 and empty if it gave none."""

    def __init__(self, message: str, code: int = 0, text: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.text = text


class LoginRefused(ConnectFailed):
    """User, password or virtual host were refused."""


class ConnectionClosed(ClientError):
    """The connection is over; `code` and `text` are the server's, 0 and empty if it was lost."""

    def __init__(self, message: str, code: int = 0, text: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.text = text


class ConnectionLost(ConnectionClosed):
    """The connection ended without a word."""


class TransactionLost(ConnectionLost):
    """The connection was lost in a transaction, which the broker rolled back."""


class CommitUnknown(ConnectionLost):
    """The connection was lost before the answer to a commit: the broker has done all of it, or nothing."""


class ChannelClosed(ClientError):
    """The server closed the channel for `code` and `text`; the connection lives on."""

    def __init__(self, message: str, code: int = 0, text: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.text = text


class NotFound(ChannelClosed):
    """404: no such queue or exchange."""


class AccessRefused(ChannelClosed):
    """403: the user may not."""


class ResourceLocked(ChannelClosed):
    """405: another connection has it for itself."""


class PreconditionFailed(ChannelClosed):
    """406: it exists, and is not what was asked for; or a delivery tag is unknown."""


class ConsumerCancelled(ClientError):
    """The server ended the consumer."""


class CallTimeout(ClientError, TimeoutError):
    """No answer, or not all confirms, in time."""


class MessageTooLarge(ClientError, ValueError):
    """A message or its headers do not fit what was agreed."""


class TransactionFailed(ClientError):
    """A branch of a distributed transaction went otherwise than asked; `code` is the flag of the answer."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class ForkedConnection(ClientError):
    """Used in a process that did not open it."""


class ServiceError(ClientError):
    """The broker refused a request to one of its services."""

    def __init__(self, service: str, code: int, text: str) -> None:
        super().__init__(f"{service} was refused with {code}: {text}")
        self.service = service
        self.code = code
        self.text = text

    def __reduce__(self) -> tuple[type[ServiceError], tuple[str, int, str]]:
        return type(self), (self.service, self.code, self.text)


class RequestUnknown(ClientError):
    """The answer of a service was lost, and the broker does not remember the request: it may be done."""

    def __init__(self, service: str, reason: str) -> None:
        super().__init__(
            f"nobody can tell whether {service} was done: {reason}; look at what it should have changed"
        )
        self.service = service
        self.reason = reason

    def __reduce__(self) -> tuple[type[RequestUnknown], tuple[str, str]]:
        return type(self), (self.service, self.reason)


class PublishFailed(ClientError):
    """Not everything that was published is safe.

    The numbers count the publishes of the channel from 1; `first` is that of the call's first message.
    `nacked` were refused by the broker, `unknown` were on their way when the connection or the channel was
    lost (they may have arrived), `returned_numbers` had no queue to go to, `unsent` never left. `returned`
    are the messages that came back, 10,000 at most.
    """

    def __init__(
        self,
        message: str,
        nacked: Sequence[int] = (),
        unknown: Sequence[int] = (),
        returned: Sequence[Message] = (),
        first: int = 1,
        returned_numbers: Sequence[int] = (),
        unsent: Sequence[int] = (),
    ) -> None:
        super().__init__(message)
        self.first = first
        self.nacked = list(nacked)
        self.unknown = list(unknown)
        self.returned = list(returned)
        self.returned_numbers = list(returned_numbers)
        self.unsent = list(unsent)

    def rows(self) -> list[int]:
        """Which rows of the call, from 0, are not known to be in a queue."""
        unsafe = {*self.nacked, *self.unknown, *self.returned_numbers, *self.unsent}
        return sorted(number - self.first for number in unsafe)


_CHANNEL_ERRORS: dict[int, type[ChannelClosed]] = {
    amqp.NOT_FOUND: NotFound,
    amqp.ACCESS_REFUSED: AccessRefused,
    amqp.RESOURCE_LOCKED: ResourceLocked,
    amqp.PRECONDITION_FAILED: PreconditionFailed,
}

_ADVICE = {
    amqp.NOT_FOUND: "declare it first",
    amqp.ACCESS_REFUSED: "give the user the permission",
    amqp.RESOURCE_LOCKED: "it belongs to another connection or consumer; use another name",
    amqp.PRECONDITION_FAILED: "use the same settings as it was declared with, or delete it first",
}


def channel_closed(code: int, text: str, doing: str) -> ChannelClosed:
    """The error of a channel.close that came while `doing`."""
    kind = _CHANNEL_ERRORS.get(code, ChannelClosed)
    advice = _ADVICE.get(code)
    if code == amqp.PRECONDITION_FAILED and "delivery" in text and "tag" in text:
        advice = "settle each delivery once, on the channel it came on"
    elif code == amqp.PRECONDITION_FAILED and "inequivalent" not in text:
        advice = None  # not of a declaration: the text says what is wrong
    elif code == amqp.ACCESS_REFUSED and "reserved prefix" in text:
        advice = "use another name"  # no permission allows it
    return kind(f"{doing} was refused with {code}: {text}" + (f"; {advice}" if advice else ""), code, text)
