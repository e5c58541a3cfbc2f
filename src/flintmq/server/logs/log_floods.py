"""Lines of the log that everybody can bring about without a login: so many of a kind in a second, no more.

    login refused for 203.0.113.7: wrong password for user 'admin'        10 of them, then in the next second:
    4711 more lines like this one were left out: login refused for %s: %s

Else whoever can connect could fill the disk, and the time of the broker, with lines.
"""

from __future__ import annotations

import logging

STRANGERS = logging.getLogger("flintmq.strangers")

# Of one kind in a second.
LINES_MAX = 10
SECOND_S = 1.0
LEFT_OUT = "%d more lines like this one were left out: %s"


class LogFloods(logging.Filter):
    """Counts lines by their text without what is filled in, of which there are as many as the code has."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.began_s = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg == LEFT_OUT:
            return True
        self.look(record.created)
        count = self.counts[record.msg] = self.counts.get(record.msg, 0) + 1
        return count <= LINES_MAX

    def look(self, now_s: float) -> None:
        """Begins a new second, if it is one."""
        if now_s - self.began_s >= SECOND_S or now_s < self.began_s:
            self.began_s = now_s
            self.tell()

    def tell(self) -> None:
        """What was left out of the log is told in a line."""
        counts, self.counts = self.counts, {}
        for text, count in counts.items():
            if count > LINES_MAX:
                STRANGERS.warning(LEFT_OUT, count - LINES_MAX, text)


floods = LogFloods()
