"""One connection to a broker: sends operations, and gathers what comes back for each channel.

Whatever a broker sends is an Event in the order it came. A probe asks about every queue and something
harmless of every channel: the answers come behind what the broker had to say before.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from peer import Gone, Peer

from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, decode_method
from flintmq.wire.properties import decode_properties

# Channels of the tester's own on each connection, one for each queue, from this number on.
PROBE = 9
# Harmless on any channel: its answer comes behind what the broker had to say there.
SETTLING = methods.ExchangeDeclare(exchange="amq.direct", passive=True)
_CONTENT_HEAD = struct.Struct(">HHQ")


@dataclass
class Event:
    """A method that came, with its content if it has one."""

    method: Method
    properties: Any = None
    body: bytes = b""
    missing: int = -1  # octets of the body still to come; -1: no header yet
    claimed: bool = False  # it is the answer to something


CONTENTS = (methods.BasicDeliver, methods.BasicGetOk, methods.BasicReturn)


class Line:
    """A connection of one broker, with its channels."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.peer: Peer | None = None
        self.events: dict[int, list[Event]] = {}
        self.open: set[int] = set()
        self.outstanding: dict[int, list[int]] = {}  # delivery tags that await a settlement, by channel
        self.consumers: dict[int, dict[str, bool]] = {}  # by channel and tag: without acks?
        self.confirmed: dict[int, set[int]] = {}  # publishes that were confirmed before, by channel
        self.probed: list[str] = []
        self.settling: list[int] = []

    def connected(self) -> Peer:
        if self.peer is None:
            self.peer = Peer.connect(self.port)
            self.open = set()
        return self.peer

    def opened(self, channel: int) -> Peer:
        """The channel is open now, if it was not."""
        peer = self.connected()
        if channel not in self.open:
            peer.send(channel, methods.ChannelOpen())
            self.open.add(channel)
            self.outstanding[channel] = []
            self.consumers[channel] = {}
            self.confirmed[channel] = set()
            answer = self.answer(channel, methods.ChannelOpen.REPLIES)
            assert isinstance(answer, methods.ChannelOpenOk), answer
            self.events[channel].pop()
        return peer

    def answer(self, channel: int, names: tuple[str, ...]) -> Method | None:
        """Reads until a method of these names has come that nobody has claimed; None when all is closed."""
        events = self.events.setdefault(channel, [])
        at = 0
        while True:
            while at < len(events):
                event = events[at]
                if isinstance(event.method, CONTENTS) and event.missing:
                    break
                if event.method.NAME in names and not event.claimed:
                    event.claimed = True
                    return event.method
                at += 1
            if self.peer is None or channel not in self.open:
                return None
            self.read()

    def read(self) -> None:
        """One frame."""
        assert self.peer is not None
        try:
            frame = self.peer.next_frame()
        except (Gone, TimeoutError) as gone:
            self.lose(f"{type(gone).__name__}: {gone}")
            return
        if frame.kind == amqp.FRAME_HEARTBEAT:
            return
        events = self.events.setdefault(frame.channel, [])
        if frame.kind == amqp.FRAME_METHOD:
            events.append(Event(decode_method(self.peer.version, frame.payload)))
        elif frame.kind == amqp.FRAME_HEADER:
            class_id, _, size = _CONTENT_HEAD.unpack_from(frame.payload)
            events[-1].properties = decode_properties(
                class_id, frame.payload, _CONTENT_HEAD.size, len(frame.payload)
            )
            events[-1].missing = size
        else:
            events[-1].body += frame.payload
            events[-1].missing -= len(frame.payload)
        event = events[-1]
        if not isinstance(event.method, CONTENTS) or event.missing == 0:
            self.complete(frame.channel, event)

    def complete(self, channel: int, event: Event) -> None:
        """Takes note of what has come as a whole."""
        method = event.method
        assert self.peer is not None
        if isinstance(method, methods.ChannelClose):
            self.peer.send(channel, methods.ChannelCloseOk())
            self.open.discard(channel)
        elif isinstance(method, methods.ConnectionClose):
            self.peer.send(0, methods.ConnectionCloseOk())
            self.lose("")
        elif isinstance(method, methods.BasicDeliver) and not self.consumers[channel].get(
            method.consumer_tag
        ):
            self.outstanding[channel].append(method.delivery_tag)

    def lose(self, why: str) -> None:
        """The connection is no more; the next operation makes another."""
        assert self.peer is not None
        if why:
            self.events.setdefault(0, []).append(
                Event(methods.ConnectionClose(reply_code=0, reply_text="the socket ended"))
            )
        self.peer.abort()
        self.peer = None
        self.open = set()

    # Questions of the tester's own

    def ask(self, channel: int, method: Method) -> Method | None:
        """A question whose answer is not an event."""
        self.opened(channel).send(channel, method)
        return self.forgotten(channel, method)

    def forgotten(self, channel: int, asked: Method) -> Method | None:
        """The answer, taken out of the events; None when there is a close instead."""
        answer = self.answer(channel, asked.REPLIES)
        if answer is not None:
            events = self.events[channel]
            del events[next(index for index, each in enumerate(events) if each.method is answer)]
        return answer

    def begin_probe(self, queues: list[str]) -> None:
        """Asks about all the queues, and something of each channel, in one piece."""
        peer = self.connected()
        self.probed = queues
        self.settling = sorted(channel for channel in self.open if channel < PROBE)
        with suppress(ConnectionError), peer.together():
            for channel, queue in enumerate(queues, PROBE):
                self.events[channel] = []
                if channel not in self.open:
                    self.open.add(channel)
                    peer.send(channel, methods.ChannelOpen())
                peer.send(channel, methods.QueueDeclare(queue=queue, passive=True))
            for channel in self.settling:
                peer.send(channel, SETTLING)

    def end_probe(self) -> list[tuple[int, ...]]:
        """How many messages and consumers each queue has, or the code of the refusal."""
        for channel in self.settling:
            self.forgotten(channel, SETTLING)
        found: list[tuple[int, ...]] = []
        for channel, _ in enumerate(self.probed, PROBE):
            answer = self.answer(channel, methods.QueueDeclare.REPLIES)
            if isinstance(answer, methods.QueueDeclareOk):
                found.append((answer.message_count, answer.consumer_count))
            else:
                closed = [each.method for each in self.events.get(channel, ())]
                found.append(
                    tuple(each.reply_code for each in closed if isinstance(each, methods.ChannelClose))
                )
        return found

    def taken(self) -> dict[int, list[Event]]:
        """What came since this was last asked, without the tester's own."""
        events, self.events = self.events, {}
        return {channel: each for channel, each in events.items() if channel < PROBE}
