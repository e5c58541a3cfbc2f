"""How a lease notes the entries of its messages: runs that grow at one end and shrink at the other."""

from __future__ import annotations

import random
import struct

from flintmq.broker.queues import leases

RUN = struct.Struct("<QI")


def encoded(entries: list[int]) -> bytes:
    return b"".join(RUN.pack(first, count) for first, count in leases.runs_of(entries))


def test_runs_that_grow_and_shrink_are_those_of_what_is_left() -> None:
    chance = random.Random(1)
    entries: list[int] = []
    runs = bytearray()
    newest = 0
    for _ in range(500):
        if chance.random() < 0.6:
            further = []
            for _ in range(chance.randrange(4)):
                newest += chance.choice((2, 2, 2, 4))
                further.append(newest)
            leases.join_runs(runs, encoded(further))
            entries += further
        else:
            gone = chance.randint(0, min(5, len(entries)))
            leases.drop_runs(runs, gone)
            del entries[:gone]
        assert bytes(runs) == encoded(entries)


def test_of_a_queue_that_is_not_in_the_journal_there_is_nothing_to_drop() -> None:
    runs = bytearray()
    leases.drop_runs(runs, 3)
    assert runs == b""
