"""The management process ends where its broker is gone."""

from __future__ import annotations

import socket
import subprocess
import sys

SCRIPT = "import sys; from flintmq.management import parent_death; parent_death.end_with(int(sys.argv[1]))"


def status_of(theirs: socket.socket) -> int:
    command = [sys.executable, "-c", SCRIPT, str(theirs.fileno())]
    return subprocess.run(command, pass_fds=[theirs.fileno()], timeout=60).returncode


def test_it_ends_where_the_broker_died_before_the_system_was_asked() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            assert status_of(theirs) == 0
        assert status_of(theirs) == 1
