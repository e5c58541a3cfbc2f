"""Events as messages: what happens to the broker, told by the exchanges amq.rabbitmq.event.

    queue declared, user added, login refused, alarm ... --> tell --> waiting, bounded --> amq.rabbitmq.event
                                                                                   of the virtual host, and
                                                                                   of the first one

The routing key is RabbitMQ's name of the event, such as queue.created; the fields are headers. An event of a
virtual host is told there, and every event is told in the first virtual host. An exchange that nothing is
bound to is told nothing, which costs one look at its bindings. Events are posted between passes, as whoever
tells one may be in the middle of something. To post one is no event.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flintmq.broker.administration.queue_growth import QueueGrowth
from flintmq.broker.channels.firehose import connection_name
from flintmq.broker.messages.composing import composed
from flintmq.broker.queues.queue import Queue
from flintmq.broker.virtual_host import EVENTS
from flintmq.errors import PeerFault
from flintmq.wire.properties import BasicProperties
from flintmq.wire.tables import FieldTable, LongLong

if TYPE_CHECKING:
    from flintmq.broker.administration.administration import Administration
    from flintmq.broker.administration.changes import Change
    from flintmq.broker.channels.client_connection import ClientConnection
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.messages.message import Message
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.virtual_host import VirtualHost

log = logging.getLogger("flintmq.events")

# Events that wait to be posted: 16 MiB at the most.
WAITING_MAX = 4096
WAITING_BYTES_MAX = 16_777_216
# Posted in one step of the chore.
STEP = 16
# The fields of an event travel in one frame: what a client may have made large is left out.
FIELDS_BYTES_MAX = 32_768
LARGE = ("arguments", "client_properties", "definition", "value")

CONNECTION_CREATED = "connection.created"
# Names of connections that are remembered, of 200 octets each.
NAMES_MAX = 65_536

# What administrators change: the service, the event, and what the event calls `user` and `virtual-host`.
CHANGES = {
    "user.add": ("user.created", "name", "vhost"),
    "user.delete": ("user.deleted", "name", "vhost"),
    "user.set-password": ("user.password.changed", "name", "vhost"),
    "user.set-tags": ("user.tags.set", "name", "vhost"),
    "vhost.add": ("vhost.created", "user", "name"),
    "vhost.delete": ("vhost.deleted", "user", "name"),
    "permission.set": ("permission.created", "user", "vhost"),
    "permission.clear": ("permission.deleted", "user", "vhost"),
    "topic-permission.set": ("topic.permission.created", "user", "vhost"),
    "topic-permission.clear": ("topic.permission.deleted", "user", "vhost"),
    "policy.set": ("policy.set", "user", "vhost"),
    "policy.clear": ("policy.cleared", "user", "vhost"),
    "operator-policy.set": ("policy.set", "user", "vhost"),
    "operator-policy.clear": ("policy.cleared", "user", "vhost"),
    "parameter.set": ("parameter.set", "user", "vhost"),
    "parameter.clear": ("parameter.cleared", "user", "vhost"),
}


class Events:
    """Of one broker."""

    def __init__(self, administration: Administration) -> None:
        self.broker = administration.broker
        self.waiting: deque[tuple[Router, Message]] = deque()
        self.waiting_bytes = 0
        self.is_posting = False
        self.growth = QueueGrowth(self)
        administration.changes.observers.append(self.changed)
        self.connections: dict[
            int, str
        ] = {}  # names of those that were told of: a socket that ended has none

    @cached_property
    def node(self) -> str:
        """As RabbitMQ names nodes. The machine's name is asked for when somebody hears of an event."""
        import platform

        return f"flintmq@{platform.node() or 'localhost'}"

    # Who hears

    def hearers(self, virtual_host: str) -> list[str]:
        """The virtual hosts whose exchanges an event of this one is for; empty for one of the broker.

        The first virtual host hears of everything, and nobody hears of anything where nothing is bound to
        the exchange.
        """
        first = self.broker.first_host()
        host = self.broker.virtual_hosts.get(virtual_host) if virtual_host else None
        heard = [] if first is None or not first.hears_events() else [first.name]
        if host is not None and host is not first and host.hears_events():
            heard.append(host.name)
        return heard

    # Telling

    def tell(self, key: str, virtual_host: str, fields: Mapping[str, Any]) -> None:
        """Something has happened, to the broker where no virtual host is named."""
        hearers = self.hearers(virtual_host)
        if not hearers:
            return
        now_ms = self.broker.timetable.now_ms()
        headers: FieldTable = {"timestamp_in_ms": LongLong(now_ms), "node": self.node, **fields}
        if virtual_host:
            headers.setdefault("vhost", virtual_host)
        fates = self.broker.pass_work.fates
        for name in hearers:
            try:
                message = event_message(key, headers, now_ms)
            except PeerFault:  # a name that no table holds
                fates.untold_events += 1
                continue
            size = len(message.content)
            if len(self.waiting) >= WAITING_MAX or self.waiting_bytes + size > WAITING_BYTES_MAX:
                fates.untold_events += 1
                continue
            self.waiting.append((self.broker.virtual_hosts[name].router, message))
            self.waiting_bytes += size
        if self.waiting and not self.is_posting:
            self.is_posting = True
            self.broker.pass_work.chores.go_on(self.post_all())

    def post_all(self) -> Chore:
        try:
            while self.waiting:
                for _ in range(min(STEP, len(self.waiting))):
                    router, message = self.waiting.popleft()
                    self.waiting_bytes -= len(message.content)
                    if EVENTS in router.exchanges:  # else the virtual host is being deleted
                        self.post_one(router, message)
                yield None
        finally:
            self.is_posting = False

    def post_one(self, router: Router, message: Message) -> None:
        """An event that a queue does not take is counted: the events behind it are told even so."""
        try:
            router.post(message)
        except PeerFault as fault:
            log.warning("an event of vhost %r is not told: %s", router.name, fault.reply_text)
            router.pass_work.fates.untold_events += 1

    # What happens

    def queue_changed(self, key: str, host: VirtualHost, queue: Queue) -> None:
        if not self.hearers(host.name):
            return
        self.tell(
            key,
            host.name,
            {
                "name": queue.name,
                "durable": queue.durable,
                "auto_delete": queue.auto_delete,
                "exclusive": queue.exclusive,
                "arguments": queue.arguments,
                "user_who_performed_action": queue.user,
            },
        )

    def exchange_changed(self, key: str, host: VirtualHost, exchange: Exchange) -> None:
        if not self.hearers(host.name):
            return
        self.tell(
            key,
            host.name,
            {
                "name": exchange.name,
                "type": exchange.type,
                "durable": exchange.durable,
                "auto_delete": exchange.auto_delete,
                "internal": exchange.internal,
                "arguments": exchange.arguments,
            },
        )

    def binding_changed(
        self,
        key: str,
        host: VirtualHost,
        source: Exchange,
        destination: Queue | Exchange,
        routing_key: str,
        arguments: FieldTable,
    ) -> None:
        if not self.hearers(host.name):
            return
        self.tell(
            key,
            host.name,
            {
                "source_name": source.name,
                "source_kind": "exchange",
                "destination_name": destination.name,
                "destination_kind": "queue" if isinstance(destination, Queue) else "exchange",
                "routing_key": routing_key,
                "arguments": arguments,
            },
        )

    def connection_changed(self, key: str, client: ClientConnection) -> None:
        host = client.virtual_host.name
        name = self.connections.pop(client.number, "")
        if not self.hearers(host):
            return
        if not name:
            name = connection_name(client)
            if key == CONNECTION_CREATED and len(self.connections) < NAMES_MAX:
                self.connections[client.number] = name
        self.tell(
            key,
            host,
            {
                "name": name,
                "number": client.number,
                "peer_host": client.peer_address,
                "user": client.user.name,
                "connected_at": LongLong(client.since_ms),
                "client_properties": client.client_properties,
            },
        )

    def logged_in(self, user: str, peer_address: str, error: str, kind: str = "network") -> None:
        """Somebody has logged in, or was refused for a reason."""
        if not self.hearers(""):
            return
        fields = {"name": user, "peer_host": peer_address, "connection_type": kind}
        if error:
            self.tell("user.authentication.failure", "", {**fields, "error": error})
        else:
            self.tell("user.authentication.success", "", fields)

    def changed(self, change: Change) -> None:
        """An observer of changes: what administrators have done."""
        named = {name: value for name, value in change.arguments.items() if name != "force"}
        if change.what in ("limit.set", "limit.clear"):
            whose = "user" if "user" in named else "vhost"
            done = "set" if change.what == "limit.set" else "cleared"
            found: tuple[str, str, str] | None = (f"{whose}.limits.{done}", "user", "vhost")
        else:
            found = CHANGES.get(change.what)
        if found is None or change.code:
            return
        key, user, host = found
        about = named.get("virtual-host", change.virtual_host)
        is_of_host = not key.startswith(("user.", "vhost."))
        fields: dict[str, Any] = {
            {"user": user, "virtual-host": host}.get(name, name.replace("-", "_")): value
            for name, value in named.items()
        }
        fields["user_who_performed_action"] = change.user
        self.tell(key, str(about) if is_of_host else "", fields)


def event_message(key: str, headers: FieldTable, now_ms: int) -> Message:
    properties = BasicProperties(headers=headers, delivery_mode=2, timestamp=now_ms // 1000)
    message = composed(EVENTS, key, properties)
    if len(message.content) > FIELDS_BYTES_MAX:
        properties.headers = {name: value for name, value in headers.items() if name not in LARGE}
        message = composed(EVENTS, key, properties)
    return message
