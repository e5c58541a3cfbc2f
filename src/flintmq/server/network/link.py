"""One socket: reads into the shared buffer, feeds the session, sends what it has written.

Plain TCP works on the descriptor itself, in large pieces; nothing per message goes through asyncio.

    readable -> recv into the shared buffer -> connection.receive -> ... end of the pass ... -> flush -> send

A link is held (not read from) while a login is verified, a publisher must wait, or too much of its own
output is pending. TlsLink (tls.py) differs only in how octets come and go: start, pause_reading,
resume_reading, send, end_sending and disconnect.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from flintmq.errors import ConnectionFault, PeerFault, StorageFault
from flintmq.protocol import greeting, phases
from flintmq.protocol.outbox import Output
from flintmq.protocol.states import LOST
from flintmq.server.event_loop.pass_scheduler import PassScheduler
from flintmq.server.network import socket_ends, sockets
from flintmq.server.sessions.session import Session
from flintmq.wire import amqp, fast

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from flintmq.auth import Verification
    from flintmq.protocol.events import Events
    from flintmq.server.logins.login_queue import WaitingLogin
    from flintmq.server.server import Server
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.link")
strangers_log = logging.getLogger("flintmq.strangers")

# Deliveries go on when this much room is there again, so that each send is a large one.
OUTPUT_BYTES_RESUME = 131_072

# What a link waits for, as epoll counts it, and what it is told of without asking.
READ = 1
WRITE = 4
HANG_UP = 8 | 16

# What is read of a stranger at a time, and waits here while a password is checked: a frame, and its end.
STRANGER_READ_BYTES = 8704

# A link whose octets take much work is read from in portions of what a turn has time for, at least so many,
# as what is left of a read is copied with each turn. The first read brings so many, and each that is done
# with in one turn makes the next one twice as large.
READ_BYTES_LEAST = 8192
READ_BYTES_FIRST = 32_768

# What is left of a read that has ended with a frame; a link adds only to the part of a frame that it has.
NO_OCTETS = bytearray()

# What tells how long a frame is.
FRAME_HEAD_BYTES = 7

# What a message takes in a queue beside itself.
COPY_BYTES = 16

# Reasons for not reading; a link is read from when it has none.
HELD_LOGIN = 1
HELD_PRESSED = 2
HELD_ALARM = 4
HELD_OUTPUT = 8
HELD_CLOSED = 16
HELD_REFUSED = 32
HELD_TURN = 64
HELD_RATE = 1024
HELD_DRAINED = 2048
HELD_CROWDED = 4096

# Looks of the heartbeats at a peer that says nothing: 12 of them are from 2.4 to 2.7 intervals.
LOOKS_MISSED_MAX = 11

# How long a peer has to answer connection.close.
CLOSE_TIMEOUT_S = 5.0


class Link:
    """A connected socket and its session."""

    __slots__ = (
        "descriptor",
        "finishing",
        "held",
        "is_stranger",
        "leftover",
        "missed",
        "output",
        "read_most",
        "received",
        "received_octets",
        "scheduler",
        "sent",
        "sent_octets",
        "server",
        "session",
        "verifying",
        "wanted",
    )

    def __init__(self, server: Server, descriptor: int, peer_address: str) -> None:
        self.server = server
        self.scheduler: PassScheduler = server.scheduler
        self.descriptor = descriptor
        self.wanted = READ
        self.output = Output(self.scheduler.outbox, self, self.scheduler.room)
        self.session: Session = server.new_session(self.output, self, peer_address)
        self.leftover = NO_OCTETS  # the beginning of a frame whose end has not come yet
        self.held = 0
        self.is_stranger = True  # until connection.open
        self.finishing = False  # closes when the output is empty
        self.received = False  # since the last look of the heartbeats
        self.sent = False
        self.received_octets = 0
        self.sent_octets = 0
        self.missed = 0
        self.read_most = READ_BYTES_FIRST
        self.verifying: Future[Any] | WaitingLogin | None = None

    # Reading

    def start(self) -> None:
        self.server.readiness.watch(self.descriptor, self)

    def ready(self, events: int) -> bool:
        """The socket can be read or written, or its peer is gone for good.

        Whether the peer is about to say the next word: until it has a channel, each answer makes it ask on.
        """
        connection = self.session.connection
        is_new = not connection.open_channels
        if events & WRITE and self.wanted & WRITE:
            self.scheduler.has_room(self)
        try:
            if self.held:
                if events & HANG_UP and not self.held & HELD_CLOSED:
                    self.lost()
            elif events & (READ | HANG_UP) and not self.must_wait():
                self.readable()
        except Exception:  # else it comes again with each turn, and keeps others from being read
            log.exception("a bug ends the connection of %s", self.session)
            self.drop()
        return is_new and (self.output.waiting or connection.state < phases.CONNECTION_OPEN)

    def must_wait(self) -> bool:
        """Whether what the peer has sent stays unread: the peer is to be blocked, and has not been told so.

        Thousands of publishers would else bring a buffer full each before they are.
        """
        scheduler = self.scheduler
        if scheduler.is_alarmed:
            if self.session.is_publisher():
                self.server.block(self)
                return True
        elif scheduler.pass_work.is_short and scheduler.pass_work.behind and self.session.is_publisher():
            self.server.press(self)
            return True
        return False

    def readable(self) -> None:
        """Reads once; if there is more, the next turn finds it."""
        buffer = self.scheduler.buffer
        kept = len(self.leftover)
        if kept:
            if self.is_far_from_whole(kept):
                self.gather(buffer)
                return
            buffer[:kept] = self.leftover
        most = STRANGER_READ_BYTES if self.is_stranger else self.read_size()
        size = sockets.receive(self.descriptor, buffer, kept, min(len(buffer), kept + most))
        if size > 0:
            self.received = True
            self.received_octets += size
            self.scheduler.read_coalescing.octets += size
            self.scheduler.pass_work.unwatched_bytes -= size
            self.take(buffer, kept + size)
        elif size != sockets.NOT_NOW:
            self.lost()
            return
        self.after_read()

    def is_far_from_whole(self, kept: int) -> bool:
        """Whether one more read cannot bring the end of the frame that has begun.

        Where many links share a turn each reads little, and to look at all of a long frame each time is much.
        """
        if kept < FRAME_HEAD_BYTES:
            return False
        return kept + self.read_size() < self.session.connection.due(self.leftover)

    def read_size(self) -> int:
        """What one read may bring."""
        return min(self.read_most, self.scheduler.read_bytes)

    def takes_long(self) -> bool:
        """Whether a read has brought much, or what takes much work."""
        return self.read_most != READ_BYTES_FIRST

    def gather(self, buffer: bytearray) -> None:
        """Reads once, and puts what came behind what is there of the frame."""
        self.scheduler.pass_work.crowded = None
        size = sockets.receive(self.descriptor, buffer, 0, min(len(buffer), self.read_size()))
        if size > 0:
            self.received = True
            self.received_octets += size
            self.scheduler.read_coalescing.octets += size
            self.scheduler.pass_work.unwatched_bytes -= size
            if self.leftover:
                self.leftover += self.scheduler.view[:size]
            else:  # NO_OCTETS is everybody's
                self.leftover = bytearray(self.scheduler.view[:size])
        elif size != sockets.NOT_NOW:
            self.lost()
            return
        self.after_read()

    def after_read(self) -> None:
        """What was read may have been too much for its queues, or come at a bad time."""
        pass_work = self.scheduler.pass_work
        if pass_work.unwatched_bytes < 0:
            self.server.watch_memory()
        if pass_work.pressed or (pass_work.behind and self.session.is_publisher()):
            pass_work.pressed = False
            self.server.press(self)
        if pass_work.drained:
            pass_work.drained = False
            self.server.let_drain(self)
        if pass_work.crowded is not None:
            crowded, pass_work.crowded = pass_work.crowded, None
            if not self.held & (HELD_CLOSED | HELD_CROWDED):
                self.hold(HELD_CROWDED)
                crowded.when_room(partial(self.unhold, HELD_CROWDED))
        if self.scheduler.is_alarmed and self.session.is_publisher():
            self.server.block(self)
        if not self.held & HELD_DRAINED:  # who sends little because it has to waits for no answer
            self.scheduler.note_sender(self)
        self.scheduler.after_read()

    def resume(self) -> None:
        """Goes on with what was left when the connection was paused."""
        if self.held:
            return
        self.resume_reading()
        connection = self.session.connection
        if connection.paused:
            connection.paused = False
            kept = len(self.leftover)
            self.scheduler.buffer[:kept] = self.leftover
            self.receive(self.scheduler.buffer, kept)

    def receive(self, buffer: bytearray, size: int) -> None:
        """The first `size` octets of `buffer` are the peer's, and all of it for now."""
        self.take(buffer, size)
        self.after_read()

    def take(self, buffer: bytearray, size: int) -> None:
        session = self.session
        if session.connection.state == phases.CONNECTION_HEADER and size and buffer[0] == fast.VERSION:
            session = self.speak_fast()
        if session.connection.paused and not self.held:
            session.connection.paused = False  # `resume` is on its way, but this came first
        pass_work = self.scheduler.pass_work
        pass_work.copies = 0
        pass_work.drained = False
        pass_work.crowded = None  # what a commit in portions has made meanwhile is not of this client
        try:
            used = session.connection.receive(buffer, size)
        except PeerFault as fault:
            session.fail(None, fault)
            used = size
        except Exception:
            log.exception("a bug ends the connection of %s", session)
            try:
                session.close_connection(ConnectionFault(amqp.INTERNAL_ERROR, "see the log of the broker"))
            except Exception:
                log.exception("a bug in closing the connection of %s: it is dropped", session)
                self.drop()
            used = size
        pass_work.unwatched_bytes -= COPY_BYTES * pass_work.copies
        if used < size:
            self.leftover = bytearray(self.scheduler.view[used:size])
        elif self.leftover:
            self.leftover = NO_OCTETS
        if session.connection.state == phases.CONNECTION_CLOSED:
            if not session.connection.version:
                self.refuse_header(bytes(buffer[: min(size, greeting.NAMED_OCTETS)]))
            self.leftover = NO_OCTETS  # what follows the end means nothing
            if not session.is_leaving:  # else the answer is yet to come
                self.finish()
        elif session.connection.paused and not self.held & (HELD_LOGIN | HELD_REFUSED | HELD_RATE):
            if pass_work.is_laden():
                self.read_most = max(READ_BYTES_LEAST, used)
                self.hold(HELD_TURN)
                self.server.loop.call_soon(self.next_turn)
            else:
                self.hold(HELD_OUTPUT)
        elif used > self.read_most >> 1 and self.read_most < len(buffer):
            self.read_most *= 2

    def speak_fast(self) -> Session:
        """The first octet is that of AMQP/Fast: the session and what it writes into are of another kind."""
        # The server loads both soon after it listens: the start of a broker need not wait for them.
        from flintmq.protocol.fast.outbox import FastOutput
        from flintmq.server.fast.session import FastSession
        from flintmq.server.fast09.session import Fast09Session

        if not isinstance(self.session, (FastSession, Fast09Session)):
            output = FastOutput(self.scheduler.outbox, self, self.scheduler.room)
            self.output = output
            self.session = FastSession(self.server.broker, output, self, self.session.peer_address)
        return self.session

    def speak_fast09(self) -> None:
        """The listener is for AMQP/Fast 0.9 alone, whose first octets are those of AMQP 0-9."""
        from flintmq.protocol.fast09.outbox import Fast09Output
        from flintmq.server.fast09.session import Fast09Session

        output = Fast09Output(self.scheduler.outbox, self, self.scheduler.room)
        self.output = output
        self.session = Fast09Session(self.server.broker, output, self, self.session.peer_address)

    def next_turn(self) -> None:
        """Others have been read; what is left of the last read is looked at, unless an errand waits."""
        if self.held & HELD_CLOSED:
            return
        pass_work = self.scheduler.pass_work
        if self.session.number in pass_work.asking:
            pass_work.awaiting[self.session.number] = self.errands_done  # which may wait for the disk
        else:
            self.unhold(HELD_TURN)

    def errands_done(self) -> None:
        """What the client has asked for and waited for is done."""
        self.server.loop.call_soon(self.next_turn)

    def hold(self, reason: int) -> None:
        if not self.held:
            self.pause_reading()
        self.held |= reason

    def unhold(self, reason: int) -> None:
        if self.held & reason:
            self.held &= ~reason
            if not self.held:
                if self.session.connection.paused:
                    self.scheduler.resume_soon(self)
                else:
                    self.resume_reading()

    def pause_reading(self) -> None:
        self.want(self.wanted & ~READ)

    def resume_reading(self) -> None:
        self.want(self.wanted | READ)

    def want(self, wanted: int) -> None:
        self.wanted = wanted
        self.server.readiness.change(self.descriptor, wanted)

    # Writing

    def flush(self) -> None:
        """Sends what is pending; what the socket does not take waits until it does."""
        output = self.output
        output.waiting = False
        if self.held & HELD_CLOSED:
            return
        if not output.blocked:
            self.send()
        elif output.is_full():
            self.hold(HELD_OUTPUT)

    def send(self) -> None:
        output = self.output
        if output.barrier:
            self.wait_to_write(False)
            return
        if output.streaming and not self.fill_from_streams():
            return
        if output.pending():
            self.sent = True
            size = sockets.send(self.descriptor, output.buffer, output.start, output.fill)
            if size > 0:
                self.sent_octets += size
                self.scheduler.sent_octets += size
                output.sent(size)
            elif size != sockets.NOT_NOW:
                self.lost()
                return
        pending = output.pending()
        # Streams go on in the next turn of the loop, when others have had theirs.
        self.wait_to_write(pending > 0 or output.streaming > 0)
        self.after_send(pending)

    def fill_from_streams(self) -> bool:
        """Adds what fits of large bodies; False, and the link is gone, when even the end cannot be told.

        Of a body that the disk does not give, or not as it was stored, the rest never comes: only the end of
        the connection tells the client so.
        """
        try:
            self.output.fill_from_streams()
        except StorageFault as fault:
            log.error("%s cannot be sent the rest of a message: %s", self.session, fault)
            text = "the rest of a message cannot be read from the disk: see the log of the broker"
            try:
                self.session.close_connection(ConnectionFault(amqp.INTERNAL_ERROR, text))
            except Exception:
                log.exception("a bug in closing the connection of %s: it is dropped", self.session)
                self.drop()
            if self.output.streaming:
                self.drop()
            return not self.held & HELD_CLOSED
        return True

    def wait_to_write(self, wanted: bool) -> None:
        """Has `writable` called when the socket takes more, or no longer."""
        output = self.output
        if wanted and not output.blocked:
            output.blocked = True
            self.want(self.wanted | WRITE)
        elif output.blocked and not wanted:
            output.blocked = False
            self.want(self.wanted & ~WRITE)

    def after_send(self, pending: int) -> None:
        """What follows from how much is still pending."""
        if self.output.is_full():
            self.hold(HELD_OUTPUT)
        elif pending < OUTPUT_BYTES_RESUME:
            if not pending and self.finishing:
                self.part()
                return
            if self.held & HELD_OUTPUT:
                self.unhold(HELD_OUTPUT)
            if self.output.wanted:
                self.wake()

    def writable(self) -> None:
        if not self.held & HELD_CLOSED:
            self.send()
            self.server.after_write()

    def wake(self) -> None:
        """Consumers that waited for room in the output may have their turn again."""
        wanted = list(self.output.wanted)
        self.output.wanted.clear()
        for consumer in wanted:
            consumer.wake()  # type: ignore[attr-defined]

    def describe(self) -> FieldTable:
        """The connection for the HTTP API and services; `peer` and `here` are address and port."""
        session = self.session
        return {
            "received": self.received_octets,
            "sent": self.sent_octets,
            "pending": self.output.pending(),
            "channel-max": session.connection.channel_max,
            "frame-max": session.connection.frame_bytes_max,
            "heartbeat": session.heartbeat_s,
            **socket_ends.ends(self.descriptor),
        }

    # Ending

    def finish(self) -> None:
        """Closes when everything is sent."""
        if self.finishing or self.held & HELD_CLOSED:
            return
        self.finishing = True
        if not self.output.pending():
            self.drop()
        else:
            # Unless the peer does not read.
            self.server.loop.call_later(CLOSE_TIMEOUT_S, self.drop)

    def part(self) -> None:
        """The last octet is sent. The peer closes when it has read all.

        Clients that hear of the end before they close take it for a failure. Until then what comes is read
        and means nothing: to close a socket that has octets unread resets the connection, and close-ok may
        be lost with it.
        """
        if self.held:
            self.held = 0
            self.resume_reading()

    def refuse_header(self, start: bytes) -> None:
        """A peer that does not speak AMQP waits for no close: its connection ends after a pause.

        One that asks for another version has its answer. To choose a version so is no failure, and a client
        may try the version of the answer next: its connection ends at once.
        """
        spoken = greeting.named(start)
        strangers_log.warning("%s is refused: it spoke %s", self.session, spoken)
        pause_s = 0.0
        if not greeting.is_another_version(start):
            pause_s = self.server.broker.failed_logins.note(self.session.peer_address)
        self.server.strangers.refuse_after(pause_s, self.end_sending)

    def end_sending(self) -> None:
        if not self.held & HELD_CLOSED:
            sockets.end_sending(self.descriptor)

    def closing(self) -> None:
        """connection.close is on its way; the answer may not come."""
        self.server.loop.call_later(CLOSE_TIMEOUT_S, self.drop)

    def lost(self) -> None:
        """The peer is gone without a word. Where many go at once their sockets are closed in later passes."""
        if self.held & HELD_CLOSED:
            return
        if self.is_stranger:  # of these few are heard in a turn
            self.drop()
            return
        state = self.session.connection.state
        self.held |= HELD_CLOSED
        self.unwatch()
        self.give_back()
        self.server.lost_links.close(self, state)

    def drop(self) -> None:
        """Closes the socket now; what the session held goes back to the broker."""
        if not self.held & HELD_CLOSED:
            self.held |= HELD_CLOSED
            try:
                self.disconnect()
            finally:
                self.give_back()
                self.close()

    def give_back(self) -> None:
        """What the session holds goes back, and nobody takes the connection for one that is there."""
        self.leftover = NO_OCTETS
        if self.verifying is not None:
            self.verifying.cancel()  # else a flood of broken logins would keep the honest ones waiting
        try:
            self.session.release()
        except Exception:  # the socket is closed, and the server must hear of that
            log.exception("a bug leaves something of %s behind", self.session)
        self.session.connection.follow(LOST)

    def close(self) -> None:
        """Nobody has anything of the link any more."""
        self.output.end_streams()
        self.output.release()
        self.server.gone(self)

    def disconnect(self) -> None:
        self.unwatch()
        sockets.close(self.descriptor)

    def unwatch(self) -> None:
        self.server.readiness.forget(self.descriptor)

    # What the session asks for

    def verify(self, verification: Verification) -> None:
        """Has a password checked off the loop, and reads nothing until it is."""
        self.pause(HELD_LOGIN)
        self.verifying = self.server.verify(self, verification)

    def pause(self, reason: int) -> None:
        """Not even what has been read already is looked at: it may be a thousand more logins."""
        self.session.connection.paused = True
        self.hold(reason)

    def wait_for_rate(self, wait_s: float, rated: Events) -> None:
        """More was published than a limit allows in that time: `rated` looks at the rest later."""
        self.pause(HELD_RATE)
        self.server.loop.call_later(wait_s, self.end_wait, rated)

    def end_wait(self, rated: Events) -> None:
        """The time has come, unless the limit was changed meanwhile: the wait may be another one by now."""
        if self.session.connection.events is rated:
            self.unhold(HELD_RATE)

    def rate_changed(self) -> None:
        """There is another limit of the rate, or none: whoever waits goes on, and waits anew if need be."""
        self.unhold(HELD_RATE)

    def wait_for_answer(self) -> None:
        """Nothing is read until somebody else has said what the user may do."""
        self.pause(HELD_LOGIN)

    def answered(self) -> None:
        self.unhold(HELD_LOGIN)

    def look_again(self) -> None:
        """Has memory looked at again, before something is refused because memory is critical."""
        self.server.look_again()

    def is_there(self) -> bool:
        """Whether the peer has not closed or reset, as far as one can tell; safe on any thread.

        A link that is held does not hear of it, and a password of nobody need not be checked.
        """
        return sockets.is_there(self.descriptor)

    def peer_certificate(self) -> dict[str, Any] | None:
        """What TLS has verified of the client, as ssl tells it; None of a client that has shown nothing."""
        return None

    def verified(self, verification: Verification, found: Any) -> None:
        self.verifying = None
        if self.held & HELD_CLOSED:
            return
        self.unhold(HELD_LOGIN)
        if self.session.connection.state < phases.CONNECTION_CLOSING:
            self.session.login_step(verification.finish(found))  # may hold it again, for the pause
        self.scheduler.schedule_pass()

    def refuse_login(self, pause_s: float) -> None:
        """A wrong password costs its sender a pause."""
        self.refuse(pause_s, self.session.login_refused)

    def refuse(self, pause_s: float, then: Callable[[], None]) -> None:
        """Nothing of the peer is read until it hears of its refusal, for which there has to be time."""
        self.pause(HELD_REFUSED)
        pause_s = min(pause_s, self.server.config.limits.handshake_timeout_s / 2)
        self.server.strangers.refuse_after(pause_s, partial(self.refused, then))

    def refused(self, then: Callable[[], None]) -> None:
        if self.held & HELD_CLOSED:
            return
        then()
        self.unhold(HELD_REFUSED)
        self.scheduler.schedule_pass()

    def greeted(self) -> None:
        """The protocol header is one that is known."""
        self.server.strangers.greet(self)

    def opened(self) -> None:
        self.settle()
        self.is_stranger = False
        self.server.strangers.remove(self)

    def settle(self) -> None:
        """From now on the socket has its turn with all others."""
        self.server.readiness.settle(self.descriptor, self.wanted)

    def start_heartbeats(self, interval_s: int) -> None:
        if interval_s:
            self.server.heartbeats.add(self, interval_s)

    def beat(self) -> bool:
        """A look of the heartbeats; False when the peer has been silent for more than two intervals."""
        if self.finishing or self.held & HELD_CLOSED:
            return False
        # A link we do not read from, now or until it is its turn, cannot show that it is alive.
        if self.received or self.held or self.session.connection.paused:
            self.received = False
            self.missed = 0
        else:
            self.missed += 1
            if self.missed > LOOKS_MISSED_MAX:
                log.warning("%s missed its heartbeats", self.session)
                self.drop()
                return False
        output = self.output
        if not self.sent and output.barrier and not output.blocked and not output.is_torn:
            self.beat_ahead()
        elif not self.sent and not output.pending():
            output.write(self.session.heartbeat())
        self.sent = False
        return not self.held & HELD_CLOSED

    def beat_ahead(self) -> None:
        """A heartbeat overtakes what waits for the disk: the peer must not take a slow sync for our end."""
        heartbeat = bytearray(self.session.heartbeat())
        size = sockets.send(self.descriptor, heartbeat, 0, len(heartbeat))
        if size != len(heartbeat) and size != sockets.NOT_NOW:
            self.lost()  # a part of a frame is of no use to anybody
