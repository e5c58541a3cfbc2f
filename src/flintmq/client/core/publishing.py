"""What both clients do about publishing: properties from their short forms, failures put together."""

from __future__ import annotations

from collections.abc import Sequence

from flintmq.client.core.channel import PERSISTENT
from flintmq.client.core.confirms import RETURNED_MAX, failure
from flintmq.client.core.errors import ClientError, PublishFailed
from flintmq.wire.properties import BasicProperties, StreamProperties
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


def stream_properties_of(
    properties: StreamProperties | None, headers: FieldTable | None, priority: int | None
) -> StreamProperties:
    """The same of the stream class, with headers and priority."""
    given = {} if properties is None else {name: getattr(properties, name) for name in properties.FIELDS}
    if headers is not None:
        given["headers"] = headers
    if priority is not None:
        given["priority"] = priority
    return StreamProperties(**given)


def together(failures: Sequence[PublishFailed]) -> PublishFailed:
    """One failure for several channels, whose numbers are each counted for itself."""
    if len(failures) == 1:
        return failures[0]
    return PublishFailed(
        "; ".join(map(str, failures)),
        [number for each in failures for number in each.nacked],
        [number for each in failures for number in each.unknown],
        [message for each in failures for message in each.returned][:RETURNED_MAX],
        returned_numbers=[number for each in failures for number in each.returned_numbers],
    )


def merged(
    failures: Sequence[PublishFailed],
    first: int,
    unsent: Sequence[int] = (),
    cause: ClientError | None = None,
) -> PublishFailed:
    """One failure for a call that published in several pieces."""
    causes = [cause, *(each.__cause__ for each in failures)]
    why = next((each for each in causes if isinstance(each, ClientError)), None)
    made = failure(
        first,
        [number for each in failures for number in each.nacked],
        [number for each in failures for number in each.unknown],
        [message for each in failures for message in each.returned][:RETURNED_MAX],
        [number for each in failures for number in each.returned_numbers],
        unsent=unsent,
        cause=why,
    )
    if why is not None:
        made.__cause__ = why
        made.args = (f"{made}: {why}",)
    return made
