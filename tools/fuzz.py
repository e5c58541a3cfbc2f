"""The long-running fuzzer: hostile conversations with a whole broker, in one process, without sockets.

    python tools/fuzz.py --frames 10000000 --seed 1

Some clients at a time talk to one broker. Each says sensible things most of the time, so that there is
something to break, and mutates some of them: octets changed, frames cut, doubled, swapped, lengths that
lie, channels that are not theirs, reads split anywhere. Whatever they say, the broker may answer or
close; it may not raise anything but a PeerFault, and when everybody has left nothing may be held.
A failure prints the seed, the conversation's number and its octets, which --replay takes.
"""

from __future__ import annotations

import argparse
import gc
import logging
import random
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from conversation import GREETINGS, House, Peer, frame, header_payload, method_frame, publish, start_ok

from flintmq.broker.virtual_host import PREDECLARED_NAMES
from flintmq.build import build
from flintmq.protocol import phases
from flintmq.protocol.requests import Requests
from flintmq.wire import methods
from flintmq.wire.fields import Content
from flintmq.wire.methods import Method, encode_method
from flintmq.wire.properties import BasicProperties, StreamProperties, encode_properties
from flintmq.wire.tables import FieldTable

VERSIONS = (91, 91, 91, 8, 9)
NAMES = ("q", "r", "s", "", "amq.direct", "amq.topic", "amq.headers", "x" * 255, "\udcff\udcfe", "no such")
KINDS = ("direct", "fanout", "topic", "headers", "nonsense")
KEYS = ("q", "r", "s", "a.b", "a.*", "#", "", "k" * 255)
CHANNELS = (1, 1, 1, 2, 2)
ODD_CHANNELS = (0, 3, 2047, 2048, 65535)
TAGS = (0, 1, 2, 3, 5, 9, 2**32, 2**63, 2**64 - 1)
SIZES = (0, 1, 2, 3, 7, 8, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)
# One conversation; then the next begins, with other clients and the same broker.
STEPS_MAX = 120
CLIENTS_MAX = 4
BY_NAME = {method.NAME: method for method in methods.METHODS if 9 in method.VERSIONS}

_EXCHANGE_HEAD = struct.Struct(">QQI")


@dataclass
class Exchanges:
    """Requests and responses of one channel: the newest of the client, and requests of the broker."""

    received: int
    heard: int
    awaited: dict[int, tuple[str, ...]]


class Speaker:
    """Thinks of things to say. All its chance is from one generator, so that a seed says it all."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.exchanges: dict[int, Exchanges] = {}
        self.by_version = {
            version: [method for method in methods.METHODS if version in method.VERSIONS]
            for version in (8, 9, 91)
        }
        self.sensible: list[Callable[[], Method]] = [
            self.declare_queue,
            self.declare_exchange,
            self.bind,
            self.consume,
            self.settle,
            self.settle,
            self.settle,
            self.get,
            self.get,
            self.little,
            self.rare,
        ]

    def look(self, peer: Peer) -> None:
        """Takes note of how far the requests and responses of a client of 0-9 are."""
        self.exchanges = {}
        if peer.version != 9:
            return
        for channel in peer.wire.session.connection.all_channels():
            requests = channel.requests or Requests()
            awaited = {number: replies for number, (replies, _) in requests.awaited.items()}
            self.exchanges[channel.number] = Exchanges(requests.received, requests.heard, awaited)

    def phrase(self, version: int) -> bytes:
        """A few frames that mostly mean something."""
        chance = self.chance
        channel = chance.choice(CHANNELS if chance.random() < 0.997 else ODD_CHANNELS)
        dice = chance.random()
        if version == 9 and chance.random() < 0.4:
            return self.exchange(channel)
        if dice < 0.40:
            return self.publish(channel, version)
        if dice < 0.985:
            made = chance.choice(self.sensible)()
            return method_frame(version, channel, made) if version in made.VERSIONS else b""
        if dice < 0.990:
            kind = chance.choice(self.by_version[version])
            return method_frame(version, 0 if kind.CLASS_ID == 10 else channel, self.filled(kind))
        if dice < 0.995:
            return frame(chance.choice((1, 2, 3, 3, 8, 9, 4, 0, 255)), channel, self.octets(40))
        return method_frame(version, channel, methods.ChannelOpen())

    def exchange(self, channel: int) -> bytes:
        """A request or a response of the message class, mostly with the number that is due."""
        chance = self.chance
        state = self.exchanges.setdefault(channel, Exchanges(0, 0, {}))
        off = chance.choice(TAGS) if chance.random() < 0.003 else 0
        if state.awaited and chance.random() < 0.5:
            first, replies = next(iter(state.awaited.items()))
            last = first
            while state.awaited.get(last + 1) == replies and chance.random() < 0.5:
                last += 1
            for number in range(first, last + 1):
                del state.awaited[number]
            state.heard += 1
            head = _EXCHANGE_HEAD.pack((state.heard + off) % 2**64, first, last - first)
            answer = self.filled(BY_NAME[chance.choice(replies)])
            return frame(10, channel, head + encode_method(9, answer))
        state.received += 1
        head = _EXCHANGE_HEAD.pack((state.received + off) % 2**64, 0, 0)
        return frame(9, channel, head + encode_method(9, self.request()))

    def request(self) -> Method:
        chance = self.chance
        name = chance.choice((b"r", b"s", b""))
        queue = chance.choice(NAMES[:3]) if chance.random() < 0.99 else "no such"
        dice = chance.randrange(20)
        if dice < 8:
            body = Content(bytes(chance.choice((0, 1, 20, 5000))))
            if chance.random() < 0.2:
                body = Content(name, True)
            return methods.MessageTransfer(
                routing_key=chance.choice(KEYS),
                immediate=chance.random() < 0.1,
                ttl=chance.choice((0, 0, 1, 2**64 - 1)),
                application_headers={"k": [1, {"er": "x"}]} if chance.random() < 0.3 else None,
                transaction_id=chance.choice(("", "", "t")),
                body=body,
            )
        return chance.choice(
            (
                methods.MessageConsume(
                    queue=queue, destination=chance.choice("abcdefgh"), no_ack=chance.random() < 0.3
                ),
                methods.MessageCancel(destination=chance.choice("abcdefgh")),
                methods.MessageGet(queue=queue, no_ack=chance.random() < 0.3),
                methods.MessageQos(prefetch_count=chance.randrange(4), prefetch_size=chance.randrange(9000)),
                methods.MessageRecover(requeue=chance.random() < 0.5),
                methods.MessageOpen(reference=name),
                methods.MessageAppend(reference=name, octets=bytes(chance.choice((0, 1, 9000)))),
                methods.MessageClose(reference=name),
                methods.MessageCheckpoint(reference=name, identifier="i"),
                methods.MessageResume(reference=name, identifier="i"),
            )
        )

    def octets(self, most: int) -> bytes:
        return self.chance.randbytes(self.chance.randrange(most + 1))

    def publish(self, channel: int, version: int) -> bytes:
        chance = self.chance
        if version != 91 and chance.random() < 0.3:
            return self.publish_stream(channel, version)
        headers = None
        if chance.random() < 0.3:
            headers = {"k": chance.choice((1, "v", None, 2.5, True, {"deep": [1, {"er": b"x"}]}))}
        properties = BasicProperties(
            headers=headers,  # type: ignore[arg-type]
            delivery_mode=chance.choice((None, 1, 2)),
            priority=chance.choice((None, None, 5)),
            correlation_id=chance.choice((None, "c")),
        )
        octets = publish(
            channel,
            chance.choice(("", "", "", "amq.direct", "amq.topic", "amq.headers", "amq.fanout"))
            if chance.random() < 0.98
            else "none",
            chance.choice(KEYS),
            bytes(chance.choice((0, 1, 5, 5, 20, 100, 100, 5000))),
            properties=properties,
            mandatory=chance.random() < 0.1,
            immediate=chance.random() < 0.05,
            version=version,
            frame_bytes_max=chance.choice((131_072, 131_072, 4096, 64)),
        )
        if chance.random() < 0.002:
            octets = method_frame(version, channel, methods.BasicPublish(routing_key="q"))
            octets += frame(
                2, channel, header_payload(chance.choice((0, 5, 2**63, 2**64 - 1)), self.octets(30))
            )
        return octets

    def publish_stream(self, channel: int, version: int) -> bytes:
        """stream.publish, mostly with a content of its class."""
        chance = self.chance
        properties = StreamProperties(
            content_type=chance.choice((None, "t")),
            headers={"k": chance.choice((1, "v", [1, {"er": "x"}]))} if chance.random() < 0.3 else None,  # type: ignore[dict-item]
            priority=chance.choice((None, 0, 5, 9, 255)),
            timestamp=chance.choice((None, 2**64 - 1)),
        )
        octets = encode_properties(properties) if chance.random() < 0.98 else self.octets(30)
        method = methods.StreamPublish(
            exchange=chance.choice(
                ("", "", "", "amq.direct", "amq.fanout", "none" if chance.random() < 0.1 else "")
            ),
            routing_key=chance.choice(KEYS),
            mandatory=chance.random() < 0.1,
            immediate=chance.random() < 0.1,
        )
        body = bytes(chance.choice((0, 1, 20, 100, 5000)))
        size = len(body) if chance.random() < 0.998 else chance.choice((0, 7, 2**63, 2**64 - 1))
        class_id = 80 if chance.random() < 0.998 else chance.choice((60, 70, 0, 65535))
        whole = method_frame(version, channel, method)
        whole += frame(2, channel, header_payload(size, octets, class_id))
        return whole + (frame(3, channel, body) if body else b"")

    def declare_queue(self) -> Method:
        chance = self.chance
        limits = {"x-max-length": chance.choice((0, 3)), "x-max-priority": chance.choice((1, 9))}
        return methods.QueueDeclare(
            arguments={**limits, "x-overflow": "drop-lowest"} if chance.random() < 0.1 else {},
            queue=chance.choice(NAMES),
            passive=chance.random() < 0.2,
            exclusive=chance.random() < 0.1,
            auto_delete=chance.random() < 0.2,
            no_wait=chance.random() < 0.2,
        )

    def declare_exchange(self) -> Method:
        chance = self.chance
        return methods.ExchangeDeclare(
            exchange=chance.choice(NAMES),
            type=chance.choice(KINDS),
            passive=chance.random() < 0.1,
            auto_delete=chance.random() < 0.5,
            arguments={"alternate-exchange": chance.choice(NAMES)} if chance.random() < 0.2 else {},
        )

    def bind(self) -> Method:
        chance = self.chance
        key, name, other = chance.choice(KEYS), chance.choice(NAMES), chance.choice(NAMES)
        terms = {"x-match": chance.choice(("any", "all", "odd")), "k": chance.choice((1, "v", None))}
        arguments = terms if chance.random() < 0.3 else {}
        kind = chance.choice((methods.QueueBind, methods.QueueUnbind))
        if chance.random() < 0.3:
            both = chance.choice((methods.ExchangeBind, methods.ExchangeUnbind))
            return both(source=name, destination=other, routing_key=key, arguments=arguments)  # type: ignore[arg-type]
        return kind(queue=name, exchange=other, routing_key=key, arguments=arguments)  # type: ignore[arg-type]

    def consume(self) -> Method:
        chance = self.chance
        tag = chance.choice(("", "", "a", "b", "c", "t" * 255))
        rate = {"x-consume-rate": chance.choice((1, 1000, 2**32 - 1))} if chance.random() < 0.1 else {}
        if chance.random() < 0.2:
            return self.consume_stream(tag, rate)  # type: ignore[arg-type]
        if chance.random() < 0.3:
            return methods.BasicCancel(consumer_tag=tag, no_wait=chance.random() < 0.3)
        return methods.BasicConsume(
            queue=chance.choice(NAMES[:4]),
            consumer_tag=tag,
            no_ack=chance.random() < 0.3,
            no_local=chance.random() < 0.3,
            exclusive=chance.random() < 0.05,
            arguments=rate,  # type: ignore[arg-type]
        )

    def consume_stream(self, tag: str, rate: FieldTable) -> Method:
        chance = self.chance
        dice = chance.random()
        if dice < 0.2:
            return methods.StreamCancel(consumer_tag=tag, no_wait=chance.random() < 0.3)
        if dice < 0.4:
            return methods.StreamQos(
                prefetch_size=chance.choice((0, 100, 2**32 - 1)),
                prefetch_count=chance.choice((0, 1, 3)),
                consume_rate=chance.choice((0, 1, 5000, 2**32 - 1)),
                global_=chance.random() < 0.3,
            )
        return methods.StreamConsume(
            queue=chance.choice(NAMES[:4]),
            consumer_tag=tag,
            no_local=chance.random() < 0.3,
            exclusive=chance.random() < 0.05,
            arguments=rate,
        )

    def settle(self) -> Method:
        chance = self.chance
        tag = chance.randrange(1, 9) if chance.random() < 0.99 else chance.choice(TAGS)
        multiple, requeue = chance.random() < 0.4, chance.random() < 0.5
        which = chance.randrange(3)
        if which == 0:
            return methods.BasicAck(delivery_tag=tag, multiple=multiple)
        if which == 1:
            return methods.BasicNack(delivery_tag=tag, multiple=multiple, requeue=requeue)
        return methods.BasicReject(delivery_tag=tag, requeue=requeue)

    def get(self) -> Method:
        return methods.BasicGet(queue=self.chance.choice(NAMES[:4]), no_ack=self.chance.random() < 0.2)

    def little(self) -> Method:
        chance = self.chance
        return chance.choice(
            (
                methods.BasicQos(prefetch_count=chance.randrange(4), global_=chance.random() < 0.5),
                methods.BasicQos(prefetch_size=chance.randrange(9000), global_=chance.random() < 0.5),
                methods.ChannelFlow(active=chance.random() < 0.7),
                methods.BasicRecover(requeue=chance.random() < 0.5),
                methods.BasicRecoverAsync(requeue=chance.random() < 0.5),
                methods.TxCommit(),
                methods.TxRollback(),
                methods.TxSelect(),
                methods.ConfirmSelect(),
            )
        )

    def rare(self) -> Method:
        chance = self.chance
        return chance.choice(
            (
                methods.QueuePurge(queue=chance.choice(NAMES)),
                methods.QueueDelete(queue=chance.choice(NAMES), if_unused=chance.random() < 0.5),
                methods.ExchangeDelete(exchange=chance.choice(NAMES), if_unused=chance.random() < 0.5),
                methods.ChannelClose(reply_code=200),
                methods.ChannelCloseOk(),
                methods.ChannelOpen(),
            )
        )

    def filled(self, kind: type[Method]) -> Method:
        """A method with something in each field."""
        made = kind()
        chance = self.chance
        for name in kind.FIELDS:
            old = getattr(made, name)
            if isinstance(old, bool):
                value: object = chance.random() < 0.5
            elif isinstance(old, int):
                value = chance.randrange(2)
            elif isinstance(old, str):
                value = chance.choice(NAMES)
            elif isinstance(old, bytes):
                value = self.octets(20)
            elif isinstance(old, Content):
                value = Content(self.octets(20))
            else:
                value = {"k": 1}
            setattr(made, name, value)
        return made

    def mutate(self, octets: bytes) -> bytes:
        """What a broken or wicked client would make of it."""
        chance = self.chance
        changed = bytearray(octets)
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            if not changed:
                break
            at = chance.randrange(len(changed))
            way = chance.randrange(7)
            if way == 0:
                changed[at] = chance.randrange(256)
            elif way == 1:
                changed[at] ^= 1 << chance.randrange(8)
            elif way == 2:
                del changed[at : at + chance.randrange(1, 9)]
            elif way == 3:
                changed[at:at] = self.octets(8)
            elif way == 4:
                changed[at:at] = changed[at : at + chance.randrange(1, 60)]
            elif way == 5 and len(changed) >= at + 4:
                changed[at : at + 4] = chance.choice(SIZES).to_bytes(4, "big")
            elif way == 6 and len(changed) > 12:
                changed[7 + chance.randrange(4)] = chance.randrange(256)
        return bytes(changed)


class Fuzzer:
    """One broker under fire."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.house = House(seed=seed)
        self.frames = 0
        self.conversations = 0
        self.faults: Counter[str] = Counter()
        self.said: list[tuple[int, bytes]] = []  # of the present conversation: client, octets of a read

    def converse(self) -> None:
        """One conversation of some clients, to its end."""
        self.conversations += 1
        chance = random.Random(self.seed * 1_000_003 + self.conversations)
        speaker = Speaker(chance)
        self.said = []
        peers: list[Peer] = []
        wickedness = chance.choice((0.0, 0.005, 0.02, 0.3))
        for _ in range(chance.randrange(1, CLIENTS_MAX + 1)):
            peers.append(self.arrive(chance, speaker))
        for _ in range(chance.randrange(STEPS_MAX)):
            number = chance.randrange(len(peers))
            if peers[number].wire.is_gone or chance.random() < 0.003:
                self.leave(peers[number], chance)
                peers[number] = self.arrive(chance, speaker)
            self.turn(number, peers[number], chance, speaker, wickedness)
        for peer in peers:
            self.leave(peer, chance)
        self.check_nothing_is_held()

    def arrive(self, chance: random.Random, speaker: Speaker) -> Peer:
        """A new client; most get through the handshake."""
        peer = Peer(self.house, chance.choice(VERSIONS))
        if chance.random() < 0.9:
            peer.login(1, 2)
            self.frames += 5
            return peer
        hello = chance.choice(
            (GREETINGS[peer.version], b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x03\x01\x00\x00", b"AM")
        )
        octets = hello + method_frame(
            peer.version, 0, start_ok(b"guest" if chance.random() < 0.98 else b"wrong")
        )
        octets += method_frame(
            peer.version, 0, methods.ConnectionTuneOk(frame_max=chance.choice((0, 4096, 9)))
        )
        self.hear(peer, speaker.mutate(octets) if chance.random() < 0.7 else octets)
        return peer

    def turn(
        self, number: int, peer: Peer, chance: random.Random, speaker: Speaker, wickedness: float
    ) -> None:
        """One read of what the client has to say."""
        peer.wire.takes = chance.random() < 0.97
        speaker.look(peer)
        octets = b"".join(speaker.phrase(peer.version) for _ in range(chance.choice((1, 2, 5, 20))))
        if chance.random() < wickedness:
            octets = speaker.mutate(octets)
        self.said.append((number, octets))
        # What a connection that is closing is sent has no effect, so it does not count.
        if peer.wire.session.connection.state < phases.CONNECTION_CLOSING:
            self.frames += count_frames(octets)
        if chance.random() < 0.3 and octets:
            cut = chance.randrange(len(octets))
            self.hear(peer, octets[:cut])
            octets = octets[cut:]
        self.hear(peer, octets)
        state = peer.wire.session.connection.state
        if state == phases.CONNECTION_CLOSING and chance.random() < 0.8:
            self.hear(peer, method_frame(peer.version, 0, methods.ConnectionCloseOk()))
        elif state == phases.CONNECTION_OPEN:
            self.answer_closes(peer, chance)

    def answer_closes(self, peer: Peer, chance: random.Random) -> None:
        """A client whose channel was closed mostly says so, and opens it again."""
        for each in peer.replies():
            if isinstance(each.method, methods.ChannelClose):
                self.faults[f"channel {each.method.reply_code}"] += 1
                if chance.random() < 0.9:
                    octets = method_frame(peer.version, each.channel, methods.ChannelCloseOk())
                    self.hear(peer, octets + method_frame(peer.version, each.channel, methods.ChannelOpen()))
                    self.frames += 2

    def hear(self, peer: Peer, octets: bytes) -> None:
        if self.said and self.said[-1][1] is not octets:
            self.said.append((peer.wire.number, octets))
        peer.send(octets)

    def leave(self, peer: Peer, chance: random.Random) -> None:
        """Goes, with or without a word. What its session faulted on is counted."""
        peer.wire.takes = True
        if chance.random() < 0.5 and not peer.wire.is_gone:
            self.hear(peer, method_frame(peer.version, 0, methods.ConnectionClose()))
        peer.wire.flush()
        for each in peer.replies():
            if isinstance(each.method, methods.ConnectionClose):
                self.faults[f"connection {each.method.reply_code}"] += 1
        peer.wire.drop()
        self.house.finish_pass()

    def check_nothing_is_held(self) -> None:
        """With everybody gone, queues have no consumers and nothing that is handed out."""
        for host in self.house.broker.virtual_hosts.values():
            if host.exclusive:
                raise AssertionError("an exclusive queue outlives its connection")
            for queue in host.queues.values():
                if queue.unacked or queue.consumers or queue.active or queue.selective:
                    raise AssertionError(f"queue {queue.name!r}: something is held by nobody")
                count = queue.message_count()
                if queue.purge() != count or queue.message_count() or queue.holes or queue.ready_bytes:
                    raise AssertionError(f"queue {queue.name!r} counts wrong")
        self.reset_values()

    def reset_values(self) -> None:
        """Every conversation starts from the same place, so that it can be replayed alone."""
        for host in self.house.broker.virtual_hosts.values():
            for queue in list(host.queues.values()):
                host.delete_queue(queue)
            for name in [name for name in host.exchanges if name not in PREDECLARED_NAMES]:
                host.delete_exchange(name, False)
            for exchange in host.exchanges.values():
                if exchange.bindings and not any(
                    each.destination.name.startswith("amq.") for each in exchange.bindings.values()
                ):
                    raise AssertionError(f"exchange {exchange.name!r} leads to what is gone")


def count_frames(octets: bytes) -> int:
    """How many frames there seem to be in the octets."""
    at = count = 0
    while at + 8 <= len(octets):
        at += 8 + int.from_bytes(octets[at + 3 : at + 7], "big")
        count += 1
    return count


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def report(fuzzer: Fuzzer, began_s: float, memory_bytes: int) -> None:
    spent_s = time.monotonic() - began_s
    gc.collect()
    print(f"build          {build()}")
    print(f"seed           {fuzzer.seed}")
    print(f"frames         {fuzzer.frames} in {spent_s:.0f} s, {fuzzer.frames / spent_s:.0f} a second")
    print(f"conversations  {fuzzer.conversations}")
    print(f"memory         {memory_bytes >> 10} KiB after warming up, {resident_bytes() >> 10} KiB now")
    for kind, count in sorted(fuzzer.faults.items()):
        print(f"closed         {kind}: {count}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Hostile conversations with a broker, without sockets.")
    parser.add_argument("--frames", type=int, default=100_000, help="stop after this many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=int, metavar="N", help="only conversation N of the seed")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    fuzzer = Fuzzer(options.seed)
    began_s = time.monotonic()
    memory_bytes = 0
    if options.replay is not None:
        fuzzer.conversations = options.replay - 1
        options.frames = 1
    try:
        while fuzzer.frames < options.frames:
            fuzzer.converse()
            if not memory_bytes and fuzzer.frames > options.frames // 20:
                gc.collect()
                memory_bytes = resident_bytes()
    except Exception:
        traceback.print_exc()
        print(f"seed {fuzzer.seed}, conversation {fuzzer.conversations}, {len(fuzzer.said)} reads, the last:")
        for number, octets in fuzzer.said[-3:]:
            print(f"  client {number}: {octets.hex()}")
        print(f"again: python tools/fuzz.py --seed {fuzzer.seed} --replay {fuzzer.conversations}")
        return 1
    report(fuzzer, began_s, memory_bytes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
