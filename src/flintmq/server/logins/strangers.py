"""Those who have connected and have not opened their connection yet: how many there may be, and how long.

    accepted --> silent --protocol header--> greeted --login, connection.open--> no stranger any more
                    |                           |
                    +--------- deadline --------+--> dropped

All together and from one address strangers are limited. Where there is no room those make room who have had
time enough and did not use it, the silent ones first: half-open connections, however many, keep nobody out
for long. Many who come together and do speak wait in the backlog of the system until others are done.
"""

from __future__ import annotations

import heapq
import logging
from typing import TYPE_CHECKING

from flintmq.auth.failed_logins import UNKNOWN, source_of
from flintmq.server import descriptors

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from flintmq.server.network.link import Link
    from flintmq.server.network.proxy_protocol import ProxiedArrival
    from flintmq.server.server import Server
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.strangers")

# How long a stranger is safe from having to make room: for a header to come, which clients send as soon as
# they are connected, and for a handshake to be done.
SILENT_S = 0.1
GREETED_S = 3.0
# Dropped in one go when their time is over, or told of their refusal, some 100 microseconds each.
DROPS_MAX = 2


class Strangers:
    """Links with a handshake to do, and when each of them has come."""

    __slots__ = (
        "arriving",
        "descriptors_max",
        "displaced",
        "failed_logins",
        "files_allow",
        "greeted",
        "late",
        "loop",
        "pause_timer",
        "paused",
        "pausing",
        "refused_address",
        "refused_banned",
        "refused_full",
        "server",
        "silent",
        "sources",
        "timer",
    )

    def __init__(self, server: Server) -> None:
        self.server = server
        self.loop = server.loop
        self.failed_logins = server.broker.failed_logins
        self.silent: dict[Link, float] = {}
        self.greeted: dict[Link, float] = {}
        self.arriving: dict[ProxiedArrival, None] = {}  # by a proxy that has not said whom it brings
        self.sources: dict[str, dict[Link, None]] = {}
        self.timer: asyncio.TimerHandle | None = None
        # Those who wait for their refusal, by when they are told.
        self.pausing: list[tuple[float, int, Callable[[], None]]] = []
        self.paused = 0  # all that ever were
        self.pause_timer: asyncio.Handle | None = None
        self.descriptors_max = descriptors.limit()
        self.files_allow = descriptors.left_to_connections(self.descriptors_max)
        self.refused_address = 0
        self.refused_banned = 0
        self.refused_full = 0
        self.displaced = 0
        self.late = 0

    def __len__(self) -> int:
        return len(self.silent) + len(self.greeted) + len(self.arriving)

    def counts(self) -> FieldTable:
        """For those who look after the broker."""
        return {
            "handshakes": len(self),
            "handshakes-late": self.late,
            "handshakes-displaced": self.displaced,
            "refused-address": self.refused_address,
            "refused-banned": self.refused_banned,
            "refused-full": self.refused_full,
            "connections": len(self.server.links),
            "connections-max": min(self.server.config.limits.connections_max, self.files_allow),
            "refused-busy": self.server.login_queue.refused,
            "logins-waiting": len(self.server.login_queue),
            "failed-logins": self.failed_logins.total,
            "bans": self.failed_logins.bans_total,
        }

    # Whether there is room

    def admits(self, address: str) -> bool:
        """Whether one more from that address is let in; makes room if need be."""
        if self.failed_logins.banned and self.failed_logins.is_banned(address):
            self.refused_banned += 1
            return False
        there = self.sources.get(source_of(address)) if self.sources else None
        if there is not None and len(there) >= self.server.config.limits.handshakes_per_address_max:
            first = next(iter(there))
            if address == UNKNOWN or not self.displace(first):
                self.refused_address += 1
                log.warning("refused %s: %d handshakes are in progress from there", address, len(there))
                return False
        return True

    def leave_files(self) -> None:
        """Counts what is open now, before anybody connects, into what connections leave."""
        self.files_allow = descriptors.left_to_connections(self.descriptors_max)

    def take_files(self) -> bool:
        """Whether one more would take what is left to files. A handshake of TLS takes two descriptors."""
        return len(self.server.links) + len(self) >= self.files_allow

    def refuse(self, address: str) -> None:
        """Tells of somebody for whom there is no connection left."""
        self.refused_full += 1
        count = len(self.server.links)
        if not self.take_files():
            log.warning("refused %s: %d connections are open already", address, count)
            return
        log.warning(
            "refused %s: %d connections are open already, and the broker itself needs the rest of the %d "
            "open files; raise the limit: ulimit -n, or LimitNOFILE= of a service",
            address,
            count,
            self.descriptors_max,
        )

    def is_full(self) -> bool:
        """Whether as many are there as may be."""
        count = len(self.silent) + len(self.greeted) + len(self.arriving)
        return count >= self.server.config.limits.handshakes_max or count >= self.descriptors_max // 2

    def make_room(self, most: int) -> bool:
        """Drops some of those who had time enough, so many at most; whether there were any."""
        displaced = self.displaced
        most = min(most, 1 + self.server.config.limits.handshakes_max // 64)
        for links in (self.silent, self.greeted):
            while links and self.displaced - displaced < most:
                if not self.displace(next(iter(links))):
                    break
        return self.displaced > displaced

    def displace(self, link: Link) -> bool:
        """Drops the link if it had time enough."""
        since_s = self.silent.get(link)
        patience_s = SILENT_S
        if since_s is None:
            since_s, patience_s = self.greeted[link], GREETED_S
        if self.loop.time() - since_s < patience_s:
            return False
        self.displaced += 1
        log.warning("%s makes room for others: its handshake takes long", link.session)
        link.drop()
        return True

    # Who comes and goes

    def add(self, link: Link) -> None:
        self.silent[link] = self.loop.time()
        source = source_of(link.session.peer_address)
        there = self.sources.get(source)
        if there is None:
            self.sources[source] = {link: None}
        else:
            there[link] = None
        if self.timer is None:
            self.timer = self.loop.call_later(self.server.config.limits.handshake_timeout_s, self.check)

    def greet(self, link: Link) -> None:
        """The link has sent a protocol header that is known."""
        since_s = self.silent.pop(link, None)
        if since_s is not None:
            self.greeted[link] = since_s

    def remove(self, link: Link) -> None:
        """The handshake is done, or the link is gone."""
        if self.greeted.pop(link, None) is None and self.silent.pop(link, None) is None:
            return
        source = source_of(link.session.peer_address)
        there = self.sources[source]
        del there[link]
        if not there:
            del self.sources[source]

    def check(self) -> None:
        """Ends those that are too slow, the oldest first, and comes again for the others."""
        self.timer = None
        timeout_s = self.server.config.limits.handshake_timeout_s
        wait_s = timeout_s
        for links in (self.silent, self.greeted):
            for _ in range(DROPS_MAX):
                if not links:
                    break
                link, since_s = next(iter(links.items()))
                left_s = since_s + timeout_s - self.loop.time()
                wait_s = min(wait_s, max(left_s, 0))
                if left_s > 0:
                    break
                self.late += 1
                log.warning("%s did not finish the handshake in time", link.session)
                self.failed_logins.note(link.session.peer_address)
                link.drop()
        if self.timer is None and (self.silent or self.greeted):
            self.timer = self.loop.call_later(wait_s, self.check)

    # Who waits for a refusal

    def refuse_after(self, pause_s: float, refused: Callable[[], None]) -> None:
        """Calls `refused` after the pause, and a few such calls at most in one turn of the loop."""
        due_s = self.loop.time() + pause_s
        self.paused += 1
        heapq.heappush(self.pausing, (due_s, self.paused, refused))
        if self.pausing[0][1] == self.paused:
            if self.pause_timer is not None:
                self.pause_timer.cancel()
            self.pause_timer = self.loop.call_later(pause_s, self.end_pauses)

    def end_pauses(self) -> None:
        now_s = self.loop.time()
        for _ in range(DROPS_MAX):
            if not self.pausing or self.pausing[0][0] > now_s:
                break
            refused = heapq.heappop(self.pausing)[2]
            try:
                refused()
            except Exception:  # the others are to hear of their refusal
                log.exception("a bug in refusing somebody")
        self.pause_timer = None
        if self.pausing:
            wait_s = max(self.pausing[0][0] - now_s, 0)
            self.pause_timer = self.loop.call_later(wait_s, self.end_pauses)

    def stop(self) -> None:
        if self.pause_timer is not None:
            self.pause_timer.cancel()
            self.pause_timer = None
        for arrival in list(self.arriving):
            arrival.leave().close()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
