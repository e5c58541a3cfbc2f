"""Which process this is, without a call of the system for each message that is read or acked."""

from __future__ import annotations

import os

number = os.getpid()


def _begin() -> None:
    global number
    number = os.getpid()


if hasattr(os, "register_at_fork"):  # else there is no fork
    os.register_at_fork(after_in_child=_begin)
