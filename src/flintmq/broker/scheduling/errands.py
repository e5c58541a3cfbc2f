"""What a connection has asked for and waits for: one errand after the other, each in portions.

An errand is a request to a service (services/request.py), or a method whose work is more than a pass may
take, such as a large tx.commit. Until the last errand of a connection is done, the connection is not read
from: what its client has sent behind the errand has to find it done. `PassWork.awaiting` says whom to tell.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.scheduling.pass_work import PassWork

log = logging.getLogger("flintmq.errands")


class Errand(Protocol):
    """Something that a connection waits for."""

    def serve(self) -> Chore:
        """The portions; whoever waits is told what went wrong."""


def attend(pass_work: PassWork, origin: int, errand: Errand) -> None:
    """Does the errand at once if there is time for it in this pass, else when its turn has come."""
    waiting = pass_work.asking.get(origin)
    if waiting is None:
        pass_work.asking[origin] = deque((errand,))
        pass_work.chores.begin(attended(pass_work, origin))
    else:
        waiting.append(errand)
    if origin in pass_work.asking:
        pass_work.load()


def attended(pass_work: PassWork, origin: int) -> Chore:
    """The errands of one connection, one after the other."""
    waiting = pass_work.asking[origin]
    try:
        while True:
            try:
                yield from waiting[0].serve()
            except Exception:  # those behind it are to be done all the same
                log.exception("a bug ends what connection %d has asked for", origin)
            waiting.popleft()
            if not waiting:
                return
            yield None
    finally:
        del pass_work.asking[origin]
        done = pass_work.awaiting.pop(origin, None)
        if done is not None:
            done()
