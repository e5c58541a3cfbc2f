"""Users whom a back end answers for: the connection that needs an answer waits, and no other."""

from __future__ import annotations

import pytest
from playbook.dialogue import Client, Playbook, Request, Response, carrying
from playbook.hourglass import Hourglass

from flintmq.auth import Tag, authentication
from flintmq.auth.asked_permissions import Question, ask_at_once
from flintmq.auth.backend import Identity, Login
from flintmq.clock import Clock
from flintmq.config import parse
from flintmq.wire import amqp
from flintmq.wire.fields import Content
from flintmq.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicPublish,
    ChannelClose,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionTune,
    ConnectionTuneOk,
    MessageAppend,
    MessageClose,
    MessageGet,
    MessageOk,
    MessageOpen,
    MessageTransfer,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
)

SETTINGS = '[auth]\nbackends = ["internal", "back"]\n[auth.back]\n'


class Back:
    """Lets bob do what does not begin with `no`."""

    timeout_s, cache_s, can_renew = 1.0, 60.0, False

    def authenticate(self, login: Login) -> Identity | None:
        is_right = (login.name, login.password) == ("bob", b"bob")
        return Identity("bob", frozenset({Tag.MANAGEMENT}), permissions=None) if is_right else None

    def may_enter(self, identity: Identity, virtual_host: str, peer_address: str) -> bool:
        return True

    def may(self, identity: Identity, virtual_host: str, kind: str, name: str, operation: str) -> bool:
        return not name.startswith("no")

    def may_use_topic(
        self, identity: Identity, virtual_host: str, exchange: str, operation: str, routing_key: str
    ) -> bool:
        return not routing_key.startswith("no")


class Scene:
    """A broker whose back end answers when the test says so."""

    def __init__(self, version: int = amqp.VERSION_0_9_1, clock: Clock | None = None) -> None:
        self.playbook = Playbook(parse(SETTINGS), clock)
        self.asked: list[Question] = []
        self.playbook.broker.authentication.answers.asking = self.asked.append
        self.bob = self.playbook.stranger(version)
        self.bob.greet()
        self.bob.log_in("bob", "bob")
        self.bob.hears(ConnectionTune)
        self.bob >> ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
        self.bob >> ConnectionOpen(virtual_host="/")
        self.waits()
        self.bob << ConnectionOpenOk()
        self.bob >> ChannelOpen()
        self.bob.hears(ChannelOpenOk)

    def waits(self) -> None:
        """Bob hears nothing until the back end has answered."""
        self.bob.hears_nothing()
        assert self.asked
        assert self.bob.link.notes[-1] == "wait_for_answer"
        self.answer()

    def answer(self) -> None:
        while self.asked:
            ask_at_once(self.asked.pop(0))
            self.bob.receive(b"")  # goes on with what it has not looked at


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(authentication, "backend", lambda name, auth, clock: Back())
    return Scene()


def test_methods_wait_for_their_answers(scene: Scene) -> None:
    bob = scene.bob
    bob >> QueueDeclare(queue="q")
    other = scene.playbook.client()  # guest, whom nobody is asked about
    other.declares("guests")
    scene.waits()
    assert bob.hears(QueueDeclareOk).queue == "q"
    bob >> QueueDeclare(queue="no")
    scene.waits()
    closed = bob.hears(ChannelClose)
    assert closed.reply_code == amqp.ACCESS_REFUSED
    assert "user 'bob' may not configure queue 'no'" in closed.reply_text
    scene.playbook.end()


def test_a_queue_without_a_name_is_asked_for_once(scene: Scene) -> None:
    """The name that the broker draws is that of the question when the answer comes."""
    bob = scene.bob
    bob >> QueueDeclare(queue="")
    assert len(scene.asked) == 1
    ask_at_once(scene.asked.pop())
    assert scene.asked == []
    first = bob.hears(QueueDeclareOk).queue
    assert first.startswith("amq.gen-")
    assert first in scene.playbook.broker.virtual_hosts["/"].queues
    bob >> QueueDeclare(queue="")
    scene.waits()
    assert bob.hears(QueueDeclareOk).queue != first
    scene.playbook.end()


def publishes(bob: Client, *bodies: bytes, exchange: str = "", key: str = "q") -> None:
    with bob.playbook.one_pass():
        octets = b"".join(
            bob.frames(1, carrying(BasicPublish(exchange=exchange, routing_key=key), body)) for body in bodies
        )
        bob >> octets


def test_publishes_wait_in_their_order_and_are_confirmed_once(scene: Scene) -> None:
    bob = scene.bob
    guest = scene.playbook.client()
    guest.declares("q")
    bob >> ConfirmSelect() << ConfirmSelectOk()
    publishes(bob, b"1", b"2", b"3")
    assert guest.gets_all("q") == []
    scene.waits()
    assert guest.gets_all("q") == [b"1", b"2", b"3"]
    tags = [method for _, method in bob.heard()]
    assert tags[-1] == BasicAck(delivery_tag=3, multiple=True)
    bob.inbox.clear()
    publishes(bob, b"4")  # by what is known
    assert guest.gets_all("q") == [b"4"]
    bob << BasicAck(delivery_tag=4)
    publishes(bob, b"5", b"6", exchange="amq.topic", key="no.way")
    bob.hears_nothing()
    scene.answer()
    closed = bob.hears(ChannelClose)
    assert "may not write to topic 'no.way'" in closed.reply_text
    scene.playbook.end()


def test_an_answer_for_one_who_has_gone_does_nothing(scene: Scene) -> None:
    bob = scene.bob
    bob >> QueueDeclare(queue="q")
    bob.session.release()
    bob.session.connection.follow("lost")
    scene.answer()
    bob.hears_nothing()
    assert "q" not in scene.playbook.broker.virtual_hosts["/"].queues


def test_an_answer_that_never_comes_is_a_refusal(scene: Scene) -> None:
    bob = scene.bob
    bob >> QueueDeclare(queue="q")
    scene.asked.pop().fail("no answer in 1 s")
    assert bob.hears(ChannelClose).reply_code == amqp.ACCESS_REFUSED
    scene.playbook.end()


def test_requests_to_the_broker_wait_too(scene: Scene) -> None:
    bob = scene.bob
    bob >> QueueDeclare(queue="replies", exclusive=True)
    scene.waits()
    bob.hears(QueueDeclareOk)
    bob >> BasicConsume(queue="replies", consumer_tag="c", no_ack=True)
    scene.waits()
    bob << BasicConsumeOk(consumer_tag="c")
    asked = BasicPublish(exchange="amq.system", routing_key="queue.peek")
    bob >> carrying(asked, headers={"queue": "replies"}, reply_to="replies")
    scene.answer()
    found = bob.next(1)
    assert isinstance(found.method, BasicDeliver)  # type: ignore[attr-defined]
    assert "error-code" not in found.properties.headers  # type: ignore[attr-defined]
    scene.playbook.end()


def test_a_bug_behind_an_answer_ends_that_connection(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bob = scene.bob
    bob >> QueueDeclare(queue="q")

    def fail(*arguments: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("flintmq.server.commands.command.run", fail)
    scene.answer()
    assert bob.hears(ConnectionClose).reply_code == amqp.INTERNAL_ERROR
    assert "a bug ends the connection" in caplog.text


def test_requests_of_the_message_class_wait_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "backend", lambda name, auth, clock: Back())
    scene = Scene(amqp.VERSION_0_9)
    bob = scene.bob
    bob >> QueueDeclare(queue="q")
    scene.waits()
    bob.hears(QueueDeclareOk)
    bob >> Request(1, MessageTransfer(routing_key="q", body=Content(b"m")))
    scene.waits()
    bob << Response(1, 1, MessageOk())
    bob >> Request(2, MessageOpen(reference=b"r")) << Response(2, 2, MessageOk())
    bob >> Request(3, MessageAppend(reference=b"r", octets=b"n")) << Response(3, 3, MessageOk())
    bob >> Request(4, MessageTransfer(destination="amq.fanout", body=Content(b"r", True)))
    scene.waits()
    bob >> Request(5, MessageClose(reference=b"r"))
    bob << Response(4, 5, MessageOk()) << Response(5, 4, MessageOk())
    bob >> Request(6, MessageGet(queue="q"))
    scene.waits()
    assert isinstance(bob.next(1), Request)
    bob << Response(6, 6, MessageOk())


class NarrowBack(Back):
    """Lets bob into one virtual host."""

    def may_enter(self, identity: Identity, virtual_host: str, peer_address: str) -> bool:
        return virtual_host == "/"


@pytest.mark.parametrize("name", ["shut", "none"])
def test_a_virtual_host_that_is_not_there_is_refused_no_sooner_than_another(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Else the time would tell which there are."""
    monkeypatch.setattr(authentication, "backend", lambda name, auth, clock: NarrowBack())
    playbook = Playbook(parse(SETTINGS)._replace(virtual_hosts=("/", "shut")))
    asked: list[Question] = []
    playbook.broker.authentication.answers.asking = asked.append
    bob = playbook.stranger()
    bob.greet()
    bob.log_in("bob", "bob")
    bob.hears(ConnectionTune)
    bob >> ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
    bob >> ConnectionOpen(virtual_host=name)
    bob.hears_nothing()
    assert len(asked) == 1
    ask_at_once(asked.pop())
    closed = bob.hears(ConnectionClose, 0)
    assert f"access to vhost '{name}' refused for user 'bob'" in closed.reply_text


class SlowBack(Back):
    """Takes longer to answer than its answers are kept."""

    def __init__(self, clock: Hourglass) -> None:
        self.clock = clock

    def may(self, identity: Identity, virtual_host: str, kind: str, name: str, operation: str) -> bool:
        self.clock.now_s += 3 * self.cache_s
        return True


def test_a_method_with_several_questions_is_done_though_each_answer_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Hourglass()
    monkeypatch.setattr(authentication, "backend", lambda name, auth, own_clock: SlowBack(clock))
    scene = Scene(clock=clock)
    scene.playbook.client().declares("q")
    scene.bob >> QueueBind(queue="q", exchange="amq.fanout", arguments={})
    for _ in range(3):  # to write to the queue, to read from the exchange; one of them is asked about again
        if scene.asked:
            ask_at_once(scene.asked.pop(0))
            scene.bob.receive(b"")
    scene.bob.hears(QueueBindOk)
    scene.playbook.end()
