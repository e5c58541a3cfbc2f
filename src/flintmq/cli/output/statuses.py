"""The statuses that commands end with, and the fault that ends a command with one of them."""

from __future__ import annotations

import sys

from flintmq.diagnosis import TROUBLE as TROUBLE
from flintmq.errors import FlintError

FAILED = 1
USAGE = 2
NO_BROKER = 3
REFUSED = 4
NOT_FOUND = 5

# Reply codes of AMQP that have a status of their own.
_OF_CODES = {403: REFUSED, 404: NOT_FOUND}


class CommandFault(FlintError):
    """Ends a command with a status and a line on standard error."""

    def __init__(self, text: str, status: int = FAILED) -> None:
        super().__init__(text)
        self.status = status


def with_options(text: str) -> str:
    """What a service says, with its argument `force` named as the option that gives it."""
    return text.replace("give force to", "give --force to")


def status_of(fault: FlintError) -> int:
    """The status that a fault ends a command with."""
    if isinstance(fault, CommandFault):
        return fault.status
    if "flintmq.client.core.errors" not in sys.modules:
        return FAILED  # no client was loaded, so none has failed
    from flintmq.client.core import errors

    if isinstance(fault, errors.BadSettings):
        return USAGE
    if isinstance(fault, errors.LoginRefused):
        return REFUSED
    if isinstance(fault, errors.ConnectFailed) and fault.code in (403, 530):
        return REFUSED
    if isinstance(fault, errors.ConnectFailed | errors.ConnectionLost | errors.CallTimeout):
        return NO_BROKER
    if isinstance(fault, errors.ServiceError | errors.ChannelClosed | errors.ConnectionClosed):
        return _OF_CODES.get(fault.code, FAILED)
    return FAILED
