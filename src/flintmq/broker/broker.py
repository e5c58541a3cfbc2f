"""The broker: its virtual hosts, its users, and the end of each pass.

A pass is one round over the sockets that had something to read. What they brought has been routed into
queues by then; `finish_pass` hands it out to consumers and confirms it, in batches.
"""

from __future__ import annotations

import base64
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from flintmq.auth import Authentication, Users
from flintmq.auth.failed_logins import FailedLogins
from flintmq.broker.administration.administration import Administration
from flintmq.broker.administration.events import Events
from flintmq.broker.channels.client_connection import Connections
from flintmq.broker.channels.connection_teardown import ConnectionTeardowns
from flintmq.broker.channels.tickets import Tickets
from flintmq.broker.exchanges.dead_letter import HEADER_MARGIN_BYTES
from flintmq.broker.policies import Policies
from flintmq.broker.queues.service_goals import in_order_of_goals
from flintmq.broker.scheduling.pass_work import PassWork, WaitingQueue
from flintmq.broker.scheduling.timetable import Timetable
from flintmq.broker.services import request
from flintmq.broker.services.answer_room import AnswerRoom
from flintmq.broker.services.answers import Answers
from flintmq.broker.store.staging import Staging
from flintmq.broker.streams.streams import Streams
from flintmq.broker.virtual_host import VirtualHost
from flintmq.errors import ProtocolMisuse, UnreadableFault
from flintmq.ordered_names import OrderedNames

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.auth import Verification
    from flintmq.broker.channels.client_connection import ClientConnection
    from flintmq.broker.services.backup_services import Backup
    from flintmq.broker.services.node_services import Process
    from flintmq.broker.store.store import Store
    from flintmq.clock import Clock
    from flintmq.config import Config
    from flintmq.storage.staging_files import StagingFiles
    from flintmq.storage.streams.store import StreamStore


log = logging.getLogger("flintmq.broker")

# A queue whose messages a bug has kept from being handed out has its turn again so much later.
AGAIN_MS = 1000
# What a pass may add to what waits to be sent, some milliseconds of work: the rest of the queues come in the
# next one, when the sockets of consumers have taken some of it.
PASS_BYTES_MAX = 8_388_608
# What a pass may load from disk for them.
PASS_LOADED_BYTES_MAX = 2_097_152
NOBODY: set[WaitingQueue] = set()


def serve_again(queue: WaitingQueue) -> None:
    # Compiled code that takes a method of a typed object as a value gets one without its object.
    queue.go_on()


# The virtual host where all events are told, unless the settings leave it out.
FIRST = "/"


class Audit(Protocol):
    """Where it is noted who did what, from where, and whether it was allowed."""

    def note(
        self,
        kind: str,
        event: str,
        is_allowed: bool,
        user: str = "",
        address: str = "",
        connection: int = 0,
        virtual_host: str = "",
        subject: str = "",
        reason: str = "",
    ) -> None: ...


class Broker:
    """Everything that outlives a connection."""

    __slots__ = (
        "administration",
        "answer_room",
        "answers",
        "audit",
        "authentication",
        "backup",
        "clients",
        "clock",
        "config",
        "connections",
        "connections_made",
        "definitions",
        "events",
        "failed_logins",
        "host_names",
        "pass_work",
        "policies",
        "process",
        "staging",
        "started_ms",
        "store",
        "streams",
        "teardowns",
        "tickets",
        "timetable",
        "users",
        "verifying",
        "virtual_hosts",
    )

    def __init__(self, config: Config, clock: Clock, store: Store | None = None) -> None:
        self.config = config
        self.clock = clock
        self.store = store  # None: everything lives in memory and ends with the process
        self.users = Users.from_config(config)
        self.failed_logins = FailedLogins(config.bans, clock)
        self.tickets = Tickets(config.access)
        self.timetable = Timetable(clock)
        self.pass_work = PassWork(self.timetable)
        self.answers = Answers(self.timetable)
        self.virtual_hosts: dict[str, VirtualHost] = {}
        self.host_names: OrderedNames[str] = OrderedNames()  # with those that are being taken down
        self.streams: Streams | None = None
        self.staging: Staging | None = None  # contents that come in parts, where there is a disk for them
        self.policies = Policies(self.virtual_hosts, store)
        self.policies.configure(config)
        for name in config.virtual_hosts:
            self.open_virtual_host(name)
        self.connections_made = 0
        self.clients = Connections()
        self.answer_room = AnswerRoom(self.pass_work, store, self.clients)
        self.connections: dict[int, ClientConnection] = self.clients.by_number  # those that are open
        self.teardowns = ConnectionTeardowns(self.pass_work)
        self.started_ms = self.timetable.now_ms()
        self.process: Process | None = None  # None where there is no server
        # Checks a password where that stops nobody; None where there is no server: it is checked at once.
        self.verifying: Callable[[Verification, Callable[[Any], None]], None] | None = None
        self.administration = Administration(self)
        self.events = Events(self.administration)
        self.audit: Audit | None = None  # told of logins, refusals and deletions, if there is a log of them
        self.backup: Backup | None = None  # the files that are being copied, if they are
        self.definitions: object = None  # of the room above, which makes them when somebody asks for them
        self.authentication = Authentication(config.auth, self.users, clock)
        self.authentication.answers.on_changed = self.rights_changed
        self.authentication.answers.later = self.later
        self.authentication.expiries.at = self.timetable.at
        self.authentication.expiries.begin = self.pass_work.chores.begin

    def configure(self, config: Config) -> None:
        """The settings have changed; what was made of them before stays as it is."""
        self.config = config
        self.failed_logins.settings = config.bans
        if self.staging is not None:
            self.staging.limits = config.staging
        for host in self.virtual_hosts.values():
            host.configure_branches(config)

    def open_virtual_host(self, name: str) -> VirtualHost:
        """A new one, with nothing in it but what every virtual host has."""
        host = VirtualHost(name, self.pass_work, self.store)
        host.broker = self
        host.policies = host.router.policies = self.policies
        host.router.services = request
        host.configure_branches(self.config)
        host.router.dead_letters.header_bytes_max = self.config.limits.frame_bytes_max - HEADER_MARGIN_BYTES
        host.streams = host.router.streams = self.streams
        self.virtual_hosts[name] = host
        self.host_names.add(name)
        return host

    def rights_changed(self) -> None:
        """What channels have found out about permissions may be wrong now."""
        for host in self.virtual_hosts.values():
            host.router.rights_changed()

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.timetable.at(self.timetable.now_ms() + int(seconds * 1000), callback)

    def attach_streams(self, storage: StreamStore) -> Streams:
        """From now on queues may be streams, kept there."""
        self.streams = Streams(storage, self.pass_work, self.store)
        for host in self.virtual_hosts.values():
            host.streams = host.router.streams = self.streams
        return self.streams

    def attach_staging(self, files: StagingFiles) -> Staging:
        """From now on contents may come in parts, kept there."""
        if self.store is None:
            raise ProtocolMisuse("staged contents need a store")
        self.staging = Staging(self.store, files, self.timetable, self.config.staging)
        return self.staging

    def first_host(self) -> VirtualHost | None:
        """The virtual host where every event is told."""
        first = self.virtual_hosts.get(FIRST)
        return self.virtual_hosts.get(self.config.virtual_hosts[0]) if first is None else first

    def hears_events(self, host: VirtualHost | None) -> bool:
        """Whether anybody would hear of an event of this virtual host, or of the broker: see Events."""
        first = self.first_host()
        if first is not None and first.hears_events():
            return True
        return host is not None and host is not first and host.hears_events()

    def storage_alarm(self) -> str:
        """Why nothing more should be published, as far as the disk goes."""
        alarm = "" if self.store is None else self.store.alarm
        return alarm or ("" if self.streams is None else self.streams.alarm)

    def next_connection(self) -> int:
        """A number for a new connection, never used before."""
        self.connections_made += 1
        return self.connections_made

    def new_name(self, prefix: str) -> str:
        """A name that nobody can guess, such as amq.gen-..., amq.ctag-..."""
        octets = self.clock.random.getrandbits(128).to_bytes(16, "big")
        return prefix + base64.urlsafe_b64encode(octets).rstrip(b"=").decode()

    def finish_pass(self) -> None:
        """Deliveries for whoever is ready, then confirms."""
        pass_work = self.pass_work
        pass_work.begin_pass()
        if pass_work.has_chores and pass_work.is_turn_of_chores():
            pass_work.chores.run()
        if pass_work.queues:
            queues, pass_work.queues = pass_work.queues, []
            favoured: set[WaitingQueue] = NOBODY  # queues whose goals are due
            if pass_work.has_goals:
                queues, favoured = in_order_of_goals(queues, pass_work)
            room = pass_work.room
            most = room.held_bytes + PASS_BYTES_MAX
            least = pass_work.unwatched_bytes - PASS_LOADED_BYTES_MAX
            for done, queue in enumerate(queues, 1):
                pass_work.begin_portion(len(queues) - done + 1)
                if pass_work.has_goals and queue in favoured:
                    pass_work.widen_portion()
                try:
                    if pass_work.sampled_ms != pass_work.now_ms:
                        queue.dispatch_sampled()
                    else:
                        queue.dispatch()
                except UnreadableFault:  # told where it was met
                    queue.pause()
                    self.timetable.at(self.timetable.now_ms() + AGAIN_MS, partial(serve_again, queue))
                except Exception:  # the others are not to wait for ever
                    log.exception("a bug in handing out what is in queue %r", queue.name)
                    queue.pause()  # the message that is back in its place has marked the queue
                    self.timetable.at(self.timetable.now_ms() + AGAIN_MS, partial(serve_again, queue))
                pass_work.end_portion()
                if room.held_bytes > most or pass_work.unwatched_bytes < least or pass_work.pass_left <= 0:
                    pass_work.queues = queues[done:] + pass_work.queues  # when this much has been sent
                    break
        self.tell_lost_consumers()
        if pass_work.confirms:
            due, pass_work.confirms = pass_work.confirms, []
            for confirms in due:
                try:
                    confirms.confirm()
                except Exception:
                    log.exception("a bug keeps a channel of connection %d from its confirms", confirms.origin)
        if self.store is not None:
            self.store.end_pass()
            pass_work.behind = self.store.is_behind()
        if self.streams is not None:
            self.streams.end_pass()

    def tell_lost_consumers(self) -> None:
        """basic.cancel for those whose queue is gone; also before a client names a consumer tag again."""
        pass_work = self.pass_work
        if pass_work.lost_consumers:
            consumers, pass_work.lost_consumers = pass_work.lost_consumers, []
            for consumer in consumers:
                try:
                    consumer.notify_cancel()
                except Exception:  # the others are to hear of theirs
                    log.exception("a bug keeps a consumer from hearing that its queue is gone")

    def has_work(self) -> bool:
        return self.pass_work.has_work()
