"""Permissions that a back end is asked for: what is known, what is being asked, what is getting old."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintmq.auth import AnswerPending, Operation, User, may, require, require_topic
from flintmq.auth import asked_permissions as module
from flintmq.auth.asked_permissions import Answers, AskedHosts, AskedTopics, Question
from flintmq.auth.backend import BackendFault, Identity, Login
from flintmq.errors import ChannelFault


class Back:
    """Allows what is in `allowed`."""

    timeout_s, cache_s, can_renew = 1.0, 10.0, False

    def __init__(self) -> None:
        self.allowed: set[tuple[str, ...]] = set()
        self.fault = ""

    def say(self, *asked: str) -> bool:
        if self.fault:
            raise BackendFault(self.fault)
        return asked in self.allowed

    def authenticate(self, login: Login) -> Identity | None:
        return None

    def may_enter(self, identity: Identity, virtual_host: str, peer_address: str) -> bool:
        return self.say(virtual_host, peer_address)

    def may(self, identity: Identity, virtual_host: str, kind: str, name: str, operation: str) -> bool:
        return identity.name == "bob" and self.say(virtual_host, kind, name, operation)

    def may_use_topic(
        self, identity: Identity, virtual_host: str, exchange: str, operation: str, routing_key: str
    ) -> bool:
        return self.say(virtual_host, exchange, operation, routing_key)


class World:
    """A user, the back end, and time that the test makes go on."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.back = Back()
        self.answers = Answers(lambda: self.now_s)
        self.asked: list[Question] = []
        self.answers.asking = self.asked.append
        self.changes = 0
        self.answers.on_changed = self.changed
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.answers.later = lambda seconds, callback: self.timers.append((self.now_s + seconds, callback))
        self.user = self.named("bob")

    def named(self, name: str) -> User:
        hosts = AskedHosts(self.answers, "back", self.back, Identity(name, permissions=None), "::1")
        return User(name, permissions=hosts, topic_permissions=AskedTopics(hosts))

    def changed(self) -> None:
        self.changes += 1

    def answer(self) -> None:
        while self.asked:
            module.ask_at_once(self.asked.pop(0))

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        due, self.timers = self.timers, []
        for due_s, callback in due:
            if due_s <= self.now_s:
                callback()
            else:
                self.timers.append((due_s, callback))


@pytest.fixture
def world() -> World:
    return World()


def test_an_answer_is_asked_for_once_and_kept(world: World) -> None:
    world.back.allowed.add(("/", "exchange", "amq.default", "write"))
    for _ in range(3):
        with pytest.raises(AnswerPending) as pending:
            require(world.user, "/", Operation.WRITE, "exchange", "")
    assert pending.value.code == 403
    assert len(world.asked) == 1
    told: list[str] = []
    pending.value.question.tell(lambda: told.append("now"))
    world.answer()
    assert told == ["now"]
    require(world.user, "/", Operation.WRITE, "exchange", "")
    with pytest.raises(AnswerPending):
        require(world.named("eve"), "/", Operation.WRITE, "exchange", "")
    with pytest.raises(AnswerPending):
        require(world.user, "/", Operation.WRITE, "queue", "amq.default")
    world.answer()
    with pytest.raises(ChannelFault, match="user 'eve' may not write to exchange"):
        require(world.named("eve"), "/", Operation.WRITE, "exchange", "")
    assert world.asked == []


def test_virtual_hosts_and_topics_are_asked_for(world: World) -> None:
    world.back.allowed |= {("/", "::1"), ("/", "amq.topic", "write", "a.b")}
    for wanted in (lambda: world.user.may_enter("/"), lambda: topic(world, "a.b"), lambda: topic(world, "x")):
        with pytest.raises(AnswerPending):
            wanted()
    world.answer()
    assert world.user.may_enter("/")
    assert topic(world, "a.b")
    with pytest.raises(ChannelFault, match="may not write to topic 'x'"):
        topic(world, "x")
    assert world.user.topic_permissions


def topic(world: World, key: str) -> bool:
    return require_topic(world.user, "/", Operation.WRITE, "amq.topic", key, None)


def test_names_with_quotes_are_not_taken_for_others(world: World) -> None:
    world.back.allowed.add(("b", "queue", "q' of 'a", "read"))
    world.back.allowed.add(("b", "queue", "q queue x", "read"))
    for host, name in (("b", "q' of 'a"), ("a' of 'b", "q"), ("b", "q queue x")):
        with pytest.raises(AnswerPending):
            may(world.user, host, Operation.READ, name)
    world.answer()
    assert may(world.user, "b", Operation.READ, "q' of 'a")
    assert not may(world.user, "a' of 'b", Operation.READ, "q")


def test_an_old_answer_is_asked_for_again_while_it_is_used(world: World) -> None:
    world.back.allowed.add(("/", "queue", "q", "read"))
    with pytest.raises(AnswerPending):
        may(world.user, "/", Operation.READ, "q")
    world.answer()
    world.passes(10.5)
    assert world.changes == 1, "channels look again"
    assert may(world.user, "/", Operation.READ, "q"), "nobody waits"
    assert len(world.asked) == 1
    world.back.allowed.clear()
    world.answer()
    assert world.changes == 2, "at once"
    assert not may(world.user, "/", Operation.READ, "q")


def test_channels_look_again_as_long_as_answers_are_used(world: World) -> None:
    """What was asked for shortly before a look is looked at by the next one."""
    with pytest.raises(AnswerPending):
        may(world.user, "/", Operation.READ, "first")
    world.answer()
    world.passes(9)
    world.back.allowed.add(("/", "queue", "second", "read"))
    with pytest.raises(AnswerPending):
        may(world.user, "/", Operation.READ, "second")
    world.answer()
    world.passes(2)
    assert world.changes == 1
    assert may(world.user, "/", Operation.READ, "second")
    world.passes(10)
    assert world.changes == 2
    world.passes(100)
    assert (world.changes, world.timers) == (2, []), "nobody needs it any more"


def test_an_answer_that_is_too_old_is_none(world: World) -> None:
    world.back.allowed.add(("/", "queue", "q", "read"))
    with pytest.raises(AnswerPending):
        may(world.user, "/", Operation.READ, "q")
    world.answer()
    world.passes(21)
    with pytest.raises(AnswerPending):
        may(world.user, "/", Operation.READ, "q")


def test_a_fault_is_a_refusal_for_a_moment(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.back.allowed.add(("/", "queue", "q", "read"))
    world.back.fault = "away"
    with pytest.raises(AnswerPending):
        may(world.user, "/", Operation.READ, "q")
    world.answer()
    assert not may(world.user, "/", Operation.READ, "q")
    assert "does not say whether user 'bob' may read queue q / (back end back): away" in caplog.text
    world.back.fault = ""
    world.passes(1.5)
    with pytest.raises(AnswerPending):
        may(world.user, "/", Operation.READ, "q")
    world.answer()
    assert may(world.user, "/", Operation.READ, "q")


def test_a_back_end_that_lies_allows_nothing(world: World) -> None:
    world.back.say = lambda *asked: "yes"  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(AnswerPending):
        may(world.user, "/", Operation.READ, "q")
    world.answer()
    assert not may(world.user, "/", Operation.READ, "q")


def test_questions_and_answers_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUESTIONS_MAX", 5)
    monkeypatch.setattr(module, "ANSWERS_MAX", 3)
    for number in range(5):
        with pytest.raises(AnswerPending):
            may(world.user, "/", Operation.READ, f"q{number}")
    assert not may(world.user, "/", Operation.READ, "one too many")
    assert len(world.asked) == 5
    world.answer()
    assert not may(world.user, "/", Operation.READ, "q4")
    with pytest.raises(AnswerPending):
        may(world.user, "/", Operation.READ, "q0")


def test_what_is_known_holds_while_there_is_no_room_to_ask_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.back.allowed.add(("/", "queue", "q", "read"))
    with pytest.raises(AnswerPending):
        may(world.user, "/", Operation.READ, "q")
    world.answer()
    monkeypatch.setattr(module, "QUESTIONS_MAX", 2)
    eve = world.named("eve")
    for number in range(2):
        with pytest.raises(AnswerPending):
            may(eve, "/", Operation.READ, f"q{number}")
    world.passes(10.5)
    assert may(world.user, "/", Operation.READ, "q")
    assert len(world.asked) == 2
    world.passes(10)
    assert not may(world.user, "/", Operation.READ, "q"), "too old"


def test_one_user_leaves_room_for_the_questions_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUESTIONS_PER_USER_MAX", 3, raising=False)
    eve = world.named("eve")
    for _ in range(2):
        for number in range(3):
            with pytest.raises(AnswerPending):
                may(eve, "/", Operation.READ, f"q{number}")
        assert not may(eve, "/", Operation.READ, "one too many")
        with pytest.raises(AnswerPending):
            may(world.user, "/", Operation.READ, "q")
        world.answer()
        world.passes(100)
    assert not world.answers._asking, "users without a question leave nothing behind"
