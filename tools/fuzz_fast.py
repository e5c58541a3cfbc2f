"""Fuzzes AMQP/Fast 0.8: hostile conversations with a whole broker, in one process, without sockets.

    python tools/fuzz_fast.py --commands 1000000 --seed 1

Some clients at a time talk to one broker, sensibly most of the time; some of what they say is mutated:
octets changed, cut, doubled, sizes that lie, reads split anywhere. Whatever they say, the broker may answer
or close; it may not raise anything but a PeerFault, what it sends must be commands of AMQP/Fast, and when all
have left nothing may be held. The client's half is fed the same octets, and may end its connection and no
more. A failure prints the seed and the number of the conversation. fuzz_fast09.py does the same with 0.9.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import traceback
from collections import Counter
from typing import Any

from conversation import House, Wire

from flintmq.client.fast.core import FastCore
from flintmq.protocol.fast.outbox import FastOutput
from flintmq.server.fast.session import FastSession
from flintmq.wire.fast import commands, message_head
from flintmq.wire.fast.commands import Command
from flintmq.wire.fast.message_head import MessageHead

NAMES = ("q", "r", "s", "", "t.", "t.a", "amq.topic", "x" * 255, "no such")
SIZES = (0, 1, 2, 3, 0xFF, 0xFFFE, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)
HEADERS: tuple[dict[str, Any], ...] = ({}, {"a": 1}, {"a": "text", "$TYPE": "t"}, {"BCC": "q"})
ANY = tuple(
    kind
    for kind in commands.COMMANDS.values()
    if kind not in (commands.HandleSend, commands.HandlePrepare, commands.HandleNotify)
)
USUAL = (
    commands.ConnectionPing,
    commands.ChannelOpen,
    commands.ChannelAck,
    commands.ChannelAck,
    commands.ChannelCommit,
    commands.ChannelRollback,
    commands.ChannelClose,
    commands.HandleConsume,
    commands.HandleConsume,
    commands.HandleFlow,
    commands.HandleUnget,
    commands.HandleQuery,
    commands.HandleBrowse,
    commands.HandleClose,
)
STEPS_MAX = 60
CLIENTS_MAX = 3


class FastWire(Wire):
    """What a session of AMQP/Fast takes for its link."""

    def __init__(self, house: House, number: int) -> None:
        super().__init__(house, number)
        output = FastOutput(house.outbox, self)
        self.output = output
        self.session = FastSession(house.broker, output, self, "127.0.0.1")


class Speaker:
    """Thinks of things to say; all its chance is from one generator."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def greeting(self) -> bytes:
        login = commands.ConnectionResponse("PLAIN", {"LOGIN": "guest", "PASSWORD": "guest"})
        name = self.chance.choice(("", "", "", "me"))
        return (
            b"\x80\x01"
            + commands.encode(login)
            + commands.encode(commands.ConnectionTune({"FRAME_MAX": self.chance.choice((1024, 65_536))}))
            + commands.encode(commands.ConnectionOpen(1, "/", name))
            + commands.encode(commands.ChannelOpen(1, transacted=self.chance.random() < 0.2))
            + commands.encode(commands.ChannelOpen(2, restartable=True))
            + b"".join(self.opening(handle) for handle in (1, 2, 3))
        )

    def opening(self, handle: int) -> bytes:
        opening = commands.HandleOpen(
            self.chance.choice((1, 2)),
            handle,
            self.chance.choice((1, 1, 2)),
            producer=True,
            consumer=True,
            browser=True,
            temporary=self.chance.random() < 0.3,
            dest_name=self.chance.choice(("q", "q", "r", "t.", "")),
        )
        consume = commands.HandleConsume(handle, 0, 3, no_ack=self.chance.random() < 0.5, dynamic=True)
        return commands.encode(opening) + commands.encode(consume)

    def number(self) -> int:
        return (
            self.chance.choice((0, 7, 65_535))
            if self.chance.random() < 0.01
            else self.chance.choice((1, 2, 3))
        )

    def value(self, form: str, name: str) -> Any:
        chance = self.chance
        if form == "bit":
            return chance.random() < 0.3
        if form == "shortstr":
            return chance.choice(NAMES)
        if form == "table":
            return chance.choice(HEADERS)
        if form == "longstr":
            return chance.choice((b"", b"a = 1", b"\xff", b"("))
        if name == "service_type":
            return chance.choice((1, 1, 1, 2, 2, 3))
        if name == "handle_id":
            return self.number()
        if name == "channel_id":
            return min(self.number(), 2)
        return chance.choice((0, 1, 2, 3, 7, 255))

    def command(self) -> bytes:
        chance = self.chance
        if chance.random() < 0.35:
            return self.message()
        if chance.random() < 0.1:
            return self.opening(chance.choice((1, 2, 3)))
        kind = chance.choice(ANY if chance.random() < 0.01 else USUAL)
        fields = {name: self.value(form, name) for name, form in commands.fields_of(kind)}
        made: Command = kind(**fields)
        if isinstance(made, commands.HandleOpen) and chance.random() < 0.7:
            made.producer = made.consumer = made.browser = True
        return commands.encode(made)

    def message(self) -> bytes:
        """A message whole or in fragments, prepared or not."""
        chance = self.chance
        handle = self.number()
        body = bytes(chance.choice((0, 1, 16, 3000)))
        head = MessageHead(
            len(body),
            chance.random() < 0.3,
            chance.randrange(10),
            chance.choice((0, 0, 1, 2**32 - 1)),
            headers=chance.choice(HEADERS),
        )
        octets = message_head.encode(head)
        whole, said = octets + body, b""
        is_prepared = bool(body) and chance.random() < 0.2
        if is_prepared:
            said += commands.encode(commands.HandlePrepare(handle, len(octets))) + octets
            whole = body
        cut = len(whole) if chance.random() < 0.7 else chance.randrange(len(whole) + 1)
        for start, stop in ((0, cut), (cut, len(whole))):
            if start < stop:
                send = commands.HandleSend(
                    handle,
                    chance.choice((0, 0, 5)),
                    stop - start,
                    partial=stop < len(whole),
                    recovery=is_prepared,
                    dest_name=chance.choice(NAMES),
                )
                said += commands.encode(send) + whole[start:stop]
        return said

    def mutated(self, said: bytes) -> bytes:
        chance = self.chance
        kind = chance.randrange(5)
        at = chance.randrange(len(said) + 1)
        if kind == 0:
            return said[:at]
        if kind == 1:
            return said + said
        if kind == 2:
            return said[:at] + bytes((chance.randrange(256),)) + said[at + 1 :]
        if kind == 3:
            size = chance.choice(SIZES).to_bytes(4, "big")
            return said[:at] + size + said[at + 4 :]
        return said[:at] + chance.randbytes(chance.randrange(1, 9)) + said[at:]


class Bugs(logging.Handler):
    """What the broker caught and wrote to its log with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append("".join(traceback.format_exception(*record.exc_info)))


class Fuzzer:
    """Conversations with one broker."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.speaker = self.new_speaker()
        self.house = House(seed=seed)
        self.commands = 0
        self.conversations = 0
        self.faults: Counter[int] = Counter()
        self.heard: Counter[str] = Counter()
        self.bugs = Bugs()

    def new_speaker(self) -> Any:
        return Speaker(self.chance)

    def new_wire(self) -> Wire:
        self.house.wires_made += 1
        return FastWire(self.house, self.house.wires_made)

    def converse(self) -> None:
        """One conversation, with an ear to the log."""
        logger = logging.getLogger("flintmq")
        logger.addHandler(self.bugs)
        try:
            self.talk()
        finally:
            logger.removeHandler(self.bugs)

    def talk(self) -> None:
        house, chance = self.house, self.chance
        self.conversations += 1
        wires: list[Wire] = []
        for _ in range(chance.randrange(1, CLIENTS_MAX + 1)):
            wires.append(self.new_wire())
            self.feed(wires[-1], self.speaker.greeting())
        for _ in range(chance.randrange(STEPS_MAX)):
            said = self.speaker.command()
            if chance.random() < 0.02:
                said = self.speaker.mutated(said)
            self.commands += 1
            self.feed(chance.choice(wires), said)
        for wire in wires:
            self.listen(wire)
            wire.drop()
        house.finish_pass()
        self.check()

    def feed(self, wire: Wire, said: bytes) -> None:
        if self.chance.random() < 0.2 and len(said) > 1:
            at = self.chance.randrange(1, len(said))
            wire.feed(said[:at])
            said = said[at:]
        wire.feed(said)
        if self.chance.random() < 0.5:
            self.house.finish_pass()

    def listen(self, wire: Wire) -> None:
        """All that the broker has sent are commands; a client takes them, and them mutated."""
        self.house.finish_pass()
        octets = bytes(wire.arrived)
        at = 0
        while at < len(octets):
            size = int.from_bytes(octets[at : at + 2], "big")
            command = commands.decode(octets[at + 2 : at + 1 + size])
            self.heard[command.NAME] += 1
            if isinstance(command, (commands.HandleClose, commands.ChannelClose, commands.ConnectionClose)):
                self.faults[command.reply_code] += 1
            at += 2 + size
            if isinstance(command, commands.HandleNotify):
                at += command.fragment_size
        client = FastCore("guest", "guest", "/", "", 0)
        client.receive(octets)
        client = FastCore("guest", "guest", "/", "", 0)
        client.receive(self.speaker.mutated(octets))

    def check(self) -> None:
        broker = self.house.broker
        assert not self.bugs.found, self.bugs.found[0]
        assert not broker.connections, "connections are left"
        assert not broker.clients.names, "client names are left"
        for queue in broker.virtual_hosts["/"].queues.values():
            assert not queue.consumers, f"consumers of {queue.name} are left"
            assert not queue.exclusive, f"{queue.name} is left"
            assert queue.unacked == 0, f"{queue.unacked} messages of {queue.name} are unacked"


def main(make: type[Fuzzer] = Fuzzer, description: str | None = __doc__) -> int:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--commands", type=int, default=100_000, help="how many, messages among them (100,000)"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    fuzzer = make(options.seed)
    try:
        while fuzzer.commands < options.commands:
            fuzzer.converse()
    except Exception:
        traceback.print_exc()
        print(f"seed {options.seed}, conversation {fuzzer.conversations}")
        return 1
    print(f"{fuzzer.commands} commands in {fuzzer.conversations} conversations, nothing but faults:")
    print("  closed for", dict(sorted(fuzzer.faults.items())))
    print("  heard", dict(sorted(fuzzer.heard.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
