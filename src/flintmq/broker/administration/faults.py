"""What is wrong with a request to administer something: an AMQP reply code, and what to do."""

from __future__ import annotations

from flintmq.errors import ServiceFault
from flintmq.wire import amqp


def missing(what: str, name: str) -> ServiceFault:
    return ServiceFault(amqp.NOT_FOUND, f"no {what} '{name}'")


def unfit(why: str) -> ServiceFault:
    return ServiceFault(amqp.PRECONDITION_FAILED, why)


def fixed(what: str) -> ServiceFault:
    """The settings say what it is."""
    return unfit(f"{what} is set by the broker's settings: change it there")
