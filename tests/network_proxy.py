"""A network between a client and a broker that fails when and where a test says.

    with NetworkProxy(broker.port) as proxy:
        proxy.plan(Fault(TO_CLIENT, Cut("rst"), frame=3, edge="within"))     the next connection
        connection = connect(proxy.uri)
        proxy.strike(Fault(TO_BROKER, Swallow(), method="basic.publish"))    those that are there, from now on
        proxy.wait_for_fault()

    client ---- Flow TO_BROKER ---> broker
           <--- Flow TO_CLIENT ----

A Flow passes whole frames on, so that a fault finds its place exactly: before, within or after frame N, or
before octet N + 1, counted from when the fault was given. The protocol header of a client counts as a frame.
What does not begin with a protocol header (TLS) is passed on as it comes, and has octets alone.

All sockets are served by one thread. What a test asks for is done by that thread, and is done when the call
returns.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

from flintmq.errors import PeerFault
from flintmq.wire import amqp
from flintmq.wire.methods import decode_method

TO_BROKER = "to broker"
TO_CLIENT = "to client"
DIRECTIONS = (TO_BROKER, TO_CLIENT)
EDGES = ("before", "within", "after")

READ_BYTES = 65_536
# A flow is not read from while so much of it waits to be sent: a sink that does not read stops its source.
WAITING_BYTES_MAX = 262_144
# What was passed before a cut is sent within this time, or lost.
FLUSH_S = 0.5
ANSWER_S = 10.0
# Frames of one flow that are remembered.
PASSED_MAX = 10_000
# Octets of a slow flow leave in so many portions a second.
PORTIONS_A_SECOND = 50

_PROTOCOL_HEADER_BYTES = 8
_FRAME_HEAD_BYTES = 7
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time


class Passed(NamedTuple):
    """A frame that was passed on. `name` is that of its method, or what kind of frame it is."""

    name: str
    size: int


class Action:
    """What happens at the place of a fault."""

    def apply(self, flow: Flow) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Cut(Action):
    """Both ends see the connection end: by FIN, or by RST, which may take what was on its way along.

    With `keep` that end hears nothing: "broker" is half open, a client that is gone for all but the broker.
    """

    how: str = "fin"
    keep: str = ""

    def apply(self, flow: Flow) -> None:
        flow.link.cut(self.how, self.keep)


@dataclass(frozen=True)
class Delay(Action):
    """The direction stands still for a time."""

    seconds: float

    def apply(self, flow: Flow) -> None:
        flow.pause(self.seconds)


@dataclass(frozen=True)
class Throttle(Action):
    """From here on the direction is slow."""

    octets_a_second: int

    def apply(self, flow: Flow) -> None:
        flow.octets_a_second = self.octets_a_second


@dataclass(frozen=True)
class Swallow(Action):
    """A black hole: everything is taken and nothing comes out, in this direction or in both."""

    both: bool = True

    def apply(self, flow: Flow) -> None:
        for each in flow.link.flows.values() if self.both else (flow,):
            each.swallows = True


@dataclass(frozen=True)
class StopReading(Action):
    """Nothing is taken any more: the sender's buffers fill, and a send blocks."""

    both: bool = True

    def apply(self, flow: Flow) -> None:
        for each in flow.link.flows.values() if self.both else (flow,):
            each.stopped = True


@dataclass(frozen=True)
class Call(Action):
    """The test's own deed, in the thread of the proxy; nothing is passed on until it returns."""

    deed: Callable[[], object]

    def apply(self, flow: Flow) -> None:
        self.deed()


@dataclass(frozen=True)
class Fault:
    """An action and its place: a frame, of a method if one is named, or an octet.

    `frame` counts from 1, `octet` is how many octets pass before. `within` is how many octets of the frame
    pass where `edge` is "within": half of them unless it is said.
    """

    direction: str
    action: Action
    frame: int = 1
    edge: str = "before"
    method: str = ""
    octet: int | None = None
    within: int | None = None

    def __post_init__(self) -> None:
        if self.direction not in DIRECTIONS or self.edge not in EDGES or self.frame < 1:
            raise ValueError(f"there is no such place: {self}")


class Pending:
    """A fault on its way to its place."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.frames = 0
        self.octets = 0

    def offset(self, unit: bytes, name: str | None) -> int | None:
        """How many octets of the unit pass before the action; None if its place is further on."""
        fault = self.fault
        if fault.octet is not None:
            left = fault.octet - self.octets
            return left if left < len(unit) else None
        if name is None or fault.method not in ("", name) or self.frames + 1 < fault.frame:
            return None
        if fault.edge == "within":
            half = len(unit) // 2 if fault.within is None else fault.within
            return max(1, min(half, len(unit) - 1))
        return 0 if fault.edge == "before" else len(unit)

    def count(self, octets: int, name: str | None) -> None:
        """So much was passed; `name` if a frame begins with it."""
        self.octets += octets
        if name is not None and self.fault.method in ("", name):
            self.frames += 1


class Flow:
    """One direction of a connection."""

    def __init__(self, link: Link, direction: str, source: socket.socket, sink: socket.socket) -> None:
        self.link = link
        self.direction = direction
        self.source = source
        self.sink = sink
        self.faults: list[Pending] = []
        self.held = bytearray()  # read, and not passed yet
        self.rest = 0  # of a frame whose beginning was passed
        self.ready = bytearray()  # passed, and not sent yet
        self.passed: deque[Passed] = deque(maxlen=PASSED_MAX)
        self.octets = 0
        self.begins = direction == TO_BROKER
        self.swallows = False
        self.stopped = False
        self.paused = False
        self.ended = False  # the source has said all
        self.octets_a_second = 0

    def wants_octets(self) -> bool:
        is_full = len(self.held) + len(self.ready) > WAITING_BYTES_MAX
        return not (self.stopped or self.ended or is_full or (self.paused and self.held))

    def pause(self, seconds: float) -> None:
        def resume() -> None:
            self.paused = False
            self.pass_on()

        self.paused = True
        self.link.proxy.later(seconds, resume)

    def read(self) -> None:
        try:
            octets = self.source.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self.link.broken(self.source)
            return
        if not octets:
            self.ended = True
        self.held += octets
        self.pass_on()

    def unit(self) -> tuple[bytes, str | None]:
        """The next octets that stay together, and their name if they are a frame from its beginning."""
        if self.rest:
            return bytes(self.held[: self.rest]), None
        if self.begins and self.held and not b"AMQP".startswith(self.held[:4]):
            self.link.is_opaque = True
        if self.link.is_opaque or self.ended:
            return bytes(self.held), None
        if self.begins:
            if len(self.held) < _PROTOCOL_HEADER_BYTES:
                return b"", None
            return bytes(self.held[:_PROTOCOL_HEADER_BYTES]), "protocol-header"
        if len(self.held) < _FRAME_HEAD_BYTES:
            return b"", None
        size = _FRAME_HEAD_BYTES + int.from_bytes(self.held[3:7], "big") + amqp.FRAME_END_BYTES
        if self.held.startswith(b"AMQP"):  # the server speaks another version
            size = _PROTOCOL_HEADER_BYTES
        if len(self.held) < size:
            return b"", None
        frame = bytes(self.held[:size])
        return frame, name_of(frame)

    def pass_on(self) -> None:
        """Passes what was read, up to the next fault that holds it."""
        while self.held and not (self.paused or self.stopped or self.link.is_over):
            if self.swallows:
                self.held.clear()
                return
            unit, name = self.unit()
            if not unit:
                return
            places = [(pending.offset(unit, name), pending) for pending in self.faults]
            due = min(
                ((place, at, pending) for at, (place, pending) in enumerate(places) if place is not None),
                default=None,
            )
            if due is None:
                self.advance(len(unit), len(unit), name)
                continue
            place, _, pending = due
            self.faults.remove(pending)
            if place:
                self.advance(place, len(unit), name)
            self.link.proxy.struck(pending.fault)
            pending.fault.action.apply(self)
        if self.ended and not self.held and not self.ready:
            self.link.end_of(self)

    def advance(self, octets: int, size: int, name: str | None) -> None:
        """Passes so many octets of a unit of `size`."""
        for pending in self.faults:
            pending.count(octets, name)
        if name is not None:
            self.passed.append(Passed(name, size))
        self.octets += octets
        self.begins = False
        self.rest = size - octets
        self.ready += self.held[:octets]
        del self.held[:octets]
        if not self.octets_a_second:
            self.send()
        else:
            self.trickle()

    def trickle(self) -> None:
        """Sends a portion, and the next one later."""
        self.paused = True
        self.send(max(1, self.octets_a_second // PORTIONS_A_SECOND))

        def go_on() -> None:
            if self.ready:
                self.trickle()
            else:
                self.paused = False
                self.pass_on()

        self.link.proxy.later(1 / PORTIONS_A_SECOND, go_on)

    def send(self, limit: int | None = None) -> None:
        if self.link.is_over:
            return
        try:
            del self.ready[: self.sink.send(self.ready[:limit])]
        except BlockingIOError:
            return
        except OSError:
            self.link.broken(self.sink)
            return
        if self.ended and not self.held and not self.ready:
            self.link.end_of(self)

    def flush(self) -> None:
        """What was passed leaves before the end."""
        with suppress(OSError):
            self.sink.settimeout(FLUSH_S)
            self.sink.sendall(self.ready)
        self.ready.clear()
        with suppress(OSError):
            self.sink.setblocking(False)


def name_of(frame: bytes) -> str:
    kind = frame[0]
    if kind == amqp.FRAME_METHOD:
        try:
            return str(decode_method(amqp.VERSION_0_9_1, frame[7:-1]).NAME)
        except PeerFault:  # of a test that breaks the protocol
            return "frame"
    return {amqp.FRAME_HEADER: "header", amqp.FRAME_BODY: "body", amqp.FRAME_HEARTBEAT: "heartbeat"}.get(
        kind, "frame"
    )


class Link:
    """A connection of a client, and the one to the broker that belongs to it."""

    def __init__(self, proxy: NetworkProxy, client: socket.socket, broker: socket.socket) -> None:
        self.proxy = proxy
        self.client = client
        self.broker = broker
        self.is_opaque = False
        self.is_over = False  # nothing is passed any more
        self.open = {client, broker}
        self.flows = {
            TO_BROKER: Flow(self, TO_BROKER, client, broker),
            TO_CLIENT: Flow(self, TO_CLIENT, broker, client),
        }

    def give(self, faults: tuple[Fault, ...]) -> None:
        for fault in faults:
            self.flows[fault.direction].faults.append(Pending(fault))

    def end_of(self, flow: Flow) -> None:
        """One side has said all: the other is told, unless by way of a black hole, and may go on speaking."""
        if self.is_over:
            return
        if not flow.swallows:
            with suppress(OSError):
                flow.sink.shutdown(socket.SHUT_WR)
        if all(each.ended for each in self.flows.values()):
            self.close()

    def broken(self, end: socket.socket) -> None:
        """An end was reset: the other one sees the same."""
        if not self.is_over:
            self.cut("rst", "")

    def cut(self, how: str, keep: str) -> None:
        kept = {"broker": self.broker, "client": self.client}.get(keep)
        for flow in self.flows.values():
            if flow.sink is not kept and flow.sink in self.open:
                flow.flush()
        self.is_over = True
        for end in list(self.open):
            if end is kept:
                continue
            if how == "rst":
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self.forget(end)
            else:
                # A close with octets unread would be a reset: what comes is read, and dropped.
                with suppress(OSError):
                    end.shutdown(socket.SHUT_WR)

    def drain(self, end: socket.socket) -> None:
        """Drops what an end says after the cut, until it closes too."""
        try:
            octets = end.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            octets = b""
        if not octets:
            self.forget(end)

    def forget(self, end: socket.socket) -> None:
        self.open.discard(end)
        self.proxy.unwatch(end)
        end.close()

    def close(self) -> None:
        self.is_over = True
        for end in list(self.open):
            self.forget(end)


class NetworkProxy:
    """Listens on `port` and passes on to `target`, which may be changed: a broker that has moved."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.links: list[Link] = []  # those that are there, and the latest
        self.connections = 0  # how many there have been
        self.faults: list[Fault] = []  # those that happened
        self._plans: deque[tuple[Fault, ...]] = deque()
        self._struck = threading.Condition()
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._watched: dict[socket.socket, int] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        # Holds the port while connections are refused: bound, and not listening.
        self._keeper = self._bound(0)
        self.port: int = self._keeper.getsockname()[1]
        self.uri = f"amqp://guest:guest@127.0.0.1:{self.port}"
        self._listener: socket.socket | None = None
        self._is_over = False
        self._listen()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="network proxy", daemon=True)
        self._thread.start()

    # What a test asks for

    def plan(self, *faults: Fault) -> None:
        """The faults of one further connection; without any, it goes well."""
        self._do(lambda: self._plans.append(faults))

    def strike(self, *faults: Fault) -> None:
        """Faults of the connections that are there, from here on."""

        def give() -> None:
            for link in self.links:
                if not link.is_over:
                    link.give(faults)

        self._do(give)

    def cut(self, how: str = "fin", keep: str = "") -> None:
        """Cuts what is there, now."""

        def strike() -> None:
            for link in self.links:
                if not link.is_over:
                    link.cut(how, keep)

        self._do(strike)

    def drop(self) -> None:
        """Resets all that is there, kept ends and black holes too."""

        def strike() -> None:
            for link in self.links:
                link.cut("rst", "")

        self._do(strike)

    def heal(self) -> None:
        """Faults that have not come to their place never will; black holes stay what they are."""

        def heal() -> None:
            self._plans.clear()
            for link in self.links:
                for flow in link.flows.values():
                    flow.faults.clear()
                    flow.octets_a_second = 0

        self._do(heal)

    def refuse(self, for_s: float | None = None) -> None:
        """Connections are refused, until `accept`, or for a time."""

        def stop() -> None:
            if self._listener is not None:
                self.unwatch(self._listener)
                self._listener.close()
                self._listener = None
            if for_s is not None:
                self.later(for_s, self._listen)

        self._do(stop)

    def accept(self) -> None:
        self._do(self._listen)

    def wait_for_fault(self, count: int = 1, timeout_s: float = ANSWER_S) -> None:
        """Waits until so many faults have happened since the proxy was made."""
        with self._struck:
            came = self._struck.wait_for(lambda: len(self.faults) >= count, timeout_s)
            assert came, f"{len(self.faults)} faults happened, of {count}"

    @property
    def link(self) -> Link:
        """The latest connection."""
        return self.links[-1]

    def passed(self) -> dict[str, list[Passed]]:
        """The frames of the latest connection."""
        found: dict[str, list[Passed]] = {}
        self._do(lambda: found.update({each: list(flow.passed) for each, flow in self.link.flows.items()}))
        return found

    def close(self) -> None:
        def end() -> None:
            self._is_over = True

        if self._thread.is_alive():
            self._do(end)
            self._thread.join()
        self._wake.close()  # here, as the thread may end before it is woken

    def __enter__(self) -> NetworkProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # The thread

    def _do(self, deed: Callable[[], None]) -> None:
        done = threading.Event()
        failures: list[BaseException] = []

        def attempt() -> None:
            try:
                deed()
            except BaseException as failure:
                failures.append(failure)
            done.set()

        if threading.current_thread() is self._thread:
            deed()
            return
        self._asked.put(attempt)
        with suppress(BrokenPipeError, ConnectionResetError):  # the thread has seen it, and was the last to
            self._wake.send(b"x")
        assert done.wait(ANSWER_S), "the thread of the proxy does not answer"
        if failures:
            raise failures[0]

    def later(self, seconds: float, deed: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), deed))

    def struck(self, fault: Fault) -> None:
        with self._struck:
            self.faults.append(fault)
            self._struck.notify_all()

    def unwatch(self, end: socket.socket) -> None:
        if self._watched.pop(end, 0):
            self._selector.unregister(end)

    def _watch(self, end: socket.socket, events: int, data: Any) -> None:
        before = self._watched.get(end, 0)
        if events == before:
            return
        if not events:
            self.unwatch(end)
            return
        self._watched[end] = events
        if before:
            self._selector.modify(end, events, data)
        else:
            self._selector.register(end, events, data)

    def _bound(self, port: int) -> socket.socket:
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(("127.0.0.1", port))
        return made

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = self._bound(self.port)
            self._listener.listen(128)
            self._listener.setblocking(False)
            self._watch(self._listener, selectors.EVENT_READ, None)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:  # gone again
            return
        try:
            broker = socket.create_connection(("127.0.0.1", self.target), timeout=FLUSH_S)
        except OSError:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.close()
            return
        for end in (client, broker):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(self, client, broker)
        if self._plans:
            link.give(self._plans.popleft())
        self.links = [each for each in self.links if each.open]
        self.links.append(link)
        self.connections += 1

    def _run(self) -> None:
        try:
            while not self._is_over:
                self._turn()
        finally:
            for link in self.links:
                link.close()
            for end in (self._listener, self._keeper, self._woken):
                if end is not None:
                    end.close()
            self._selector.close()

    def _turn(self) -> None:
        for link in self.links:
            self._watch_link(link)
        left_s = None if not self._timers else max(0.0, self._timers[0][0] - time.monotonic())
        for key, events in self._selector.select(left_s):
            if key.fileobj is self._woken:
                self._woken.recv(4096)
            elif key.fileobj is self._listener:
                self._accept()
            elif key.fileobj in self._watched:
                self._serve(key.data, key.fileobj, events)
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()
        while not self._asked.empty():
            self._asked.get()()

    def _watch_link(self, link: Link) -> None:
        for flow in link.flows.values():
            if flow.source not in link.open:
                continue
            if link.is_over:
                self._watch(flow.source, selectors.EVENT_READ, link)
                continue
            back = link.flows[TO_CLIENT if flow.direction == TO_BROKER else TO_BROKER]
            events = selectors.EVENT_READ if flow.wants_octets() else 0
            events |= selectors.EVENT_WRITE if back.ready and not back.octets_a_second else 0
            self._watch(flow.source, events, link)

    def _serve(self, link: Link, end: socket.socket, events: int) -> None:
        if link.is_over:
            link.drain(end)
            return
        for flow in link.flows.values():
            if events & selectors.EVENT_WRITE and flow.sink is end and not link.is_over:
                flow.send()
            if events & selectors.EVENT_READ and flow.source is end and not link.is_over:
                flow.read()
