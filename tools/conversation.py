"""A broker and its clients in one process, without sockets: octets go in, frames come out.

    Peer.send(octets) -> Wire.feed -> Connection.receive -> Session -> Broker
    Peer.replies()   <-  Wire.flush <-  Output   <------------ Broker.finish_pass

A Wire stands where the server has a Link and does to its session what a Link does, so that whatever
is found here can be done to a broker over TCP. Only a PeerFault is caught, as a Link does: any other
exception is a bug of the broker and comes through to the caller.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from flintmq.broker.broker import Broker
from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.errors import PeerFault
from flintmq.protocol import phases
from flintmq.protocol.outbox import Output
from flintmq.protocol.states import LOST
from flintmq.server.data_directory import recovered_broker
from flintmq.server.sessions.session import Session
from flintmq.storage.disk import Disk
from flintmq.storage.options import JournalOptions
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, decode_method, encode_method
from flintmq.wire.properties import BasicProperties, encode_properties

GREETINGS = {8: b"AMQP\x01\x01\x08\x00", 9: b"AMQP\x01\x01\x00\x09", 91: b"AMQP\x00\x00\x09\x01"}


class SeededClock(Clock):
    """Chance that is the same in each run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)


class Frame(NamedTuple):
    """One frame from the broker; `method` is None for what is no method."""

    kind: int
    channel: int
    payload: bytes
    method: Method | None


class Wire:
    """What a session takes for its link."""

    def __init__(self, house: House, number: int) -> None:
        self.house = house
        self.output = Output(house.outbox, self)
        self.session = Session(house.broker, self.output, self, "127.0.0.1")
        self.number = number
        self.leftover = b""
        self.received_octets = self.sent_octets = 0  # nobody counts them here
        self.arrived = bytearray()  # what the peer has been sent and has not looked at
        self.takes = True  # whether the peer reads; its socket takes nothing otherwise
        self.is_gone = False
        self.is_finishing = False
        self.faults: list[PeerFault] = []

    def feed(self, octets: bytes) -> None:
        """The peer sent `octets`; nothing they cause is handed out before the pass is over."""
        buffer = bytearray(self.leftover + octets)
        self.leftover = b""
        self.received_octets = self.sent_octets = 0  # nobody counts them here
        if self.is_gone or not buffer:
            return
        connection = self.session.connection
        if connection.paused:
            self.leftover = bytes(buffer)
            return
        self.house.broker.pass_work.copies = 0
        try:
            used = connection.receive(buffer, len(buffer))
        except PeerFault as fault:
            self.faults.append(fault)
            self.session.fail(None, fault)
            used = len(buffer)
        self.leftover = bytes(memoryview(buffer)[used:])
        if connection.paused:
            self.house.paused.append(self)
        if connection.state == phases.CONNECTION_CLOSED and not self.session.is_leaving:
            self.finish()

    def resume(self) -> None:
        """Goes on after a pause, if the peer has read what it was sent."""
        if self.takes or not self.output.is_full():
            self.session.connection.paused = False
            self.feed(b"")

    def flush(self) -> None:
        """The end of a pass."""
        output = self.output
        output.waiting = False
        if self.is_gone or not self.takes or output.barrier:
            return
        if output.pending():
            self.arrived += memoryview(output.buffer)[output.start : output.fill]
            output.sent(output.pending())
        if self.is_finishing:
            self.drop()
            return
        if self.session.connection.paused:
            self.house.paused.append(self)
        wanted = list(output.wanted)
        output.wanted.clear()
        for consumer in wanted:
            consumer.wake()  # type: ignore[attr-defined]

    # What a session asks of its link

    def verify(self, verification: Any) -> None:
        self.session.login_step(verification.finish(verification.run()))

    def peer_certificate(self) -> dict[str, Any] | None:
        return None

    def refuse_login(self, pause_s: float) -> None:
        self.session.login_refused()

    def refuse(self, pause_s: float, then: Callable[[], None]) -> None:
        then()

    def greeted(self) -> None:
        """Nobody counts strangers here."""

    def opened(self) -> None:
        """The handshake is done."""

    def rate_changed(self) -> None:
        """Nobody waits for a rate."""

    def describe(self) -> dict[str, int]:
        return {"received": 0, "sent": 0}

    def start_heartbeats(self, interval_s: int) -> None:
        """Time stands still here."""

    def closing(self) -> None:
        """The peer will answer, or be dropped by whoever wrote the conversation."""

    def finish(self) -> None:
        self.is_finishing = True
        if not self.output.pending():
            self.drop()

    def drop(self) -> None:
        if self.is_gone:
            return
        self.is_gone = True
        self.session.release()
        self.session.connection.follow(LOST)
        self.output.release()


class House:
    """One broker and the wires that lead to it."""

    def __init__(self, config: Config | None = None, seed: int = 1, directory: str = "") -> None:
        """With a directory the broker has a store there, whose disk is done when a pass is."""
        config, clock = config or Config(), SeededClock(seed)
        if directory:
            options = JournalOptions(threaded=False)
            self.broker, _ = recovered_broker(config, clock, _no_wake, directory, Disk(), options)
        else:
            self.broker = Broker(config, clock)
        # As after a first login: a thousand conversations a second cannot each pay for scrypt.
        self.broker.users.remember("guest", b"guest")
        self.outbox: list[Output] = []
        self.paused: list[Wire] = []
        self.wires_made = 0

    def wire(self) -> Wire:
        self.wires_made += 1
        return Wire(self, self.wires_made)

    def finish_pass(self) -> None:
        """As the server does when it has read from every socket."""
        store, streams = self.broker.store, self.broker.streams
        while True:
            if store is not None and store.journal.in_group():
                raise AssertionError("a group of the journal is open at the end of a pass")
            self.broker.finish_pass()
            if store is not None and streams is not None:
                store.collect()
                streams.collect()
            outbox = self.outbox[:]
            self.outbox.clear()
            for output in outbox:
                output.sender.flush()
            paused, self.paused = self.paused, []
            for wire in paused:
                wire.resume()
            if not self.broker.has_work() and not self.outbox and not self.paused:
                return

    def close(self) -> None:
        """An orderly stop."""
        if self.broker.streams is not None:
            self.broker.streams.close()
        if self.broker.store is not None:
            self.broker.store.close()


def _no_wake() -> None:
    """The disk has no threads here."""


class Peer:
    """A client of the house: it says what it likes, whether that is wise or not."""

    def __init__(self, house: House, version: int = 91) -> None:
        self.house = house
        self.version = version
        self.wire = house.wire()
        self.unread = bytearray()

    def send(self, octets: bytes) -> None:
        """Octets, and the end of the pass that they were read in."""
        self.wire.feed(octets)
        self.house.finish_pass()

    def say(self, *spoken: tuple[int, Method]) -> list[Frame]:
        """Methods, each with its channel, in one piece; the frames that come back."""
        self.send(b"".join(method_frame(self.version, channel, method) for channel, method in spoken))
        return self.replies()

    def replies(self) -> list[Frame]:
        self.unread += self.wire.arrived
        self.wire.arrived.clear()
        found, used = split_frames(self.version, bytes(self.unread))
        del self.unread[:used]
        return found

    def ask(self, channel: int, method: Method) -> Method:
        """One method, and the one that answers it."""
        answers = [frame.method for frame in self.say((channel, method)) if frame.method is not None]
        if not answers:
            raise AssertionError(f"no answer to {method!r}")
        return answers[-1]

    def login(self, *channels: int) -> Peer:
        """The handshake, and these channels opened."""
        self.send(GREETINGS[self.version])
        self.say((0, start_ok()))
        self.say((0, methods.ConnectionTuneOk()), (0, methods.ConnectionOpen(virtual_host="/")))
        for channel in channels:
            self.say((channel, methods.ChannelOpen()))
        self.replies()
        if self.wire.session.connection.state != phases.CONNECTION_OPEN:
            raise AssertionError("the login did not succeed")
        return self


def start_ok(password: bytes = b"guest", **capabilities: bool) -> methods.ConnectionStartOk:
    return methods.ConnectionStartOk(
        client_properties={"capabilities": dict(capabilities)},
        mechanism="PLAIN",
        response=b"\0guest\0" + password,
        locale="en_US",
    )


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return bytes((kind,)) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"


def method_frame(version: int, channel: int, method: Method) -> bytes:
    return frame(amqp.FRAME_METHOD, channel, encode_method(version, method))


def header_payload(body_size: int, properties: bytes = b"\x00\x00", class_id: int = 60) -> bytes:
    """A content header: `properties` begins with the flags."""
    return class_id.to_bytes(2, "big") + b"\x00\x00" + body_size.to_bytes(8, "big") + properties


def publish(
    channel: int,
    exchange: str,
    key: str,
    body: bytes,
    *,
    properties: BasicProperties | None = None,
    mandatory: bool = False,
    immediate: bool = False,
    version: int = 91,
    frame_bytes_max: int = 131_072,
) -> bytes:
    """basic.publish with its content, in frames."""
    method = methods.BasicPublish(
        exchange=exchange, routing_key=key, mandatory=mandatory, immediate=immediate
    )
    octets = b"\x00\x00" if properties is None else encode_properties(properties)
    piece = frame_bytes_max - 8
    bodies = [body[at : at + piece] for at in range(0, len(body), piece)]
    return b"".join(
        (
            method_frame(version, channel, method),
            frame(amqp.FRAME_HEADER, channel, header_payload(len(body), octets)),
            *(frame(amqp.FRAME_BODY, channel, each) for each in bodies),
        )
    )


def split_frames(version: int, octets: bytes) -> tuple[list[Frame], int]:
    """The whole frames at the start of `octets`, and how many octets they are."""
    found: list[Frame] = []
    at = 0
    if octets.startswith(b"AMQP"):
        return [Frame(0, 0, octets[:8], None)], 8
    while len(octets) - at >= 8:
        size = int.from_bytes(octets[at + 3 : at + 7], "big")
        if len(octets) - at < size + 8:
            break
        if octets[at + 7 + size] != amqp.FRAME_END:
            raise AssertionError("the broker sent a frame that does not end with 0xCE")
        kind = octets[at]
        payload = octets[at + 7 : at + 7 + size]
        method = decode_method(version, payload) if kind == amqp.FRAME_METHOD else None
        found.append(Frame(kind, int.from_bytes(octets[at + 1 : at + 3], "big"), payload, method))
        at += size + 8
    return found, at


def methods_of(frames: list[Frame]) -> Iterator[tuple[int, Method]]:
    """The methods among the frames, with their channels."""
    for each in frames:
        if each.method is not None:
            yield each.channel, each.method
