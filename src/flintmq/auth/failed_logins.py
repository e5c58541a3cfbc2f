"""Failed logins and handshakes, by address and by user: how long each of them pauses, and who is banned.

    note(address, user) -> seconds that the peer waits for its refusal: twice as long with each failure
    is_banned(address)  -> whether a connection from there is closed at once
    rank(address)       -> how soon a password from there is checked: those who were let in before go ahead

Failures are points that drain away: `failures_max` of them in `window_s`. Whoever has that many is banned,
twice as long each time. A ban is of an address alone: nobody is kept out of an account because others
guess at it. Failures of a user from wherever they come make the pauses longer, and only failures pause.
When a back end is away nobody knows whether a login is wrong: that counts for the user's pauses alone.

IPv6 addresses count by their /64, of which one machine may have all. Failures on this machine count little:
tests and tools that are set up wrong should not keep others out.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flintmq.auth.user import USUAL_LOOPBACK, is_loopback

if TYPE_CHECKING:
    from flintmq.clock import Clock
    from flintmq.config import Bans

log = logging.getLogger("flintmq.strangers")

# Addresses and users each: some 300 octets of names and numbers, 3 MiB.
ENTRIES_MAX = 10_000
# Of those that came first, looked at for one that is not banned when the table is full.
LOOKS_MAX = 8
# More than a portion of a list has.
SHOWN_MAX = 64
# A failure on this machine: 1,000 of them where others have 20.
LOOPBACK_POINTS = 0.02
# How soon a password is checked, by where it comes from: somebody was let in, nothing is known, or a login
# has failed lately.
KNOWN = 0
UNTRIED = 1
FAILED = 2
# A proxy that does not say whom it speaks for.
UNKNOWN = "unknown"


def source_of(address: str) -> str:
    """What an address counts as: an IPv6 address with all those that share its first 64 bits."""
    if ":" not in address or address in USUAL_LOOPBACK:
        return address
    import ipaddress  # as in user.py

    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, 64), strict=False))


class Failures:
    """What is known of one address or user."""

    __slots__ = ("banned_until_s", "bans", "count", "noted_s", "points")

    def __init__(self, now_s: float) -> None:
        self.points = 0.0
        self.count = 0
        self.noted_s = now_s
        self.bans = 0
        self.banned_until_s = 0.0

    def add(self, points: float, now_s: float, drained_per_s: float) -> float:
        """Adds a failure; the points there were before it."""
        before = max(0.0, self.points - (now_s - self.noted_s) * drained_per_s)
        self.points = before + points
        self.count += 1
        self.noted_s = now_s
        return before


class FailedLogins:
    """One for each broker."""

    def __init__(self, settings: Bans, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.sources: dict[str, Failures] = {}
        self.users: dict[str, Failures] = {}
        self.banned: dict[str, Failures] = {}  # those of the sources that are
        self.decided: dict[int, list[int]] = {}  # by version of a protocol: logins accepted, and refused
        self.welcomed: dict[str, None] = {}  # sources that somebody has logged in from, the newest last
        self.total = 0
        self.bans_total = 0

    def note(self, address: str, user: str = "", is_fault: bool = False) -> float:
        """A login or handshake has failed; for how many seconds the peer is to wait.

        With `is_fault` a back end is away, which is no failure of the address.
        """
        settings, now_s = self.settings, self.clock.monotonic_s()
        drained_per_s = settings.failures_max / settings.window_s
        points = LOOPBACK_POINTS if is_loopback(address) else 1.0
        before = 0.0
        if not is_fault:
            self.total += 1
            source = source_of(address)
            entry = self.entry(self.sources, source, now_s)
            before = entry.add(points, now_s, drained_per_s)
            # Handshakes that were in progress when a ban began fail during the ban.
            is_enough = entry.points >= settings.failures_max and entry.banned_until_s <= now_s
            if is_enough and self.can_be_banned(address):
                self.ban(source, entry, now_s)
        if user:
            before = max(before, self.entry(self.users, user, now_s).add(points, now_s, drained_per_s))
        # 2 ** 10 of a pause are above any setting.
        pause_s: float = settings.pause_s * 2.0 ** min(before, 10)
        return min(settings.pause_s_max, pause_s)

    def count(self, protocol: int, is_accepted: bool) -> None:
        """A login over a protocol was decided."""
        self.decided.setdefault(protocol, [0, 0])[not is_accepted] += 1

    def welcome(self, address: str) -> None:
        """Somebody has logged in from there."""
        source = source_of(address)
        self.welcomed.pop(source, None)
        if len(self.welcomed) >= ENTRIES_MAX:
            del self.welcomed[next(iter(self.welcomed))]
        self.welcomed[source] = None

    def rank(self, address: str) -> int:
        """How soon a password from there is checked."""
        source = source_of(address)
        entry = self.sources.get(source)
        if entry is not None:
            settings = self.settings
            drained = (self.clock.monotonic_s() - entry.noted_s) * settings.failures_max / settings.window_s
            if entry.points > drained:
                return FAILED
        return KNOWN if source in self.welcomed else UNTRIED

    def entry(self, table: dict[str, Failures], name: str, now_s: float) -> Failures:
        """What is known of a name, which is the last to be forgotten now."""
        found = table.pop(name, None)
        if found is None:
            if len(table) >= ENTRIES_MAX:
                self.forget_one(table, now_s)
            found = Failures(now_s)
        table[name] = found
        return found

    def forget_one(self, table: dict[str, Failures], now_s: float) -> None:
        first = ""
        for looked_at, (name, found) in enumerate(table.items()):
            first = first or name
            if found.banned_until_s <= now_s:
                first = name
                break
            if looked_at == LOOKS_MAX:
                break
        del table[first]
        if table is self.sources:
            self.banned.pop(first, None)

    def can_be_banned(self, address: str) -> bool:
        if not self.settings.ban_s or address == UNKNOWN:
            return False
        if not self.settings.exempt:
            return True
        import ipaddress  # as in user.py

        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return True
        return not any(parsed in ipaddress.ip_network(each) for each in self.settings.exempt)

    def ban(self, source: str, entry: Failures, now_s: float) -> None:
        settings = self.settings
        if now_s - entry.banned_until_s > settings.ban_s_max:
            entry.bans = 0  # it has behaved for long enough
        duration_s = min(settings.ban_s_max, settings.ban_s * 2.0 ** min(entry.bans, 30))
        entry.bans += 1
        entry.banned_until_s = now_s + duration_s
        entry.points = 0.0
        self.banned[source] = entry
        self.bans_total += 1
        log.warning("%s is banned for %.0f s after %d failed logins", source, duration_s, entry.count)

    def is_banned(self, address: str) -> bool:
        if not self.banned:
            return False
        source = source_of(address)
        entry = self.banned.get(source)
        if entry is None:
            return False
        if entry.banned_until_s > self.clock.monotonic_s():
            return True
        del self.banned[source]
        return False

    # What administrators see and do

    def bans_after(self, source: str) -> Iterator[tuple[str, float, int]]:
        """Some of those who are banned, in the order of their addresses: seconds left, failures so far."""
        now_s = self.clock.monotonic_s()
        for name in heapq.nsmallest(SHOWN_MAX, (each for each in self.banned if each > source)):
            entry = self.banned.get(name)
            if entry is not None and entry.banned_until_s > now_s:
                yield name, entry.banned_until_s - now_s, entry.count

    def clear(self, source: str | None) -> int:
        """Forgets the failures of one address, or of all addresses and users; how many bans end by that."""
        if source is None:
            now_s = self.clock.monotonic_s()
            ended = sum(1 for each in self.banned.values() if each.banned_until_s > now_s)
            for table in (self.sources, self.users, self.banned):
                table.clear()
            return ended
        source = source_of(source)
        self.sources.pop(source, None)
        return 0 if self.banned.pop(source, None) is None else 1
