"""A server that says what the test tells it to, frame by frame, to a client's core without sockets."""

from __future__ import annotations

from typing import Any

from flintmq.client.core.channel import ChannelCore
from flintmq.client.core.connection import ConnectionCore
from flintmq.client.core.pending import Pending, Steps
from flintmq.client.core.settings import Settings
from flintmq.clock import Clock
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, decode_method, encode_method
from flintmq.wire.properties import BasicProperties, encode_properties

HEADER = b"AMQP\x00\x00\x09\x01"


class StillClock(Clock):
    """Time that passes only when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return bytes((kind,)) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"


def method_frame(channel: int, method: Method) -> bytes:
    return frame(amqp.FRAME_METHOD, channel, encode_method(amqp.VERSION_0_9_1, method))


def content_frames(channel: int, method: Method, body: bytes, piece: int = 4000, **properties: Any) -> bytes:
    head = (60).to_bytes(2, "big") + b"\0\0" + len(body).to_bytes(8, "big")
    header = head + encode_properties(BasicProperties(**properties))
    pieces = [body[at : at + piece] for at in range(0, len(body), piece)]
    return b"".join(
        [
            method_frame(channel, method),
            frame(amqp.FRAME_HEADER, channel, header),
            *[frame(amqp.FRAME_BODY, channel, each) for each in pieces],
        ]
    )


class Script:
    """The core, and the server's side of the conversation."""

    def __init__(self, **options: Any) -> None:
        self.clock = StillClock()
        self.core = ConnectionCore(
            Settings.of("amqp://me:secret-word@here", **{"heartbeat_s": 0, **options}), self.clock
        )
        self.core.flush = lambda: None

    def says(self, octets: bytes) -> int:
        used = self.core.receive(bytearray(octets), len(octets))
        self.core.call_back()
        return used

    def tells(self, channel: int, method: Method) -> None:
        self.says(method_frame(channel, method))

    def heard_octets(self) -> bytes:
        output = self.core.output
        octets = bytes(memoryview(output.buffer)[output.start : output.fill])
        output.sent(len(octets))
        return octets

    def heard(self) -> list[tuple[int, Method]]:
        """The methods that the client sent since; contents and the protocol header are passed over."""
        octets = self.heard_octets()
        found = []
        at = 8 if octets.startswith(b"AMQP") else 0
        while at < len(octets):
            size = int.from_bytes(octets[at + 3 : at + 7], "big")
            if octets[at] == amqp.FRAME_METHOD:
                channel = int.from_bytes(octets[at + 1 : at + 3], "big")
                found.append((channel, decode_method(amqp.VERSION_0_9_1, octets[at + 7 : at + 7 + size])))
            at += size + 8
        return found

    def shake_hands(self, frame_max: int = 4096, heartbeat: int = 0) -> None:
        self.tells(0, methods.ConnectionStart(version_minor=9, mechanisms=b"PLAIN AMQPLAIN"))
        self.tells(0, methods.ConnectionTune(channel_max=10, frame_max=frame_max, heartbeat=heartbeat))
        self.tells(0, methods.ConnectionOpenOk())
        assert self.core.is_open
        self.heard()

    def drive(self, steps: Steps[Any], *answers: Method) -> Any:
        """Runs the steps with these answers, one to each call."""
        pending = next(steps)
        for answer in answers:
            self.tells(self.channel_of(pending), answer)
            try:
                pending = steps.send(pending.outcome())
            except StopIteration as stop:
                return stop.value
        raise AssertionError("the steps want more answers")

    def channel_of(self, pending: Pending) -> int:
        channels = [*self.core.channels.values(), *filter(None, (self.core.spare,))]
        for channel in channels:
            if any(waiter is pending for _, waiter in channel.protocol.awaited):
                return channel.number
        for number, closed in self.core.closing.items():
            if closed is pending:
                return number
        raise AssertionError("nobody waits for an answer")

    def channel(self, confirm: bool = False, transactional: bool = False) -> ChannelCore:
        channel = self.core.new_channel(confirm, transactional, None)
        answers: list[Method] = [methods.ChannelOpenOk()]
        if confirm:
            answers.append(methods.ConfirmSelectOk())
        if transactional:
            answers.append(methods.TxSelectOk())
        self.drive(channel.open(), *answers)
        self.heard()
        return channel
