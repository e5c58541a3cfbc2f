"""An example of services of one's own: example.greet answers, example.count works in portions."""

from __future__ import annotations

from collections.abc import Iterator

from flintmq.broker.services.request import Request
from flintmq.errors import ServiceFault


def greet(request: Request) -> None:
    """Greets somebody: name, loud."""
    name = request.text("name")
    if not name:
        raise ServiceFault(406, "nobody to greet")
    greeting = f"hello {name}, says {request.user.name}"
    request.reply({"greeting": greeting.upper() if request.flag("loud", False) else greeting}, request.body)


greet.arguments = "name text, loud? flag"  # type: ignore[attr-defined]


def count(request: Request) -> Iterator[None]:
    """Counts the queues of the virtual host, in portions."""
    counted = 0
    for _ in list(request.channel.virtual_host.queues):
        counted += 1
        yield
    request.reply({"queues": counted})


def fail(request: Request) -> None:
    """Fails at work, for the tests."""
    raise ZeroDivisionError("unlucky")


def wrong_arguments(request: Request) -> None:
    """Has a signature that is none."""


wrong_arguments.arguments = "name color"  # type: ignore[attr-defined]

not_a_service = 5
