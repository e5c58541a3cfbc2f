"""Plays operations against one broker and tells what came of each, in a form that can be compared.

    {"0.1 answers": [...], "0.1 deliveries": [...], "0.1 confirms": [...], "q0": (2, 1), ...}

The order of answers, of deliveries and of returns is kept, each for itself: how they lie between one another
is up to a broker. Confirms are told one by one, however many of them a broker sums up. Names that a broker
has made up become numbers; times are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from differential.line import PROBE, Event, Line
from differential.operation import Operation

from flintmq.wire import methods
from flintmq.wire.methods import Method
from flintmq.wire.properties import BasicProperties

CONNECTIONS = 2
# A delivery tag that no channel comes to.
TAG_UNKNOWN = 9999

Told = dict[str, Any]


class Player:
    """One broker in one run."""

    def __init__(self, port: int, prefix: str, queues: list[str], exchanges: list[str]) -> None:
        self.prefix = prefix
        self.queues = queues
        self.exchanges = exchanges
        self.lines = [Line(port) for _ in range(CONNECTIONS)]
        self.made_up: dict[str, str] = {}
        self.asked: list[Method] = []  # that have an answer

    # Playing

    def begin(self, operation: Operation) -> None:
        """Sends what the operation asks, in one piece."""
        line = self.lines[operation.connection]
        peer = line.opened(operation.channel)
        self.asked = []
        if operation.name == "abort":
            line.lose("")
            return
        with suppress(ConnectionError), peer.together():
            for each in operation.parts():
                self.asked += self.send(line, each)

    def end(self, operation: Operation) -> None:
        """Waits for the answers, if there are any."""
        line = self.lines[operation.connection]
        for method in self.asked:
            answer = line.answer(operation.channel, method.REPLIES)
            if answer is None:
                break
            self.note(line, operation.channel, method, answer)

    def note(self, line: Line, channel: int, asked: Method, answer: Method) -> None:
        if isinstance(answer, methods.ChannelCloseOk):
            line.open.discard(channel)
        elif isinstance(asked, methods.BasicGet) and isinstance(answer, methods.BasicGetOk):
            if not asked.no_ack:
                line.outstanding[channel].append(answer.delivery_tag)
        elif isinstance(answer, methods.BasicRecoverOk):
            line.outstanding[channel] = []
        elif isinstance(answer, methods.BasicCancelOk):
            line.consumers[channel].pop(answer.consumer_tag, None)

    def send(self, line: Line, operation: Operation) -> list[Method]:
        """Sends one operation; the method whose answer is to be waited for."""
        peer = line.peer
        assert peer is not None
        channel, given = operation.channel, operation.arguments
        if operation.name == "publish":
            for number in range(given.get("times", 1)):
                self.publish(peer, channel, given, number)
            return []
        method = METHODS[operation.name](self, line, channel, given)
        if method is None:
            return []
        if isinstance(method, methods.BasicConsume):
            line.consumers[channel].setdefault(method.consumer_tag, method.no_ack)
        peer.send(channel, method)
        return [method] if method.REPLIES and not getattr(method, "no_wait", False) else []

    def publish(self, peer: Any, channel: int, given: dict[str, Any], number: int) -> None:
        properties = dict(given.get("properties", {}))
        if "headers" in properties:
            properties["headers"] = {
                name: [self.full(each) for each in value] if name in ("CC", "BCC") else value
                for name, value in properties["headers"].items()
            }
        peer.publish(
            channel,
            f"{given['body']}.{number}".encode(),
            exchange=self.full(given.get("exchange", "")),
            key=self.full(given.get("key", "")),
            mandatory=given.get("mandatory", False),
            **properties,
        )

    def full(self, name: Any) -> Any:
        """The name with the prefix of the run, if it is one of a queue or an exchange."""
        return f"{self.prefix}.{name}" if name in self.queues or name in self.exchanges else name

    def table(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {
            name: self.full(value) if isinstance(value, str) else value for name, value in arguments.items()
        }

    def tag(self, line: Line, channel: int, given: dict[str, Any]) -> int:
        """The delivery tag that the operation means: a number, or the place among those outstanding."""
        if "tag" in given:
            return int(given["tag"])
        outstanding = line.outstanding[channel]
        if not outstanding:
            return TAG_UNKNOWN
        tag = sorted(outstanding)[given["place"] % len(outstanding)]
        if not given.get("keep", False):
            gone = [each for each in outstanding if each <= tag] if given.get("multiple") else [tag]
            line.outstanding[channel] = [each for each in outstanding if each not in gone]
        return tag

    # Telling

    def probe(self) -> None:
        """Asks how things are; `tell` hears the answers."""
        for line in self.lines:
            line.begin_probe([self.full(queue) for queue in self.queues])

    def tell(self) -> Told:
        """What came so far of the operation."""
        found = [line.end_probe() for line in self.lines]
        # A queue that is exclusive shows itself to its owner alone.
        told: Told = {
            queue: next((each for each in seen if each != (405,)), (405,))
            for queue, seen in zip(self.queues, zip(*found, strict=True), strict=True)
        }
        for number, line in enumerate(self.lines):
            for channel, events in line.events.items():
                # Of what was said just before connection.close, none may have left.
                if channel < PROBE and (channel == 0 or not line.events.get(0)):
                    self.tell_channel(told, number, channel, events)
        return told

    def taken(self) -> None:
        """What was told so far is dealt with."""
        for number, line in enumerate(self.lines):
            for channel, events in line.taken().items():
                if channel in line.confirmed:
                    line.confirmed[channel].update(self.confirms(number, channel, events))

    def tell_channel(self, told: Told, number: int, channel: int, events: list[Event]) -> None:
        confirms = self.confirms(number, channel, events)
        for event in events:
            method = event.method
            where = f"{number}.{channel}"
            if isinstance(method, (methods.BasicAck, methods.BasicNack)):
                continue
            if isinstance(method, methods.BasicDeliver):
                told.setdefault(f"{where} deliveries", []).append(self.shown(event))
            elif isinstance(method, methods.BasicReturn):
                told.setdefault(f"{where} returns", []).append(self.shown(event))
            elif isinstance(method, methods.BasicConsumeOk):
                told.setdefault(f"{where} consumers", []).append(self.shown(event))
            elif isinstance(method, methods.BasicCancel):
                told.setdefault(f"{where} cancels", []).append(self.shown(event))
            else:
                told.setdefault(f"{where} answers", []).append(self.shown(event))
        if f"{number}.{channel} cancels" in told:
            told[f"{number}.{channel} cancels"].sort(key=str)  # of one queue, in any order
        if confirms:
            told[f"{number}.{channel} confirms"] = sorted(confirms.items())

    def confirms(self, number: int, channel: int, events: list[Event]) -> dict[int, str]:
        """What became of each publish that is confirmed by these, and was not before."""
        before = self.lines[number].confirmed.get(channel, set())
        confirms: dict[int, str] = {}
        for event in events:
            method = event.method
            if isinstance(method, (methods.BasicAck, methods.BasicNack)):
                first = 1 if method.multiple else method.delivery_tag
                for tag in range(first, method.delivery_tag + 1):
                    if tag not in before:
                        confirms.setdefault(tag, method.NAME)
        return confirms

    def shown(self, event: Event) -> tuple[Any, ...]:
        method = event.method
        fields = {name: self.value(getattr(method, name)) for name in method.__slots__}
        if "reply_text" in fields and "reply_code" in fields:
            fields["reply_text"] = str(fields["reply_text"]).split(" ", 1)[0]
        if isinstance(event.properties, BasicProperties):
            fields["properties"] = {
                name: self.value(value)
                for name in BasicProperties.FIELDS
                if (value := getattr(event.properties, name)) is not None
            }
            fields["body"] = event.body.decode()
        return (method.NAME, fields)

    def value(self, value: Any) -> Any:
        if isinstance(value, dict):
            # RabbitMQ tells of the last death since 3.13.
            known = {name: each for name, each in value.items() if not name.startswith("x-last-death-")}
            return {name: self.value(each) for name, each in sorted(known.items())}
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if isinstance(value, datetime):
            return "(time)"
        if isinstance(value, str):
            if value.startswith("amq."):
                if value.startswith(("amq.gen", "amq.ctag")):
                    return self.made_up.setdefault(value, f"made up {len(self.made_up)}")
                return value
            return value.replace(f"{self.prefix}.", "")
        return value

    # The end

    def close(self) -> None:
        """Away with all that the run has made."""
        for line in self.lines:
            if line.peer is not None:
                line.lose("")
        line = self.lines[0]
        for queue in self.queues:
            line.ask(PROBE, methods.QueueDelete(queue=self.full(queue)))
        for exchange in self.exchanges:
            line.ask(PROBE, methods.ExchangeDelete(exchange=self.full(exchange)))
        line.lose("")


def queue_declare(player: Player, line: Line, channel: int, given: dict[str, Any]) -> Method:
    return methods.QueueDeclare(
        queue=player.full(given["queue"]),
        passive=given.get("passive", False),
        durable=given.get("durable", False),
        exclusive=given.get("exclusive", False),
        auto_delete=given.get("auto_delete", False),
        no_wait=given.get("no_wait", False),
        arguments=player.table(given.get("arguments", {})),
    )


def exchange_declare(player: Player, line: Line, channel: int, given: dict[str, Any]) -> Method:
    return methods.ExchangeDeclare(
        exchange=player.full(given["exchange"]),
        type=given.get("type", "direct"),
        passive=given.get("passive", False),
        durable=given.get("durable", False),
        auto_delete=given.get("auto_delete", False),
        internal=given.get("internal", False),
        no_wait=given.get("no_wait", False),
        arguments=player.table(given.get("arguments", {})),
    )


def queue_delete(player: Player, line: Line, channel: int, given: dict[str, Any]) -> Method:
    return methods.QueueDelete(
        queue=player.full(given["queue"]),
        if_unused=given.get("if_unused", False),
        if_empty=given.get("if_empty", False),
        no_wait=given.get("no_wait", False),
    )


def exchange_delete(player: Player, line: Line, channel: int, given: dict[str, Any]) -> Method:
    return methods.ExchangeDelete(
        exchange=player.full(given["exchange"]), if_unused=given.get("if_unused", False)
    )


def binding(kind: type[Method]) -> Callable[[Player, Line, int, dict[str, Any]], Method]:
    def make(player: Player, line: Line, channel: int, given: dict[str, Any]) -> Method:
        ends = {
            name: player.full(given[name])
            for name in ("queue", "exchange", "source", "destination")
            if name in given
        }
        key = player.full(given.get("key", ""))
        return kind(**ends, routing_key=key, arguments=given.get("arguments", {}))

    return make


def consume(player: Player, line: Line, channel: int, given: dict[str, Any]) -> Method:
    return methods.BasicConsume(
        queue=player.full(given["queue"]),
        consumer_tag=given["consumer_tag"],
        no_ack=given.get("no_ack", False),
        exclusive=given.get("exclusive", False),
        no_local=given.get("no_local", False),
        arguments=given.get("arguments", {}),
    )


def settlement(kind: type[Method]) -> Callable[[Player, Line, int, dict[str, Any]], Method | None]:
    def make(player: Player, line: Line, channel: int, given: dict[str, Any]) -> Method | None:
        tag = player.tag(line, channel, given)
        if tag == TAG_UNKNOWN:
            return None
        further = {name: given[name] for name in ("multiple", "requeue") if name in given}
        return kind(delivery_tag=tag, **further)

    return make


METHODS: dict[str, Callable[[Player, Line, int, dict[str, Any]], Method | None]] = {
    "declare queue": queue_declare,
    "declare exchange": exchange_declare,
    "delete queue": queue_delete,
    "delete exchange": exchange_delete,
    "bind": binding(methods.QueueBind),
    "unbind": binding(methods.QueueUnbind),
    "bind exchange": binding(methods.ExchangeBind),
    "unbind exchange": binding(methods.ExchangeUnbind),
    "consume": consume,
    "cancel": lambda player, line, channel, given: methods.BasicCancel(consumer_tag=given["consumer_tag"]),
    "get": lambda player, line, channel, given: methods.BasicGet(
        queue=player.full(given["queue"]), no_ack=given.get("no_ack", False)
    ),
    "purge": lambda player, line, channel, given: methods.QueuePurge(queue=player.full(given["queue"])),
    "ack": settlement(methods.BasicAck),
    "nack": settlement(methods.BasicNack),
    "reject": settlement(methods.BasicReject),
    "recover": lambda player, line, channel, given: methods.BasicRecover(requeue=given.get("requeue", True)),
    "qos": lambda player, line, channel, given: methods.BasicQos(
        prefetch_count=given["count"], global_=given.get("global", False)
    ),
    "select confirms": lambda player, line, channel, given: methods.ConfirmSelect(),
    "select transactions": lambda player, line, channel, given: methods.TxSelect(),
    "commit": lambda player, line, channel, given: methods.TxCommit(),
    "roll back": lambda player, line, channel, given: methods.TxRollback(),
    "close channel": lambda player, line, channel, given: methods.ChannelClose(reply_code=200),
}
