"""The same operations on two brokers, one by one: the first difference, and the shortest way to it."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from differential.generator import EXCHANGES, QUEUES
from differential.known import KNOWN
from differential.operation import Operation
from differential.player import Player, Told

# How long a broker may take to come to rest after an operation: it is asked again after each of these.
PATIENCE_S = (0.002, 0.01, 0.05, 0.1, 0.3)
# In a run with short lives, time for them to end after each operation.
TIMED_S = 0.025
# A difference counts when it is there again each time.
REPEATS = 4

_runs = itertools.count(1)


@dataclass(frozen=True)
class Difference:
    """What the two told apart of the last operation."""

    operations: list[Operation]
    where: tuple[str, ...]
    ours: Told
    theirs: Told

    def signature(self) -> tuple[str, str]:
        """What makes two differences the same one: the operation, and the kind of thing that differs."""
        return self.operations[-1].name, self.where[0].split()[-1]

    def __str__(self) -> str:
        lines = [f"  {number:2} {each}" for number, each in enumerate(self.operations, 1)]
        for where in self.where:
            lines += [f"  {where}"]
            lines += [f"    FlintMQ   {self.ours.get(where)}", f"    RabbitMQ  {self.theirs.get(where)}"]
        lines += ["  to play it again:", *[each.as_json() for each in self.operations]]
        return "\n".join(lines)


class Comparison:
    """Two brokers that are given the same."""

    def __init__(self, ours: int, theirs: int) -> None:
        self.ports = (ours, theirs)
        self.operations = 0
        self.excused: dict[str, int] = {}

    @contextmanager
    def players(self) -> Iterator[list[Player]]:
        prefix = f"d{os.getpid()}.{next(_runs)}"
        players = [Player(port, prefix, QUEUES, EXCHANGES) for port in self.ports]
        with closing(players[0]), closing(players[1]):
            yield players

    def run(self, operations: list[Operation]) -> Difference | None:
        """Plays the operations up to the first difference."""
        timed = any("ttl" in each.as_json() or "expiration" in each.as_json() for each in operations)
        with self.players() as players:
            for count, operation in enumerate(operations, 1):
                self.operations += 1
                for player in players:
                    player.begin(operation)
                for player in players:
                    player.end(operation)
                if timed:
                    time.sleep(TIMED_S)
                ours, theirs = self.told(players)
                where = tuple(differing(ours, theirs))
                if where:
                    found = Difference(operations[:count], where, ours, theirs)
                    reason = next((each for each in KNOWN if each.explains(found)), None)
                    if reason is None:
                        return found
                    self.excused[reason.name] = self.excused.get(reason.name, 0) + 1
                    return None
                for player in players:
                    player.taken()
        return None

    def told(self, players: list[Player]) -> tuple[Told, Told]:
        """What both have to tell; a difference has to stay."""
        for patience_s in (*PATIENCE_S, 0.0):
            for player in players:
                player.probe()
            ours, theirs = (player.tell() for player in players)
            if not differing(ours, theirs):
                break
            time.sleep(patience_s)
        return ours, theirs

    def confirmed(self, found: Difference) -> Difference | None:
        """The difference, if it comes again."""
        again: Difference | None = found
        for _ in range(REPEATS):
            again = self.run(found.operations)
            if again is None or again.signature() != found.signature():
                return None
        return again

    def reduced(self, found: Difference) -> Difference:
        """The same difference with as few operations as are needed for it."""
        size = max(1, len(found.operations) // 2)
        while True:
            at = 0
            while at < len(found.operations) - 1:
                fewer = found.operations[:at] + found.operations[at + size :]
                shorter = self.run(fewer) if fewer else None
                if shorter is not None and shorter.signature() == found.signature():
                    found = shorter
                else:
                    at += size
            if size == 1:
                return found
            size = max(1, size // 2)


def differing(ours: Told, theirs: Told) -> list[str]:
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
