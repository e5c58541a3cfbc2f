"""The management process ends with its broker, however the broker ends.

Linux kills the process when its parent dies, also one that is stopped or loads modules. Elsewhere the process
ends when it finds its control socket closed.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

PR_SET_PDEATHSIG = 1


def end_with(control: int) -> None:
    """Has this process killed when its parent dies, and ends it at once where the broker has died already:
    then the broker's end of `control` is closed."""
    if sys.platform == "linux":
        ask_for_signal()
    if is_closed(control):
        sys.exit(1)


def is_closed(control: int) -> bool:
    with socket.socket(fileno=os.dup(control)) as copy:
        try:
            return copy.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:  # open, and nothing was said
            return False
        except OSError:
            return True


def ask_for_signal() -> None:
    """A system that refuses leaves the process to find the end of its control socket."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (ImportError, OSError, AttributeError):  # a Python without ctypes, a libc without prctl
        return
