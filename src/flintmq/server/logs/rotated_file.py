"""A file of lines that is set aside when it is full, and opened again when somebody has moved it away.

audit.log     being written       audit.log.1     the one before       audit.log.2     the oldest
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pathlib import Path


class NotSetAside(OSError):
    """The line is written, into the file that is full: a new one cannot be begun."""


class RotatedFile:
    """Text is appended. With `bytes_max` 0 it is never set aside."""

    def __init__(self, path: Path, bytes_max: int = 0, count: int = 0, mode: int = 0o666) -> None:
        self.path = path
        self.bytes_max = bytes_max
        self.count = count
        self.mode = mode
        self.stream: TextIO = self.opened()
        self.size = self.path.stat().st_size

    def opened(self, flags: int = 0) -> TextIO:
        flags |= os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, self.mode)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")

    def write(self, text: str) -> None:
        """Raises NotSetAside after the line is written: whoever writes tells of that, and nothing is lost."""
        fault: OSError | None = None
        if self.bytes_max and self.size and self.size + len(text) > self.bytes_max:
            self.stream.flush()
            try:
                self.set_aside()
            except OSError as error:
                fault = error
        self.stream.write(text)
        self.size += len(text)
        if fault is not None:
            raise NotSetAside(fault.errno, fault.strerror) from fault

    def flush(self) -> None:
        self.stream.flush()

    def set_aside(self) -> None:
        """The oldest goes, the others move on by one; without any to be kept the file begins anew."""
        if not self.is_in_place():
            self.reopen()
            return
        if not self.count:
            os.truncate(self.path, 0)
            self.size = 0
            return
        # Those before the first gap: when the last step fails again and again, the oldest must not go.
        free = next((each for each in range(1, self.count) if not self.kept(each).exists()), self.count)
        for number in range(free - 1, 0, -1):
            os.replace(self.kept(number), self.kept(number + 1))
        os.replace(self.path, self.kept(1))
        self.reopen()

    def is_in_place(self) -> bool:
        """Whether the file of that name is the one being written: somebody may have moved it away.

        It is also set aside already when opening the next one has failed.
        """
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self.stream.fileno()))

    def kept(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def reopen(self) -> None:
        """Goes on in a new file of that name; raises and goes on in the old one."""
        # A FIFO that nobody reads is refused: at the start somebody may wait for a reader, now nobody may.
        stream = self.opened(os.O_NONBLOCK)
        os.set_blocking(stream.fileno(), True)
        former, self.stream = self.stream, stream
        self.size = os.fstat(stream.fileno()).st_size
        former.close()

    def close(self) -> None:
        self.stream.close()
