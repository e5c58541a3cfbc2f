"""What answers take of memory until their askers have read them: of one connection, and of all together.

    request --> are its connection's answers read? --> is there room for this one? --> made --> sent --> read
                no: when its client has read           no: when others have read theirs, or RESOURCE_ERROR

The first is asked of every request, and only of what the client's reading alone makes less: its output, and
its queue of direct reply-to. Whatever else it might have to say, an ack for one, is behind the request. The
second is asked of services whose answers may be large. Answers in other queues are messages as all others.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.broker.channels import direct_reply
from flintmq.broker.services import browsing
from flintmq.errors import ConnectionFault, ServiceFault
from flintmq.wire import amqp
from flintmq.wire.stream import held_octets, left_octets

if TYPE_CHECKING:
    from flintmq.broker.channels.client_connection import Connections
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.scheduling.pass_work import PassWork
    from flintmq.broker.scheduling.timetable import Alarm
    from flintmq.broker.services.request import Request
    from flintmq.broker.store.store import Store
    from flintmq.protocol.outbox import Output

log = logging.getLogger("flintmq.services")

# All answers that are made or not read yet may take this part of the memory limit, and one of them this;
# while memory is short it is a quarter of that. 200 MiB: 25 MiB, 12.5 MiB, 3.1 MiB.
BUDGET_PARTS = 8
ANSWER_PARTS = 16
SHORT_PARTS = 4
# Those that are smaller are not looked after.
LOOKED_AFTER_BYTES = 65_536
# How often those who wait are looked after: what they wait for wakes most of them before.
LOOK_MS = 100
# So long a request waits for answers of others to be read.
ROOM_WAIT_MS = 10_000
# Who has read nothing of an answer for so long, and has others wait, is closed.
STALLED_MS = 5_000
UNLIMITED = 1 << 62


class Unread:
    """Large answers of one connection, for as long as any of them is in memory."""

    __slots__ = ("left_bytes", "output", "queues", "since_ms")

    def __init__(self, output: Output, now_ms: int) -> None:
        self.output = output
        self.queues: dict[Queue, None] = {}  # of direct reply-to
        self.left_bytes = -1  # at the last look
        self.since_ms = now_ms  # when it last became less

    def held_bytes(self) -> int:
        output = self.output
        if output.ended:
            return 0
        held = sum([queue.ready_bytes for queue in self.queues if not queue.deleted])
        return held + output.pending() + output.behind_bytes + held_octets(output.streams)

    def look(self, now_ms: int) -> None:
        """Notes whether some of it was read since the last look."""
        left = sum([octets_of(queue) for queue in self.queues if not queue.deleted]) + left_of(self.output)
        if left != self.left_bytes and self.left_bytes >= 0:
            self.since_ms = now_ms
        self.left_bytes = left


class Pause:
    """A request that waits for its client to read."""

    def __init__(self, room: AnswerRoom, output: Output) -> None:
        self.room = room
        self.output = output
        self.go_on: Callable[[], None] | None = None

    def wait(self, go_on: Callable[[], None]) -> None:
        self.go_on = go_on
        self.output.wanted[self] = None
        self.room.pauses[self] = None
        self.room.keep_looking()

    def wake(self) -> None:
        """Some of it has been read, or somebody looks whether it has."""
        go_on, self.go_on = self.go_on, None
        self.output.wanted.pop(self, None)
        self.room.pauses.pop(self, None)
        if go_on is not None:
            go_on()


class Place:
    """A request that waits in line for others' answers to be read."""

    def __init__(self, room: AnswerRoom) -> None:
        self.room = room
        self.go_on: Callable[[], None] | None = None

    def wait(self, go_on: Callable[[], None]) -> None:
        self.go_on = go_on
        self.room.keep_looking()

    def wake(self) -> None:
        go_on, self.go_on = self.go_on, None
        if go_on is not None:
            go_on()


class AnswerRoom:
    """One for each broker."""

    def __init__(self, pass_work: PassWork, store: Store | None, clients: Connections) -> None:
        self.pass_work = pass_work
        self.timetable = pass_work.timetable
        self.store = store
        self.clients = clients
        self.budget_bytes = UNLIMITED
        self.answer_bytes = UNLIMITED
        self.made_bytes = 0  # of answers that are being made, at most
        self.unread: dict[int, Unread] = {}  # by the number of the connection
        self.pauses: dict[Pause, None] = {}
        self.line: deque[Place] = deque()
        self.alarm: Alarm | None = None

    def take_share(self, limit_bytes: int) -> None:
        self.budget_bytes = limit_bytes // BUDGET_PARTS
        self.answer_bytes = max(limit_bytes // ANSWER_PARTS, SHORT_PARTS * LOOKED_AFTER_BYTES)

    def answer_bytes_max(self) -> int:
        """What an answer may take now, unless it is a single message."""
        return self.answer_bytes // SHORT_PARTS if self.pass_work.is_short else self.answer_bytes

    # Before a request is served, and after

    def until_read(self, request: Request) -> Chore:
        """Until the client has read so much of the answers before that there may be one more."""
        output = request.channel.output
        while not output.ended and left_of(output) + in_queue(request) >= output.room.output_bytes_max:
            yield Pause(self, output).wait

    def until_room(self, request: Request, wanted_bytes: int) -> Chore:
        """Until an answer of so many octets may be made; raises if that takes long, or nobody wants it."""
        if is_for_nobody(request):
            raise ServiceFault(amqp.NOT_FOUND, f"{request.name}: whoever has asked is gone")
        wanted = min(wanted_bytes, self.answer_bytes)
        if self.line or not self.has_room(wanted):
            yield from self.in_line(request, wanted)
        self.made_bytes += wanted
        request.made_bytes = wanted

    def in_line(self, request: Request, wanted: int) -> Chore:
        place = Place(self)
        self.line.append(place)
        until_ms = self.timetable.now_ms() + ROOM_WAIT_MS
        try:
            while self.line[0] is not place or not self.has_room(wanted):
                if self.timetable.now_ms() >= until_ms:
                    raise ServiceFault(
                        amqp.RESOURCE_ERROR,
                        f"{request.name}: memory is short, or others do not read their answers: ask again",
                    )
                yield place.wait
        finally:
            self.line.remove(place)
            self.wake_first()

    def has_room(self, wanted: int) -> bool:
        if self.is_closed():
            return False
        return self.fits(wanted, self.made_bytes + self.unread_bytes())

    def is_closed(self) -> bool:
        """Whether no large answer is made, however little others take."""
        return self.pass_work.is_critical or (self.store is not None and self.store.is_overflow_behind())

    def fits(self, wanted: int, used: int) -> bool:
        """Whether there is room beside so much."""
        return not used or used + wanted <= self.budget_bytes

    def unread_bytes(self) -> int:
        total = 0
        for number, unread in list(self.unread.items()):
            held = unread.held_bytes()
            if held < LOOKED_AFTER_BYTES:
                del self.unread[number]
            total += held
        return total

    def grow(self, request: Request, made_bytes: int) -> None:
        """A single message has made the answer larger than was asked for."""
        more = made_bytes - request.made_bytes
        if more > 0 and request.made_bytes:
            request.made_bytes += more
            self.made_bytes += more

    def note(self, request: Request, answer: Message) -> None:
        """The answer is sent: it is in memory until it is read."""
        octets = len(answer.content)
        self.pass_work.unwatched_bytes -= octets
        if octets < LOOKED_AFTER_BYTES:
            return
        origin = request.channel.origin
        unread = self.unread.get(origin)
        if unread is None:
            unread = Unread(request.channel.output, self.timetable.now_ms())
            self.unread[origin] = unread
        queue = direct_queue(request)
        if queue is not None:
            unread.queues[queue] = None

    def release(self, request: Request) -> None:
        """Nothing more of the answer is in the making."""
        if request.made_bytes:
            self.made_bytes -= request.made_bytes
            request.made_bytes = 0
            self.wake_first()

    # Those who wait

    def wake_first(self) -> None:
        if self.line:
            self.line[0].wake()

    def keep_looking(self) -> None:
        if self.alarm is None:
            self.alarm = self.timetable.at(self.timetable.now_ms() + LOOK_MS, self.look)

    def look(self) -> None:
        """Not everything that is waited for tells when it has come: the end of a connection, memory."""
        self.alarm = None
        try:
            if self.line:
                self.end_stalled()
        except Exception:
            log.exception("a bug in looking after answers that nobody reads")
        # In any case: who waits on has the next look come.
        for pause in list(self.pauses):
            pause.wake()
        self.wake_first()

    def end_stalled(self) -> None:
        """Those end that read nothing, until there is room for one who waits.

        Of thousands all are looked at once, not again for each that ends.
        """
        now_ms = self.timetable.now_ms()
        wanted = self.answer_bytes_max()
        is_closed = self.is_closed()
        used = self.made_bytes + self.unread_bytes()
        for number, unread in list(self.unread.items()):
            unread.look(now_ms)
            if now_ms - unread.since_ms >= STALLED_MS and (is_closed or not self.fits(wanted, used)):
                used -= unread.held_bytes()
                try:
                    self.end(number)
                except Exception:  # others wait, and are looked after here alone
                    log.exception("a bug in ending connection %d", number)

    def end(self, number: int) -> None:
        """Others wait for memory that only this connection can give back, and its client does not read."""
        del self.unread[number]
        client = self.clients.find(number)
        if client is not None:
            text = "answers are not read, and others wait for the memory that they take"
            log.warning("connection %d ends: %s", number, text)
            client.peer.close_connection(ConnectionFault(amqp.RESOURCE_ERROR, text))


def left_of(output: Output) -> int:
    """Octets in memory that the client has yet to read."""
    return output.pending() + output.behind_bytes + left_octets(output.streams)


def octets_of(queue: Queue) -> int:
    """Of all messages in the queue, those on disk too."""
    ready_bytes, _, paged_bytes = browsing.held(queue)
    return ready_bytes + paged_bytes


def is_for_nobody(request: Request) -> bool:
    """Whether the queue of direct reply-to that was to have the answer is gone."""
    name = request.reply_to
    return name.startswith(direct_reply.NAME) and name not in request.road.queues


def direct_queue(request: Request) -> Queue | None:
    """The asker's own queue of direct reply-to that the answer goes to."""
    queue: Queue | None = request.road.queues.get(request.reply_to)
    if queue is None or queue.owner != request.channel.origin or not queue.name.startswith(direct_reply.NAME):
        return None
    return queue


def in_queue(request: Request) -> int:
    """Octets in the asker's queue of direct reply-to, if its reading is all that they wait for."""
    queue = direct_queue(request)
    if queue is None or not queue.message_count() or not queue.consumers:
        return 0
    for consumer in queue.consumers:
        if not consumer.channel.flowing or consumer.terms is not None or consumer.is_selective():
            return 0
    return octets_of(queue)
