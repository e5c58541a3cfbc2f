"""What failed logins cost: pauses that grow, bans that end, and tables that do not grow."""

from __future__ import annotations

import pytest

from flintmq.auth import failed_logins
from flintmq.auth.failed_logins import FAILED, KNOWN, UNKNOWN, UNTRIED, FailedLogins, source_of
from flintmq.clock import Clock
from flintmq.config import Bans

FAR = "203.0.113.7"


class StoppedClock(Clock):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


def made(**settings: object) -> tuple[FailedLogins, StoppedClock]:
    clock = StoppedClock()
    return FailedLogins(Bans(**settings), clock), clock  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::1", "::1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2::/64", "2001:db8:1:2::/64"),
        ("no: address", "no: address"),
    ],
)
def test_addresses_of_one_network_count_as_one(address: str, source: str) -> None:
    assert source_of(address) == source


def test_each_failure_pauses_twice_as_long_as_the_one_before() -> None:
    logins, _ = made(pause_s=1.0, pause_s_max=5.0)
    assert [logins.note(FAR, f"user{number}") for number in range(5)] == [1, 2, 4, 5, 5]


def test_failures_of_a_user_from_anywhere_make_the_pause_longer() -> None:
    logins, _ = made(pause_s=1.0, pause_s_max=60)
    assert [logins.note(f"203.0.113.{number}", "admin") for number in range(4)] == [1, 2, 4, 8]
    assert logins.note("203.0.113.99", "another") == 1


def test_enough_failures_ban_the_address_and_nobody_else() -> None:
    logins, clock = made(failures_max=3, window_s=60, ban_s=10, ban_s_max=15)
    for number in range(3):
        assert not logins.is_banned(FAR)
        logins.note(FAR, "admin")
        assert logins.is_banned(FAR) == (number == 2)
    assert not logins.is_banned("203.0.113.8")
    clock.now_s += 9.9
    assert list(logins.bans_after("")) == [(FAR, pytest.approx(0.1), 3)]
    clock.now_s += 0.2
    assert not logins.is_banned(FAR)
    assert list(logins.bans_after("")) == []
    for _ in range(3):
        logins.note(FAR)
    assert [left_s for _, left_s, _ in logins.bans_after("")] == [pytest.approx(15)], (
        "the next one is longer, up to a limit"
    )
    clock.now_s += 40
    for _ in range(3):
        logins.note(FAR)
    assert [left_s for _, left_s, _ in logins.bans_after("")] == [pytest.approx(10)], (
        "who has behaved begins anew"
    )


def test_slow_failures_drain_away() -> None:
    logins, clock = made(failures_max=3, window_s=30, ban_s=10)
    for _ in range(100):
        logins.note(FAR)
        clock.now_s += 10
        assert not logins.is_banned(FAR)


def test_failures_on_this_machine_count_little() -> None:
    logins, _ = made(failures_max=20, window_s=300, pause_s=1.0)
    assert max(logins.note("127.0.0.1", "guest") for _ in range(50)) < 2
    for _ in range(450):
        logins.note("127.0.0.1", "guest")
    assert not logins.is_banned("127.0.0.1")
    for _ in range(600):
        logins.note("127.0.0.1")
    assert logins.is_banned("127.0.0.1"), "yet a flood has its end"


def test_nobody_is_banned_who_is_exempt_or_not_known() -> None:
    logins, _ = made(failures_max=1, exempt=("203.0.113.0/24", "2001:db8::/32"))
    for address in (FAR, "2001:db8::1", UNKNOWN):
        logins.note(address)
        assert not logins.is_banned(address)
    off, _ = made(failures_max=1, ban_s=0)
    off.note(FAR)
    assert not off.is_banned(FAR)


def test_tables_are_bounded_and_bans_outlive_other_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_logins, "ENTRIES_MAX", 20)
    logins, _ = made(failures_max=2, ban_s=1000)
    logins.note(FAR)
    logins.note(FAR)
    for number in range(1000):
        logins.note(f"198.51.100.{number}", f"user{number}")
    assert len(logins.sources) == len(logins.users) == 20
    assert logins.is_banned(FAR)
    for number in range(100):
        logins.note(f"192.0.2.{number}")
        logins.note(f"192.0.2.{number}")
    assert len(logins.sources) == 20
    assert len(logins.banned) <= 20


def test_a_ban_can_be_cleared_alone_or_with_all_others() -> None:
    logins, _ = made(failures_max=1)
    for address in (FAR, "2001:db8:1:2::3", "198.51.100.1"):
        logins.note(address)
    assert logins.clear("2001:db8:1:2::9") == 1
    assert logins.clear("2001:db8:1:2::9") == 0
    assert [source for source, _, _ in logins.bans_after("")] == ["198.51.100.1", FAR]
    assert [source for source, _, _ in logins.bans_after("198.51.100.1")] == [FAR]
    assert logins.clear(None) == 2
    assert not logins.sources
    assert not logins.is_banned(FAR)


def test_failures_during_a_ban_make_it_no_longer() -> None:
    """Handshakes that were in progress when the ban began end in failures of their own."""
    logins, clock = made(failures_max=3, window_s=60, ban_s=10, ban_s_max=1000)
    for _ in range(50):
        logins.note(FAR)
    assert logins.bans_total == 1
    clock.now_s += 10.1
    assert not logins.is_banned(FAR)


def test_a_back_end_that_is_away_bans_nobody() -> None:
    """The pauses of a user grow all the same, who may be one that the broker itself knows."""
    logins, _ = made(failures_max=3, window_s=60, ban_s=10, pause_s=1.0, pause_s_max=5.0)
    assert [logins.note(FAR, "admin", is_fault=True) for _ in range(5)] == [1, 2, 4, 5, 5]
    assert (logins.total, logins.is_banned(FAR), logins.sources) == (0, False, {})
    assert logins.note(FAR, "another") == 1


def test_who_was_let_in_goes_ahead_of_strangers_and_these_of_those_who_failed() -> None:
    logins, clock = made(failures_max=20, window_s=100)
    assert logins.rank("203.0.113.1") == UNTRIED
    logins.welcome("203.0.113.1")
    assert logins.rank("203.0.113.1") == KNOWN
    logins.note("203.0.113.1")
    assert logins.rank("203.0.113.1") == FAILED
    clock.now_s += 6  # a failure is forgotten in 5 seconds
    assert logins.rank("203.0.113.1") == KNOWN


def test_addresses_that_were_welcome_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_logins, "ENTRIES_MAX", 2)
    logins, _ = made()
    for address in ("203.0.113.1", "203.0.113.2", "203.0.113.1", "203.0.113.3"):
        logins.welcome(address)
    ranks = [logins.rank(f"203.0.113.{number}") for number in (1, 2, 3)]
    assert ranks == [KNOWN, UNTRIED, KNOWN]
