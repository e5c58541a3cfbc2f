"""An AMQP server that says what a test tells it to, true or not, to a client over a socket.

    def lie(served: Served) -> None:
        served.welcome()                                    the handshake, to connection.open-ok
        served.honest({methods.BasicPublish: nacks})        answers all but basic.publish as a broker would

    with FakeServer(lie, honest) as server:                 the first connection, and all further ones
        connect(server.uri)

A script is a function of a Served: the server's side of one connection, with all that a Peer has (`expect`,
`send`, `content`, `raw`, ...). The client's end ends a script. What else a script raises fails the test
when the server is closed.

The functions below the classes are lies that tests share; each is a script, or makes one.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from peer import HEADERS, NUMBERS, Content, Gone, Peer, encode_frame

from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, decode_method, encode_method
from flintmq.wire.properties import BasicProperties, encode_properties

TIMEOUT_S = 30.0
END_S = 10.0
FRAME_BYTES_MAX = 131_072

_CONTENT_HEAD = struct.Struct(">HHQ")

Script = Callable[["Served"], None]
# Called for a method, on its channel, with its content if it has one.
Answer = Callable[["Served", int, Any, "Content | None"], None]


class Served(Peer):
    """The server's side of one connection."""

    def __init__(self, accepted: socket.socket) -> None:
        self.version = NUMBERS["0-9-1"]
        self.socket = accepted
        self.socket.settimeout(TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = accepted.makefile("rb")
        self.waiting = {}
        self.held = None
        self.frame_bytes_max = FRAME_BYTES_MAX
        self.confirming: set[int] = set()
        self.published: Counter[int] = Counter()  # by channel, with confirms
        self.bodies: list[bytes] = []
        self.heard: list[str] = []  # names of methods
        self.named = 0
        self.is_over = threading.Event()

    # The handshake, in steps, so that a script can leave between any two

    def start(self) -> None:
        """The protocol header, and connection.start."""
        assert self.octets(8) == HEADERS["0-9-1"]
        capabilities: Any = dict.fromkeys(
            ("basic.nack", "publisher_confirms", "consumer_cancel_notify", "connection.blocked"), True
        )
        self.send(
            0,
            methods.ConnectionStart(
                version_major=0,
                version_minor=9,
                server_properties={"product": "fake server", "capabilities": capabilities},
                mechanisms=b"PLAIN AMQPLAIN",
                locales=b"en_US",
            ),
        )

    def agree(
        self, frame_max: int = FRAME_BYTES_MAX, channel_max: int = 2047, heartbeat: int = 0
    ) -> methods.ConnectionTuneOk:
        """Takes the login, whatever it is, and has the client agree to limits."""
        self.expect(0, methods.ConnectionStartOk)
        self.send(
            0, methods.ConnectionTune(channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)
        )
        agreed = self.expect(0, methods.ConnectionTuneOk)
        self.frame_bytes_max = agreed.frame_max
        return agreed

    def enter(self, virtual_host: str = "/", insist: bool = False) -> None:
        self.expect(0, methods.ConnectionOpen)
        self.send(0, methods.ConnectionOpenOk())

    def welcome(self, **limits: int) -> None:
        """The whole handshake; `limits` are those of `agree`."""
        self.start()
        self.agree(**limits)
        self.enter()

    # Listening

    def next_method(self) -> tuple[int, Method, Content | None]:
        """The next method on any channel, with its content."""
        while True:
            frame = self.next_frame()
            if frame.kind == amqp.FRAME_HEARTBEAT:
                continue
            assert frame.kind == amqp.FRAME_METHOD, f"expected a method, got {frame!r}"
            method = decode_method(self.version, frame.payload)
            self.heard.append(method.NAME)
            content = self.content(frame.channel) if method.CONTENT else None
            return frame.channel, method, content

    def until(
        self, kind: type[Method], answers: Mapping[type[Method], Answer] | None = None
    ) -> tuple[int, Any, Content | None]:
        """Answers as `honest` does until a method of this kind comes, which it returns unanswered."""
        while True:
            channel, method, content = self.next_method()
            if isinstance(method, kind):
                return channel, method, content
            self.answer(channel, method, content, answers or {})

    def honest(self, answers: Mapping[type[Method], Answer] | None = None) -> None:
        """Answers everything as a broker would, but for the methods that have an answer of the script's."""
        while True:
            self.answer(*self.next_method(), answers or {})

    def answer(
        self, channel: int, method: Method, content: Content | None, answers: Mapping[type[Method], Answer]
    ) -> None:
        if isinstance(method, methods.ConfirmSelect):
            self.confirming.add(channel)
        if isinstance(method, methods.ChannelOpen | methods.ChannelClose):
            self.confirming.discard(channel)
            self.published.pop(channel, None)
        if isinstance(method, methods.BasicPublish):
            assert content is not None
            self.published[channel] += 1
            self.bodies.append(content.body)
        for kind, told in answers.items():
            if isinstance(method, kind):
                told(self, channel, method, content)
                return
        self.honest_answer(channel, method)

    def honest_answer(self, channel: int, method: Method) -> None:
        """What a broker with nothing in its queues says."""
        if isinstance(method, methods.BasicPublish):
            if channel in self.confirming:
                self.send(channel, methods.BasicAck(delivery_tag=self.published[channel]))
        elif isinstance(method, methods.QueueDeclare):
            self.named += not method.queue
            self.send(channel, methods.QueueDeclareOk(queue=method.queue or f"amq.gen-{self.named}"))
        elif isinstance(method, methods.BasicConsume):
            self.named += not method.consumer_tag
            tag = method.consumer_tag or f"amq.ctag-{self.named}"
            self.send(channel, methods.BasicConsumeOk(consumer_tag=tag))
        elif isinstance(method, methods.BasicCancel):
            self.send(channel, methods.BasicCancelOk(consumer_tag=method.consumer_tag))
        elif isinstance(method, methods.BasicGet):
            self.send(channel, methods.BasicGetEmpty())
        elif isinstance(method, methods.ConnectionClose):
            self.send(channel, methods.ConnectionCloseOk())
            raise Gone("the client has said goodbye")
        elif method.REPLIES and not getattr(method, "nowait", False):
            self.send(channel, ANSWERS[method.REPLIES[0]]())

    # Saying

    def deliver(self, channel: int, tag: int, body: bytes, consumer_tag: str, **properties: Any) -> None:
        method = methods.BasicDeliver(consumer_tag=consumer_tag, delivery_tag=tag, routing_key="q")
        self.send_content(channel, method, body, BasicProperties(**properties))

    def give_back(self, channel: int, method: methods.BasicPublish, content: Content) -> None:
        """basic.return of what was published."""
        returned = methods.BasicReturn(
            reply_code=amqp.NO_ROUTE,
            reply_text="NO_ROUTE",
            exchange=method.exchange,
            routing_key=method.routing_key,
        )
        self.send_content(channel, returned, content.body, content.properties)

    def send_part(self, channel: int, method: Method, announced: int, body: bytes) -> None:
        """A method and its header, which announces more than the body that follows."""
        header = _CONTENT_HEAD.pack(method.CLASS_ID, 0, announced) + encode_properties(BasicProperties())
        self.raw(
            encode_frame(amqp.FRAME_METHOD, channel, encode_method(self.version, method))
            + encode_frame(amqp.FRAME_HEADER, channel, header)
            + (encode_frame(amqp.FRAME_BODY, channel, body) if body else b"")
        )

    def close_connection(self, code: int, text: str) -> None:
        """connection.close, and whatever comes until it is answered."""
        self.send(0, methods.ConnectionClose(reply_code=code, reply_text=text))
        self.until(methods.ConnectionCloseOk)

    def hang_up(self, reset: bool = False) -> None:
        """The end without a word."""
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
        self.abort()
        raise Gone("the server hung up")

    def be_silent(self) -> None:
        """Reads, and says nothing, until the client is gone."""
        self.socket.settimeout(None)
        while self.socket.recv(65_536):
            pass

    def stop_reading(self) -> None:
        """Neither reads nor says anything, until the server is closed."""
        self.is_over.wait()


ANSWERS: dict[str, type[Method]] = {
    each.NAME: each
    for each in vars(methods).values()
    if isinstance(each, type) and issubclass(each, Method) and each is not Method
}


def honest(served: Served) -> None:
    """A server that does what it should."""
    served.welcome()
    served.honest()


class FakeServer:
    """Runs a script for each connection: the first for the first, the last for all that follow."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = deque(scripts or (honest,))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.uri = f"amqp://guest:guest@127.0.0.1:{self.port}"
        self.served: list[Served] = []
        self.failures: list[BaseException] = []
        self.threads: list[threading.Thread] = []
        self.changed = threading.Condition()
        self.is_over = False
        self.acceptor = threading.Thread(target=self._accept, name="fake server", daemon=True)
        self.acceptor.start()

    @property
    def connections(self) -> int:
        return len(self.served)

    def wait_for(self, holds: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
        """Waits until it holds, which is looked at when a connection comes or ends, and now and then."""
        with self.changed:
            for _ in range(int(timeout_s * 50)):
                if holds():
                    return
                self.changed.wait(0.02)
        raise AssertionError(f"not within {timeout_s:g} s")

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self.listener.accept()
            except OSError:
                return
            script = self.scripts.popleft() if len(self.scripts) > 1 else self.scripts[0]
            served = Served(accepted)
            thread = threading.Thread(target=self._run, args=(script, served), daemon=True)
            with self.changed:
                self.served.append(served)
                self.threads.append(thread)
                self.changed.notify_all()
            thread.start()

    def _run(self, script: Script, served: Served) -> None:
        try:
            script(served)
        except (Gone, ConnectionError):
            pass  # the client is gone
        except BaseException as failure:
            if not self.is_over:
                self.failures.append(failure)
        finally:
            with suppress(OSError, ValueError):
                served.socket.shutdown(socket.SHUT_RDWR)
            served.abort()
            with self.changed:
                self.changed.notify_all()

    def close(self) -> None:
        self.is_over = True
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.acceptor.join(END_S)
        for served in self.served:
            served.is_over.set()
            with suppress(OSError):
                served.socket.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(END_S)
            assert not thread.is_alive(), "a script of the fake server does not end"
        if self.failures:
            raise self.failures[0]

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        with suppress(BaseException):
            self.close()


# Lies at the login


def hangs_up_before_start(served: Served) -> None:
    served.octets(8)
    served.hang_up()


def hangs_up_at_login(served: Served) -> None:
    """As a broker does that is stopped between start-ok and tune."""
    served.start()
    served.expect(0, methods.ConnectionStartOk)
    served.hang_up()


def hangs_up_at_tune(served: Served) -> None:
    served.start()
    served.agree()
    served.hang_up()


def hangs_up_at_open(served: Served) -> None:
    served.start()
    served.agree()
    served.expect(0, methods.ConnectionOpen)
    served.hang_up()


def refuses_login(code: int, text: str) -> Script:
    """connection.close in the place of tune: 320 of a broker that stops, 403 of a wrong password."""

    def script(served: Served) -> None:
        served.start()
        served.expect(0, methods.ConnectionStartOk)
        served.send(0, methods.ConnectionClose(reply_code=code, reply_text=text))
        served.expect(0, methods.ConnectionCloseOk)

    return script


def refuses_host(code: int, text: str) -> Script:
    """connection.close in the place of open-ok."""

    def script(served: Served) -> None:
        served.start()
        served.agree()
        served.expect(0, methods.ConnectionOpen)
        served.send(0, methods.ConnectionClose(reply_code=code, reply_text=text))
        served.expect(0, methods.ConnectionCloseOk)

    return script


def never_answers(served: Served) -> None:
    """Takes the connection, and no more."""
    served.be_silent()


def silent_once_open(served: Served) -> None:
    """A handshake, and no word after it."""
    served.welcome()
    served.be_silent()


def stops_reading_once_open(served: Served) -> None:
    served.welcome()
    served.stop_reading()


def tunes(frame_max: int, answers: Mapping[type[Method], Answer] | None = None, **limits: int) -> Script:
    """An honest server with a frame-max of its own, which may differ from the one before it."""

    def script(served: Served) -> None:
        served.welcome(frame_max=frame_max, **limits)
        served.honest(answers)

    return script


def answering(answers: Mapping[type[Method], Answer]) -> Script:
    """Honest but for some methods."""

    def script(served: Served) -> None:
        served.welcome()
        served.honest(answers)

    return script


# Answers that are lies


def says_nothing(served: Served, channel: int, method: Method, content: Content | None) -> None:
    """The method is as if it had not come."""


def hangs_up(served: Served, channel: int, method: Method, content: Content | None) -> None:
    served.hang_up()


def resets(served: Served, channel: int, method: Method, content: Content | None) -> None:
    served.hang_up(reset=True)


def closes_channel(code: int, text: str) -> Answer:
    def answer(served: Served, channel: int, method: Method, content: Content | None) -> None:
        served.send(channel, methods.ChannelClose(reply_code=code, reply_text=text))

    return answer


def closes_connection(code: int, text: str) -> Answer:
    def answer(served: Served, channel: int, method: Method, content: Content | None) -> None:
        served.close_connection(code, text)
        raise Gone("the server has closed the connection")

    return answer


def acks(shift: int = 0, multiple: bool = False, times: int = 1) -> Answer:
    """A confirm whose number is wrong by `shift`, or that comes more than once."""

    def answer(served: Served, channel: int, method: Method, content: Content | None) -> None:
        tag = served.published[channel] + shift
        for _ in range(times):
            served.send(channel, methods.BasicAck(delivery_tag=tag, multiple=multiple))

    return answer


def nacks(served: Served, channel: int, method: Method, content: Content | None) -> None:
    served.send(channel, methods.BasicNack(delivery_tag=served.published[channel]))


def returns_without_ack(served: Served, channel: int, method: Any, content: Content | None) -> None:
    assert content is not None
    served.give_back(channel, method, content)


def acks_before_return(served: Served, channel: int, method: Any, content: Content | None) -> None:
    """The wrong order: a return comes before the confirm of its message."""
    assert content is not None
    served.send(channel, methods.BasicAck(delivery_tag=served.published[channel]))
    served.give_back(channel, method, content)


def returns_then_acks(served: Served, channel: int, method: Any, content: Content | None) -> None:
    """No lie: as a broker does with what has no queue."""
    assert content is not None
    served.give_back(channel, method, content)
    served.send(channel, methods.BasicAck(delivery_tag=served.published[channel]))


def gets_part(announced: int, body: bytes, ending: Answer) -> Answer:
    """An answer to basic.get that ends in the middle of its body."""

    def answer(served: Served, channel: int, method: Method, content: Content | None) -> None:
        served.send_part(channel, methods.BasicGetOk(delivery_tag=1, routing_key="q"), announced, body)
        ending(served, channel, method, content)

    return answer


def delivers_part(announced: int, body: bytes, ending: Answer) -> Answer:
    """basic.consume-ok, and a delivery that ends in the middle of its body."""

    def answer(served: Served, channel: int, method: Any, content: Content | None) -> None:
        served.honest_answer(channel, method)
        tag = method.consumer_tag or f"amq.ctag-{served.named}"
        served.send_part(
            channel, methods.BasicDeliver(consumer_tag=tag, delivery_tag=1, routing_key="q"), announced, body
        )
        ending(served, channel, method, content)

    return answer
