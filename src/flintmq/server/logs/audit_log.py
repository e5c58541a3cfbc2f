"""The audit log: who, from where, what, allowed or refused. JSON, one object in a line, in a file of its own.

    session, services, settings --> AuditLog.note --> lines, bounded --> writer thread --> file, rotated
                                         \\-> the same again and again: counted, told once in WINDOW_S

The broker never waits for the file: when the disk is full, lines are lost, which the ordinary log and the
audit log tell. Texts of clients come in through JSON's escapes, so that no control code gets into the file;
whoever calls `note` gives no secrets.
"""

from __future__ import annotations

import errno
import json
import logging
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flintmq.errors import NO_THREAD, ConfigFault
from flintmq.server.logs.rotated_file import NotSetAside, RotatedFile

if TYPE_CHECKING:
    from flintmq.broker.administration.changes import Change
    from flintmq.clock import Clock
    from flintmq.config import Audit

log = logging.getLogger("flintmq.audit")

# For its owner, and for a group that reads logs.
FILE_MODE = 0o640
# Lines that wait for the disk, of up to 4 KiB each: 32 MiB.
LINES_WAITING_MAX = 8192
TEXT_LETTERS_MAX = 1024
# Of one kind by one user from one address so many different lines are written in this time; what comes again,
# or beyond that, is counted.
WINDOW_S = 10.0
WINDOW_LINES = 20
# Pairs of user and address whose lines are counted apart.
SOURCES_MAX = 4096
# How often the ordinary log is told that the file cannot be written.
COMPLAINT_S = 60.0

# Kinds of events, as `[audit] events` chooses them.
LOGIN, ACCESS, ADMINISTRATION, TOPOLOGY, SETTINGS = (
    "login",
    "access",
    "administration",
    "topology",
    "settings",
)
# Kinds that clients can cause as often as they like, as they can refusals of all kinds.
FREQUENT = frozenset((LOGIN, ACCESS, TOPOLOGY))

Source = tuple[str, str, str]  # kind, user, address
Line = dict[str, Any]


class Window:
    """What one source did lately."""

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s
        self.lines: dict[str, Line] = {}  # by what makes them the same; with their counts
        self.others = 0


class AuditLog:
    """The audit log of one broker. `note` is for the broker's thread, the file is the writer's."""

    def __init__(self, settings: Audit, clock: Clock) -> None:
        assert settings.file is not None
        self.events = frozenset(settings.events)
        self.clock = clock
        self.windows: dict[Source, Window] = {}
        self.waiting: deque[str] = deque()
        self.lost = 0
        self.complained_s = -COMPLAINT_S
        self.is_to_reopen = False
        self.is_ending = False
        self.wake = threading.Event()
        try:
            self.file = RotatedFile(settings.file, settings.rotate_bytes, settings.rotate_count, FILE_MODE)
        except OSError as error:
            reason = error.strerror or error
            raise ConfigFault(f'audit.file = "{settings.file}" cannot be written: {reason}') from None
        self.writer = threading.Thread(target=self.follow, name="audit", daemon=True)
        try:
            self.writer.start()
        except RuntimeError:
            raise OSError(errno.EAGAIN, NO_THREAD) from None

    # What happened

    def note(
        self,
        kind: str,
        event: str,
        is_allowed: bool,
        user: str = "",
        address: str = "",
        connection: int = 0,
        virtual_host: str = "",
        subject: str = "",
        reason: str = "",
        arguments: Line | None = None,
    ) -> None:
        if kind not in self.events:
            return
        line: Line = {
            "time": datetime.fromtimestamp(self.clock.wall_ms() / 1000, UTC).isoformat(
                timespec="milliseconds"
            ),
            "event": event,
            "outcome": "allowed" if is_allowed else "refused",
            "user": user,
            "address": address,
            "connection": connection,
            "virtual_host": virtual_host,
        }
        for name, value in (("subject", subject), ("reason", reason), ("arguments", arguments)):
            if value:
                line[name] = value
        if (is_allowed and kind not in FREQUENT) or self.is_first((kind, user, address), line):
            self.append(line)

    def changed(self, change: Change) -> None:
        """A service that administers was asked, or any was refused."""
        self.note(
            ADMINISTRATION if change.what != SETTINGS else SETTINGS,
            change.what,
            not change.code,
            change.user,
            change.peer_address,
            change.connection,
            change.virtual_host,
            reason=change.text,
            arguments=plain(dict(change.arguments)),
        )

    def is_first(self, source: Source, line: Line) -> bool:
        """Whether it is written at once; else it is counted."""
        now_s = self.clock.monotonic_s()
        window = self.windows.get(source)
        if window is None and len(self.windows) >= SOURCES_MAX:
            source = (source[0], "*", "*")
            window = self.windows.get(source)
        if window is not None and now_s >= window.until_s:
            self.tell_counted(source, window)
            window = None
        if window is None:
            window = self.windows[source] = Window(now_s + WINDOW_S)
        same = json.dumps([line["event"], line["outcome"], line.get("subject"), line.get("reason")])
        if same in window.lines:
            window.lines[same]["count"] += 1
            return False
        if len(window.lines) >= WINDOW_LINES:
            window.others += 1
            return False
        window.lines[same] = {**line, "count": 0}
        return True

    def tell_counted(self, source: Source, window: Window) -> None:
        """One line for each that came again, and one for all that were too many."""
        del self.windows[source]
        for line in window.lines.values():
            if line["count"]:
                self.append({**line, "repeated": True})
        if window.others:
            kind, user, address = source
            last = next(reversed(window.lines.values()))
            more = {"event": f"{kind}.more", "user": user, "address": address, "count": window.others}
            self.append(
                {**last, **more, "subject": "", "reason": "more of the same source", "repeated": True}
            )

    def tick(self) -> None:
        """Tells what was counted, when its time is over."""
        now_s = self.clock.monotonic_s()
        while self.windows:
            source, window = next(iter(self.windows.items()))
            if window.until_s > now_s:
                return
            self.tell_counted(source, window)

    def append(self, line: Line) -> None:
        if len(self.waiting) >= LINES_WAITING_MAX:
            self.lost += 1
            return
        self.waiting.append(json.dumps(cut(line)) + "\n")
        self.wake.set()

    # The file

    def reopen(self) -> None:
        """The writer goes on in a new file of that name."""
        self.is_to_reopen = True
        self.wake.set()

    def close(self) -> None:
        """Writes what waits; a disk that hangs is not waited for."""
        for source, window in list(self.windows.items()):
            self.tell_counted(source, window)
        self.is_ending = True
        self.wake.set()
        self.writer.join(2.0)

    def follow(self) -> None:
        """The writer."""
        while not (self.is_ending and not self.waiting):
            if not self.is_ending:
                self.wake.wait()
            self.wake.clear()
            if self.is_to_reopen:
                self.is_to_reopen = False
                self.attempt(self.file.reopen)
            self.write_waiting()
        self.attempt(self.file.close)

    def write_waiting(self) -> None:
        while self.waiting:
            text = self.waiting.popleft()
            if self.lost:
                lost, self.lost = self.lost, 0
                told = json.dumps({"event": "audit.lost", "outcome": "lost", "count": lost}) + "\n"
                if not self.attempt(lambda told=told: self.written(told)):  # type: ignore[misc]
                    self.lost += lost
            if not self.attempt(lambda text=text: self.written(text)):  # type: ignore[misc]
                self.lost += 1

    def written(self, text: str) -> None:
        try:
            self.file.write(text)
        finally:
            if not self.waiting or self.lost:
                self.file.flush()

    def attempt(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except NotSetAside as error:
            self.complain("the audit log cannot be set aside, and grows: %s", error)
        except (OSError, ValueError) as error:
            self.complain("the audit log cannot be written, and lines of it are lost: %s", error)
            return False
        return True

    def complain(self, text: str, error: Exception) -> None:
        now_s = self.clock.monotonic_s()
        if now_s - self.complained_s >= COMPLAINT_S:
            self.complained_s = now_s
            log.error(text, error)


def cut(value: Any) -> Any:
    """Texts of a length that lines can have."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_LETTERS_MAX else value[:TEXT_LETTERS_MAX] + "..."
    if isinstance(value, dict):
        return {name: cut(each) for name, each in value.items()}
    return value


def plain(arguments: Line) -> Line:
    """Arguments as JSON has them: what is large or nested is text, cut."""
    return {
        name: value if isinstance(value, str | int | float | bool) else repr(value)[:TEXT_LETTERS_MAX]
        for name, value in arguments.items()
    }
