"""ban.list and ban.clear: who is kept out after failed logins, as an administrator sees and ends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playbook.hourglass import TimedPlaybook
from playbook.test_administration import SETTINGS, ask, listening, refused

from flintmq.auth import authentication
from flintmq.auth.backend import BackendFault, Identity, Login
from flintmq.config import parse


@pytest.fixture
def playbook() -> Iterator[TimedPlaybook]:
    playbook = TimedPlaybook(parse(SETTINGS + "[bans]\nfailures_max = 2\n"))
    yield playbook
    playbook.end()


def test_bans_are_listed_in_pages_and_cleared(playbook: TimedPlaybook) -> None:
    boss = listening(playbook.client(user="root", password="root"))
    failed = playbook.broker.failed_logins
    for last in range(100, 200):
        failed.note(f"203.0.113.{last}", "root")
        failed.note(f"203.0.113.{last}", "root")
    first = ask(boss, "ban.list", limit=60)
    assert isinstance(first["rows"], list)
    assert first["rows"][0] == {"address": "203.0.113.100", "seconds": 61, "failures": 2}
    rest = ask(boss, "ban.list", limit=60, after=first["next"])
    assert isinstance(rest["rows"], list)
    assert len(rest["rows"]) == 40
    assert "next" not in rest
    assert ask(boss, "ban.clear", address="203.0.113.150") == {"cleared": 1}
    assert not failed.is_banned("203.0.113.150")
    assert failed.is_banned("203.0.113.151")
    assert ask(boss, "ban.clear") == {"cleared": 99}
    assert ask(boss, "ban.list") == {"rows": []}


def test_who_may_see_bans_and_who_may_end_them(playbook: TimedPlaybook) -> None:
    clerk = listening(playbook.client(user="clerk", password="clerk"))
    assert ask(clerk, "ban.list") == {"rows": []}
    assert refused(clerk, "ban.clear")[0] == 403


def test_a_user_with_the_right_password_is_let_in_however_many_others_guess(playbook: TimedPlaybook) -> None:
    failed = playbook.broker.failed_logins
    for number in range(1000):
        failed.note(f"203.0.{number % 250}.{number // 250}", "root")
    playbook.client(user="root", password="root")


class Directory:
    """A back end that says what the test wants."""

    timeout_s, cache_s, can_renew = 1.0, 1.0, False

    def __init__(self) -> None:
        self.is_away = True

    def authenticate(self, login: Login) -> Identity | None:
        if self.is_away:
            raise BackendFault("away")
        return None


@pytest.mark.parametrize("chain", [["back"], ["internal", "back"], ["back", "internal"], ["back/internal"]])
def test_a_back_end_that_is_away_bans_nobody(monkeypatch: pytest.MonkeyPatch, chain: list[str]) -> None:
    directory = Directory()
    monkeypatch.setattr(authentication, "backend", lambda name, auth, clock: directory)
    playbook = TimedPlaybook(parse(f"[bans]\nfailures_max = 2\n[auth]\nbackends = {chain}\n"))
    failed = playbook.broker.failed_logins

    def comes() -> None:
        client = playbook.stranger(address="203.0.113.1")
        client.greet()
        client.log_in("ada", "secret")
        assert client.link.notes[-1] == "refuse_login"

    for _ in range(10):
        comes()
    assert (failed.total, failed.is_banned("203.0.113.1")) == (0, False)
    directory.is_away = False
    for _ in range(2):
        comes()
    assert failed.is_banned("203.0.113.1")
    playbook.end()
