"""Conversations in AMQP/Fast with a broker, without sockets: octets in, octets out, written by hand.

    fast >> "001e 0d 0001 01 2f 00 0000 ce"        the client sends these octets
    fast << "..."                                   all that it hears in return are these

Hexadecimal digits and spaces are octets; what stands in single quotes is text.
"""

from __future__ import annotations

import re

from playbook.dialogue import NotingLink, Playbook

from flintmq.errors import PeerFault
from flintmq.protocol.fast.outbox import FastOutput
from flintmq.server.fast.session import FastSession

# The header of a message that says nothing of itself, without its body size.
HEAD = "00 00 00000000 00 00 00 0000"

_WORD = re.compile(r"'([^']*)'|([0-9a-fA-F]+)")


def octets(text: str) -> bytes:
    """What the text says, digit by digit."""
    parts = []
    for quoted, digits in _WORD.findall(text):
        parts.append(bytes.fromhex(digits) if digits else quoted.encode())
    return b"".join(parts)


def framed(text: str) -> bytes:
    """A command with its size and its end octet, which the text leaves out."""
    payload = octets(text)
    return (len(payload) + 1).to_bytes(2, "big") + payload + b"\xce"


class FastClient:
    """One connection of AMQP/Fast."""

    def __init__(self, playbook: Playbook, address: str = "127.0.0.1") -> None:
        self.playbook = playbook
        self.link = NotingLink()
        self.output = FastOutput(playbook.outbox, self.link)
        self.session = FastSession(playbook.broker, self.output, self.link, address)
        self.link.session = self.session
        self.leftover = b""
        self.unheard = b""

    def __rshift__(self, said: str | bytes) -> FastClient:
        """Text is one command without its size and end; octets are sent as they are."""
        self.receive(framed(said) if isinstance(said, str) else said)
        return self

    def __lshift__(self, expected: str | bytes) -> FastClient:
        wanted = framed(expected) if isinstance(expected, str) else expected
        self.listen()
        heard, self.unheard = self.unheard[: len(wanted)], self.unheard[len(wanted) :]
        assert heard == wanted, f"\nheard      {heard.hex(' ')}\ninstead of {wanted.hex(' ')}"
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

    def open(self, frame_max: int = 0, name: str = "", login: str = "guest", password: str = "guest") -> None:
        """A connection to the virtual host /."""
        self >> b"\x80\x01"
        self.hears()
        self >> (
            "0b 05 'PLAIN' "
            + table("05 'LOGIN' 'S' " + long_text(login), "08 'PASSWORD' 'S' " + long_text(password))
        )
        self.hears()
        if frame_max:
            self >> ("0c " + table(f"09 'FRAME_MAX' 'I' {frame_max:08x}") + " 0000")
        self >> f"0d 0001 01 '/' {len(name):02x} '{name}' 0000"
        self << "12 0001 00c8 02 'Ok'"

    def opens_handle(self, name: str, service: int = 1, channel: int = 1, handle: int = 1) -> None:
        """A channel, and a handle with all rights on it."""
        self >> f"14 {channel:04x} 0000 00 0000 00"
        self >> f"1e {channel:04x} {handle:04x} {service:04x} 0000 07 {len(name):02x} '{name}' 00 00 0000"

    def sends(
        self, body: bytes, name: str = "", handle: int = 1, confirm_tag: int = 0, head: str = HEAD
    ) -> None:
        block = len(body).to_bytes(4, "big") + octets(head) + body
        command = framed(f"1f {handle:04x} {confirm_tag:04x} {len(block):08x} 00 {len(name):02x} '{name}'")
        self >> command + block


def table(*entries: str) -> str:
    size = sum(len(octets(entry)) for entry in entries)
    return f"{size:04x} " + " ".join(entries)


def long_text(text: str) -> str:
    return f"{len(text):04x} '{text}'"


def short_text(text: str) -> str:
    return f"{len(text):02x} '{text}'"
