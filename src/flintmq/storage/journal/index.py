"""Where each live entry lies, and who still owns it: 20 octets for an entry.

An entry is known by its sequence number for as long as it lives, wherever a rewrite has moved it,
so a queue keeps plain 64-bit numbers and never hears of segments. Sequence numbers are nearly
dense, so a number is its own index: the upper bits name a chunk, the lower twelve a slot in it.

    sequence  = chunk << 12 | slot
    chunk     locations u64   segment << 32 | offset / 8
              sizes     u32   octets of the record / 8; 0: nothing here
              sets      u32   which set of owners
              masks     u32   bit n: the n-th owner of the set has not let go

    10,000,000 entries x 20 octets = 200 MB, in 2,442 chunks of 80 KiB.

A chunk in which few are left is folded: only the live slots are kept, sorted, and found by
bisection. Sets of owners are shared: entries that went to the same queues name the same set.
A set of more than 32 owners keeps who is left in `wide`, by sequence.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from flintmq.storage import layout

# Unused sets below this number are not worth a sweep.
SETS_KEPT = 1024


class OwnerSet:
    """Owners of one or more entries; `bits` has the bit of each, of a wide set too where none is used."""

    __slots__ = ("bits", "entries", "full_mask", "number", "owners", "wide")

    def __init__(self, number: int, owners: tuple[int, ...]) -> None:
        self.number = number
        self.owners = owners
        self.bits: dict[int, int] = {owner: 1 << at % layout.MASK_BITS for at, owner in enumerate(owners)}
        self.entries = 0
        self.wide = len(owners) > layout.MASK_BITS
        # Shifted down from all ones: 1 << 32 is more than a C integer holds.
        self.full_mask = 1 if self.wide else 0xFFFFFFFF >> (layout.MASK_BITS - len(owners))


class Chunk:
    """4096 consecutive sequence numbers; folded once few of them live."""

    __slots__ = ("count", "folded", "live", "locations", "masks", "number", "sets", "sizes", "slots")

    def __init__(self, number: int) -> None:
        self.number = number
        self.live = 0
        self.folded = False
        self.count = layout.CHUNK_SLOTS
        self.locations = array("Q", bytes(8 * layout.CHUNK_SLOTS))
        self.sizes = array("I", bytes(4 * layout.CHUNK_SLOTS))
        self.sets = array("I", bytes(4 * layout.CHUNK_SLOTS))
        self.masks = array("I", bytes(4 * layout.CHUNK_SLOTS))
        self.slots = array("H", bytes(2))

    def find(self, slot: int) -> int:
        """Where the entry in `slot` is kept, or -1."""
        if not self.folded:
            return slot if self.sizes[slot] != 0 else -1
        low = 0
        high = self.count
        while low < high:
            middle = (low + high) >> 1
            if self.slots[middle] < slot:
                low = middle + 1
            else:
                high = middle
        if low < self.count and self.slots[low] == slot and self.sizes[low] != 0:
            return low
        return -1

    def slot_at(self, at: int) -> int:
        return self.slots[at] if self.folded else at

    def fold(self) -> None:
        """Keep the live slots only."""
        kept = [at for at in range(self.count) if self.sizes[at] != 0]
        slots = array("H", [self.slot_at(at) for at in kept])
        self.locations = array("Q", [self.locations[at] for at in kept])
        self.sizes = array("I", [self.sizes[at] for at in kept])
        self.sets = array("I", [self.sets[at] for at in kept])
        self.masks = array("I", [self.masks[at] for at in kept])
        self.slots = slots
        self.count = len(kept)
        self.folded = True

    def unfold(self) -> None:
        """Make room for any slot again: recovery may meet an old entry late, as a moved record."""
        locations, sizes, sets, masks, slots = self.locations, self.sizes, self.sets, self.masks, self.slots
        folded_count = self.count
        self.locations = array("Q", bytes(8 * layout.CHUNK_SLOTS))
        self.sizes = array("I", bytes(4 * layout.CHUNK_SLOTS))
        self.sets = array("I", bytes(4 * layout.CHUNK_SLOTS))
        self.masks = array("I", bytes(4 * layout.CHUNK_SLOTS))
        for at in range(folded_count):
            slot = slots[at]
            self.locations[slot] = locations[at]
            self.sizes[slot] = sizes[at]
            self.sets[slot] = sets[at]
            self.masks[slot] = masks[at]
        self.count = layout.CHUNK_SLOTS
        self.folded = False


class EntryIndex:
    """Every live entry by its sequence number."""

    __slots__ = (
        "_free_sets",
        "_near",
        "_sets",
        "_sets_by_owners",
        "_sets_swept",
        "chunks",
        "entries",
        "found_location",
        "found_size",
        "newest",
        "wide",
    )

    def __init__(self) -> None:
        self.chunks: dict[int, Chunk] = {}
        self.entries = 0
        self.wide: dict[int, set[int]] = {}
        # What the last `locate` or `settle` met.
        self.found_location = 0
        self.found_size = 0
        # The highest chunk that ever was: new entries come into this one or a later one.
        self.newest = 0
        self._near: Chunk | None = None
        self._sets_swept = 0
        self._sets: list[OwnerSet | None] = []
        self._free_sets: list[int] = []
        self._sets_by_owners: dict[tuple[int, ...], OwnerSet] = {}

    def owner_set(self, owners: tuple[int, ...]) -> OwnerSet:
        """The shared set of these owners."""
        known = self._sets_by_owners.get(owners)
        if known is not None:
            return known
        if len(set(owners)) != len(owners) or not owners:
            raise ValueError("an entry has one or more owners, each once")
        if self._free_sets:
            made = OwnerSet(self._free_sets.pop(), owners)
            self._sets[made.number] = made
        else:
            made = OwnerSet(len(self._sets), owners)
            self._sets.append(made)
        self._sets_by_owners[owners] = made
        return made

    def sweep_sets(self) -> None:
        """Forget sets that no entry names, once they are the greater part."""
        if len(self._sets_by_owners) < 2 * self._sets_swept + SETS_KEPT:
            return
        for owners in [each for each in self._sets_by_owners.values() if each.entries == 0]:
            self._sets[owners.number] = None
            self._free_sets.append(owners.number)
            del self._sets_by_owners[owners.owners]
        self._sets_swept = len(self._sets_by_owners)

    def put(self, sequence: int, location: int, size: int, owners: OwnerSet) -> int:
        """A new entry, whole: all its owners hold it."""
        number = sequence >> layout.CHUNK_BITS
        chunk = self._near
        if chunk is None or chunk.number != number:
            found = self.chunks.get(number)
            if found is None:
                found = Chunk(number)
                self.chunks[number] = found
                if number > self.newest:
                    self.newest = number
            chunk = found
            self._near = chunk
        if chunk.folded:
            chunk.unfold()
        slot = sequence & (layout.CHUNK_SLOTS - 1)
        chunk.locations[slot] = location
        chunk.sizes[slot] = size
        chunk.sets[slot] = owners.number
        chunk.masks[slot] = owners.full_mask
        chunk.live += 1
        owners.entries += 1
        self.entries += 1
        if owners.wide:
            self.wide[sequence] = set(owners.owners)
        return 0

    def _chunk(self, sequence: int) -> Chunk | None:
        number = sequence >> layout.CHUNK_BITS
        chunk = self._near
        if chunk is None or chunk.number != number:
            found = self.chunks.get(number)
            if found is None:
                return None
            chunk = found
            self._near = chunk
        return chunk

    def locate(self, sequence: int) -> bool:
        """Is it live? Then `found_location` and `found_size` say where."""
        chunk = self._chunk(sequence)
        if chunk is None:
            return False
        at = chunk.find(sequence & (layout.CHUNK_SLOTS - 1))
        if at < 0:
            return False
        self.found_location = chunk.locations[at]
        self.found_size = chunk.sizes[at]
        return True

    def relocate(self, sequence: int, location: int, size: int) -> None:
        """A live entry has a newer copy."""
        chunk = self._chunk(sequence)
        if chunk is not None:
            at = chunk.find(sequence & (layout.CHUNK_SLOTS - 1))
            if at >= 0:
                chunk.locations[at] = location
                chunk.sizes[at] = size

    def settle(self, owner: int, sequence: int) -> int:
        """One owner lets go; UNKNOWN if it did not hold, DEAD if it was the last one."""
        chunk = self._chunk(sequence)
        if chunk is None:
            return layout.UNKNOWN
        at = chunk.find(sequence & (layout.CHUNK_SLOTS - 1))
        if at < 0:
            return layout.UNKNOWN
        owners = self._set(chunk.sets[at])
        bit = owners.bits.get(owner, 0)
        if not bit:
            return layout.UNKNOWN
        self.found_location = chunk.locations[at]
        self.found_size = chunk.sizes[at]
        if owners.wide:
            left = self.wide[sequence]
            if owner not in left:
                return layout.UNKNOWN
            left.remove(owner)
            if left:
                return layout.PARTLY
            del self.wide[sequence]
        else:
            if not chunk.masks[at] & bit:
                return layout.UNKNOWN
            chunk.masks[at] = chunk.masks[at] ^ bit
            if chunk.masks[at]:
                return layout.PARTLY
        self._remove(chunk, at, owners)
        return layout.DEAD

    def forget(self, sequence: int) -> bool:
        """Take an entry out, whoever owns it."""
        chunk = self._chunk(sequence)
        at = -1 if chunk is None else chunk.find(sequence & (layout.CHUNK_SLOTS - 1))
        if chunk is None or at < 0:
            return False
        self.found_location = chunk.locations[at]
        self.found_size = chunk.sizes[at]
        self.wide.pop(sequence, None)
        self._remove(chunk, at, self._set(chunk.sets[at]))
        return True

    def _set(self, number: int) -> OwnerSet:
        found = self._sets[number]
        if found is None:
            raise AssertionError("an entry names a set of owners that was released")
        return found

    def _remove(self, chunk: Chunk, at: int, owners: OwnerSet) -> int:
        chunk.sizes[at] = 0
        chunk.live -= 1
        self.entries -= 1
        owners.entries -= 1
        if chunk.live == 0:
            del self.chunks[chunk.number]
            if self._near is chunk:
                self._near = None
        elif not chunk.folded and chunk.live <= layout.FOLD_LIVE_MAX and chunk.number < self.newest:
            chunk.fold()
        return 0

    def owners_of(self, sequence: int) -> tuple[int, ...]:
        """The owners that have not let go of the entry; none if it is not live."""
        chunk = self._chunk(sequence)
        at = -1 if chunk is None else chunk.find(sequence & (layout.CHUNK_SLOTS - 1))
        if chunk is None or at < 0:
            return ()
        owners = self._set(chunk.sets[at])
        if owners.wide:
            left = self.wide[sequence]
            return tuple([owner for owner in owners.owners if owner in left])
        mask = chunk.masks[at]
        if mask == owners.full_mask:
            return owners.owners
        return tuple([owner for owner, bit in owners.bits.items() if mask & bit])

    def live(self) -> Iterator[int]:
        """The sequence numbers of all live entries, in order; nothing may change meanwhile."""
        for number in sorted(self.chunks):
            yield from self.live_in(number)

    def live_in(self, number: int) -> list[int]:
        """The live ones of a chunk, in order."""
        chunk = self.chunks[number]
        first = number << layout.CHUNK_BITS
        found = []
        for at in range(chunk.count):
            if chunk.sizes[at]:
                found.append(first | chunk.slot_at(at))
        return found
