"""A playbook for each test; whatever a client was told must have been heard at its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playbook.dialogue import Client, Playbook

from flintmq.broker.services import request


@pytest.fixture
def playbook() -> Iterator[Playbook]:
    playbook = Playbook()
    yield playbook
    playbook.end()


@pytest.fixture
def client(playbook: Playbook) -> Client:
    return playbook.client()


@pytest.fixture
def services_of_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets at the end what a test registers; the broker's own are loaded before, and stay."""
    request.load_services()
    monkeypatch.setattr(request, "SERVICES", dict(request.SERVICES))
    monkeypatch.setattr(request, "CHANGING", set(request.CHANGING))
