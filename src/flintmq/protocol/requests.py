"""Requests and responses of AMQP 0-9: the frames of type 9 and 10, and the numbers of one channel.

    request   | request id 8  | response mark 8 | reserved 4     | class 2 | method 2 | arguments |
    response  | response id 8 | request id 8    | batch offset 4 | class 2 | method 2 | arguments |

Each peer numbers its requests, and its responses, from 1 up on each channel. A response answers all requests
from its request id to that and the batch offset, which have to be consecutive. The mark of a request is the
newest response that its sender has received. Both roles share this; it knows no sockets and no queues.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.wire.methods import Method

_HEAD = struct.Struct(">QQI")
HEAD_OCTETS = _HEAD.size
# The frame around it has 8 octets more, and a method 4 of ids.
FRAMED_OCTETS = HEAD_OCTETS + 8

# Methods that either peer may send as a request; those of `REPLIES` answer them.
REQUESTS = frozenset(
    f"message.{name}"
    for name in (
        *("transfer", "consume", "cancel", "get", "recover", "qos"),
        *("open", "append", "checkpoint", "resume", "close"),
    )
)

Answered = list[tuple[int, object]]


class Requests:
    """What one channel has asked and answered, in both directions."""

    __slots__ = ("asked", "awaited", "heard", "received", "responded")

    def __init__(self) -> None:
        self.asked = 0  # our newest request
        self.awaited: dict[int, tuple[tuple[str, ...], object]] = {}  # those without a response
        self.received = 0  # the peer's newest request
        self.responded = 0  # our newest response
        self.heard = 0  # the peer's newest response

    # What is sent

    def request(self, method: Method, payload: bytes, waiter: object) -> bytes:
        """The payload of a request frame with this method, whose response is for `waiter`."""
        self.asked += 1
        self.awaited[self.asked] = (method.REPLIES, waiter)
        return _HEAD.pack(self.asked, self.heard, 0) + payload

    def response(self, request_id: int, payload: bytes, batch_offset: int = 0) -> bytes:
        """The payload of a response frame for the requests from this one on."""
        if request_id + batch_offset > self.received:
            raise ProtocolMisuse(f"request {request_id + batch_offset} is answered before it came")
        self.responded += 1
        return _HEAD.pack(self.responded, request_id, batch_offset) + payload

    # What is received

    def take_request(self, payload: bytes) -> int:
        """The id of the request, which has to be the next one."""
        request_id, mark, _ = _HEAD.unpack_from(payload)
        if request_id != self.received + 1:
            raise invalid(f"request {request_id} where {self.received + 1} was due")
        if mark > self.responded:
            raise invalid(f"a response mark of {mark}, where {self.responded} responses were sent")
        self.received = request_id
        return self.received

    def take_response(self, payload: bytes, method: Method) -> Answered:
        """The requests that it answers, each with its waiter."""
        response_id, first, batch_offset = _HEAD.unpack_from(payload)
        if response_id != self.heard + 1:
            raise invalid(f"response {response_id} where {self.heard + 1} was due")
        if batch_offset >= len(self.awaited):
            raise invalid(f"{batch_offset + 1} requests are answered, and {len(self.awaited)} are open")
        answered: Answered = []
        for request_id in range(first, first + batch_offset + 1):
            replies, waiter = self.awaited.get(request_id, ((), None))
            if not replies:
                raise invalid(f"request {request_id} is answered, and it is not open")
            if method.NAME not in replies:
                raise invalid(
                    f"{method.NAME} answers request {request_id}, which takes {' or '.join(replies)}"
                )
            answered.append((request_id, waiter))
        self.heard = response_id
        for request_id, _ in answered:
            del self.awaited[request_id]
        return answered


def invalid(why: str) -> ConnectionFault:
    return ConnectionFault(amqp.COMMAND_INVALID, why)
