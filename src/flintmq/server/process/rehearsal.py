"""A broker for tests: it keeps what is published, its clock can be moved, and it fails on demand.

    whoever started the broker                                        broker
      | {"do": "move_time", "seconds": 60}          standard input      |
      |---------------------------------------------------------------->|  on the event loop
      | answer {"ahead_s": 60.0}                    standard output     |
      |<----------------------------------------------------------------|

`flintmq serve --rehearsal` alone takes commands, and takes them from its standard input alone: nobody who
connects to the broker can give one. The other end of that input is flintmq.testing. A broker in production
has nothing of this file.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import logging
import sys
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from flintmq.auth.passwords import QuickHash, plain_hash
from flintmq.broker.services.browsing import browse
from flintmq.clock import MovableClock
from flintmq.config import ALL_PERMISSIONS
from flintmq.errors import PeerFault, ServiceFault, StorageFault
from flintmq.field_tuple import FieldTuple
from flintmq.protocol import phases
from flintmq.server.server import Server
from flintmq.server.sessions.session import Session
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.auth import AnswerPending
    from flintmq.broker.channels.channel import Channel as BrokerChannel
    from flintmq.broker.channels.confirms import Confirms
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.transactions.transaction import Transaction
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.config import Config
    from flintmq.protocol.channel import Channel, Sink
    from flintmq.protocol.outbox import Output
    from flintmq.server.network.link import Link

log = logging.getLogger("flintmq.rehearsal")

ANSWER = "answer "
# Of each virtual host the newest messages are kept: a test looks at some, and may publish a million.
KEPT_MAX = 10_000
KEPT_BYTES_MAX = 67_108_864
# Ways of messages that came to no queue, each with its count.
WAYS_MAX = 1000
# What one look into a queue tells at most.
PEEKED_BYTES_MAX = 67_108_864
# A hundred years: beyond it the milliseconds of some timestamps have no room.
AHEAD_S_MAX = 3_153_600_000.0

ROUTED = "routed"
UNROUTABLE = "unroutable"
NACKED = "nacked"
IN_TRANSACTION = "in a transaction"


class CommandFault(Exception):
    """A command that cannot be done, and why."""


class Published(FieldTuple):
    """One message, as it came."""

    route: bytes
    content: bytes  # header and body; of a body that went to a file the header alone
    header_size: int
    outcome: str


class HostRecord:
    """What tests ask about one virtual host, and what is to fail there."""

    def __init__(self) -> None:
        self.published: deque[Published] = deque()
        self.kept_bytes = 0
        self.forgotten = 0  # messages that were published before those that are kept
        self.unroutable: Counter[bytes] = Counter()
        self.nacks = 0  # publishes that are refused from now on; below 0: all
        self.confirm_delay_ms = 0

    def keep(self, message: Published) -> None:
        self.published.append(message)
        self.kept_bytes += len(message.content)
        while len(self.published) > KEPT_MAX or self.kept_bytes > KEPT_BYTES_MAX:
            self.kept_bytes -= len(self.published.popleft().content)
            self.forgotten += 1
        is_known = message.route in self.unroutable or len(self.unroutable) < WAYS_MAX
        if message.outcome == UNROUTABLE and is_known:
            self.unroutable[message.route] += 1


class RehearsalSession(Session):
    """Keeps what its client publishes, and refuses some of it if it is to."""

    def __init__(self, server: RehearsalServer, output: Output, link: Link, peer_address: str) -> None:
        super().__init__(server.broker, output, link, peer_address)
        self.server = server
        self.is_deferred = False  # a publish waits for a back end, and comes again

    def record(self, route: bytes) -> HostRecord | None:
        """Where a message of this route is kept; None of a request to the broker."""
        if self.virtual_host is None or self.is_internal or self.asks(route):
            return None
        return self.server.record_of(self.virtual_host.name)

    def publish(self, channel: Channel, route: bytes, flags: int, content: bytes, header_size: int) -> None:
        record = self.record(route)
        if record is None:
            super().publish(channel, route, flags, content, header_size)
            return
        owner: Any = channel.owner
        if record.nacks and owner.confirms.active:
            self.refuse(owner, record)
            outcome = NACKED
        else:
            unrouted, transaction = owner.unrouted, owner.transaction
            self.is_deferred = False
            super().publish(channel, route, flags, content, header_size)
            if self.is_deferred or channel.state != phases.CHANNEL_OPEN:
                return
            outcome = outcome_of(owner, unrouted, transaction)
        record.keep(Published(route, content, header_size, outcome))
        self.server.delay_confirm(owner.confirms, record.confirm_delay_ms)

    def publish_spooled(self, channel: Channel, route: bytes, flags: int, header: bytes, sink: Sink) -> None:
        record = self.record(route)
        owner: Any = channel.owner
        if record is not None and record.nacks and owner.confirms.active:
            sink.discard()
            self.refuse(owner, record)
            outcome = NACKED
        else:
            unrouted, transaction = owner.unrouted, owner.transaction
            self.is_deferred = False
            super().publish_spooled(channel, route, flags, header, sink)
            if record is None or self.is_deferred or channel.state != phases.CHANNEL_OPEN:
                return
            outcome = outcome_of(owner, unrouted, transaction)
        record.keep(Published(route, header, len(header), outcome))
        self.server.delay_confirm(owner.confirms, record.confirm_delay_ms)

    def refuse(self, owner: BrokerChannel, record: HostRecord) -> None:
        """The message goes nowhere, and its publisher gets a basic.nack."""
        self.has_published = True
        if record.nacks > 0:
            record.nacks -= 1
        owner.confirms.count()
        owner.confirms.lose(owner.confirms.published)

    def wait_for(self, pending: AnswerPending, channel: Channel | None, again: Callable[[], None]) -> None:
        self.is_deferred = True
        super().wait_for(pending, channel, again)


def outcome_of(owner: BrokerChannel, unrouted: int, transaction: Transaction | None) -> str:
    """What became of a publish, before which the channel had so many unrouted ones and this transaction."""
    if transaction is not None:
        return IN_TRANSACTION
    return ROUTED if owner.unrouted == unrouted else UNROUTABLE


class LateConfirm:
    """The confirm of what a channel has published in a millisecond, which is held back."""

    def __init__(self, due_ms: int) -> None:
        self.due_ms = due_ms
        self.published = 0


class RehearsalServer(Server):
    """A server that does what a test tells it to."""

    def __init__(self, config: Config, clock: MovableClock, loop: asyncio.AbstractEventLoop) -> None:
        self.clock = clock
        self.records: dict[str, HostRecord] = {}
        self.staged_alarm = ""
        self.late: dict[Confirms, LateConfirm] = {}  # the newest of each channel that waits
        super().__init__(config, clock, loop)
        self.remember_passwords()

    def remember_passwords(self) -> None:
        """Those of the settings are no secret here, and to check one as if it were takes 60 ms."""
        users = self.broker.users
        for name, settings in self.config.users.items():
            user = users.get(name)
            kept = None if user is None else user.password_hash
            found = None if kept is None else plain_hash(kept)
            password = (settings.password or "").encode()
            if isinstance(found, QuickHash) and found.matches(password):
                users.remember(name, password)

    def record_of(self, virtual_host: str) -> HostRecord:
        record = self.records.get(virtual_host)
        if record is None:
            record = self.records[virtual_host] = HostRecord()
        return record

    def new_session(self, output: Output, link: Link, peer_address: str) -> Session:
        return RehearsalSession(self, output, link, peer_address)

    def outer_alarm(self) -> str:
        return super().outer_alarm() or self.staged_alarm

    # Confirms that come late

    def delay_confirm(self, confirms: Confirms, delay_ms: int) -> None:
        """What the channel has published last is confirmed so much later, if there is a delay."""
        if not delay_ms or not confirms.active:
            return
        due = self.broker.pass_work.confirms
        if confirms in due:
            due.remove(confirms)
        timetable = self.broker.timetable
        due_ms = timetable.now_ms() + delay_ms
        late = self.late.get(confirms)
        if late is None or late.due_ms != due_ms:
            late = self.late[confirms] = LateConfirm(due_ms)
            timetable.at(due_ms, partial(self.confirm_late, confirms, late))
        late.published = confirms.published

    def confirm_late(self, confirms: Confirms, late: LateConfirm) -> None:
        if self.late.get(confirms) is late:
            del self.late[confirms]
            confirms.confirm()
        elif not confirms.stream_batch:  # else with the last of them, which waits for the stream
            confirms.confirm_streamed(late.published)

    def confirm_now(self, virtual_host: VirtualHost) -> None:
        """There is no delay any more."""
        for confirms in [each for each in self.late if each.router is virtual_host.router]:
            del self.late[confirms]
            self.broker.pass_work.confirms.append(confirms)
        self.scheduler.schedule_pass()

    # Commands

    def follow_input(self) -> None:
        """Obeys commands until standard input ends, in a thread: whoever reads no answers stops nobody."""
        with open(0, "rb", closefd=False) as commands:
            for line in commands:
                answer = asyncio.run_coroutine_threadsafe(self.obey(line), self.loop).result()
                sys.stdout.write(answer)
                sys.stdout.flush()

    async def obey(self, line: bytes) -> str:
        """Does what a line of JSON says; the line that answers it."""
        try:
            command = json.loads(line)
            if not isinstance(command, dict) or command.get("do") not in COMMANDS:
                raise CommandFault(f"no such command: {line[:200]!r}; there are {', '.join(COMMANDS)}")
            found = COMMANDS[command.pop("do")](self, **command)
            answer = await found if inspect.isawaitable(found) else found
        except (CommandFault, PeerFault, ServiceFault, ValueError, TypeError) as fault:
            answer = {"error": str(fault)}
        except Exception as bug:
            log.exception("a bug in a command")
            answer = {"error": f"a bug of the broker, which its log tells more of: {bug!r}"}
        return ANSWER + json.dumps(answer) + "\n"

    def host(self, name: str) -> VirtualHost:
        found = self.broker.virtual_hosts.get(name)
        if found is None:
            known = ", ".join(map(repr, list(self.broker.virtual_hosts)[:20]))
            raise CommandFault(f"no virtual host {name!r}: there are {known}")
        return found


Told = dict[str, Any]


def users(server: RehearsalServer) -> Told:
    """Those of the settings: passwords, where they are in plain, and virtual hosts that they may use."""
    found = server.config.users.items()
    return {
        "users": {
            name: {"password": user.password, "virtual_hosts": list(user.permissions)} for name, user in found
        }
    }


def published(server: RehearsalServer, virtual_host: str) -> Told:
    """The messages that are kept, the oldest first."""
    server.host(virtual_host)
    record = server.record_of(virtual_host)
    messages = [
        {**told(each.route, each.content, each.header_size), "outcome": each.outcome}
        for each in record.published
    ]
    return {"messages": messages, "forgotten": record.forgotten}


def forget(server: RehearsalServer, virtual_host: str) -> Told:
    """What was published and left behind until now is of no interest any more."""
    host = server.host(virtual_host)
    fresh, old = HostRecord(), server.record_of(host.name)
    fresh.nacks, fresh.confirm_delay_ms = old.nacks, old.confirm_delay_ms
    server.records[virtual_host] = fresh
    return {}


def peek(server: RehearsalServer, virtual_host: str, queue: str, limit: int) -> Told:
    """The messages that wait in a queue, the next first; they stay there."""
    host = server.host(virtual_host)
    found = host.queues.get(queue)
    if found is None:
        known = ", ".join(map(repr, list(host.queues)[:20])) or "none"
        raise CommandFault(f"no queue {queue!r} in virtual host {virtual_host!r}: there are {known}")
    if found.is_stream:
        raise CommandFault(f"queue {queue!r} is a stream: consume it from x-stream-offset 'first' instead")
    messages: list[Told] = []
    room = PEEKED_BYTES_MAX
    for _, message, is_redelivered in browse(found, -(1 << 62)):
        content = whole(host, message)
        room -= len(content)
        if len(messages) >= limit or (messages and room < 0):
            break
        row = told(message.shown_route(), content, message.header_size)
        messages.append({**row, "redelivered": is_redelivered})
    return {"messages": messages}


def whole(host: VirtualHost, message: Message) -> bytes:
    """Header and body, which may lie in a file."""
    store = host.store
    reader = store.body_of(message) if message.traits & traits.SPOOLED and store is not None else None
    if reader is None:
        return message.content
    try:
        return message.content + reader.read(0, reader.octets)
    except StorageFault:
        return message.content
    finally:
        reader.close()


def told(route: bytes, content: bytes, header_size: int) -> Told:
    size = route[0]
    return {
        "exchange": route[1 : 1 + size].decode("utf-8", "replace"),
        "routing_key": route[2 + size :].decode("utf-8", "replace"),
        "content": base64.b64encode(content).decode(),
        "header_size": header_size,
    }


def queues(server: RehearsalServer, virtual_host: str) -> Told:
    """How many messages wait in each queue, and how many are with consumers; streams never get empty."""
    rows = [row(queue) for queue in server.host(virtual_host).queues.values() if not queue.is_stream]
    return {"queues": rows}


def row(queue: Queue) -> Told:
    return {
        "name": queue.name,
        "ready": queue.message_count(),
        "unacked": queue.unacked,
        "delayed": queue.waiting_count(),
    }


def left(server: RehearsalServer, virtual_host: str) -> Told:
    """Messages that came to no queue, and deliveries that nobody has acked."""
    host = server.host(virtual_host)
    ways = [
        {**told(route, b"", 0), "count": count}
        for route, count in server.record_of(virtual_host).unroutable.items()
    ]
    unacked = {queue.name: unacked_of(queue) for queue in host.queues.values() if not queue.is_stream}
    return {"unroutable": ways, "unacked": {name: count for name, count in unacked.items() if count}}


def unacked_of(queue: Queue) -> int:
    """Deliveries that are with a consumer, and those that came back and wait."""
    returned = [delivery for lane in queue.parts() for delivery in lane.returned]
    return queue.unacked + sum(delivery.message is not None for delivery in returned)


def names(server: RehearsalServer, virtual_host: str) -> Told:
    host = server.host(virtual_host)
    return {"queues": list(host.queues), "exchanges": list(host.exchanges)}


def clear(server: RehearsalServer, virtual_host: str) -> Told:
    """Deletes all queues and exchanges that clients have declared."""
    host = server.host(virtual_host)
    for queue in list(host.queues.values()):
        if not queue.deleted:
            host.delete_queue(queue)
    for exchange in list(host.exchanges.values()):
        if not exchange.deleted and exchange.name and not exchange.name.startswith("amq."):
            host.remove_exchange(exchange)
    server.scheduler.schedule_pass()
    return {}


def drop_connections(
    server: RehearsalServer, virtual_host: str, user: str | None = None, name: str | None = None
) -> Told:
    """Ends connections without a word, as a network does; those of a user, or of a connection_name, alone."""
    host = server.host(virtual_host)
    dropped = 0
    for link in list(server.links):
        session = link.session
        if session.is_internal or session.virtual_host is not host or session.user is None:
            continue
        if user is not None and session.user.name != user:
            continue
        if name is not None and session.client_properties.get("connection_name") != name:
            continue
        link.drop()
        dropped += 1
    return {"dropped": dropped}


def nack_publishes(server: RehearsalServer, virtual_host: str, count: int) -> Told:
    """Refuses so many of the publishes that are to be confirmed; all for -1, none for 0."""
    server.host(virtual_host)
    server.record_of(virtual_host).nacks = int(count)
    return {}


def delay_confirms(server: RehearsalServer, virtual_host: str, seconds: float) -> Told:
    """Confirms come so much later, by the broker's clock; for 0 at once, with those that wait."""
    host = server.host(virtual_host)
    if not isinstance(seconds, int | float) or not 0 <= seconds <= AHEAD_S_MAX:
        raise CommandFault(f"confirms cannot come {seconds!r} s later: a number from 0 on is needed")
    server.record_of(virtual_host).confirm_delay_ms = round(seconds * 1000)
    if not seconds:
        server.confirm_now(host)
    return {}


def set_alarm(server: RehearsalServer, reason: str) -> Told:
    """Blocks publishers, for the reason that they are told; an empty one releases them."""
    server.staged_alarm = reason
    server.check_alarm()
    server.scheduler.schedule_pass()
    return {}


async def move_time(server: RehearsalServer, seconds: float) -> Told:
    """Moves the broker's clock ahead; what is due by then is done when the answer comes."""
    clock = server.clock
    if not isinstance(seconds, int | float) or not 0 <= seconds <= AHEAD_S_MAX - clock.ahead_s:
        raise CommandFault(
            f"time cannot move by {seconds!r}: give seconds, from 0 on; it moves ahead alone, "
            "a hundred years at most"
        )
    clock.ahead_s += seconds
    if server.ticker is not None:
        server.ticker.cancel()
        server.tick()
    server.scheduler.stop_alarm_clock()
    timetable = server.broker.timetable
    while (due_ms := timetable.next_due_ms()) is not None and due_ms <= timetable.now_ms():
        server.scheduler.alarms_due()
        await asyncio.sleep(0)
    server.scheduler.set_alarm_clock()
    return {"ahead_s": clock.ahead_s}


def add_virtual_host(server: RehearsalServer, virtual_host: str, user: str) -> Told:
    """A new one, where the user may do anything."""
    administration = server.broker.administration
    administration.virtual_hosts.add(virtual_host)
    administration.permissions.set(user, virtual_host, ALL_PERMISSIONS)
    return {}


def delete_virtual_host(server: RehearsalServer, virtual_host: str) -> Told:
    server.broker.administration.virtual_hosts.delete(virtual_host)
    server.records.pop(virtual_host, None)
    server.scheduler.schedule_pass()
    return {}


COMMANDS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        users,
        published,
        forget,
        peek,
        queues,
        left,
        names,
        clear,
        drop_connections,
        nack_publishes,
        delay_confirms,
        set_alarm,
        move_time,
        add_virtual_host,
        delete_virtual_host,
    )
}
