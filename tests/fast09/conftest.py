from __future__ import annotations

from collections.abc import Iterator

import pytest
from fast09.conversation import Peer
from playbook.dialogue import Playbook


@pytest.fixture
def playbook() -> Iterator[Playbook]:
    playbook = Playbook()
    yield playbook
    playbook.end()


@pytest.fixture
def stranger(playbook: Playbook) -> Peer:
    return Peer(playbook)


@pytest.fixture
def peer(playbook: Playbook) -> Peer:
    """A client with an open connection, and channel 1."""
    peer = Peer(playbook)
    peer.open()
    peer.opens_channel()
    return peer
