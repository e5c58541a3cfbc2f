"""Keeping the disk's use near the data's: dead segments go, sparse ones are rewritten.

    full segments > 1.75 x needed    ->  the one with the smallest needed share is the victim
    victim: values in it?            ->  checkpoint first: all keys are put again; once that is synced,
                                         a record says that older ones are void
            live entries             ->  appended again as MOVED, in steps between batches
            settles still needed     ->  said again
            all of that synced       ->  dropped: recycled as a spare, or deleted

The smallest share is then under 4/7, so a rewrite frees nearly as much as it copies, or more; use
stays under twice the needed octets plus two segments (the current one and the spare). Dead segments
go at once; sparse ones after rewrite_delay_ms, since most of them die by themselves in that time.

Drops happen one after the other, each made durable before the next: a settle must outlive every
copy of what it settles. For the same reason settles said while a victim is being emptied count as
obliged to the victim: the moved copy may die first.
"""

from __future__ import annotations

import errno
import logging
import os
from bisect import bisect_left
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING

from flintmq.storage import layout
from flintmq.storage.journal import record
from flintmq.storage.journal.reader import entry_parts
from flintmq.storage.journal.segment import Segment, segment_name
from flintmq.storage.options import SyncPolicy
from flintmq.storage.sync_notes import SEGMENT

if TYPE_CHECKING:
    from flintmq.storage.journal.journal import Journal

log = logging.getLogger("flintmq.journal")

SPARE_PREFIX = "spare."
SEQUENCE_MAX = (1 << 64) - 1
# A new file is prepared when the current segment has grown to this share of its file. Where messages are
# acked soon, an older segment is dropped before that and becomes the spare, and nothing is written twice.
SPARE_SHARE = 0.5
# A disk that fails to read takes its time over it, and everybody waits for that.
READ_AGAIN_S = 10.0
# While some wait for the disk, so many are being copied at most: each record of settles names all of them.
VICTIMS_MAX = 16
# Between two trials whether the disk takes a file again: so many times the pause between attempts to write.
TRIAL_PAUSE = 5
# To look for a record at one place takes as long as to copy so much.
PLACE_OCTETS = 64
# To say a run again takes as long as to copy so many times its octets.
RUN_WORK = 8


class ObligedSegments:
    """The segments that settles of one segment must outlive, found by what they settle."""

    def __init__(self, segment: Segment, segments: dict[int, Segment]) -> None:
        obliged = [segments[number] for number in segment.obliges if number in segments]
        # These may hold a newer copy of anything.
        self.moved = [each.number for each in obliged if each.moved]
        plain = sorted([each for each in obliged if not each.moved], key=lambda each: each.first_sequence)
        self._numbers = [each.number for each in plain]
        self._firsts = [each.first_sequence for each in plain]
        self._lasts = [each.last_sequence or SEQUENCE_MAX for each in plain]
        # The last sequence that this one or any before it may hold.
        self._reach = list(accumulate(self._lasts, max))

    def holding(self, first: int, end: int) -> list[int]:
        """Those, but for the moved, in which an entry with a name in this range may have been appended."""
        at = bisect_left(self._firsts, end)
        found = []
        while at and self._reach[at - 1] >= first:
            at -= 1
            if self._lasts[at] >= first:
                found.append(self._numbers[at])
        return found


class Reclaimer:
    """The tidy side of a journal; lives on the journal's thread, works through its tidier."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.space_alarm = ""
        # Somebody copies the files: none of them goes meanwhile.
        self.is_held = False
        # The journal is about to end: no work is begun any more.
        self.closing = False
        self.checkpoint_sequence = 0
        self._checkpoint_keys: deque[bytes] | None = None
        self._checkpoint_first = 0
        # The newest key put again, and the checkpoint's own record.
        self._checkpoint_put = 0
        self._checkpoint_last = 0
        self._sparse_since_s = 0.0
        # How far the victim has been copied; one that recovery found is begun anew.
        self._at = layout.SEGMENT_HEAD
        self._copied_to: dict[int, int] = {}  # of those that had to wait
        self._unnamed: set[int] = set()  # dropped, when somebody had removed their files before
        self._obliged: ObligedSegments | None = None  # in this step
        self._emptied_sequence = 0
        # The damage at hand by its segment and place, and how far the next record was searched for.
        self._damage = (0, 0)
        self._searched_to = 0
        self._looked_octets = 0
        # Victims that the disk did not give back, as was told, and when the next of them is asked for again.
        self._unreadable: set[int] = set()
        self._again_due_s = 0.0
        self._read_due_s = 0.0  # when others are
        # What the disk did not take, and when a trial is due.
        self._refused_octets = 0
        self._trial_due_s = 0.0
        self.dropping: Segment | None = None
        self._preparing = False
        self._recycling = False  # a dropped segment is about to become a spare
        self._spare_number = 0
        # Files of abandoned segments that must be gone before a segment whose head leaves them out.
        self._leftovers: set[int] = set()

    # Spares

    def keep_spares(self) -> None:
        """See that prepared files are there ahead of need."""
        journal = self._journal
        if self._preparing or self._recycling or len(journal.writer.spares) >= journal.options.spare_segments:
            return
        current = journal.segments.get(journal.next_segment - 1)
        if current is not None and current.recyclable and current.end < SPARE_SHARE * current.capacity:
            return
        self._prepare(journal.options.segment_octets)

    def _prepare(self, octets: int) -> None:
        journal = self._journal
        name = self._spare_name()
        path = os.path.join(journal.directory, name)
        self._preparing = True
        journal.tidier.submit(
            lambda: journal.disk.prewrite(path, octets), lambda error: self._prepared(name, octets, error)
        )

    def _spare_name(self) -> str:
        self._spare_number += 1
        return f"{SPARE_PREFIX}{self._spare_number}"

    def _prepared(self, name: str, octets: int, error: OSError | None) -> None:
        self._preparing = False
        journal = self._journal
        if error is None:
            self._refused_octets = 0
            is_wanted = len(journal.writer.spares) < journal.options.spare_segments
            if is_wanted and octets == journal.options.segment_octets:
                journal.writer.spares.append(name)
            else:
                self._delete_quietly(name)
            self.watch_space()
            return
        said = error.strerror or str(error)
        if error.errno == errno.ENOSPC:
            # As watch_space has it: a lower disk_free_bytes_min changes nothing about that.
            said += f"; the journal needs {2 * journal.options.segment_octets / 2**20:g} MiB free to go on"
        self.refuse(f"cannot prepare a segment in {journal.directory}: {said}", octets)
        journal.refresh_alarm()
        self._delete_quietly(name)

    def refuse(self, why: str, octets: int) -> None:
        """The disk has not taken a file of this size: the alarm stays on until it takes one."""
        journal = self._journal
        self.space_alarm = why
        self._refused_octets = max(self._refused_octets, octets)
        pause_ms = TRIAL_PAUSE * journal.options.retry_interval_ms
        self._trial_due_s = journal.clock.monotonic_s() + pause_ms / 1000

    def _try_room(self) -> None:
        """Now and then a file as large as the refused one is written; not into the last free room."""
        journal = self._journal
        if self._preparing or self._recycling or journal.clock.monotonic_s() < self._trial_due_s:
            return
        try:
            free = journal.disk.free_octets(journal.directory)
        except OSError:
            return  # which `watch_space` tells
        if free >= max(self._refused_octets, journal.options.disk_free_octets_min):
            self._prepare(self._refused_octets)

    def _delete_quietly(self, name: str) -> None:
        """Remove a file that matters to nobody; recovery removes it if this does not succeed."""
        journal = self._journal
        path = os.path.join(journal.directory, name)
        journal.tidier.submit(lambda: journal.disk.delete(path), lambda error: None)

    def delete_leftover(self, number: int) -> None:
        """A segment that holds nothing promised: the next segment's head leaves it out, for now."""
        self._leftovers.add(number)

    # Steps

    def step(self) -> None:
        """A little work; called by the journal's tick and after each sync."""
        if self._journal.missing:
            return
        self.watch_space()
        if self._refused_octets:
            self._try_room()
        elif not self._journal.alarm or self._journal.writer.spares:
            self.keep_spares()
        self._checkpoint_step()
        self._journal.spools.synced(self._journal.synced_sequence)
        if self.is_held:
            return  # a rewrite would only take room, as nothing could be dropped after it
        self._go_on()

    def _go_on(self) -> None:
        """With a victim that can be read, or another one: what the disk does not give keeps only its own."""
        if self._has_victim():
            self._rewrite_step()
        elif self.dropping is None:
            self._choose()

    def synced(self) -> None:
        """Something became safe."""
        journal = self._journal
        journal.spools.synced(journal.synced_sequence)
        # After every batch, not at the next tick: a fast publisher fills a disk in less.
        self.watch_space()
        if self._checkpoint_last and journal.synced_sequence >= self._checkpoint_last:
            self.checkpoint_sequence = self._checkpoint_first
            self._checkpoint_last = 0
        if self.closing:
            return
        if not journal.alarm:
            self.keep_spares()
        if journal.emptied or journal.victims or self._checkpoint_keys is not None:
            journal.emptied = False
            self.step()

    def watch_space(self) -> None:
        """Raise the alarm if the disk has too little room, or end it."""
        journal = self._journal
        if not self.space_alarm and not journal.options.disk_free_octets_min:
            return
        least = max(journal.options.disk_free_octets_min, 1)
        if self.space_alarm:
            # Not at the first octet that comes free: the next segment has to fit.
            least = max(least, 2 * journal.options.segment_octets)
        try:
            free = journal.disk.free_octets(journal.directory)
        except OSError as failure:
            self.space_alarm = f"cannot tell the room in {journal.directory}: {failure.strerror or failure}"
            journal.refresh_alarm()
            return
        if self._refused_octets:
            return  # until `_try_room` has tried
        if free >= least:
            self.space_alarm = ""
        elif not self.space_alarm:
            said = f"{free} octets free, less than the {least} of disk_free_bytes_min"
            # The overflow lies in the data directory, whose disk the limit is about.
            is_overflow = journal.options.ephemeral
            place = os.path.dirname(journal.directory) if is_overflow else journal.directory
            self.space_alarm = f"{place} has {said}"
        journal.refresh_alarm()

    # Choosing

    def _choose(self) -> None:
        journal = self._journal
        used = behind_values = 0
        needed = journal.value_octets
        sparsest: Segment | None = None
        share = values_share = 1.0
        for segment in journal.segments.values():
            keep = segment.needed_octets()
            needed += keep
            if not segment.sealed:
                continue
            used += segment.end
            if segment.number in journal.victims or not self._settled(segment):
                continue  # it waits for the disk
            if segment.value_sequence >= max(self.checkpoint_sequence, 1):
                behind_values += segment.end - keep
                values_share = min(values_share, keep / segment.end)
            elif keep < share * segment.end:
                sparsest = segment
                share = keep / segment.end
        # A checkpoint gives back what lies beside values and is not needed, and writes the values once more.
        gain = behind_values - journal.value_octets
        if values_share <= share and self._worth_checkpoint(gain):
            if values_share == 0.0 or self._may_copy(used > 1.75 * needed):
                self._begin_checkpoint()
            return
        if sparsest is None or (share > 0.0 and not self._may_copy(used > 1.75 * needed)):
            return
        self._set_aside()
        journal.victims.insert(0, sparsest.number)
        self._take_up()
        self._rewrite_step()

    def _may_copy(self, sparse: bool) -> bool:
        """Whether one more segment may be copied, of which something is needed."""
        is_sparse = self._sparse_for_long(sparse)
        if not self._journal.victims:
            return is_sparse
        is_due = self._journal.clock.monotonic_s() >= self._read_due_s
        return is_sparse and is_due and len(self._journal.victims) < VICTIMS_MAX

    def _sparse_for_long(self, sparse: bool) -> bool:
        """Has too much been unneeded for rewrite_delay_ms?"""
        now_s = self._journal.clock.monotonic_s()
        if not sparse:
            self._sparse_since_s = 0.0
            return False
        if not self._sparse_since_s:
            self._sparse_since_s = now_s
        return now_s - self._sparse_since_s >= self._journal.options.rewrite_delay_ms / 1000

    def _settled(self, segment: Segment) -> bool:
        """Is everything that this segment's account rests on synced?"""
        return segment.safe and segment.touched <= self._journal.synced_sequence

    def _worth_checkpoint(self, gain: int) -> bool:
        """A checkpoint writes all values: only for at least as much room, and one at a time.

        What lies elsewhere does not count: a segment that the disk does not give back would have them
        written for ever. None of the segments that are sealed now counts for a second one.
        """
        if self._checkpoint_keys is not None or self._checkpoint_last:
            return False
        return gain >= max(self._journal.value_octets, 1)

    # Checkpoint

    def _begin_checkpoint(self) -> None:
        self._checkpoint_keys = deque(self._journal.values)
        self._checkpoint_first = self._journal.next_sequence
        self._checkpoint_put = self._checkpoint_first - 1
        self._checkpoint_step()

    def _checkpoint_step(self) -> None:
        journal = self._journal
        keys = self._checkpoint_keys
        if keys is None:
            return
        octets = 0
        while keys and octets < journal.options.rewrite_step_octets:
            key = keys.popleft()
            value = journal.values.get(key)
            if value is not None:
                self._checkpoint_put = journal.append_value(layout.PUT, key, value)
                octets += layout.RECORD_HEAD + len(key) + len(value)
        # Written together, a torn batch could leave the record and not the keys.
        if not keys and journal.synced_sequence >= self._checkpoint_put:
            self._checkpoint_last = journal.append_checkpoint(self._checkpoint_first)
            self._checkpoint_keys = None
        journal.end_batch()

    def put_values_again(self, segment: Segment) -> None:
        """The segment's file is to go, or is gone: the values in it are in memory, and go to another file."""
        is_needed = segment.value_sequence >= max(self.checkpoint_sequence, 1)
        if is_needed and self._checkpoint_keys is None and not self._checkpoint_last:
            self._begin_checkpoint()

    # Rewriting

    def _has_victim(self) -> bool:
        """Whether there is one to go on with, which is the first of them then."""
        if self.dropping is not None or self._emptied_sequence:
            return bool(self._journal.victims)
        victims = self._journal.victims
        for _ in range(len(victims)):
            if not self._is_waiting(self._journal.segments[victims[0]]):
                return True
            self._put_last()
        return False

    def _is_waiting(self, segment: Segment) -> bool:
        """Whether the disk would have to give it, and is not to be asked yet."""
        due_s = self._again_due_s if segment.number in self._unreadable else self._read_due_s
        return segment.needed_octets() > 0 and self._journal.clock.monotonic_s() < due_s

    def _set_aside(self) -> None:
        """Notes how far the first victim has been copied, as another one has its turn."""
        if self._journal.victims:
            self._copied_to[self._journal.victims[0]] = self._at

    def _put_last(self) -> None:
        self._set_aside()
        self._journal.victims.append(self._journal.victims.pop(0))
        self._take_up()

    def _take_up(self) -> None:
        """The first victim's turn: from its beginning, or from where it had to wait."""
        victims = self._journal.victims
        self._at = self._copied_to.pop(victims[0], layout.SEGMENT_HEAD) if victims else layout.SEGMENT_HEAD
        self._emptied_sequence = 0

    def _rewrite_step(self) -> None:
        journal = self._journal
        segment = journal.segments[self._journal.victims[0]]
        if self.dropping is not None:
            return
        if self._emptied_sequence:
            if journal.synced_sequence >= self._emptied_sequence and self._settled(segment):
                self._drop(segment)
            return
        if segment.value_sequence >= max(self.checkpoint_sequence, 1):
            self.put_values_again(segment)
            return
        if segment.needed_octets() == 0:
            self._at = segment.end
        copied = 0
        self._obliged = None
        try:
            while self._at < segment.end and copied < journal.options.rewrite_step_octets:
                copied += self._copy_record(segment)
            self._unreadable.discard(segment.number)
        except OSError as failure:
            journal.end_batch()
            self._cannot_read(segment, failure)
            return
        if self._at >= segment.end:
            journal.reader.release_window()
            journal.flush_settles()
            self._emptied_sequence = max(journal.next_sequence - 1, 1)
        journal.end_batch()

    def _cannot_read(self, segment: Segment, failure: OSError) -> None:
        """Its record at hand stays where it is, and is tried again in a while, from a file opened anew.

        Other victims have their turn before. After the first failure of a segment these wait as well, as the
        whole disk may fail.
        """
        journal = self._journal
        journal.reader.close_one(segment.number)
        self._again_due_s = journal.clock.monotonic_s() + READ_AGAIN_S
        if segment.number not in self._unreadable:
            self._read_due_s = self._again_due_s
        if segment.number not in self._unreadable and not journal.missing:
            self._unreadable.add(segment.number)
            log.error(
                "%s in %s cannot be read: %s; what it takes on the disk stays taken until it can be",
                segment_name(segment.number),
                journal.directory,
                failure.strerror or failure,
            )
        self._put_last()

    def _record(self, segment: Segment, place: int) -> tuple[bytes, int, int]:
        """The record at a place of the segment: octets that hold it, where in them, and its length, or 0."""
        reader = self._journal.reader
        octets, at = reader.view(segment.number, place, layout.RECORD_HEAD)
        if len(octets) - at < layout.RECORD_HEAD:
            return octets, at, 0
        length = layout.get_u32(octets, at + 4)
        if not layout.RECORD_HEAD <= length <= segment.end - place:
            return octets, at, 0
        octets, at = reader.view(segment.number, place, length)
        self._looked_octets += length
        return octets, at, record.checked_length(octets, at, min(at + length, len(octets)), segment.seed)

    def _copy_record(self, segment: Segment) -> int:
        """Carry the record at hand forward if it is needed; returns the octets of work done."""
        place = self._at
        octets, at, length = self._record(segment, place)
        if length == 0:
            return self._past_damage(segment)
        self._at = place + record.padded(length)
        kind = layout.get_u8(octets, at + 16)
        if kind in (layout.ENTRY, layout.MOVED):
            name_at = at + (8 if kind == layout.ENTRY else layout.RECORD_HEAD)
            sequence = layout.get_u64(octets, name_at)
            journal = self._journal
            location = segment.number << 32 | place >> 3
            if journal.index.locate(sequence) and journal.index.found_location == location:
                header, payload = entry_parts(octets, at, record.entry_header_at(octets, at))
                journal.append_moved(sequence, layout.get_u8(octets, at + 17), header, payload)
                return 2 * length
        elif kind == layout.SETTLE and segment.obliges:
            self._copy_runs(segment, octets, at)
            return RUN_WORK * length
        # Passing over a dead record costs a fraction of copying it.
        return 8 + length // 8

    def _copy_runs(self, segment: Segment, octets: bytes, at: int) -> None:
        journal = self._journal
        obliged = self._obliged
        if obliged is None:
            obliged = self._obliged = ObligedSegments(segment, journal.segments)
        runs = layout.get_u32(octets, at + 20)
        journal.settle_room(runs)
        copied = 0
        for run in range(runs):
            run_at = at + layout.RECORD_HEAD + run * layout.RUN_OCTETS
            first = layout.get_u64(octets, run_at + 8)
            count = layout.get_u32(octets, run_at + 4)
            targets = obliged.holding(first, first + count) or obliged.moved[:1]
            if targets:
                copied += 1
                journal.append_settle_copy(layout.get_u32(octets, run_at), first, count, targets)
        # All at once: to note each of them for each run would take runs x segments.
        journal.oblige(obliged.moved, copied * layout.RUN_OCTETS)

    def _past_damage(self, segment: Segment) -> int:
        """The disk changed what it held: step over it, losing what cannot be read, as a read would.

        Returns the octets of work done. The search for the next record may go on in the next step.
        """
        begun = (segment.number, self._at)
        place = self._searched_to if self._damage == begun else self._at + 8
        most = self._journal.options.rewrite_step_octets
        work = 0
        while place < segment.end:
            if work >= most:
                self._damage = begun
                self._searched_to = place
                return work
            self._looked_octets = 0
            if self._may_begin(segment, place) and self._record(segment, place)[2]:
                break
            work += PLACE_OCTETS + self._looked_octets
            place += 8
        self._damage = (0, 0)
        self._journal.lose_unreadable(segment.number, self._at, place)
        self._at = place
        return work

    def _may_begin(self, segment: Segment, place: int) -> bool:
        """Whether a record may begin there, by its number: most checksums need not be computed."""
        octets, at = self._journal.reader.view(segment.number, place, layout.RECORD_HEAD)
        if len(octets) - at < layout.RECORD_HEAD:
            return False
        return layout.get_u64(octets, at + 8) < self._journal.next_sequence

    # Dropping

    def _drop(self, segment: Segment) -> None:
        journal = self._journal
        number = segment.number
        self.dropping = segment
        journal.reader.forget(number)
        wanted = not self._preparing and len(journal.writer.spares) < journal.options.spare_segments
        recycle = self._recycling = segment.recyclable and wanted
        spare = self._spare_name() if recycle else ""
        before = journal.segments.get(segment.previous)
        cut = (before.number, before.end) if before is not None and before.abandoned else None
        leftovers = sorted(self._leftovers)
        moved_into = []
        if journal.options.sync is SyncPolicy.NEVER and not journal.options.ephemeral:
            moved_into = [n for n, each in journal.segments.items() if each.moved and each is not segment]

        recycled: list[str] = []  # the spare, once it is there
        unnamed: list[int] = []  # the segment, if somebody has removed its file before

        def remove() -> None:
            present = set(journal.disk.list(journal.directory))
            self._forget_abandoned(cut, leftovers, present)
            is_there = segment_name(number) in present
            if not is_there:
                unnamed.append(number)
            # What is live in a file that was removed is copied from the open one, or waits for it.
            to_sync = [each for each in moved_into if segment_name(each) in present]
            if self._remove_file(number, spare, to_sync, is_there):
                recycled.append(spare)
            journal.disk.sync_directory(journal.directory)

        journal.tidier.submit(remove, lambda error: self._dropped(recycled, unnamed, leftovers, error))

    def remove_put_back(self, present: set[str]) -> None:
        """A removed file that is put back when what was live in it lies elsewhere goes again.

        A start would take messages from it that are acked since.
        """
        for number in sorted(self._unnamed):
            name = segment_name(number)
            if name in present:
                path = os.path.join(self._journal.directory, name)
                log.warning("%s was put back: it is removed, as what is live in it was copied", path)
                self._delete_quietly(name)

    def _forget_abandoned(self, cut: tuple[int, int] | None, leftovers: list[int], present: set[str]) -> None:
        """Runs on the tidier: do away with what only the head of the segment to be dropped voids."""
        disk = self._journal.disk
        directory = self._journal.directory
        if cut is not None:
            handle = disk.open(os.path.join(directory, segment_name(cut[0])))
            try:
                disk.truncate(handle, cut[1])
                disk.sync(handle)
            finally:
                disk.let_go(handle)
        for number in leftovers:
            if self._journal.promises is not None:
                self._journal.promises.forget(SEGMENT, number)
            if segment_name(number) in present:
                disk.delete(os.path.join(directory, segment_name(number)))

    def _remove_file(self, number: int, spare: str, moved_into: list[int], is_there: bool) -> bool:
        """Runs on the tidier: the file goes, or becomes the spare; whether it has become the spare.

        The file's name is gone for good when the directory is synced. Where that fails all of this is done
        again, and the file is not there any more.
        """
        disk = self._journal.disk
        directory = self._journal.directory
        for each in moved_into:
            handle = disk.open(os.path.join(directory, segment_name(each)))
            try:
                disk.sync(handle)
            finally:
                disk.let_go(handle)
        if self._journal.promises is not None:
            self._journal.promises.forget(SEGMENT, number)
        if not is_there:
            return False
        path = os.path.join(directory, segment_name(number))
        if spare:
            disk.rename(path, os.path.join(directory, spare))
        else:
            disk.delete(path)
        return bool(spare)

    def _dropped(
        self, recycled: list[str], unnamed: list[int], leftovers: list[int], error: OSError | None
    ) -> None:
        segment = self.dropping
        journal = self._journal
        self.dropping = None
        self._recycling = False
        if segment is None or error is not None:
            self.space_alarm = f"cannot remove a segment in {journal.directory}: {error}"
            for spare in recycled:
                self._delete_quietly(spare)
            return
        self._leftovers.difference_update(leftovers)
        self._unnamed.update(unnamed)
        journal.writer.spares.extend(recycled)
        del journal.segments[segment.number]
        journal.forget_segment(segment.number)
        for other in journal.segments.values():
            other.obliges.pop(segment.number, None)
        self._journal.victims.remove(segment.number)
        self._unreadable.discard(segment.number)
        self._take_up()
        if not self.is_held:
            self._go_on()
