"""The server: listeners, timers, alarms, who must wait, and an orderly end.

A pass begins when sockets are readable. Each is read once, in turn, at most one buffer full, so that no
peer keeps the others waiting; then what came is handed out, and every connection that has something to
send is sent to once: event_loop/pass_scheduler.py.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import ssl
import sys
import time
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flintmq.auth.failed_logins import UNTRIED
from flintmq.broker.services import request
from flintmq.build import event_loop
from flintmq.clock import Clock
from flintmq.errors import NO_MEMORY, ConnectionFault
from flintmq.server import descriptors
from flintmq.server.commands.command import SELDOM
from flintmq.server.data_directory import open_broker
from flintmq.server.event_loop.pass_scheduler import PassScheduler
from flintmq.server.event_loop.turn_spans import TurnSpans
from flintmq.server.logins.back_end_threads import BackEndThreads
from flintmq.server.logins.login_queue import GONE, LoginQueue, WaitingLogin
from flintmq.server.logins.strangers import Strangers
from flintmq.server.logs.audit_log import AuditLog
from flintmq.server.logs.log_floods import floods
from flintmq.server.memory import MemoryAlarm, give_back, machine_bytes
from flintmq.server.memory_relief import Relief
from flintmq.server.network.certificates import Certificates, CertificateWatch
from flintmq.server.network.heartbeats import Heartbeats
from flintmq.server.network.link import (
    HELD_ALARM,
    HELD_CLOSED,
    HELD_CROWDED,
    HELD_DRAINED,
    HELD_PRESSED,
    Link,
)
from flintmq.server.network.listener import Listener
from flintmq.server.network.lost_links import LostLinks
from flintmq.server.network.readiness import readiness
from flintmq.server.sessions.handshake import CONNECTIONS_CRITICAL
from flintmq.server.sessions.session import Session
from flintmq.wire import amqp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from flintmq.auth import Verification
    from flintmq.auth.asked_permissions import Question
    from flintmq.auth.passwords import PasswordHash
    from flintmq.config import Config, Limits
    from flintmq.protocol.outbox import Output
    from flintmq.wire.tables import FieldTable, FieldValue

log = logging.getLogger("flintmq.server")

# One read takes at most this much: some 4,000 small messages, the work of a millisecond.
READ_BYTES_MAX = 262_144
# The same during an alarm: of thousands of connections each may turn out to be a publisher, and whoever asks
# or acks brings little.
READ_BYTES_ALARMED = 16_384
# A publisher that is ahead of its consumers' sockets waits until one of these drains, or this long.
PRESSED_S = 0.005
# A publisher to a queue that is drained from disk waits after each read until passes have handed out four
# times as many messages as the read has brought, and is looked at so often at most. A message that goes to
# disk counts as 16 copies, and one from there as 9 of those that a pass may hand out
# (broker/queues/queue.py).
DRAINED_SHARE = 4 * 9 / 16
DRAINED_LOOKS_MAX = 20
# How often the broker looks after itself.
TICK_S = 0.5
# What only some clients need is loaded after the server listens, one line after the other: the start does not
# wait for it, and the first client does not load files of a version that was installed meanwhile. Whoever is
# served would wait for each line, so it comes when there was little to do for so long, or after LOADED_S_MAX.
LOAD_S = 0.1
LOADED_S_MAX = 10.0
FAST = "flintmq.server.fast.session"
FAST09 = "flintmq.server.fast09.session"
LATE = (
    tuple(request.LATER),
    SELDOM,
    (FAST,),
    (FAST09,),
    # For memory.py; for messages in files, for addresses that are not the usual ones, for names of bindings.
    ("ctypes", "google_crc32c", "ipaddress", "urllib.parse"),
)
# A tick with fewer turns of the event loop than this, and less work, is a quiet moment. Turns alone do not
# tell: where each takes long there are few.
QUIET_TURNS_MAX = 50
QUIET_WORK_S = TICK_S / 10
# To give memory back takes the longer the more there is: at most so many parts of the time.
GIVING_PARTS = 100
# Connections told of an alarm in one turn: some milliseconds.
TOLD_MAX = 256
# Files that cannot be read, of which broker.info tells in one frame (broker/services/system_services.py).
UNREADABLE_MAX = 8
UNREADABLE_OCTETS_MAX = 120
# Why the log is not in its file, which takes the place of one of them.
LOG_FAULT_OCTETS_MAX = 100
# Logins over HTTP that wait for one back end, beside those that it is being asked about: the two have no more
# than a part of the places that the management process has for all logins.
HTTP_LOGINS_WAITING_MAX = 4
# How long clients have to answer connection.close when the broker ends.
STOP_TIMEOUT_S = 3.0


class Server:
    """One broker on its sockets."""

    def __init__(self, config: Config, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.loop = loop
        self.is_recovered = False
        self.is_closed = False
        self.broker = open_broker(config, clock, self.wake)
        self.is_recovered = True
        self.broker.process = self
        self.broker.administration.hashing = self.hash_password
        self.audit: AuditLog | None = None
        if config.audit.file is not None:
            self.audit = AuditLog(config.audit, clock)
            self.broker.audit = self.audit
            self.broker.administration.changes.observers.append(self.audit.changed)
        self.broker.verifying = self.verify_password
        # Room for what is left of a frame, and as much again for a whole one.
        buffer_bytes = max(READ_BYTES_MAX, 2 * config.limits.frame_bytes_max)
        self.scheduler = PassScheduler(loop, self.broker, buffer_bytes)
        if config.log.turn_span_ms:
            TurnSpans(self.scheduler, config.log.turn_span_ms, clock)
        self.links: dict[Link, None] = {}
        self.pressed: list[Link] = []
        self.strangers = Strangers(self)
        self.lost_links = LostLinks(self)
        self.heartbeats = Heartbeats(loop, self.scheduler)
        self.readiness = readiness(loop, self.scheduler)
        self.alarm = MemoryAlarm(config)
        self.broker.pass_work.is_memory_full = self.is_memory_full
        self.relief = Relief(self)
        self.listeners: list[Listener] = []
        self.http_listeners: list[FieldTable] = []  # of the management process
        self.certificates: Certificates | None = None
        self.certificate_watch = CertificateWatch(self)
        self.has_garbage = False  # connections have gone
        self.worked_s = 0.0  # by this thread, until the last tick
        self.keeps_until_s = 0.0  # what is free stays with the broker
        self.stopping: asyncio.Event | None = None
        self.all_gone = asyncio.Event()
        self.login_queue = LoginQueue(loop)
        # Logins have threads apart: there are as many as strangers like, and none may keep a question
        # about a user who is logged in waiting.
        self.login_threads = BackEndThreads(loop)
        self.http_login_threads = BackEndThreads(loop, HTTP_LOGINS_WAITING_MAX)
        self.question_threads = BackEndThreads(loop)
        self.broker.authentication.answers.asking = self.ask
        self.ticker: asyncio.TimerHandle | None = None
        self.told_alarms: set[str] = set()  # of which an event has told
        self.log_fault = ""  # why the log file is not the one of its name
        self.unloaded = list(LATE)
        self.load_by_s = 0.0

    # Listening

    def listen(self) -> list[str]:
        """Binds every configured address; the URLs that clients reach it by."""
        tls = self.config.tls
        if tls is not None:
            self.certificates = Certificates(tls)
        if self.config.listen.fast09_port is not None:
            import_module(FAST09)
        try:
            urls = self.listen_on("amqp", self.config.listen.port, None)
            if tls is not None and self.certificates is not None:
                urls += self.listen_on("amqps", tls.port, self.certificates.context)
                self.certificate_watch.shown(self.certificates)
            if self.config.listen.fast09_port is not None:
                urls += self.listen_on("amqp-fast", self.config.listen.fast09_port, None, True)
        except OSError:
            self.close_listeners()
            raise
        self.strangers.leave_files()
        self.load_by_s = self.loop.time() + LOADED_S_MAX
        self.loop.call_later(LOAD_S, self.load_late, time.thread_time())
        self.ticker = self.loop.call_later(TICK_S, self.tick)
        self.check_alarm()  # from the first octet on memory is watched
        self.scheduler.set_alarm_clock()  # recovery may have set some
        return urls

    def load_late(self, worked_s: float) -> None:
        """Another line of LATE, unless this thread has worked much since it had worked for `worked_s`."""
        is_idle = time.thread_time() - worked_s < LOAD_S / 10
        if is_idle or self.loop.time() >= self.load_by_s:
            load(*self.unloaded.pop(0))
        if self.unloaded:
            self.loop.call_later(LOAD_S, self.load_late, time.thread_time())

    def listen_on(
        self, scheme: str, port: int, context: ssl.SSLContext | None, speaks_fast09: bool = False
    ) -> list[str]:
        """The configured hosts on one port; all but the first may be missing on this machine."""
        urls: list[str] = []
        for host in self.config.listen.hosts:
            try:
                listener = Listener(self, host, port, context, speaks_fast09)
            except OSError as error:
                if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) and urls:
                    log.info("not listening on %s: %s", host, error.strerror)
                    continue
                raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}") from None
            self.listeners.append(listener)
            # With port 0 the first address picks one, and the others follow.
            address, port = listener.socket.getsockname()[:2]
            shown = f"[{address}]" if ":" in address else address
            urls.append(f"{scheme}://{shown}:{port}")
        return urls

    def read_certificates(self) -> bool:
        """New connections are shown what the files hold now; False without TLS, a fault keeps the old."""
        if self.config.tls is None:
            return False
        self.show_certificates(Certificates(self.config.tls))
        return True

    def show_certificates(self, certificates: Certificates) -> None:
        """To connections that come from now on."""
        self.certificates = certificates
        for listener in self.listeners:
            if listener.context is not None:
                listener.context = certificates.context
        self.certificate_watch.shown(certificates)

    def summary(self) -> str:
        """How the broker is, in a line."""
        hosts = self.broker.virtual_hosts.values()
        alarm = self.alarm
        return (
            f"{len(self.links)} connections, {len(hosts)} virtual hosts, "
            f"{sum(len(host.exchanges) for host in hosts)} exchanges, "
            f"{sum(len(host.queues) for host in hosts)} queues, "
            f"{sum(host.binding_count for host in hosts)} bindings, "
            f"{alarm.used_bytes() >> 20} MiB of memory used of {alarm.high_bytes >> 20} MiB allowed, "
            + (f"publishers are blocked: {alarm.reason}" if alarm.active else "no alarm")
        )

    def amqp_listeners(self) -> list[FieldTable]:
        """Where AMQP is spoken."""
        found: list[FieldTable] = []
        for listener in self.listeners:
            address, port = listener.socket.getsockname()[:2]
            protocol = "amqp" if listener.context is None else "amqp/ssl"
            if listener.speaks_fast09:
                protocol = "amqp-fast"
            found.append({"protocol": protocol, "ip_address": address, "port": port})
        return found

    def close_listeners(self) -> None:
        for listener in self.listeners:
            listener.close()
        self.listeners.clear()

    def new_session(self, output: Output, link: Link, peer_address: str) -> Session:
        """For a link that is being made."""
        return Session(self.broker, output, link, peer_address)

    def connected(self, link: Link) -> None:
        """The peer has so long for the handshake."""
        self.links[link] = None
        if self.broker.pass_work.is_critical and len(self.links) > CONNECTIONS_CRITICAL:
            self.look_again()
            if self.broker.pass_work.is_critical:
                log.warning("%s is refused: %s", link.session, self.alarm.reason)
                link.drop()
                return
        self.strangers.add(link)

    def gone(self, link: Link) -> None:
        if link.is_stranger:
            self.strangers.remove(link)
        self.links.pop(link, None)
        self.has_garbage = True
        self.scheduler.schedule_pass()
        if self.stopping is not None and not self.links:
            self.all_gone.set()

    # Passes

    def after_write(self) -> None:
        """A consumer's socket took something: there is room for publishers again."""
        if not self.broker.pass_work.behind:
            self.release_pressed()
        if self.broker.has_work() or self.scheduler.outbox:
            self.scheduler.schedule_pass()

    def wake(self) -> None:
        """Called from other threads."""
        self.loop.call_soon_threadsafe(self.disk_done)

    def disk_done(self) -> None:
        """The journal's threads have finished something."""
        if not self.is_recovered or self.is_closed:
            return  # the start has failed meanwhile, or all is closed, and what they did concerns nobody
        if self.broker.store is not None:
            self.broker.store.collect()
        if self.broker.streams is not None:
            self.broker.streams.collect()
        if self.broker.staging is not None:
            self.broker.staging.collect()
        if self.outer_alarm() and not self.alarm.active:
            self.check_alarm()  # at once: what little room is left is for the acks of consumers
        self.scheduler.schedule_pass()

    def press(self, link: Link) -> None:
        """This publisher is faster than the sockets of its consumers, or than the disk."""
        if not link.held & (HELD_CLOSED | HELD_PRESSED):
            link.hold(HELD_PRESSED)
            self.pressed.append(link)
            if len(self.pressed) == 1:
                self.loop.call_later(PRESSED_S, self.pressed_for_long)

    def pressed_for_long(self) -> None:
        if self.is_disk_behind():
            self.loop.call_later(PRESSED_S, self.pressed_for_long)
        else:
            self.release_pressed()

    def is_disk_behind(self) -> bool:
        """Looks again whether publishers should wait for the disk."""
        broker = self.broker
        broker.pass_work.behind = broker.store is not None and broker.store.is_behind()
        return broker.pass_work.behind

    def release_pressed(self) -> None:
        if self.pressed:
            pressed, self.pressed = self.pressed, []
            for_each(pressed, lambda link: link.unhold(HELD_PRESSED))

    def let_drain(self, link: Link) -> None:
        """This publisher feeds a queue that is drained from disk: the consumers of the queue go first.

        A connection that consumes too is read from all the same: its acks may be what consumers wait for.
        """
        if link.held & (HELD_CLOSED | HELD_DRAINED) or link.session.is_consumer():
            return
        link.hold(HELD_DRAINED)
        pass_work = self.broker.pass_work
        passes = int(DRAINED_SHARE * pass_work.copies / pass_work.handed_out_max)
        self.loop.call_later(PRESSED_S, self.end_drain, link, pass_work.passes + passes, 1)

    def end_drain(self, link: Link, passes: int, looks: int) -> None:
        """The link goes on if the broker has done so many passes, or if no queue waits for one."""
        pass_work = self.broker.pass_work
        if pass_work.passes < passes and pass_work.queues and looks < DRAINED_LOOKS_MAX:
            self.loop.call_later(PRESSED_S, self.end_drain, link, passes, looks + 1)
        else:
            link.unhold(HELD_DRAINED)

    # Alarms

    def block(self, link: Link) -> None:
        if link.held & (HELD_CLOSED | HELD_ALARM):
            return
        link.hold(HELD_ALARM)
        self.note_blocked(link, self.alarm.reason)
        link.session.tell_blocked(self.alarm.reason)

    def outer_alarm(self) -> str:
        """Why publishers are to wait, besides for memory."""
        return self.broker.storage_alarm()

    def watch_memory(self) -> None:
        """Called when so much has come to memory that it should be looked at."""
        self.check_alarm()

    def look_again(self) -> None:
        """Before something is refused: the last look at memory may be half a second ago."""
        self.broker.pass_work.is_critical = self.alarm.critical.look(self.alarm.used_bytes())

    def is_memory_full(self) -> bool:
        """Before the broker puts more of its own messages into queues, for the same reason."""
        return self.alarm.alarm.look(self.alarm.used_bytes())

    def note_blocked(self, link: Link, reason: str) -> None:
        """For those who list connections."""
        client = self.broker.connections.get(link.session.number)
        if client is not None:
            client.blocked = reason

    def condition(self) -> FieldTable:
        """Alarms with their reasons, memory and disk: what broker.info tells."""
        broker = self.broker
        reasons = (("memory", self.alarm.reason if self.alarm.alarm.is_on else ""),)
        alarms: list[FieldValue] = [
            {"resource": resource, "reason": reason}
            for resource, reason in (*reasons, ("disk", self.outer_alarm()))
            if reason
        ]
        found: FieldTable = {
            "alarms": alarms,
            "memory-bytes": self.alarm.used_bytes(),
            "memory-bytes-high": self.alarm.high_bytes,
            "connections-blocked": sum(1 for link in self.links if link.held & HELD_ALARM),
            "strangers": self.strangers.counts(),
        }
        if self.log_fault:
            found["log-fault"] = request.shortened(self.log_fault, LOG_FAULT_OCTETS_MAX)
        if self.certificates is not None:
            found["certificates"] = list(self.certificates.told(broker.clock.wall_ms() / 1000))
        if broker.store is not None:
            journal = broker.store.journal
            readers = (journal.reader, broker.store.paged_out.reader)
            files = [why for reader in readers for _, why in reader.unreadable.values()]
            streams = [] if broker.streams is None else broker.streams.storage.missing_files()
            unreadable = [*files, *journal.spools.unreadable(), *streams]
            found["unreadable-count"] = len(unreadable)
            # Each text begins with a path. Everybody may ask, so it is told from the data directory on.
            above = os.path.join(journal.directory, "")
            found["unreadable"] = [
                request.shortened(why.removeprefix(above), UNREADABLE_OCTETS_MAX)
                for why in unreadable[: UNREADABLE_MAX - bool(self.log_fault)]
            ]
            found["disk-bytes"] = journal.disk_octets()
            found["disk-bytes-free-min"] = journal.options.disk_free_octets_min
            try:
                found["disk-bytes-free"] = journal.disk.free_octets(journal.directory)
            except OSError as failure:
                log.warning("the disk does not say how much of it is free: %s", failure)
        return found

    def node(self) -> FieldTable:
        """The process, its files, and where it listens: what broker.node tells."""
        config = self.config
        found: FieldTable = {
            "pid": os.getpid(),
            "system": sys.platform,
            "python": sys.version.split()[0],
            "event-loop": event_loop(),
            "processors": os.cpu_count() or 1,
            "machine-bytes": machine_bytes(),
            "listeners": [*self.amqp_listeners(), *self.http_listeners],
            "files-open": descriptors.count(),
            "files-max": descriptors.limit(),
        }
        if self.alarm.limits.memory_high_bytes is None:
            found["memory-high-share"] = self.alarm.limits.memory_high_share
        for name, path in (("log-file", config.log.file), ("audit-file", config.audit.file)):
            if path is not None:
                found[name] = os.path.abspath(path)
        return found

    def machine_bytes(self) -> int:
        return machine_bytes()

    def limit_memory(self, limits: Limits) -> None:
        """The marks and what others have of the limit follow; alarms go on or off in the next turn."""
        self.alarm.limit(limits)
        self.relief.take_shares()
        log.info("publishers wait above %d MiB of memory from now on", self.alarm.high_bytes >> 20)
        self.loop.call_soon(self.check_alarm)

    def limit_disk(self, free_bytes_min: int) -> None:
        if self.broker.store is not None:
            self.broker.store.require_free(free_bytes_min)
            log.info("publishers wait below %d MiB of free disk space from now on", free_bytes_min >> 20)
        self.loop.call_soon(self.check_alarm)

    def tell_of_alarms(self, memory: str, disk: str) -> None:
        """Events: each of the two, with its reason if it is on."""
        for resource, reason in (("memory", memory), ("disk", disk)):
            if bool(reason) == (resource in self.told_alarms):
                continue
            if reason:
                self.told_alarms.add(resource)
                self.broker.events.tell("alarm.set", "", {"resource": resource, "reason": reason})
            else:
                self.told_alarms.discard(resource)
                self.broker.events.tell("alarm.cleared", "", {"resource": resource})

    def check_alarm(self) -> None:
        self.broker.pass_work.unwatched_bytes = self.alarm.watch_bytes
        changed = self.alarm.check(self.outer_alarm())
        memory = self.alarm.reason if self.alarm.alarm.is_on else ""
        self.tell_of_alarms(memory, self.broker.storage_alarm())
        self.relief.react()
        if not changed:
            return
        self.scheduler.is_alarmed = self.alarm.active
        self.scheduler.limit_reads(READ_BYTES_ALARMED if self.alarm.active else len(self.scheduler.buffer))
        if self.alarm.active:
            log.warning("publishers are blocked: %s", self.alarm.reason)
        else:
            log.info("publishers are no longer blocked")
        self.tell_alarm(list(self.links), self.alarm.active)

    def tell_alarm(self, links: list[Link], active: bool) -> None:
        """Publishers are blocked or released, some in each turn; who publishes meanwhile is blocked then."""
        if active != self.alarm.active:
            return
        told = links[-TOLD_MAX:]
        del links[-TOLD_MAX:]

        def tell(link: Link) -> None:
            if active and link.session.is_publisher():
                self.block(link)
            elif not active and link.held & HELD_ALARM:
                link.unhold(HELD_ALARM)
                self.note_blocked(link, "")
                link.session.tell_unblocked()

        for_each(told, tell)
        if links:
            self.loop.call_soon(self.tell_alarm, links, active)
        self.scheduler.schedule_pass()

    def tick(self) -> None:
        self.ticker = self.loop.call_later(TICK_S, self.tick)
        self.broker.pass_work.tick()
        if self.audit is not None:
            self.audit.tick()
        if self.broker.store is not None:
            self.broker.store.tick()
        if self.broker.streams is not None:
            self.broker.streams.tick()
        self.check_alarm()
        self.broker.events.growth.tick()
        floods.look(self.broker.clock.wall_ms() / 1000)
        if self.scheduler.outbox:
            self.scheduler.schedule_pass()
        worked_s = time.thread_time()
        is_quiet = self.scheduler.count < QUIET_TURNS_MAX and worked_s - self.worked_s < QUIET_WORK_S
        self.worked_s = worked_s
        self.scheduler.count = 0
        if self.has_garbage and is_quiet and self.loop.time() >= self.keeps_until_s:
            self.give_back()

    def give_back(self) -> None:
        """Memory that is free goes to the system, with what connections have left behind."""
        self.has_garbage = False
        began_s = self.loop.time()
        give_back()
        ended_s = self.loop.time()
        self.keeps_until_s = ended_s + GIVING_PARTS * (ended_s - began_s)

    # Logins

    def verify(self, link: Link, verification: Verification) -> Future[Any] | WaitingLogin:
        if verification.is_remote:
            threads = self.login_threads if link.is_stranger else self.question_threads  # a new secret
            done = partial(link.verified, verification)
            return threads.submit(verification.backend, verification.run, verification.timeout_s, done)

        def checked(found: Any) -> None:
            if found is GONE:
                link.drop()  # it has failed at nothing
            else:
                link.verified(verification, found)

        rank = self.broker.failed_logins.rank(link.session.peer_address)
        return self.login_queue.submit(verification.run, checked, rank, link.is_there)

    def ask(self, question: Question) -> None:
        """Has a back end answer, beside the loop."""

        def answered(found: bool | str) -> None:
            if isinstance(found, str):
                question.fail(found)
            else:
                question.finish(found)
            self.scheduler.schedule_pass()

        self.question_threads.submit(question.backend, question.run, question.timeout_s, answered)

    def hash_password(self, password: bytes, done: Callable[[PasswordHash | None], None]) -> None:
        """On the thread of logins: a hash takes as long as the check of a password."""

        def hashed(found: PasswordHash | str) -> None:
            done(None if isinstance(found, str) else found)
            self.scheduler.schedule_pass()

        self.login_queue.submit(partial(self.broker.users.policy.hash, password), hashed)

    def verify_password(self, verification: Verification, done: Callable[[Any], None]) -> None:
        """For a login that has no link of its own: that of the management process, for others."""

        def verified(found: Any) -> None:
            done(found)
            self.scheduler.schedule_pass()

        if verification.is_remote:
            threads = self.http_login_threads
            threads.submit(verification.backend, verification.run, verification.timeout_s, verified)
            return
        self.login_queue.submit(verification.run, verified, UNTRIED)

    # The end

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Closes every connection properly and waits for the answers, for a while. Whether all is on disk."""
        self.stopping = asyncio.Event()
        self.close_listeners()
        fault = ConnectionFault(amqp.CONNECTION_FORCED, "the broker is shutting down")

        def end(link: Link) -> None:
            link.unhold(HELD_ALARM | HELD_PRESSED | HELD_DRAINED | HELD_CROWDED)
            link.session.close_connection(fault)

        for_each(list(self.links), end)
        self.scheduler.schedule_pass()
        try:
            if self.links:
                await asyncio.wait_for(self.all_gone.wait(), timeout_s)
        except TimeoutError:
            log.warning("%d clients did not answer in time", len(self.links))
        finally:
            is_safe = self.close()
        return is_safe

    def close(self) -> bool:
        """Drops who is still connected and lets go of everything, at once. Whether all is on disk."""
        is_safe = True
        self.is_closed = True
        self.close_listeners()
        for_each(list(self.links), lambda link: link.drop())
        self.relief.close()
        self.readiness.close()
        if self.ticker is not None:
            self.ticker.cancel()
        self.strangers.stop()
        self.certificate_watch.stop()
        self.scheduler.stop()
        self.heartbeats.stop()
        self.broker.pass_work.chores.finish()
        if self.broker.streams is not None:
            is_safe = self.broker.streams.close()
        if self.broker.staging is not None:
            self.broker.staging.close()
        if self.broker.store is not None:
            is_safe = self.broker.store.close() and is_safe
        self.login_queue.close()
        if self.audit is not None:
            self.audit.close()
        self.login_threads.close()
        self.http_login_threads.close()
        self.question_threads.close()
        self.alarm.close()
        return is_safe


def for_each(links: Iterable[Link], act: Callable[[Link], None]) -> None:
    """A bug ends the connection that meets it, and keeps no other from its turn."""
    for link in links:
        try:
            act(link)
        except Exception:
            log.exception("a bug ends the connection of %s", link.session)
            try:
                link.drop()
            except Exception:
                log.exception("a bug in ending the connection of %s", link.session)


def load(*names: str) -> None:
    """Loads modules before somebody needs them."""
    for name in names:
        try:
            import_module(name)
        except MemoryError:
            log.error("%s cannot be loaded, and clients that need it will be dropped: %s", name, NO_MEMORY)
        except Exception:
            log.exception("%s cannot be loaded: clients that need it will be dropped", name)
