"""How fast the journal is, alone: `python benchmarks/journal.py [directory]`.

Appends small persistent entries in turns of a broker's size, with real fdatasync by the writer
thread; settles them; recovers them; reads a backlog back. Prints one line for each figure.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable

from flintmq.storage.disk import SystemDisk
from flintmq.storage.journal import index
from flintmq.storage.journal.journal import Journal
from flintmq.storage.options import JournalOptions

HEADER = b"\x00\x3c\x00\x00" + b"h" * 36
TURN = 2000


class Counting:
    """A visitor that only counts."""

    def __init__(self) -> None:
        self.entries = 0

    def value(self, key: bytes, octets: bytes) -> None:
        pass

    def entry(self, sequence: int, owners: tuple[int, ...], header: bytes, payload_octets: int) -> None:
        self.entries += 1

    def progress(self, done_octets: int, total_octets: int) -> None:
        pass


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def open_journal(directory: str, woken: threading.Event) -> Journal:
    return Journal.open(directory, SystemDisk(), JournalOptions(), wake=woken.set)


def append(journal: Journal, woken: threading.Event, count: int, payload: bytes) -> None:
    owners = (7,)
    for _ in range(count // TURN):
        for _ in range(TURN):
            journal.append_entry(owners, HEADER, payload)
        journal.end_batch()
        if woken.is_set():
            woken.clear()
            journal.collect()
    journal.commit_now()


def settle(journal: Journal, woken: threading.Event, sequences: list[int]) -> None:
    for at in range(0, len(sequences), TURN):
        for sequence in sequences[at : at + TURN]:
            journal.append_settle(7, sequence)
        journal.end_batch()
        if woken.is_set():
            woken.clear()
            journal.collect()
    journal.commit_now()


def figures(directory: str, payload_octets: int, count: int) -> None:
    woken = threading.Event()
    journal = open_journal(directory, woken)
    journal.recover(Counting())
    name = f"{payload_octets:>5} octets"
    took = timed(lambda: append(journal, woken, count, bytes(payload_octets)))
    report(f"{name}  append and sync", count / took, "entries/s")
    journal.close()
    journal = open_journal(directory, woken)
    visitor = Counting()
    took = timed(lambda: journal.recover(visitor))
    report(f"{name}  recover", visitor.entries / took, "entries/s")
    live = list(journal.index.live())
    took = timed(lambda: [journal.read_entries(live[at : at + TURN]) for at in range(0, count, TURN)])
    report(f"{name}  read back", count / took, "entries/s")
    report(f"{name}  read back", count * (payload_octets + len(HEADER)) / took / 1e6, "MB/s")
    took = timed(lambda: settle(journal, woken, live))
    report(f"{name}  settle and sync", count / took, "settles/s")
    journal.close()


def report(name: str, value: float, unit: str) -> None:
    sys.stdout.write(f"{name:<32}{value:>14,.0f} {unit}\n")


def main() -> None:
    parent = sys.argv[1] if len(sys.argv) > 1 else tempfile.gettempdir()
    scale = int(os.environ.get("FLINTMQ_BENCH_ENTRIES", "1000000"))
    sys.stdout.write("compiled\n" if not (index.__file__ or "").endswith(".py") else "pure\n")
    for payload_octets, count in ((16, scale), (1024, scale // 5)):
        directory = tempfile.mkdtemp(prefix="flintmq-journal-", dir=parent)
        try:
            figures(directory, payload_octets, count)
        finally:
            shutil.rmtree(directory)


if __name__ == "__main__":
    main()
