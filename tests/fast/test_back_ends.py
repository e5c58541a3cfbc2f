"""Playbook: users of AMQP/Fast whom a back end answers for."""

from __future__ import annotations

from pathlib import Path

import pytest
from fast.conversation import HEAD, FastClient, framed, octets
from playbook.dialogue import Playbook
from playbook.hourglass import Hourglass
from playbook.paged import PagedPlaybook
from playbook.test_asked_permissions import SETTINGS, Back

from flintmq.auth import authentication
from flintmq.auth.asked_permissions import FAULT_S, Question, ask_at_once
from flintmq.auth.backend import Identity
from flintmq.clock import Clock
from flintmq.config import parse
from flintmq.server.fast.handle_commands import ASKED_AT_ONCE
from flintmq.wire.methods import QueueDelete

QUESTIONS_MAX = 20


class Scene:
    """Bob, of whom the back end says what he may do when the test says so."""

    def __init__(self, clock: Clock | None = None, playbook: Playbook | None = None) -> None:
        playbook = playbook or Playbook(parse(SETTINGS), clock)
        self.asked: list[Question] = []
        playbook.broker.authentication.answers.asking = self.asked.append
        self.other = playbook.client()
        self.other.declares("q")
        self.queues = playbook.broker.virtual_hosts["/"].queues
        self.bob = FastClient(playbook)
        self.bob >> octets("80 01")
        self.bob >> "0b 05 'PLAIN' 001b 05 'LOGIN' 'S' 0003 'bob' 08 'PASSWORD' 'S' 0003 'bob'"
        self.bob.hears()
        self.bob >> "0d 0000 01 '/' 00 0000"
        self.answer()
        self.bob >> "14 0001 0000 02 0000 00"
        self.bob.hears()

    def answer(self) -> None:
        for _ in range(QUESTIONS_MAX):
            if not self.asked:
                return
            self.bob.hears_nothing()
            ask_at_once(self.asked.pop(0))
            self.bob.receive(b"")  # goes on with what it has not looked at
        raise AssertionError("there is always one more question")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(authentication, "backend", lambda name, auth, clock: Back())
    return Scene()


def test_a_message_waits_for_the_answer(scene: Scene) -> None:
    bob = scene.bob
    bob >> "1e 0001 0001 0001 0000 01 01 'q' 00 00 0000"
    bob.sends(b"one", confirm_tag=5)
    bob.sends(b"two", confirm_tag=6)
    assert scene.asked
    scene.answer()
    bob << "30 0001 0005 00c8 02 'Ok'"
    bob << "30 0001 0006 00c8 02 'Ok'"
    assert scene.other.gets_all("q") == [b"one", b"two"]


def test_a_message_in_fragments_waits_for_the_answer(scene: Scene) -> None:
    bob = scene.bob
    bob >> "1e 0001 0001 0002 0000 01 00 00 00 0000"
    block = octets("00000004" + HEAD)
    bob >> framed(f"1f 0001 0000 {len(block) + 2:08x} 01 00") + block + b"fo"
    scene.answer()
    bob >> framed("1f 0001 0005 00000002 00 04 'some'") + b"ur"
    scene.answer()
    bob << "30 0001 0005 00c8 02 'Ok'"


def test_a_prepared_message_waits_for_the_answer(scene: Scene) -> None:
    bob = scene.bob
    bob >> "1e 0001 0001 0001 0000 01 01 'q' 00 00 0000"
    block = octets("00000004" + HEAD)
    bob >> framed(f"2b 0001 {len(block) + 2:08x} 00") + block + b"fo"
    scene.answer()
    bob << "2c 0001 00000002"
    bob >> framed("1f 0001 0005 00000002 04 00") + b"ur"
    scene.answer()
    bob << "30 0001 0005 00c8 02 'Ok'"
    assert scene.other.gets_all("q") == [b"four"]


def test_who_may_not_send_is_refused_after_the_answer(scene: Scene) -> None:
    bob = scene.bob
    bob >> "1e 0001 0001 0002 0000 01 02 'no' 00 00 0000"
    bob.sends(b"one", confirm_tag=5)
    scene.answer()
    assert bob.hears()[2:7] == octets("31 0001 0193")


def test_a_temporary_queue_is_made_once(scene: Scene) -> None:
    scene.bob >> "1e 0001 0001 0001 0003 0f 00 00 00 0000"
    scene.answer()
    heard = scene.bob.hears()
    assert heard[2:5] == octets("28 0001")
    assert heard.endswith(framed("30 0001 0003 00c8 02 'Ok'"))
    assert len(scene.queues) == 2


def test_a_subscription_has_one_queue(scene: Scene) -> None:
    bob = scene.bob
    bob >> "1e 0001 0001 0002 0000 03 03 'a.b' 00 00 0000"
    bob >> "20 0001 0004 0001 00 00 0000"
    scene.answer()
    bob << "30 0001 0004 00c8 02 'Ok'"
    assert len(scene.queues) == 2
    scene.other.publishes("a.b", b"one", exchange="amq.topic")
    assert bob.hears()[2:5] == octets("29 0001")


class FailingBack(Back):
    """Has no answer about most names, and takes longer to fail than a refusal for that is kept."""

    def __init__(self, clock: Hourglass) -> None:
        self.clock = clock

    def may_enter(self, identity: Identity, virtual_host: str, peer_address: str) -> bool:
        if virtual_host == "/":
            return True
        self.clock.now_s += 2 * FAULT_S
        raise OSError("out of order")

    def may(self, identity: Identity, virtual_host: str, kind: str, name: str, operation: str) -> bool:
        self.clock.now_s += 2 * FAULT_S
        if name == "a.2":
            return True
        raise OSError("out of order")


def test_a_consumer_of_many_hears_of_a_back_end_that_fails_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Hourglass()
    monkeypatch.setattr(authentication, "backend", lambda name, auth, own_clock: FailingBack(clock))
    scene = Scene(clock)
    for number in range(1, 11):
        scene.other.declares(f"a.{number}")
    bob = scene.bob
    bob >> "1e 0001 0001 0001 0000 03 02 'a.' 00 00 0000"
    bob >> "20 0001 0004 0001 00 00 0000"
    assert len(scene.asked) == ASKED_AT_ONCE
    scene.answer()
    bob << "30 0001 0004 00c8 02 'Ok'"
    consumed = {name: len(queue.consumers) for name, queue in scene.queues.items()}
    assert [name for name, count in consumed.items() if count] == ["a.2"]


@pytest.mark.parametrize(
    ("path", "questions"), [("shut", 1), ("none", 1), ("/shut", 2), ("/none", 2), ("/as-is", 2)]
)
def test_a_path_of_no_virtual_host_is_refused_no_sooner_than_another(
    monkeypatch: pytest.MonkeyPatch, path: str, questions: int
) -> None:
    """Nor later, though the back end takes longer for its answers than they are kept."""
    clock = Hourglass()
    monkeypatch.setattr(authentication, "backend", lambda name, auth, own_clock: FailingBack(clock))
    playbook = Playbook(parse(SETTINGS)._replace(virtual_hosts=("/", "shut", "/as-is")), clock)
    asked: list[Question] = []
    playbook.broker.authentication.answers.asking = asked.append
    bob = FastClient(playbook)
    bob >> octets("80 01")
    bob >> "0b 05 'PLAIN' 001b 05 'LOGIN' 'S' 0003 'bob' 08 'PASSWORD' 'S' 0003 'bob'"
    bob.hears()
    bob >> f"0d 0000 {len(path):02x} '{path}' 00 0000"
    for _ in range(questions):
        bob.hears_nothing()
        assert len(asked) == 1
        ask_at_once(asked.pop())
    assert f"access to vhost '{path}' refused".encode() in bob.hears()
    assert asked == []


class ChangingBack(Back):
    """Whom the back end lets send first may not send later."""

    is_open = True

    def may(self, identity: Identity, virtual_host: str, kind: str, name: str, operation: str) -> bool:
        return self.is_open or operation == "read"


@pytest.mark.parametrize("is_open", [True, False])
def test_a_handle_that_ends_meanwhile_does_not_take_the_answer_of_another(
    monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    clock, back = Hourglass(), ChangingBack()
    monkeypatch.setattr(authentication, "backend", lambda name, auth, own_clock: back)
    scene = Scene(clock)
    bob = scene.bob
    scene.other.declares("gone")
    bob >> "1e 0001 0002 0001 0000 03 04 'gone' 00 00 0000"
    bob >> "20 0002 0004 0001 00 00 0000"
    bob >> "1e 0001 0003 0001 0000 03 01 'q' 00 00 0000"
    scene.answer()
    bob.hears()
    bob.sends(b"one", handle=3, confirm_tag=5)
    scene.answer()
    bob << "30 0003 0005 00c8 02 'Ok'"
    back.is_open = is_open
    clock.now_s += 4 * back.cache_s  # what the back end has said is forgotten
    bob.session.broker.authentication.answers.on_changed()
    bob.sends(b"two", handle=3, confirm_tag=6)
    scene.other >> QueueDelete(queue="gone", no_wait=True)
    bob.hears_nothing()
    scene.answer()
    heard = bob.hears()
    confirmed, closed = framed("30 0003 0006 00c8 02 'Ok'"), octets("31 0002 0194")
    assert closed in heard, heard.hex(" ")
    assert heard.startswith(confirmed) == is_open
    assert (octets("31 0003 0193") in heard) != is_open
    assert scene.other.gets_all("q") == ([b"one", b"two"] if is_open else [b"one"])
    bob.hears_nothing()


class RefusingBack(Back):
    """Refuses what the test says, from then on."""

    def __init__(self) -> None:
        self.refused = ""

    def may(self, identity: Identity, virtual_host: str, kind: str, name: str, operation: str) -> bool:
        return name != self.refused


BODIES, SENDS = "amq.default", "amq.topic"


@pytest.mark.parametrize("refused", [BODIES, SENDS])
@pytest.mark.parametrize("answered_first", [BODIES, SENDS])
def test_a_refusal_costs_its_own_handle_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refused: str, answered_first: str
) -> None:
    """A back end is asked about a SEND, and about a body of another channel that goes to a file meanwhile."""
    back = RefusingBack()
    monkeypatch.setattr(authentication, "backend", lambda name, auth, own_clock: back)
    playbook = PagedPlaybook(tmp_path / "data", config=parse(SETTINGS))
    scene = Scene(playbook=playbook)
    bob = scene.bob
    bob >> "14 0002 0000 02 0000 00"
    bob.hears()
    bob >> "1e 0001 0001 0001 0000 01 01 'q' 00 00 0000"
    bob >> "1e 0002 0002 0002 0000 01 01 't' 00 00 0000"
    bob.sends(b"one", handle=2, confirm_tag=5)
    scene.answer()
    bob << "30 0002 0005 00c8 02 'Ok'"
    block = octets("00010001" + HEAD) + bytes(65_536)
    bob >> framed(f"1f 0001 0000 {len(block):08x} 01 00") + block  # all but the last octet
    scene.answer()
    playbook.clock.now_s += 4 * back.cache_s  # what the back end has said is forgotten
    playbook.broker.authentication.answers.on_changed()
    back.refused = refused
    bob.sends(b"two", handle=2, confirm_tag=6)
    bob.session.spool_contents()
    questions = sorted(scene.asked, key=lambda question: question.key[4] != answered_first)
    assert {question.key[4] for question in questions} == {BODIES, SENDS}
    scene.asked.clear()
    for question in questions:
        assert bob.link.notes[-1] == "wait_for_answer", "until both are answered"
        ask_at_once(question)
    while scene.asked:  # about the topic
        ask_at_once(scene.asked.pop())
    assert bob.link.notes[-1] == "answered"
    heard = bob.hears()
    confirmed = framed("30 0002 0006 00c8 02 'Ok'")
    if refused == SENDS:
        assert heard[2:7] == octets("31 0002 0193"), heard.hex(" ")
    else:
        assert octets("31 0001 0193") in heard, heard.hex(" ")
    assert (confirmed in heard) == (refused == BODIES)
    playbook.end()
    playbook.close()
