"""One seed, one history: a journal on a faulty disk, a model beside it, crashes in between.

The model knows for every entry who owns it, what was promised and what was merely asked for.
After each crash the checker compares what recovery tells with what the model allows:

    promised entry, not let go          must be there
    promised to be let go               must not be there
    anything not promised               may be there or not, a group only whole
    anything never appended             must not be there
    order                               of each owner as appended
    topology                            a state between the last promised and the last asked for

With a flipped bit in the files at most one record, or the group it belongs to, may be missing or
forgotten, and everything told must still be true. Under the policies that promise less than ALWAYS
a loss of power may cost anything, but not a start, and not the truth; under INTERVAL so may the end
of the process between a failed sync, which drops what was written, and the end of the alarm it raised.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

from flintmq.clock import Clock
from flintmq.errors import StorageFault
from flintmq.storage.inspection.journal_inspection import check
from flintmq.storage.journal.journal import Journal
from flintmq.storage.options import JournalOptions, SyncPolicy

from .simulated_disk import SimulatedDisk

DIRECTORY = "/data"
SEGMENT_OCTETS = 4096


class SimulatedClock(Clock):
    """Time moves when it is told to."""

    def __init__(self, chance: random.Random) -> None:
        self.random = chance
        self.now_s = 1000.0
        self.skew_s = 1_000_000.0  # between the wall and the monotonic clock

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int((self.now_s + self.skew_s) * 1000)


@dataclass
class ModelEntry:
    owners: set[int]
    header: bytes
    payload: bytes
    sequence: int
    promised: bool = False
    group: int = 0
    owners_ever: frozenset[int] = frozenset()
    # Owner -> sequence up to which a sync makes the letting go a promise; 0 once it is one.
    settled: dict[int, int] = field(default_factory=dict)
    settle_groups: dict[int, int] = field(default_factory=dict)


class Told:
    """What recovery told."""

    def __init__(self) -> None:
        self.keys: dict[bytes, bytes] = {}
        self.entries: list[tuple[int, tuple[int, ...], bytes, int]] = []

    def value(self, key: bytes, octets: bytes) -> None:
        self.keys[key] = octets

    def entry(self, sequence: int, owners: tuple[int, ...], header: bytes, payload_octets: int) -> None:
        self.entries.append((sequence, owners, header, payload_octets))

    def progress(self, done_octets: int, total_octets: int) -> None:
        assert done_octets <= total_octets


class JournalHistory:
    """Runs one seed; any broken promise is an AssertionError."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = SimulatedDisk(self.chance)
        self.clock = SimulatedClock(self.chance)
        self.options = JournalOptions(
            threaded=False,
            segment_octets=SEGMENT_OCTETS,
            rewrite_step_octets=self.chance.choice((64, 512, 8192)),
            spare_segments=self.chance.choice((0, 1, 2)),
            retry_interval_ms=10,
            rewrite_delay_ms=self.chance.choice((0, 0, 30)),
            sync=self.chance.choice((*[SyncPolicy.ALWAYS] * 4, SyncPolicy.INTERVAL, SyncPolicy.NEVER)),
        )
        self.reader = random.Random(f"reads of {seed}")
        self.unread_share = self.reader.choice((0.0, 0.1, 0.6))
        self.unclosed_share = self.reader.choice((0.0, 0.1, 0.6))
        self.disk.closes_lose = self.options.sync is SyncPolicy.ALWAYS
        self.entries: dict[int, ModelEntry] = {}
        # Every state of topology since the last promised one: (sequence, state).
        self.states: list[tuple[int, dict[bytes, bytes]]] = [(0, {})]
        self.group = 0
        self.groups_promised: set[int] = set()
        self.pending_groups: list[tuple[int, int]] = []
        self.stamp = 0
        self.crashes = 0
        # Promised to be gone; rot may bring them back, but not change them.
        self.gone: dict[int, ModelEntry] = {}
        self.journal = self._open()

    def run(self, steps: int = 60) -> None:
        for _ in range(steps):
            self._step()
        self._crash()
        self.journal.close()

    def _open(self) -> Journal:
        journal = Journal.open(DIRECTORY, self.disk, self.options, self.clock)
        journal.on_synced = self._synced
        journal.on_damage = self._damaged
        self.told = Told()
        self.report = journal.recover(self.told)
        return journal

    # What happens

    def _step(self) -> None:
        self.disk.reads_fail = self.reader.random() < self.unread_share
        self.disk.close_failures_left = 2 if self.reader.random() < self.unclosed_share else 0
        way = self.chance.random()
        if way < 0.40:
            for _ in range(self.chance.randrange(1, 8)):
                self._append(0)
        elif way < 0.62:
            for _ in range(self.chance.randrange(1, 8)):
                self._settle(0)
        elif way < 0.68:
            self._wire()
        elif way < 0.75:
            self._group()
        elif way < 0.90:
            self._commit()
        elif way < 0.95:
            self.clock.now_s += 0.02
            self.journal.tick()
        elif way < 0.98:
            self._fault()
        else:
            self._crash()

    def _append(self, group: int) -> None:
        owners = tuple(self.chance.sample(range(1, 6), self.chance.choice((1, 1, 1, 2, 3))))
        if self.chance.random() < 0.02:
            owners = tuple(range(1, 41))
        self.stamp += 1
        header = b"h%d" % self.stamp
        payload = self.chance.randbytes(self.chance.choice((0, 16, 16, 100, 700, 5000 if group == 0 else 40)))
        if self.chance.random() < 0.03:
            spool = self.journal.open_spool()
            try:
                spool.append(payload[:10])
                spool.append(payload[10:])
            except StorageFault:
                spool.discard()
                return
            spool.finish()
            sequence = self.journal.append_spooled(owners, header, spool)
        else:
            sequence = self.journal.append_entry(owners, header, payload)
        assert sequence not in self.entries, f"sequence {sequence} given twice"
        self.entries[sequence] = ModelEntry(
            set(owners), header, payload, sequence, group=group, owners_ever=frozenset(owners)
        )

    def _settle(self, group: int) -> None:
        live = [entry for entry in self.entries.values() if len(entry.settled) < len(entry.owners)]
        if not live:
            return
        entry = self.chance.choice(live[: self.chance.choice((3, 1000))])
        owner = self.chance.choice(sorted(entry.owners - set(entry.settled)))
        assert self.journal.append_settle(owner, entry.sequence)
        assert not self.journal.append_settle(owner, entry.sequence), "let go twice"
        entry.settled[owner] = self.journal.next_sequence
        entry.settle_groups[owner] = group

    def _wire(self) -> None:
        key = b"k%d" % self.chance.randrange(6)
        state = dict(self.states[-1][1])
        if self.chance.random() < 0.6:
            self.stamp += 1
            state[key] = b"v%d" % self.stamp
            sequence = self.journal.put_value(key, state[key])
        else:
            state.pop(key, None)
            sequence = self.journal.delete_value(key)
        self.states.append((sequence, state))

    def _group(self) -> None:
        self.group += 1
        self.journal.begin_group()
        for _ in range(self.chance.randrange(1, 12)):
            if self.chance.random() < 0.6:
                self._append(self.group)
            else:
                self._settle(self.group)
        self.pending_groups.append((self.journal.commit_group(), self.group))

    def _commit(self) -> None:
        if self.chance.random() < 0.3:
            self.journal.end_batch()
            self.journal.collect()
            return
        try:
            self.journal.commit_now()
        except StorageFault:
            self.clock.now_s += 1
            self._heal()
            self.journal.tick()
            self.journal.commit_now()

    def _fault(self) -> None:
        way = self.chance.randrange(3)
        if way == 0:
            if self.options.sync is SyncPolicy.NEVER:
                # What is never synced is not promised to survive the failure of a sync.
                return
            self.disk.sync_failures_left = self.chance.choice((1, 1, 2, 3))
        elif way == 1:
            self.disk.write_failures_left = self.chance.choice((1, 1, 2))
        else:
            self.disk.capacity_octets = self.disk.used_octets() + self.chance.choice((0, 3000, 6000))

    def _synced(self, sequence: int) -> None:
        for entry in self.entries.values():
            if entry.sequence <= sequence:
                entry.promised = True
            for owner, settled in entry.settled.items():
                if settled <= sequence:
                    entry.settled[owner] = 0
        self.groups_promised.update(group for last, group in self.pending_groups if last <= sequence)
        self.pending_groups = [each for each in self.pending_groups if each[0] > sequence]
        while len(self.states) > 1 and self.states[1][0] <= sequence:
            del self.states[0]
        for entry in list(self.entries.values()):
            if len(entry.settled) == len(entry.owners) and not any(entry.settled.values()):
                self.gone[entry.sequence] = self.entries.pop(entry.sequence)

    def _damaged(self, segment: int, sequences: list[int]) -> None:
        for sequence in sequences:
            assert not self.entries[sequence].promised, f"{sequence} was promised, and is told to be lost"
            self.gone[sequence] = self.entries.pop(sequence)

    # Crash and check

    def _crash(self) -> None:
        self.crashes += 1
        power = self.chance.random() < 0.7
        orderly = self.chance.random() < 0.2 and self._stop()
        lossy = not orderly and (
            power or (self.disk.pages_dropped and self.journal.alarm.startswith("cannot write"))
        )
        if power:
            self.disk.crash()
        else:
            self.disk.kill()
        self._heal()
        rotten = self.chance.random() < 0.1 and self._rot()
        checked = check(DIRECTORY, self.disk)
        self.journal = self._open()
        is_told = bool(self.report.damaged or self.report.missing)
        assert bool(checked.holes or checked.missing) == is_told, (
            f"{checked.lines()} but {self.report.lines()}"
        )
        self._check_truth()
        if rotten:
            # What power took of the notes cannot tell of what rot took of the end.
            self._check_rotten(is_noted=orderly or not power)
        elif not lossy or self.options.sync is SyncPolicy.ALWAYS:
            assert not self.report.damaged, f"damage without rot: {self.report.lines()}"
            self._check_values()
            self._check_entries()
            self._check_groups()
        self._take_over()

    def _stop(self) -> bool:
        """An orderly stop: all is promised, and written down."""
        self._heal()
        self.clock.now_s += 1
        try:
            self.journal.close()
        except StorageFault:
            return False  # what a failed sync has taken is written again later than this
        # Nobody is told by then; but the sequences of all are known.
        self._synced(self.journal.next_sequence - 1)
        return True

    def _heal(self) -> None:
        self.disk.capacity_octets = 1 << 40
        self.disk.sync_failures_left = self.disk.write_failures_left = self.disk.close_failures_left = 0
        self.disk.reads_fail = False

    def _rot(self) -> bool:
        """Flip one bit in a segment, or in the notes of what was promised."""
        paths = [path for path in data_files(self.disk) if path.endswith((".segment", ".promised"))]
        if not paths:
            return False
        path = self.chance.choice(paths)
        octets = self.disk.content(path)
        if octets:
            self.disk.flip_bit(path, self.chance.randrange(len(octets)), self.chance.randrange(8))
        return bool(octets)

    def _check_truth(self) -> None:
        """Whatever is told was appended, and reads as it was."""
        sequences = [sequence for sequence, _, _, _ in self.told.entries]
        assert sequences == sorted(set(sequences)), "out of order"
        read = self.journal.read_entries(sequences)
        for told, (header, payload) in zip(self.told.entries, read, strict=True):
            sequence, owners, told_header, octets = told
            entry = self.entries.get(sequence) or self.gone.get(sequence)
            assert entry is not None, f"entry {sequence} is invented"
            spool = self.journal.spool_of(sequence)
            if spool is not None:
                payload = spool.read(0, 10_000)
                assert spool.verify()
            assert (header, payload) == (entry.header, entry.payload), f"entry {sequence} is changed"
            assert (told_header, octets) == (entry.header, len(entry.payload))
            assert set(owners) <= entry.owners_ever, "an owner is invented"

    def _check_rotten(self, is_noted: bool) -> None:
        """One flipped bit costs one record, or one group; and that is told."""
        if self.options.sync is not SyncPolicy.ALWAYS:
            return
        told = {sequence for sequence, _, _, _ in self.told.entries}
        missing = [
            entry
            for entry in self.entries.values()
            if entry.promised and not entry.settled and entry.sequence not in told
        ]
        assert len(missing) <= 1 or len({entry.group for entry in missing} - {0}) == 1, (
            f"one bit cost {[entry.sequence for entry in missing]}"
        )
        if missing and is_noted:
            assert self.report.damaged, f"{[entry.sequence for entry in missing]} were lost in silence"

    def _check_values(self) -> None:
        allowed = [state for _, state in self.states]
        told = self.told.keys
        for key in {*told, *(key for state in allowed for key in state)}:
            values = [state.get(key) for state in allowed]
            assert told.get(key) in values, f"topology {key!r} is {told.get(key)!r}, allowed {values}"

    def _check_entries(self) -> None:
        told = {sequence: owners for sequence, owners, _, _ in self.told.entries}
        for sequence in told:
            assert sequence in self.entries, f"entry {sequence} was promised to be gone"
        for entry in self.entries.values():
            owners = set(told.get(entry.sequence, ()))
            for owner in entry.owners:
                settled = entry.settled.get(owner)
                if settled is None:
                    if entry.promised:
                        assert owner in owners, f"entry {entry.sequence} of owner {owner} is lost"
                elif settled == 0:
                    assert owner not in owners, f"entry {entry.sequence} of owner {owner} is back"

    def _check_groups(self) -> None:
        told = {sequence: set(owners) for sequence, owners, _, _ in self.told.entries}
        seen: dict[int, set[bool]] = {}
        for entry in self.entries.values():
            owners = told.get(entry.sequence, set())
            if entry.group and entry.group not in self.groups_promised and not entry.settled:
                seen.setdefault(entry.group, set()).add(bool(owners))
            if entry.promised:
                for owner, group in entry.settle_groups.items():
                    if group and group not in self.groups_promised:
                        seen.setdefault(group, set()).add(owner not in owners)
        for group, states in seen.items():
            assert len(states) == 1, f"group {group} is recovered in part"

    def _take_over(self) -> None:
        """What was recovered is the truth from here on."""
        entries = {}
        for sequence, owners, _, _ in self.told.entries:
            old = self.entries.get(sequence) or self.gone[sequence]
            entries[sequence] = ModelEntry(
                set(owners), old.header, old.payload, sequence, True, old.group, old.owners_ever
            )
        for sequence, entry in self.entries.items():
            if sequence not in entries:
                self.gone[sequence] = entry
        self.entries = entries
        self.groups_promised.update(entry.group for entry in entries.values())
        self.states = [(0, dict(self.told.keys))]
        self.pending_groups = []


def run_seed(seed: int, steps: int = 60) -> int:
    """Returns the number of crashes; an AssertionError tells the seed."""
    history = None
    try:
        history = JournalHistory(seed)
        history.run(steps)
    except Exception as failure:
        raise AssertionError(f"seed {seed}: {type(failure).__name__}: {failure}") from failure
    return history.crashes


def data_files(disk: SimulatedDisk) -> list[str]:
    return [os.path.join(DIRECTORY, name) for name in disk.list(DIRECTORY)]
