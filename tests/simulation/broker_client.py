"""One simulated client: a real Session over a link that is a few lists.

    say(channel, method) -> octets -> Connection.receive -> Session -> Broker
    written()            <- octets that the broker has written, whether they may leave yet or not
    hear()               <- they have left: what they promise must be true now

What is written and not heard matters to the model (a message was handed out), but promises nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from flintmq.broker.broker import Broker
from flintmq.errors import PeerFault
from flintmq.protocol.outbox import Output
from flintmq.protocol.states import LOST
from flintmq.server.sessions.session import Session
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, decode_method, encode_method
from flintmq.wire.properties import BasicProperties, encode_properties

from .broker_model import Copy, ModelChannel, ModelStream

FRAME_BYTES_MAX = 131_072
PERSISTENT = b"\x10\x00\x02"
TRANSIENT = b"\x00\x00"


class Event(NamedTuple):
    """A method from the broker, with the content it carried."""

    client: Client
    channel: int
    method: Method
    body: bytes
    header: bytes = b""


@dataclass(eq=False)
class Client:
    """One connection with its channels."""

    broker: Broker
    outbox: list[Output]
    channels: dict[int, ModelChannel] = field(default_factory=dict)
    # What the octets on their way promise: in words, and the record that must be safe.
    unheard: list[tuple[str, int]] = field(default_factory=list)
    # The same of streams: where each must end.
    unheard_offsets: list[tuple[ModelStream, int]] = field(default_factory=list)
    unheard_copies: list[Copy] = field(default_factory=list)  # of messages
    postponed: list[Event] = field(default_factory=list)  # deliveries that were not looked at yet
    scanned: int = 0
    publishes: bool = True
    gone: bool = False
    reply_queue: str = ""  # where answers to its requests come to, once it has asked for something

    def __post_init__(self) -> None:
        self.output = Output(self.outbox, self)
        self.session = Session(self.broker, self.output, self, "simulated")
        self.receive(b"AMQP\x00\x00\x09\x01")
        self.output.sent(self.output.pending())
        connection = self.session.connection
        for event in ("> connection.tune", "connection.tune-ok", "> connection.open-ok"):
            connection.follow(event)
        connection.channel_max = 16
        connection.frame_bytes_max = self.output.frame_bytes_max = FRAME_BYTES_MAX
        self.session.user = self.broker.users.get("guest")
        self.session.virtual_host = self.broker.virtual_hosts["/"]
        self.session.capabilities = frozenset({"consumer_cancel_notify"})
        self.received_octets = self.sent_octets = 0  # nobody counts them here

    # To the broker

    def say(self, number: int, method: Method) -> None:
        self.receive(frame(amqp.FRAME_METHOD, number, encode_method(amqp.VERSION_0_9_1, method)))

    def publish(
        self,
        number: int,
        exchange: str,
        key: str,
        body: bytes,
        persistent: bool,
        properties: BasicProperties | None = None,
    ) -> None:
        method = methods.BasicPublish(exchange=exchange, routing_key=key)
        encoded = PERSISTENT if persistent else TRANSIENT
        if properties is not None:
            properties.delivery_mode = 2 if persistent else 1
            encoded = encode_properties(properties)
        header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + encoded
        self.receive(
            frame(amqp.FRAME_METHOD, number, encode_method(amqp.VERSION_0_9_1, method))
            + frame(amqp.FRAME_HEADER, number, header)
            + (frame(amqp.FRAME_BODY, number, body) if body else b"")
        )

    def receive(self, octets: bytes) -> None:
        self.broker.pass_work.copies = 0
        self.session.connection.paused = False  # others have had their turn
        try:
            used = self.take(octets)
        except PeerFault as fault:
            raise AssertionError(f"the broker refused: {fault}") from fault
        assert used == len(octets)

    def take(self, octets: bytes) -> int:
        return self.session.connection.receive(bytearray(octets), len(octets))

    def drop(self) -> None:
        """The connection is lost, as a Link does it; also what a session asks of its link."""
        if not self.gone:
            self.gone = True
            self.session.release()
            self.session.connection.follow(LOST)
            self.output.release()
            self.scanned = 0

    def greeted(self) -> None:
        """Nobody counts strangers."""

    def closing(self) -> None:
        """The broker wants to close: it is not answered, the history drops it."""

    # From the broker

    def written(self) -> list[Event]:
        """What the broker has written since the last time."""
        output = self.output
        start = output.start + self.scanned
        if self.gone or start == output.fill:
            return []
        octets = bytes(memoryview(output.buffer)[start : output.fill])
        self.scanned = output.pending()
        found: list[Event] = []
        at = 0
        while at < len(octets):
            size = int.from_bytes(octets[at + 3 : at + 7], "big")
            payload = octets[at + 7 : at + 7 + size]
            if octets[at] == amqp.FRAME_METHOD:
                number = int.from_bytes(octets[at + 1 : at + 3], "big")
                found.append(Event(self, number, decode_method(amqp.VERSION_0_9_1, payload), b""))
            elif octets[at] == amqp.FRAME_HEADER:
                found[-1] = found[-1]._replace(header=payload)
            elif octets[at] == amqp.FRAME_BODY:
                found[-1] = found[-1]._replace(body=found[-1].body + payload)
            at += size + 8
        return found

    def hear(self, synced: int) -> None:
        """The octets leave, unless the broker holds them back."""
        self.output.waiting = False
        if self.gone or self.output.barrier:
            return
        assert self.scanned == self.output.pending()
        self.output.sent(self.scanned)
        self.scanned = 0
        for what, sequence in self.unheard:
            assert sequence <= synced, f"{what} was told before it was safe: {sequence}, synced {synced}"
        self.unheard.clear()
        for stream, end in self.unheard_offsets:
            stream.hear(end)
        self.unheard_offsets.clear()
        for copy in self.unheard_copies:
            copy.heard = True
        self.unheard_copies.clear()


def frame(kind: int, number: int, payload: bytes) -> bytes:
    return bytes((kind,)) + number.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"
