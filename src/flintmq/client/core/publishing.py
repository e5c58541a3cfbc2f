"""What both clients do about publishing: properties from their short forms, failures put together."""

from __future__ import annotations

from collections.abc import Sequence

from flintmq.client.core.channel import PERSISTENT
from flintmq.client.core.confirms import failure
from flintmq.client.core.errors import PublishFailed
from flintmq.wire.properties import BasicProperties
from flintmq.wire.tables import FieldTable


def properties_of(
    properties: BasicProperties | None, headers: FieldTable | None, persistent: bool
) -> BasicProperties:
    """The properties, with headers and delivery mode put in where they were given apart."""
    if headers is None and not persistent:
        return properties if properties is not None else BasicProperties()
    given = {} if properties is None else {name: getattr(properties, name) for name in properties.FIELDS}
    if headers is not None:
        given["headers"] = headers
    if persistent:
        given["delivery_mode"] = PERSISTENT
    return BasicProperties(**given)


def merged(failures: Sequence[PublishFailed], first: int) -> PublishFailed:
    """One failure for a call that published in several pieces."""
    return failure(
        first,
        [number for each in failures for number in each.nacked],
        [number for each in failures for number in each.unknown],
        [message for each in failures for message in each.returned],
    )
