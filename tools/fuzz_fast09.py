"""Fuzzes AMQP/Fast 0.9: hostile conversations with a whole broker, in one process, without sockets.

    python tools/fuzz_fast09.py --commands 1000000 --seed 1

As fuzz_fast.py does with 0.8: sensible methods and contents, some of them mutated, in reads split anywhere.
The broker may answer or close; what it sends must be frames and methods of AMQP/Fast 0.9, and when all have
left nothing may be held. The client's half is fed the same octets, and may end its connection and no more.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import fuzz_fast
from conversation import House, Wire

from flintmq.client.fast09.core import Fast09Core
from flintmq.protocol.fast09.outbox import Fast09Output
from flintmq.server.fast09.session import Fast09Session
from flintmq.wire.fast09 import content_header, frames, methods
from flintmq.wire.fast09.content_header import ContentHeader
from flintmq.wire.fast09.methods import KINDS, MethodKind, method

NAMES = ("q", "r", "s", "", "t.a", "names", "wild", "tests", "loss", "amq.topic", "x" * 255, "no such")
TABLES: tuple[dict[str, Any], ...] = (
    {},
    {"a": 1},
    {"destination": "q"},
    {"destination": "t.*", "f": {"g": {"h": "i"}}},
    {"selector": "a = 1", "x-via": "names"},
    {"a": "text" * 100, "x-tracer": 1},
)
PROXIES = {"names": "dest-name", "wild": "dest-wild", "tests": "prop-test", "loss": "lossy"}
USUAL = [
    KINDS[name]
    for name in (
        "channel.open",
        "channel.flow",
        "channel.close",
        "proxy.assert",
        "proxy.delete",
        "queue.assert",
        "queue.register",
        "queue.register",
        "queue.cancel",
        "queue.purge",
        "queue.delete",
        "jms.consume",
        "jms.consume",
        "jms.cancel",
        "jms.browse",
        "jms.browse",
        "jms.ack",
        "jms.ack",
        "jms.reject",
        "stream.consume",
        "stream.cancel",
        "tx.commit",
        "tx.abort",
        "test.integer",
        "test.string",
        "test.table",
    )
]
ANY = list(KINDS.values())
CARRIERS = ("jms.publish", "jms.publish", "jms.publish", "stream.publish", "test.content", "file.stage")


class Fast09Wire(Wire):
    """What a session of AMQP/Fast 0.9 takes for its link."""

    def __init__(self, house: House, number: int) -> None:
        super().__init__(house, number)
        output = Fast09Output(house.outbox, self)
        self.output = output
        self.session = Fast09Session(house.broker, output, self, "127.0.0.1")


class Speaker(fuzz_fast.Speaker):
    """Thinks of things to say; all its chance is from one generator."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.synctag = 0

    def said(self, channel: int, name: str, **values: Any) -> bytes:
        return self.framed(channel, methods.encode(method(name, **values), 0, 1))

    def framed(self, channel: int, body: bytes, kind: int = frames.METHOD) -> bytes:
        if self.chance.random() < 0.05:  # any frame may be an extended one
            head = frames.META_FRAME + bytes((kind, 0)) + channel.to_bytes(2, "big")
            return head + len(body).to_bytes(8, "big") + body
        return frames.framed(kind, channel, body)

    def greeting(self) -> bytes:
        chance = self.chance
        greeting = (
            frames.OPENING
            + self.said(0, "connection.start-ok", mechanism="PLAIN", locale="en_US")
            + self.said(0, "connection.secure-ok", response=b"\0guest\0guest")
            + self.said(
                0,
                "connection.tune-ok",
                frame_max=chance.choice((4096, 65_536, 131_072)),
                jms_support=True,
                file_support=True,
                stream_support=True,
            )
            + self.said(0, "connection.open", virtual_path="/", client_id=chance.choice(("", "", "", "me")))
            + self.said(1, "channel.open", tx_mode=chance.choice((0, 0, 0, 1)))
            + self.said(2, "channel.open")
        )
        for proxy, class_name in PROXIES.items():
            greeting += self.said(2, "proxy.assert", proxy=proxy, class_name=class_name)
        for queue in ("q", "r"):
            greeting += self.said(2, "queue.assert", queue=queue)
            greeting += self.said(chance.choice((1, 2)), "jms.consume", queue=queue, prefetch_count=3)
        return greeting

    def field(self, name: str, form: str) -> Any:
        chance = self.chance
        if form == "bit":
            return chance.random() < 0.2
        if form == "shortstr":
            if name == "class_name":
                return chance.choice((*PROXIES.values(), "fanout", "none"))
            if name in ("namespace", "template", "out_of_band"):
                return chance.choice(("", "", "", "", "n", "x:y"))
            if name in ("proxy", "queue") and chance.random() < 0.8:
                return chance.choice(("q", "q", "r") if name == "queue" else ("", "", *PROXIES))
            return chance.choice(NAMES)
        if form == "table":
            return chance.choice(TABLES)
        if form == "longstr":
            return chance.choice((b"", b"a", b"\xff\0", b"x" * 5000))
        if name == "ticket":
            return 0
        return chance.choice((0, 1, 1, 2, 3, 7, 255))

    def flags(self) -> int:
        made = 0
        for flag, share in (
            (methods.SYNCHREQ, 0.3),
            (methods.UNREAL, 0.03),
            (methods.TRACER, 0.1),
            (1, 0.001),
        ):
            if self.chance.random() < share:
                made |= flag
        return made

    def command(self) -> bytes:
        chance = self.chance
        channel = chance.choice((0, 7, 300)) if chance.random() < 0.01 else chance.choice((1, 2))
        if chance.random() < 0.35:
            return self.message(channel)
        if chance.random() < 0.02:
            return chance.choice((frames.HEARTBEAT_FRAME, self.framed(channel, b"trace", frames.TRACE)))
        if chance.random() < 0.1:  # channels close often: go on with a new one
            closing = self.said(channel, "channel.close") + self.said(channel, "channel.close-ok")
            return closing + self.said(channel, "channel.open")
        kind: MethodKind = chance.choice(ANY if chance.random() < 0.01 else USUAL)
        made = method(kind.name, **{name: self.field(name, form) for name, form in kind.fields})
        self.synctag = (self.synctag + 1) % 65_536
        return self.framed(channel, methods.encode(made, self.flags(), self.synctag))

    def message(self, channel: int = 1) -> bytes:
        """A method with its content, in one body frame or several."""
        chance = self.chance
        name = chance.choice(CARRIERS)
        kind = KINDS[name]
        flags = self.flags()
        if name == "file.stage":
            opening = method("file.open", identifier="f", content_size=chance.choice((0, 3)))
            said = self.framed(channel, methods.encode(opening))
            flags = 0
        else:
            said = b""
        made = method(kind.name, **{field: self.field(field, form) for field, form in kind.fields})
        said += self.framed(channel, methods.encode(made, flags, 9))
        if flags & methods.UNREAL:
            return said
        body = bytes(chance.choice((0, 1, 3, 16, 3000)))
        properties: dict[str, Any] = {}
        for field, form in content_header.PROPERTIES[kind.class_id]:
            if chance.random() < (0.9 if field == "destination" else 0.3):
                properties[field] = self.property_of(field, form)
        header = content_header.encode(ContentHeader(kind.class_id, len(body), properties))
        said += self.framed(channel, header, frames.HEADER)
        cut = len(body) if chance.random() < 0.7 else chance.randrange(len(body) + 1)
        for start, stop in ((0, cut), (cut, len(body))):
            if start < stop or chance.random() < 0.05:
                said += self.framed(channel, body[start:stop], frames.BODY)
        # What is like the one before is taken another way.
        return said * chance.choice((2, 3)) if chance.random() < 0.3 else said

    def property_of(self, name: str, form: str) -> Any:
        chance = self.chance
        if name in ("destination", "reply_to"):
            return chance.choice(("q", "q", "r", "t.a", ""))
        if name == "user_id":
            return "guest"
        if name == "expiration":
            return chance.choice(("60000", "0", "1", "soon"))
        if form == "table":
            return chance.choice(TABLES)
        if form == "shortstr":
            return chance.choice(("", "12", "text", "x" * 255))
        return chance.choice((1, 2)) if name == "delivery_mode" else chance.choice((0, 5, 9, 255))


class Fuzzer(fuzz_fast.Fuzzer):
    """Conversations with one broker."""

    def new_speaker(self) -> Speaker:
        return Speaker(self.chance)

    def new_wire(self) -> Wire:
        self.house.wires_made += 1
        return Fast09Wire(self.house, self.house.wires_made)

    def listen(self, wire: Wire) -> None:
        """All that the broker has sent are frames; a client takes them, and them mutated."""
        self.house.finish_pass()
        octets = bytes(wire.arrived)
        at = 0
        while at < len(octets):
            head = frames.read_head(octets, at, len(octets))
            assert head is not None, "a frame is cut short"
            kind, _, size, start = head
            body = octets[start : start + size]
            assert len(body) == size, "a frame is cut short"
            at = start + size
            if kind == frames.METHOD:
                self.hear(body)
            elif kind == frames.HEADER:
                content_header.decode(body)
        for heard in (octets, self.speaker.mutated(octets)):
            client = Fast09Core("guest", "guest", "/", "", 0)
            client.receive(heard)
            if client.is_open:
                client.open_place()
                client.receive(octets[len(octets) // 2 :])

    def hear(self, body: bytes) -> None:
        _, _, _, _, kind = methods.read_ids(body)
        assert kind is not None, "a method that is none"
        assert kind.is_for_client, f"{kind.name} is not for clients"
        said = methods.decode(kind, body)
        self.heard[kind.name] += 1
        if kind.name in ("channel.close", "connection.close"):
            self.faults[said.reply_code] += 1


if __name__ == "__main__":
    sys.exit(fuzz_fast.main(Fuzzer, __doc__))
