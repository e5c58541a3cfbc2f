"""Conversations in AMQP/Fast 0.9 with a broker, without sockets: octets in, octets out, written by hand.

    peer >> "01 01 | 02 01 00 0007 | 00000000 00 00"     the client sends a frame, without its size
    peer << "01 01 | 02 02 00 0007"                       the next frame that it hears is this

A frame is its type, its channel and its body; the size is put between them. Hexadecimal digits and spaces
are octets, what stands in single quotes is text, and "|" is for the eye. Octets are sent as they are.
"""

from __future__ import annotations

import re

from playbook.dialogue import NotingLink, Playbook

from flintmq.errors import PeerFault
from flintmq.protocol.fast09.outbox import Fast09Output
from flintmq.server.fast09.session import Fast09Session

OPENING = b"AMQP\x01\x01\x00\x09"

_WORD = re.compile(r"'([^']*)'|([0-9a-fA-F]+)")


def octets(text: str) -> bytes:
    """What the text says, digit by digit."""
    parts = []
    for quoted, digits in _WORD.findall(text):
        parts.append(bytes.fromhex(digits) if digits else quoted.encode())
    return b"".join(parts)


def framed(text: str) -> bytes:
    """Frames with their sizes, one for each line."""
    made = b""
    for line in text.strip().splitlines():
        whole = octets(line)
        made += whole[:2] + (len(whole) - 2).to_bytes(2, "big") + whole[2:]
    return made


class Peer:
    """One connection of AMQP/Fast 0.9."""

    def __init__(self, playbook: Playbook, address: str = "127.0.0.1") -> None:
        self.playbook = playbook
        self.link = NotingLink()
        self.output = Fast09Output(playbook.outbox, self.link)
        self.session = Fast09Session(playbook.broker, self.output, self.link, address)
        self.link.session = self.session
        self.leftover = b""
        self.unheard = b""

    def __rshift__(self, said: str | bytes) -> Peer:
        self.receive(framed(said) if isinstance(said, str) else said)
        return self

    def __lshift__(self, expected: str | bytes) -> Peer:
        wanted = framed(expected) if isinstance(expected, str) else expected
        self.listen()
        heard, self.unheard = self.unheard[: len(wanted)], self.unheard[len(wanted) :]
        assert heard == wanted, (
            f"\nheard      {(heard + self.unheard).hex(' ')}\ninstead of {wanted.hex(' ')}"
        )
        return self

    def hears_nothing(self) -> None:
        self.listen()
        assert self.unheard == b"", self.unheard.hex(" ")

    def hears(self) -> bytes:
        """All that was sent to it."""
        self.listen()
        heard, self.unheard = self.unheard, b""
        return heard

    def receive(self, said: bytes) -> None:
        self.playbook.finish_pass()
        pass_work, connection = self.playbook.broker.pass_work, self.session.connection
        self.leftover += said
        while True:
            pass_work.copies = 0
            buffer = bytearray(self.leftover)
            try:
                used = connection.receive(buffer, len(buffer))
            except PeerFault as fault:
                self.session.fail(None, fault)
                used = len(buffer)
            self.leftover = bytes(buffer[used:])
            if not connection.paused or not pass_work.is_laden():
                break
            connection.paused = False
        self.playbook.finish_pass()

    def listen(self) -> None:
        output = self.output
        while True:
            while output.pending() or output.streaming:
                output.fill_from_streams()
                self.unheard += bytes(output.buffer[output.start : output.fill])
                output.sent(output.pending())
            output.waiting = False
            self.playbook.outbox.clear()
            wanted = list(output.wanted)
            output.wanted.clear()
            for consumer in wanted:
                consumer.wake()  # type: ignore[attr-defined]
            if not self.playbook.broker.has_work():
                return
            self.playbook.finish_pass()

    # -- the usual beginnings ----------------------------------------------------------------------

    def logs_in(self, user: str = "guest", password: str = "guest") -> None:
        self >> OPENING
        self >> "01 00 | 01 02 00 0001 | 05 'PLAIN' 05 'en_US'"
        response = b"\0" + user.encode() + b"\0" + password.encode()
        self >> f"01 00 | 01 04 00 0002 | {len(response):04x} {response.hex()}"

    def open(
        self,
        frame_max: int = 0x20000,
        name: str = "",
        user: str = "guest",
        password: str = "guest",
        supports: int = 7,
    ) -> None:
        """A connection to the virtual host /."""
        self.logs_in(user, password)
        self >> f"01 00 | 01 06 00 0003 | {frame_max:08x} 0000 0000 0000 {supports:02x} 00000000"
        self.hears()
        self >> f"01 00 | 01 07 00 0004 | 01 '/' {len(name):02x} '{name}'"
        self.hears()

    def opens_channel(self, number: int = 1, tx_mode: int = 0, prefetch: int = 0) -> None:
        self >> f"01 {number:02x} | 02 01 00 0005 | {prefetch:08x} 00 {tx_mode:02x}"
        self << f"01 {number:02x} | 02 02 00 0005"

    def has_queue(self, name: str, flags: int = 0, channel: int = 1) -> None:
        self >> f"01 {channel:02x} | 05 01 00 0006 | 0000 00 {short_text(name)} 00 {flags:02x}"
        self.hears()

    def publishes(
        self,
        body: str,
        destination: str,
        proxy: str = "",
        flags: str = "00",
        synctag: int = 0,
        immediate: int = 0,
        channel: int = 1,
    ) -> None:
        """A Jms message with nothing but a destination."""
        said = f"01 {channel:02x} | 06 05 {flags} {synctag:04x} | 0000 {short_text(proxy)} {immediate:02x}\n"
        said += f"02 {channel:02x} | 06 00 {len(body):016x} 0200 {short_text(destination)}\n"
        if body:
            said += f"03 {channel:02x} | '{body}'"
        self >> said


def short_text(text: str) -> str:
    return f"{len(text):02x} '{text}'"


def table(*entries: str) -> str:
    size = sum(len(octets(entry)) for entry in entries)
    return f"{size:08x} " + " ".join(entries)
