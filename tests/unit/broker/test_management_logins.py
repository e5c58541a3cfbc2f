"""Logins over HTTP while the user is being changed."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.broker.broker import Broker
from flintmq.broker.services.request import SERVICES, Request
from flintmq.clock import Clock
from flintmq.config import Config


class Asked(Request):
    """A request of the management process, whose answer is kept."""

    def __init__(self, broker: Broker, password: bytes) -> None:
        self.asked_broker = broker
        self.name = "management.authenticate"
        self.arguments = {"user": "guest", "password": password, "peer-address": "127.0.0.1"}
        self.results: dict[str, Any] = {}

    @property
    def broker(self) -> Broker:
        return self.asked_broker

    def reply(self, results: Any, body: bytes = b"") -> None:
        self.results = results


@pytest.mark.parametrize(("password", "times"), [(b"guest", 1), (b"guest", 2), (b"guest", 30), (b"wrong", 1)])
def test_a_right_password_that_is_set_again_meanwhile(
    monkeypatch: pytest.MonkeyPatch, password: bytes, times: int
) -> None:
    """A tool that sets the password of its own user asks for other things beside that."""
    monkeypatch.setattr("flintmq.broker.services.management_services.require_internal", lambda request: None)
    broker = Broker(Config(), Clock())
    left = times

    def verifying(verification: Any, done: Any) -> None:
        nonlocal left
        found = verification.run()
        if left:
            left -= 1
            broker.users.change_password("guest", broker.users.policy.hash_quickly(b"guest"))
        done(found)

    broker.verifying = verifying
    asked = Asked(broker, password)
    for wait in SERVICES["management.authenticate"](asked) or ():
        if callable(wait):
            wait(lambda: None)
    is_let_in = password == b"guest" and times < 30
    assert ("refused" in asked.results) is not is_let_in
