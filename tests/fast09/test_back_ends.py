"""Playbook: users of AMQP/Fast 0.9 whom a back end answers for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fast09.conversation import Peer, octets
from playbook.paged import PagedPlaybook
from playbook.test_asked_permissions import SETTINGS, Back
from playbook.test_staging import settle

from flintmq.auth import authentication
from flintmq.auth.asked_permissions import Question, ask_at_once
from flintmq.config import parse

QUESTIONS_MAX = 20


class Scene:
    """Bob, of whom the back end says what he may do when the test says so."""

    def __init__(self, directory: Path) -> None:
        self.playbook = PagedPlaybook(directory, config=parse(SETTINGS))
        self.asked: list[Question] = []
        self.playbook.broker.authentication.answers.asking = self.asked.append
        self.other = self.playbook.client()
        self.other.declares("q", durable=True)
        self.bob = Peer(self.playbook)
        self.bob.logs_in("bob", "bob")
        self.bob >> "01 00 | 01 06 00 0003 | 00020000 0000 0000 0000 07 00000000"
        self.bob >> "01 00 | 01 07 00 0004 | 01 '/' 00"
        self.bob.hears()
        self.answer()
        self.bob.hears()
        self.bob.opens_channel()

    def answer(self) -> None:
        """All that the back end is asked, while Bob hears nothing."""
        assert self.asked
        for _ in range(QUESTIONS_MAX):
            if not self.asked:
                return
            self.bob.hears_nothing()
            ask_at_once(self.asked.pop(0))
            self.bob.receive(b"")  # goes on with what it has not looked at
        raise AssertionError("there is always one more question")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Scene]:
    monkeypatch.setattr(authentication, "backend", lambda name, auth, clock: Back())
    scene = Scene(tmp_path / "data")
    yield scene
    scene.playbook.end()
    scene.playbook.close()


@pytest.mark.parametrize("class_id", ["06", "08"])
def test_a_consumer_gets_messages_after_the_answer(scene: Scene, class_id: str) -> None:
    bob = scene.bob
    rate = "00000000" if class_id == "08" else ""
    bob >> f"01 01 | {class_id} 01 00 0004 | 0000 00 01 'q' 0000 0000 {rate} 00"
    scene.answer()
    heard = bob.hears()
    assert heard[4:9].hex() == f"{class_id}02000004", heard.hex(" ")
    tag = heard[9:11].hex()
    if class_id == "06":
        scene.other.publishes("q", b"one")
        assert bob.hears().endswith(b"one")
    bob >> f"01 01 | {class_id} 03 00 0008 | {tag}"
    bob << f"01 01 | {class_id} 04 00 0008"
    assert not bob.output.targets


def test_a_file_is_published_after_the_answer(scene: Scene) -> None:
    bob = scene.bob
    bob >> "01 01 | 07 05 00 0004 | 01 'f' 0000000000000004"  # Open
    settle(scene.playbook)
    bob << "01 01 | 07 06 00 0004 | 0000000000000000"
    bob >> "01 01 | 07 07 00 0000\n02 01 | 07 00 0000000000000004 0800 01 'q'\n03 01 | 'four'"  # Stage
    settle(scene.playbook)
    bob >> "01 01 | 07 08 80 0005 | 0000 00 00 01 'f'"  # Publish, with a synchpoint
    scene.answer()
    settle(scene.playbook)
    bob << "01 01 | 02 06 00 0005"
    assert scene.other.gets_all("q") == [b"four"]


def test_immediate_asserts_a_consumer_after_the_answer(scene: Scene) -> None:
    bob = scene.bob
    bob.opens_channel(2)
    bob.publishes("a", "q", immediate=1, flags="80", synctag=9)
    scene.answer()
    heard = bob.hears()
    assert heard[:2] == b"\x01\x01"
    assert heard[4:11] == octets("02 04 00 0000 | 0139"), heard.hex(" ")
    assert heard.endswith(octets("06 05 0009"))
    bob >> "01 02 | 0b 01 00 0010 | 01 0002 00000003 0000000000000004 01"  # Test.Integer
    assert bob.hears()[4:6] == octets("0b 02"), "another channel goes on"


@pytest.mark.parametrize("proxy", ["", "no"])
def test_a_synchpoint_in_a_transaction_waits_for_the_answer(scene: Scene, proxy: str) -> None:
    bob = scene.bob
    bob.opens_channel(2, tx_mode=1)
    bob.publishes("a", "q", proxy=proxy, flags="80", synctag=9, channel=2)
    scene.answer()
    heard = bob.hears()
    if proxy:
        assert heard[4:11] == octets("02 04 00 0000 | 0193"), heard.hex(" ")
        assert heard.endswith(octets("06 05 0009"))
    else:
        assert heard == octets("01 02 0005 | 02 06 00 0009")


def test_a_close_names_the_publish_whose_body_was_refused_after_the_answer(scene: Scene) -> None:
    bob = scene.bob
    bob.publishes("a", "q", synctag=7)
    scene.answer()
    bob >> f"01 01 | 06 05 00 0008 | 0000 02 'no' 00\n02 01 | 06 00 {5_000_000:016x} 0200 01 'q'"
    scene.answer()
    heard = bob.hears()
    assert heard[4:11] == octets("02 04 00 0000 | 0193"), heard.hex(" ")
    assert heard.endswith(octets("06 05 0008"))
    assert scene.other.gets_all("q") == [b"a"]
