"""What is said of a virtual host: its description, its tags, the queue type that RabbitMQ would use.

The broker keeps it for those who ask, and changes nothing by it. It is a parameter of the virtual host, which
goes with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.broker.administration.parameters import Parameters
    from flintmq.wire.tables import FieldTable, FieldValue

HOST_COMPONENT = "flintmq.virtual-host"
HOST_METADATA = "metadata"
NO_METADATA: FieldTable = {"description": "", "tags": []}
# What RabbitMQ says of a virtual host without one.
NO_QUEUE_TYPE = "undefined"


def check(parameters: Parameters, virtual_host: str, given: FieldTable) -> None:
    """Raises unless the change may be made; whether there is the virtual host is another question."""
    said = said_with(parameters, virtual_host, given)
    if is_news(parameters, virtual_host, said):
        parameters.check(virtual_host, HOST_COMPONENT, HOST_METADATA, said)


def describe(parameters: Parameters, virtual_host: str, metadata: FieldTable) -> bool:
    """Keeps what is said of a virtual host; whether that is something new."""
    if not is_news(parameters, virtual_host, metadata):
        return False
    parameters.set(virtual_host, HOST_COMPONENT, HOST_METADATA, metadata)
    return True


def change(parameters: Parameters, virtual_host: str, given: FieldTable) -> None:
    """What is given takes the place of what was said; the rest of that stays."""
    parameters.require_host(virtual_host)
    describe(parameters, virtual_host, said_with(parameters, virtual_host, given))


def said_with(parameters: Parameters, virtual_host: str, given: FieldTable) -> FieldTable:
    said = {**NO_METADATA, **metadata_of(parameters, virtual_host), **given}
    if said.get("default_queue_type") == NO_QUEUE_TYPE:
        del said["default_queue_type"]
    return said


def is_news(parameters: Parameters, virtual_host: str, metadata: FieldTable) -> bool:
    return bool(metadata) and metadata != (metadata_of(parameters, virtual_host) or NO_METADATA)


def metadata_of(parameters: Parameters, virtual_host: str) -> Mapping[str, FieldValue]:
    key = (virtual_host, HOST_COMPONENT, HOST_METADATA)
    found = parameters.values.get(key)
    return found if isinstance(found, dict) else {}
