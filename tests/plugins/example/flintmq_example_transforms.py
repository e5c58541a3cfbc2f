"""An example of transforms of one's own: shout makes a body loud, and says so in a header."""

from __future__ import annotations

from flintmq.wire.properties import BasicProperties


def shout(properties: BasicProperties, body: bytes) -> tuple[BasicProperties, bytes] | None:
    """In capitals; what is empty is refused."""
    if not body:
        return None
    properties.headers = {**(properties.headers or {}), "loud": True}
    return properties, body.upper()


def grumpy(properties: BasicProperties, body: bytes) -> tuple[BasicProperties, bytes] | None:
    """Fails at work in several ways, for the tests."""
    if body == b"raise":
        raise ZeroDivisionError("unlucky")
    if body == b"mode":
        properties.delivery_mode = 7
    if body == b"expiration":
        properties.expiration = "soon"
    if body == b"large":
        return properties, bytes(16_777_217)
    return properties, body


not_a_function = 5
