"""A playbook for each test; whatever a client was told must have been heard at its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playbook.dialogue import Client, Playbook


@pytest.fixture
def playbook() -> Iterator[Playbook]:
    playbook = Playbook()
    yield playbook
    playbook.end()


@pytest.fixture
def client(playbook: Playbook) -> Client:
    return playbook.client()
