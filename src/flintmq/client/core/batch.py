"""Rows to publish, encoded many at a time into one piece of octets.

    | method frame | header frame | body frame ... |   | method frame | header frame | body frame ... |
    |---------- head -------------|

Rows keep what they were made of until they are confirmed, so that they can be encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence

from flintmq.wire import amqp, octets

# The method in basic and in stream.
PUBLISH = 40
# A frame is so much longer than its payload: type, channel and size are before it, the end is behind it.
FRAME_BYTES = 8
# A header frame is so much longer than the properties in it: class, weight and body size are before them.
HEADER_FRAME_BYTES = FRAME_BYTES + 12
# The body size is so far from the start of a head, and the payload of the method farther: that frame, and
# type, channel, size, class and weight of the header.
BODY_SIZE_AT = FRAME_BYTES + 11


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

    `head` has the frames before the bodies, with a body size of 0, for all rows alike; `heads` are there
    instead where they differ.
    """

    __slots__ = ("bodies", "head", "heads", "number", "reached")

    def __init__(self, number: int, head: bytes, heads: list[bytes] | None, bodies: list[bytes]) -> None:
        self.number = number
        self.head = head
        self.heads = heads
        self.bodies = bodies
        self.reached = 0  # rows encoded so far

    def encode(self, frame_bytes_max: int, octets_max: int) -> bytearray:
        """The frames of the next rows, about `octets_max` octets; empty when there are no more."""
        payload_max = frame_bytes_max - FRAME_BYTES
        number = self.number
        bodies = self.bodies
        heads = self.heads
        head = self.head
        index = self.reached
        count = len(bodies)
        size = 0
        while index < count and size < octets_max:
            body = bodies[index]
            if heads is not None:
                head = heads[index]
            end = len(body)
            size += len(head) + end + FRAME_BYTES * ((end + payload_max - 1) // payload_max)
            index += 1
        stop = index
        index = self.reached
        buffer = octets.unset(size)
        target = octets.writable(buffer)
        at = 0
        while index < stop:
            body = bodies[index]
            if heads is not None:
                head = heads[index]
            end = len(body)
            octets.write_bytes(target, at, head)
            octets.write_longlong(target, at + BODY_SIZE_AT + octets.read_long(target, at + 3), end)
            at += len(head)
            start = 0
            while start < end:
                size = end - start if end - start < payload_max else payload_max
                at = octets.write_frame(target, at, amqp.FRAME_BODY, number, body, start, start + size)
                start += size
            index += 1
        self.reached = stop
        return buffer

    def pick(self, indexes: Sequence[int]) -> Rows:
        """The rows of these indexes, to be encoded anew."""
        heads = None if self.heads is None else [self.heads[index] for index in indexes]
        return Rows(self.number, self.head, heads, [self.bodies[index] for index in indexes])


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


def row_head(number: int, class_id: int, method: bytes, properties: bytes) -> bytes:
    """The frames of a row before its body: that of the method, and a header with a body size of 0."""
    buffer = octets.unset(len(method) + HEADER_FRAME_BYTES + len(properties))
    target = octets.writable(buffer)
    at = octets.write_bytes(target, 0, method)
    at = octets.write_frame_head(target, at, amqp.FRAME_HEADER, number, 12 + len(properties))
    at = octets.write_long(target, at, class_id << 16)
    at = octets.write_longlong(target, at, 0)
    at = octets.write_bytes(target, at, properties)
    octets.write_octet(target, at, amqp.FRAME_END)
    return bytes(buffer)


def header_frame_bytes(head: bytes) -> int:
    """How long the header frame of a head is."""
    return len(head) - FRAME_BYTES - int.from_bytes(head[3:7], "big")
