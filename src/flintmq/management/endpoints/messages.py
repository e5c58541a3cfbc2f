"""Messages over HTTP: publish, get, peek, move, and requeueing of dead letters."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from flintmq.client.core.errors import PublishFailed
from flintmq.client.core.message import Message
from flintmq.management.broker_state import shapes
from flintmq.management.endpoints.queues_and_connections import named_exchange
from flintmq.management.requests.faults import BadRequest
from flintmq.management.requests.routes import Call, endpoint, number_in, required, table_of, text_of
from flintmq.wire.properties import BasicProperties

GET_MAX = 10_000
# Of payloads in one answer: it ends with the message that reaches it.
HELD_BYTES_MAX = 33_554_432
ACK_MODES = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")
PROPERTIES = {
    "content_type": str,
    "content_encoding": str,
    "delivery_mode": int,
    "priority": int,
    "correlation_id": str,
    "reply_to": str,
    "expiration": str,
    "message_id": str,
    "timestamp": int,
    "type": str,
    "user_id": str,
    "app_id": str,
    "cluster_id": str,
}
OBJECT = {"type": "object"}


def properties_in(given: dict[str, Any]) -> BasicProperties:
    """Properties as RabbitMQ's JSON has them."""
    found = BasicProperties()
    for name, value in given.items():
        if name == "headers":
            found.headers = table_of(given, "headers")
            continue
        kind = PROPERTIES.get(name)
        if kind is None:
            raise BadRequest(f"unknown property: {name}")
        if kind is int:
            value = number_in(value)
            if isinstance(value, int) and value < 0:
                raise BadRequest(f"property {name} must be a number from 0 on")
        if kind is str and isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise BadRequest(f"property {name} must be a {'number' if kind is int else 'text'}")
        setattr(found, name, value)
    return found


def properties_out(found: BasicProperties) -> dict[str, Any]:
    shown = {
        name: shapes.plain(value) for name in PROPERTIES if (value := getattr(found, name, None)) is not None
    }
    if found.headers is not None:
        shown["headers"] = shapes.plain(found.headers)
    return shown


def body_in(body: dict[str, Any]) -> bytes:
    encoding = text_of(body, "payload_encoding", "string")
    payload = text_of(body, "payload")
    if encoding == "string":
        return payload.encode()
    if encoding != "base64":
        raise BadRequest("payload_encoding must be string or base64")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("payload is not base64") from None


def body_out(octets: bytes, encoding: str, most: int | None) -> dict[str, Any]:
    """The payload, as text where it is and may be."""
    shown = octets if most is None else octets[:most]
    found: dict[str, Any] = {"payload_bytes": len(octets)}
    if encoding == "auto":
        try:
            return {**found, "payload": shown.decode(), "payload_encoding": "string"}
        except UnicodeDecodeError:
            pass
    return {**found, "payload": base64.b64encode(shown).decode(), "payload_encoding": "base64"}


@endpoint("POST", "/api/exchanges/{vhost}/{name}/publish", body=OBJECT, of_messages=True)
async def publish(call: Call) -> dict[str, Any]:
    """Publishes a message; `routed` tells whether it went to a queue."""
    body = await call.json()
    required(body, "properties", "routing_key", "payload")
    properties = properties_in(table_of(body, "properties"))
    payload = body_in(body)
    async with (
        call.connection(publishes=True) as connection,
        connection.channel(confirm=True) as channel,
    ):
        try:
            await channel.publish(
                payload,
                named_exchange(call["name"]),
                text_of(body, "routing_key"),
                properties=properties,
                mandatory=True,
            )
        except PublishFailed as failure:
            if failure.returned:
                return {"routed": False}
            raise
    return {"routed": True}


@endpoint("POST", "/api/queues/{vhost}/{name}/get", body=OBJECT, of_messages=True)
async def get(call: Call) -> list[dict[str, Any]]:
    """Takes messages from a queue, 32 MiB or `count` of them; `ackmode` says what becomes of them."""
    body = await call.json()
    mode = mode_of(body)
    encoding = text_of(body, "encoding", "auto")
    if encoding not in ("auto", "base64"):
        raise BadRequest("encoding must be auto or base64")
    count, most = number_of(body, "count", 1, GET_MAX), None
    if "truncate" in body:
        most = number_of(body, "truncate", 0, 2**31)
    found: list[dict[str, Any]] = []
    held_bytes = 0
    async with (
        call.connection() as connection,
        connection.channel() as channel,
    ):
        last: Message | None = None  # which settles all before it: their bodies are not kept
        while len(found) < count and held_bytes < HELD_BYTES_MAX:
            message = await channel.get(call["name"])
            if message is None:
                break
            last = message
            found.append(message_row(message, encoding, most))
            held_bytes += len(message.body) if most is None else min(len(message.body), most)
        if last is not None:
            if mode == "ack_requeue_false":
                last.ack(multiple=True)
            else:
                last.nack(multiple=True, requeue=not mode.endswith("false"))
        declared = await channel.queue(call["name"], passive=True)
        rest = declared.message_count
    left = rest if mode.endswith("false") else max(0, rest - len(found))
    for place, row in enumerate(found):
        row["message_count"] = left + len(found) - place - 1
    return found


def mode_of(body: dict[str, Any]) -> str:
    if "ackmode" in body:
        mode = text_of(body, "ackmode")
        if mode not in ACK_MODES:
            raise BadRequest(f"ackmode must be one of {', '.join(ACK_MODES)}")
        return mode
    required(body, "requeue")
    return "ack_requeue_true" if body["requeue"] in (True, "true") else "ack_requeue_false"


def number_of(body: dict[str, Any], name: str, least: int, most: int) -> int:
    found = number_in(body.get(name))
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise BadRequest(f"{name} must be a number from {least} to {most}")
    return found


def message_row(message: Message, encoding: str, most: int | None) -> dict[str, Any]:
    return {
        **body_out(message.body, encoding, most),
        "redelivered": message.redelivered,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "properties": properties_out(message.properties),
    }
