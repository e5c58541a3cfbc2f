"""Links whose peers are gone without a word: what they held is back, their sockets are closed some at a time.

A thousand connections that break at once, as with the machine that had them, would else keep others waiting.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from flintmq.protocol import phases

if TYPE_CHECKING:
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.server.network.link import Link
    from flintmq.server.server import Server

log = logging.getLogger("flintmq.link")

# Closed in one step, some 50 microseconds each.
LINKS = 2


class LostLinks:
    """Those that are to be closed, and the state in which each connection was."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.waiting: deque[tuple[Link, int]] = deque()

    def close(self, link: Link, state: int) -> None:
        self.waiting.append((link, state))
        if len(self.waiting) == 1:
            self.server.broker.pass_work.chores.begin(self.work())
        self.server.scheduler.schedule_pass()

    def work(self) -> Chore:
        while self.waiting:
            for _ in range(min(LINKS, len(self.waiting))):
                link, state = self.waiting.popleft()
                if state == phases.CONNECTION_OPEN:
                    log.info("%s went away without closing", link.session)
                elif state == phases.CONNECTION_CLOSING:
                    log.info("%s went away without close-ok", link.session)
                for end in (link.disconnect, link.close):
                    try:
                        end()
                    except Exception:  # the server must hear of it all the same, and of the others
                        log.exception("a bug in closing the socket of %s", link.session)
            yield None
