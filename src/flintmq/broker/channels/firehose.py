"""The firehose: a copy of each message that is published or delivered, for whoever traces a virtual host.

    Channel.hand_on  ---> published \\                        / publish.EXCHANGE
                                     > waiting, bounded, then  amq.rabbitmq.trace
    Consumer.deliver ---> delivered /      as a chore         \\ deliver.QUEUE

What happens is noted where it happens, and told between passes: a copy costs some 20 microseconds, and a
queue that is handing out must not be put into. Publishers wait for the firehose; a delivery that it has no
room for is not told, and counted. Copies have the headers of RabbitMQ's and the body as it was; a body that
lies in a file is left out. The token in a name of direct reply-to is left out wherever a copy has the name:
whoever knows it can answer. Nothing of the firehose itself is traced: neither copies, nor what has become a
dead letter of one.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from flintmq.broker.channels import direct_reply
from flintmq.broker.messages.composing import composed
from flintmq.errors import PeerFault
from flintmq.field_tuple import FieldTuple
from flintmq.wire import traits
from flintmq.wire.fields import encode_shortstr
from flintmq.wire.properties import BasicProperties, decode_basic_properties
from flintmq.wire.tables import FieldTable, FieldValue, LongLong

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.channels.client_connection import ClientConnection, Connections
    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.chores import Chore

log = logging.getLogger("flintmq.firehose")

NAME = "amq.rabbitmq.trace"
# Messages that wait to be told of, and their octets: a second of work, and 32 MiB.
WAITING_MAX = 32_768
WAITING_BYTES_MAX = 33_554_432
# Told in one step of the chore, a third of a millisecond.
STEP = 16
# A copy has the headers of the message in its own, which have to fit into one frame.
HEADER_BYTES_MAX = 32_768
KEY_OCTETS_MAX = 255
# Queues that a message went to which its copy names.
QUEUES_TOLD_MAX = 100

_ROUTE = encode_shortstr(NAME)


class Noted(FieldTuple):
    """Something that happened to a message."""

    message: Message
    key: str
    origin: int  # the number of the connection
    channel: int
    user: str
    extra: FieldTable


class Firehose:
    """Of one virtual host, while it is traced."""

    def __init__(self, router: Router, clients: Connections) -> None:
        import platform  # by whoever traces

        self.router = router
        self.clients = clients
        self.node = f"flintmq@{platform.node() or 'localhost'}"
        self.waiting: deque[Noted] = deque()
        self.waiting_bytes = 0
        self.is_telling = False

    def published(self, channel: Channel, message: Message, queues: list[Queue]) -> None:
        names = [shown(queue.name) for queue in queues[:QUEUES_TOLD_MAX]]
        self.note(channel, message, f"publish.{message.exchange_name()}", {"routed_queues": list(names)})
        if 2 * len(self.waiting) > WAITING_MAX or 2 * self.waiting_bytes > WAITING_BYTES_MAX:
            # Whoever publishes has to wait for the others, and for the firehose.
            self.router.pass_work.load()
            self.router.pass_work.pressed = True

    def delivered(self, channel: Channel, message: Message, queue: Queue, redelivered: bool) -> None:
        is_private = bool(message.traits & traits.ANSWER)  # hashes of passwords may be in it
        # Names of direct reply-to are for nobody else to know.
        if not is_private and not queue.name.startswith(direct_reply.NAME):
            self.note(channel, message, f"deliver.{queue.name}", {"redelivered": int(redelivered)})

    def note(self, channel: Channel, message: Message, key: str, extra: FieldTable) -> None:
        if message.route.startswith(_ROUTE):
            return
        size = len(message.content)
        if len(self.waiting) >= WAITING_MAX or self.waiting_bytes + size > 2 * WAITING_BYTES_MAX:
            self.router.pass_work.fates.untraced += 1
            return
        self.waiting.append(Noted(message, key, channel.origin, channel.number, channel.user.name, extra))
        self.waiting_bytes += size
        if not self.is_telling:
            self.is_telling = True
            self.router.pass_work.chores.go_on(self.tell_all())  # not at once: see the head of this module

    def tell_all(self) -> Chore:
        try:
            while self.waiting:
                for _ in range(min(STEP, len(self.waiting))):
                    noted = self.waiting.popleft()
                    self.waiting_bytes -= len(noted.message.content)
                    self.tell(noted)
                yield None
        finally:
            self.is_telling = False

    def tell(self, noted: Noted) -> None:
        """Posts the copy."""
        message = noted.message
        if NAME not in self.router.exchanges:  # the virtual host is being deleted
            return
        try:
            properties, is_cut = properties_of(message)
            headers = properties.get("headers")
            if isinstance(headers, dict) and headers.get("x-first-death-exchange") == NAME:
                return
            table: FieldTable = {
                "exchange_name": message.exchange_name(),
                "routing_keys": [shown(message.routing_key()), *carbon_keys(headers)],
                "properties": properties,
                "node": self.node,
                "vhost": self.router.name,
                "connection": connection_name(self.clients.find(noted.origin)),
                "channel": noted.channel,
                "user": noted.user,
                **noted.extra,
            }
            if is_cut:
                table["properties_cut"] = True
            body = message.content[message.header_size :]
            if message.traits & traits.SPOOLED:
                body, table["body_size"] = b"", LongLong(message.body_size())
            copy = composed(NAME, short(noted.key), BasicProperties(headers=table), body)
            self.router.post(copy)
        except PeerFault as fault:
            log.warning("a message of vhost %r is not traced: %s", self.router.name, fault.reply_text)
            self.router.pass_work.fates.untraced += 1


def properties_of(message: Message) -> tuple[FieldTable, bool]:
    """The properties that the message has, by name; whether headers were left out, as they are too large."""
    found = decode_basic_properties(message.content, 12, message.header_size)
    is_cut = message.header_size > HEADER_BYTES_MAX
    table: FieldTable = {}
    for name in BasicProperties.FIELDS:
        value = getattr(found, name)
        if value is not None and not (is_cut and name == "headers"):
            table[name] = LongLong(value) if name == "timestamp" else value
    if found.reply_to is not None:
        table["reply_to"] = shown(found.reply_to)
    if isinstance(found.headers, dict) and "CC" in found.headers and not is_cut:
        table["headers"] = {**found.headers, "CC": shown_keys(found.headers["CC"])}
    return table, is_cut


def shown(name: str) -> str:
    """The name of a queue or a routing key, without the token of one for direct replies."""
    return direct_reply.NAME if name.startswith(f"{direct_reply.NAME}.") else name


def shown_keys(keys: FieldValue) -> FieldValue:
    """The same for further routing keys, if it is a list of them."""
    return [shown(key) if isinstance(key, str) else key for key in keys] if isinstance(keys, list) else keys


def carbon_keys(headers: object) -> list[str]:
    """The further routing keys that everybody may see."""
    copies = headers.get("CC") if isinstance(headers, dict) else None
    return [key for key in copies if isinstance(key, str)] if isinstance(copies, list) else []


def short(key: str) -> str:
    """As much of it as a routing key holds, never half a character: clients read UTF-8."""
    return key.encode("utf-8", "replace")[:KEY_OCTETS_MAX].decode("utf-8", "ignore")


def connection_name(client: ClientConnection | None) -> str:
    """As lists of connections have it: 127.0.0.1:50000 -> 127.0.0.1:5672."""
    if client is None:
        return ""
    ends = client.peer.describe()
    peer, here = str(ends.get("peer", client.peer_address)), str(ends.get("here", ""))
    peer_port, port = str(ends.get("peer-port", 0)), str(ends.get("port", 0))
    return f"{peer}:{peer_port} -> {here}:{port}"
