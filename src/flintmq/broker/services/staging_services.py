"""Services for contents that come in parts: any client uploads a large message and goes on after a break.

    staging.open ---> staged: 0 ---> staging.append, offset 0 ---> staged: n ---> ... ---> staging.publish
         ^                                                               |
         +----- the connection breaks: `staged` says where to go on -----+

An answer leaves when what it says is on disk. A content belongs to the user who opened it, in the virtual
host of the connection. See store/staging.py.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING

from flintmq import checks
from flintmq.auth import Tag
from flintmq.broker.channels.channel import Channel
from flintmq.broker.channels.staged_publish import Outcome, publish_staged
from flintmq.broker.services.arguments import PAGE
from flintmq.broker.services.queue_services import promise
from flintmq.broker.services.request import Request, service
from flintmq.errors import ProtocolMisuse, ServiceFault
from flintmq.wire import amqp
from flintmq.wire.fields import encode_shortstr
from flintmq.wire.properties import BasicProperties, encode_properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.services.request import Row
    from flintmq.broker.store.staging import StagedContent, Staging
    from flintmq.wire.tables import FieldTable

PERSISTENT = 2
SIZE_MAX = 1 << 50
# What each property of a message has to be, under the name that it has in the standard.
PROPERTIES: dict[str, checks.Check] = {
    "content-type": checks.any_text,
    "content-encoding": checks.any_text,
    "priority": checks.whole(0, 255),
    "correlation-id": checks.any_text,
    "reply-to": checks.any_text,
    "expiration": checks.any_text,
    "message-id": checks.any_text,
    "timestamp": checks.whole(0, 1 << 62),
    "type": checks.any_text,
    "user-id": checks.any_text,
    "app-id": checks.any_text,
}


def staging_of(request: Request) -> Staging:
    staging = request.broker.staging
    if staging is None:
        raise ServiceFault(
            amqp.PRECONDITION_FAILED,
            f"{request.name}: the broker has no data directory: nothing can be staged; start it with --data",
        )
    return staging


def content_of(request: Request) -> StagedContent:
    """The asker's content of the identifier that is asked about."""
    staging = staging_of(request)
    return staging.need(request.channel.virtual_host.name, request.user.name, request.text("identifier"))


def described(content: StagedContent) -> FieldTable:
    return {
        "identifier": content.identifier,
        "staged": content.staged,
        "size": content.size,
        "published": content.is_published,
        **({} if content.spool is None else {"crc32c": content.spool.crc}),
    }


@service("staging.open", "identifier text, size? number")
def staging_open(request: Request) -> Chore:
    """Opens a content, or finds it again: `staged` octets are there, `published` if it is done with."""
    staging, identifier = staging_of(request), request.text("identifier")
    size = request.number("size", -1, -1, SIZE_MAX)
    host, user = request.channel.virtual_host.name, request.user.name
    known = staging.find(host, user, identifier)
    while known is not None and known.writing:
        # A part that the peer sent before its connection broke.
        yield known.when_idle
    content = staging.open(host, user, identifier, size)
    promise(request)
    request.reply(described(content))


@service("staging.append", "identifier text, offset number")
def staging_append(request: Request) -> Chore:
    """Adds the body at `offset`, which is where the content ends; the answer comes when it is on disk."""
    staging, content = staging_of(request), content_of(request)
    offset = request.number("offset", maximum=SIZE_MAX)
    while content.writing:
        yield content.when_idle
    staging.append(content, offset, request.body)
    yield content.when_idle
    if content.error is not None:
        raise ServiceFault(
            amqp.RESOURCE_ERROR,
            f"{request.name}: the part was not stored, what came before it is kept: "
            f"{content.error.strerror or content.error}",
        )
    promise(request)
    request.reply(described(content))


@service(
    "staging.publish",
    "identifier text, exchange? text, routing-key? text, properties? table, crc32c? number",
    changes=True,
)
def staging_publish(request: Request) -> None:
    """Publishes a content that is whole as a persistent message: exchange, routing-key, properties."""
    content = content_of(request)
    channel = request.channel
    if not isinstance(channel, Channel):
        raise ServiceFault(amqp.NOT_IMPLEMENTED, f"{request.name}: ask over AMQP")
    spool = staging_of(request).check_whole(content)
    crc = request.number("crc32c", spool.crc)
    if crc != spool.crc:
        raise ServiceFault(
            amqp.PRECONDITION_FAILED,
            f"{request.name}: the staged checksum is {spool.crc}, not {crc}: delete it, and begin anew",
        )
    exchange, key = short_of(request, "exchange"), short_of(request, "routing-key")
    outcome = publish_staged(channel, staging_of(request), content, exchange + key, properties_of(request))
    if outcome is Outcome.UNROUTABLE:
        raise ServiceFault(amqp.NO_ROUTE, f"{request.name}: no queue would get it: it stays staged")
    if outcome is not Outcome.PUBLISHED:
        raise ServiceFault(
            amqp.RESOURCE_ERROR, f"{request.name}: the queues are full and refuse it: it stays staged"
        )
    promise(request)
    request.reply(described(content))


def short_of(request: Request, name: str) -> bytes:
    try:
        return encode_shortstr(request.text(name, ""))
    except ProtocolMisuse:
        raise request.wrong(name, "expected at most 255 octets of text") from None


def properties_of(request: Request) -> bytes:
    """The properties of the message, in octets; whatever is staged is persistent."""
    given = request.arguments.get("properties", {})
    if not isinstance(given, dict):
        raise request.wrong("properties", "expected a table")
    fields = dict(given)
    headers = fields.pop("headers", None)
    if headers is not None and not isinstance(headers, dict):
        raise request.wrong("properties", "headers: expected a table")
    fields.pop("delivery-mode", None)
    found = BasicProperties(headers=headers, delivery_mode=PERSISTENT)
    for name, value in fields.items():
        if name not in PROPERTIES:
            raise request.wrong("properties", f"{name}: expected one of {', '.join(PROPERTIES)}, headers")
        try:
            setattr(found, name.replace("-", "_"), PROPERTIES[name](value))
        except checks.Unfit as unfit:
            raise request.wrong("properties", f"{name}: {unfit}") from None
    try:
        return encode_properties(found)
    except ProtocolMisuse as error:
        raise request.wrong("properties", str(error)) from None


def owner_of(request: Request) -> str:
    """Whose contents are meant: those of the asker, or of any user for an administrator."""
    user = request.text("user", request.user.name)
    if user != request.user.name and Tag.ADMINISTRATOR not in request.user.tags:
        raise ServiceFault(
            amqp.ACCESS_REFUSED,
            f"{request.name}: contents of others are for users with the tag administrator",
        )
    return user


@service("staging.list", "user? text, " + PAGE)
def staging_list(request: Request) -> Iterator[None]:
    """Contents of the asker, or for administrators of `user`: `staged`, `size`, `published`, `expires-s`."""
    staging = staging_of(request)
    host, user = request.channel.virtual_host.name, owner_of(request)
    now_ms = staging.timetable.now_ms()

    def row(content: StagedContent) -> FieldTable:
        until_ms = content.touched_ms + staging.limits.expiry_s * 1000 - now_ms
        return {**described(content), "expires-s": max(0, until_ms // 1000)}

    owned = staging.owned(host, user)
    ordered = sorted(owned)

    def rows(after: str) -> Iterator[Row]:
        for at in range(bisect_right(ordered, after), len(ordered)):
            content = owned.get(ordered[at])
            yield ordered[at], None if content is None else partial(row, content)

    return request.listing(rows)


@service("staging.delete", "identifier text, user? text", changes=True)
def staging_delete(request: Request) -> None:
    """Deletes a content with what is staged of it, or the note that it was published."""
    staging = staging_of(request)
    content = staging.need(request.channel.virtual_host.name, owner_of(request), request.text("identifier"))
    staging.forget(content)
    promise(request)
    request.reply({})
