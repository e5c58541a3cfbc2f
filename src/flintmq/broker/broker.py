"""The broker: its virtual hosts, its users, and the end of each pass.

A pass is one round over the sockets that had something to read. What they brought has been routed into
queues by then; `finish_pass` hands it out to consumers and confirms it, in batches.
"""

from __future__ import annotations

import base64
import logging
from functools import partial
from typing import TYPE_CHECKING

import flintmq.broker.services.administration_services
import flintmq.broker.services.dtx_services
import flintmq.broker.services.queue_services
import flintmq.broker.services.stream_services
import flintmq.broker.services.system_services  # noqa: F401 - registers them
from flintmq.auth import Users
from flintmq.broker.administration.administration import Administration
from flintmq.broker.administration.policies import Policies
from flintmq.broker.channels.client_connection import Connections
from flintmq.broker.channels.endings import Endings
from flintmq.broker.queues.pass_work import PassWork
from flintmq.broker.queues.timetable import Timetable
from flintmq.broker.services.answers import Answers
from flintmq.broker.streams.streams import Streams
from flintmq.broker.virtual_host import VirtualHost

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.channels.client_connection import ClientConnection
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.store.store import Store
    from flintmq.clock import Clock
    from flintmq.config import Config
    from flintmq.storage.streams.store import StreamStore
    from flintmq.wire.tables import FieldTable


log = logging.getLogger("flintmq.broker")

# A queue whose messages a bug has kept from being handed out has its turn again so much later.
AGAIN_MS = 1000
# What a pass may add to what waits to be sent, some milliseconds of work: the rest of the queues come in the
# next one, when the sockets of consumers have taken some of it.
PASS_BYTES_MAX = 8_388_608
# What a pass may load from disk for them.
PASS_LOADED_BYTES_MAX = 2_097_152


def serve_again(queue: Queue) -> None:
    # Compiled code that takes a method of a typed object as a value gets one without its object.
    queue.mark()


class Broker:
    """Everything that outlives a connection."""

    __slots__ = (
        "administration",
        "answers",
        "clients",
        "clock",
        "condition",
        "config",
        "connections",
        "connections_made",
        "endings",
        "pass_work",
        "policies",
        "started_ms",
        "store",
        "streams",
        "timetable",
        "users",
        "virtual_hosts",
    )

    def __init__(self, config: Config, clock: Clock, store: Store | None = None) -> None:
        self.config = config
        self.clock = clock
        self.store = store  # None: everything lives in memory and ends with the process
        self.users = Users.from_config(config)
        self.timetable = Timetable(clock)
        self.pass_work = PassWork(self.timetable)
        self.answers = Answers(self.timetable)
        self.virtual_hosts: dict[str, VirtualHost] = {}
        self.streams: Streams | None = None
        self.policies = Policies(self.virtual_hosts, store)
        self.policies.configure(config)
        for name in config.virtual_hosts:
            self.open_virtual_host(name)
        self.connections_made = 0
        self.clients = Connections()
        self.connections: dict[int, ClientConnection] = self.clients.by_number  # those that are open
        self.endings = Endings(self.pass_work)
        self.started_ms = self.timetable.now_ms()
        # What the server knows of alarms, memory and disk; None where there is no server.
        self.condition: Callable[[], FieldTable] | None = None
        self.administration = Administration(self)

    def configure(self, config: Config) -> None:
        """The settings have changed; what was made of them before stays as it is."""
        self.config = config
        for host in self.virtual_hosts.values():
            host.branches.limits = config.dtx

    def open_virtual_host(self, name: str) -> VirtualHost:
        """A new one, with nothing in it but what every virtual host has."""
        host = VirtualHost(name, self.pass_work, self.store)
        host.broker = self
        host.policies = host.router.policies = self.policies
        host.branches.limits = self.config.dtx
        host.streams = host.router.streams = self.streams
        self.virtual_hosts[name] = host
        return host

    def attach_streams(self, storage: StreamStore) -> Streams:
        """From now on queues may be streams, kept there."""
        self.streams = Streams(storage, self.pass_work, self.store)
        for host in self.virtual_hosts.values():
            host.streams = host.router.streams = self.streams
        return self.streams

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
        pass_work.passes += 1
        pass_work.copies = 0
        if pass_work.has_chores:
            pass_work.chores.run()
        if pass_work.queues:
            queues, pass_work.queues = pass_work.queues, []
            room = pass_work.room
            most = room.held_bytes + PASS_BYTES_MAX
            least = pass_work.unwatched_bytes - PASS_LOADED_BYTES_MAX
            for done, queue in enumerate(queues, 1):
                try:
                    queue.dispatch()
                except Exception:  # the others are not to wait for ever
                    log.exception("a bug in handing out what is in queue %r", queue.name)
                    self.timetable.at(self.timetable.now_ms() + AGAIN_MS, partial(serve_again, queue))
                if room.held_bytes > most or pass_work.unwatched_bytes < least:
                    pass_work.queues = queues[done:] + pass_work.queues  # when this much has been sent
                    break
        self.tell_lost_consumers()
        if pass_work.confirms:
            channels, pass_work.confirms = pass_work.confirms, []
            for channel in channels:
                try:
                    channel.confirm()
                except Exception:
                    log.exception("a bug keeps a channel of connection %d from its confirms", channel.origin)
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
                consumer.channel.notify_cancel(consumer)

    def has_work(self) -> bool:
        return self.pass_work.has_work()
