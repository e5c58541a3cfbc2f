"""A playbook whose time moves only when it is told to, and the usual questions about queues with rules."""

from __future__ import annotations

import random
from typing import Any

from playbook.dialogue import Carried, Client, Playbook

from flintmq.broker.queues.queue import Queue
from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.wire.methods import BasicGet


class Hourglass(Clock):
    """Time that stands still between two turns."""

    def __init__(self) -> None:
        self.random = random.Random(1)
        self.now_s = 1_000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return round(self.now_s * 1000) + 1_700_000_000_000


class TimedPlaybook(Playbook):
    """A broker under an hourglass."""

    def __init__(self, config: Config | None = None) -> None:
        self.clock = Hourglass()
        super().__init__(config, self.clock)

    def passes(self, milliseconds: int) -> None:
        """So much time goes by, and the broker does what is due."""
        self.clock.now_s += milliseconds / 1000
        timetable = self.broker.timetable
        while (due_ms := timetable.next_due_ms()) is not None and due_ms <= timetable.now_ms():
            timetable.run()
        self.finish_pass()

    def queue(self, name: str) -> Queue:
        found: Queue = self.broker.virtual_hosts["/"].queues[name]
        return found

    def depth(self, name: str) -> int:
        return self.queue(name).message_count()


def letter(client: Client, queue: str) -> Carried:
    """The next message of a queue, with its properties; taken for good."""
    client >> BasicGet(queue=queue, no_ack=True)
    found = client.next(1)
    assert isinstance(found, Carried), f"{queue} is empty"
    return found


def with_morgue(client: Client, name: str = "q", morgue: str = "morgue", **arguments: Any) -> None:
    """A queue whose dead letters go to a second queue. Arguments are named without x-, with underscores."""
    client.declares(morgue)
    chosen = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    client.declares(
        name, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": morgue, **chosen}
    )
