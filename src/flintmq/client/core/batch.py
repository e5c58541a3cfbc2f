"""Rows to publish, encoded many at a time into one piece of octets.

    | method frame | header frame | body frame ... |   | method frame | header frame | body frame ... |

Rows keep what they were made of until they are confirmed, so that they can be encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence

from flintmq.wire import amqp, octets

# The method in basic and in stream.
PUBLISH = 40


def total_bytes(bodies: list[bytes]) -> int:
    """The octets of all bodies; a body that is not bytes, or of a subclass, is a TypeError."""
    size = 0
    for index in range(len(bodies)):
        given = bodies[index]
        if type(given) is not bytes:
            raise TypeError(f"body {index} must be bytes, not {type(given).__name__}")
        body = given
        size += len(body)
    return size


class Rows:
    """Messages of one channel that are published together.

    `method` is the whole frame of basic.publish and `properties` flags and values, for all rows alike;
    `methods` and `properties_each` are there instead where they differ. Contents may be of another class.
    """

    __slots__ = (
        "bodies",
        "class_id",
        "method",
        "methods",
        "number",
        "properties",
        "properties_each",
        "reached",
    )

    def __init__(
        self,
        number: int,
        method: bytes,
        methods: list[bytes] | None,
        properties: bytes,
        properties_each: list[bytes] | None,
        bodies: list[bytes],
        class_id: int = amqp.CLASS_BASIC,
    ) -> None:
        self.number = number
        self.class_id = class_id
        self.method = method
        self.methods = methods
        self.properties = properties
        self.properties_each = properties_each
        self.bodies = bodies
        self.reached = 0  # rows encoded so far

    def encode(self, frame_bytes_max: int, octets_max: int) -> bytearray:
        """The frames of the next rows, about `octets_max` octets; empty when there are no more."""
        payload_max = frame_bytes_max - 8
        index = self.reached
        count = len(self.bodies)
        size = 0
        method = self.method
        properties = self.properties
        while index < count and size < octets_max:
            body = self.bodies[index]
            if self.methods is not None:
                method = self.methods[index]
            if self.properties_each is not None:
                properties = self.properties_each[index]
            end = len(body)
            size += len(method) + 20 + len(properties) + end + 8 * ((end + payload_max - 1) // payload_max)
            index += 1
        buffer = bytearray(size)
        target = octets.writable(buffer)
        at = 0
        stop = index
        index = self.reached
        while index < stop:
            body = self.bodies[index]
            if self.methods is not None:
                method = self.methods[index]
            if self.properties_each is not None:
                properties = self.properties_each[index]
            end = len(body)
            at = octets.write_bytes(target, at, method)
            at = octets.write_frame_head(target, at, amqp.FRAME_HEADER, self.number, 12 + len(properties))
            at = octets.write_long(target, at, self.class_id << 16)
            at = octets.write_longlong(target, at, end)
            at = octets.write_bytes(target, at, properties)
            at = octets.write_octet(target, at, amqp.FRAME_END)
            start = 0
            while start < end:
                size = end - start if end - start < payload_max else payload_max
                at = octets.write_frame(target, at, amqp.FRAME_BODY, self.number, body, start, start + size)
                start += size
            index += 1
        self.reached = stop
        return buffer

    def pick(self, indexes: Sequence[int]) -> Rows:
        """The rows of these indexes, to be encoded anew."""
        return Rows(
            self.number,
            self.method,
            None if self.methods is None else [self.methods[index] for index in indexes],
            self.properties,
            None if self.properties_each is None else [self.properties_each[index] for index in indexes],
            [self.bodies[index] for index in indexes],
            self.class_id,
        )


def publish_frame(
    number: int, exchange: bytes, key: bytes, flags: int, class_id: int = amqp.CLASS_BASIC
) -> bytes:
    """The method frame of basic.publish; exchange and key are short strings with their lengths.

    That of stream.publish has the same octets but for its class.
    """
    size = 6 + len(exchange) + len(key) + 1
    return b"".join(
        (
            b"\x01",
            number.to_bytes(2, "big"),
            size.to_bytes(4, "big"),
            (class_id << 16 | PUBLISH).to_bytes(4, "big"),
            b"\x00\x00",
            exchange,
            key,
            bytes((flags, amqp.FRAME_END)),
        )
    )
