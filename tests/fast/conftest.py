from __future__ import annotations

from collections.abc import Iterator

import pytest
from fast.conversation import FastClient
from playbook.dialogue import Playbook


@pytest.fixture
def playbook() -> Iterator[Playbook]:
    playbook = Playbook()
    yield playbook
    playbook.end()


@pytest.fixture
def fast(playbook: Playbook) -> FastClient:
    """A client with an open connection."""
    client = FastClient(playbook)
    client.open()
    return client
