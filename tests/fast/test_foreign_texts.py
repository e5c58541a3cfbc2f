"""Playbook: texts of other protocols that AMQP/Fast does not have reach its clients as texts that it has."""

from __future__ import annotations

import pytest
from fast.conversation import FastClient
from playbook.dialogue import Playbook

from flintmq.wire.fast import commands, crossing, message_head


def notified(heard: bytes) -> tuple[commands.HandleNotify, message_head.MessageHead]:
    """The first command and its fragment, read as a client reads them."""
    size = 2 + int.from_bytes(heard[:2], "big")
    command = commands.decode(heard[2 : size - 1])
    assert isinstance(command, commands.HandleNotify)
    fragment = heard[size : size + command.fragment_size]
    return command, message_head.decode(fragment[: message_head.end_of(fragment, 0, len(fragment))])


@pytest.mark.parametrize(
    ("text", "shown"), [("\udcff.k", "\ufffd.k"), ("a\0b", "a\ufffdb"), ("\udcff" * 255, "\ufffd" * 85)]
)
def test_what_is_no_text_is_marked(playbook: Playbook, fast: FastClient, text: str, shown: str) -> None:
    client = playbook.client()
    fast.opens_handle("", service=2)
    fast >> "20 0001 0000 0009 00 00 0000"
    client.publishes(text, b"1", exchange="amq.topic", content_type=text, message_id=text)
    command, head = notified(fast.hears())
    assert (command.dest_name, head.mime_type, head.identifier) == (shown, shown, shown)


def test_a_queue_whose_name_contains_a_nul(playbook: Playbook, fast: FastClient) -> None:
    client = playbook.client()
    client.declares("q\0")
    client.publishes("q\0", b"1")
    fast.opens_handle("q")
    fast >> "20 0001 0000 0009 00 00 0000"
    assert notified(fast.hears())[0].dest_name == "q\ufffd"


@pytest.mark.parametrize("text", ["", "plain", "é", "\u20ac" * 85])
def test_texts_stay_as_they_are(text: str) -> None:
    octets = text.encode()
    assert crossing.short_text(octets) == bytes((len(octets),)) + octets
