"""Records: what is written is read back, what is changed does not check; the index against a plain model."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.storage import layout
from flintmq.storage.journal import record
from flintmq.storage.journal.index import EntryIndex
from flintmq.storage.journal.reader import entry_parts

owners_lists = st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=40, unique=True).map(tuple)


@given(owners_lists, st.binary(max_size=200), st.binary(max_size=2000), st.integers(1, 2**63), st.booleans())
def test_an_entry_reads_as_it_was_written(
    owners: tuple[int, ...], header: bytes, payload: bytes, sequence: int, moved: bool
) -> None:
    kind = layout.MOVED if moved else layout.ENTRY
    seed = record.seed_of(7)
    length = record.entry_length(kind, len(owners), len(header), len(payload))
    buffer = bytearray(b"\xff" * (record.padded(length) + 16))
    end = record.write_entry(buffer, 8, seed, length, sequence, kind, 0, 5, owners, header, payload)
    octets = bytes(buffer)
    assert end == 8 + record.padded(length)
    assert not any(octets[8 + length : end])
    assert record.checked_length(octets, 8, len(octets), seed) == length
    assert record.well_formed(octets, 8, length)
    assert record.entry_owners(octets, 8) == owners
    assert entry_parts(octets, 8, record.entry_header_at(octets, 8)) == (header, payload)
    assert record.checked_length(octets, 8, len(octets), record.seed_of(8)) == 0


@given(st.binary(max_size=100), st.data())
def test_a_flipped_bit_does_not_check(payload: bytes, data: st.DataObject) -> None:
    seed = record.seed_of(1)
    length = record.entry_length(layout.ENTRY, 1, 0, len(payload))
    buffer = bytearray(record.padded(length))
    record.write_entry(buffer, 0, seed, length, 1, layout.ENTRY, 0, 0, (1,), b"", payload)
    at = data.draw(st.integers(0, length - 1))
    buffer[at] ^= 1 << data.draw(st.integers(0, 7))
    assert record.checked_length(bytes(buffer), 0, len(buffer), seed) == 0


@given(st.binary(max_size=300), st.integers(0, 2**32 - 1))
def test_any_octets_can_be_asked(octets: bytes, seed: int) -> None:
    """Lengths are checked before anything is read."""
    for at in range(0, len(octets), 8):
        assert record.checked_length(octets, at, len(octets), seed) in (0, layout_length(octets, at))


def layout_length(octets: bytes, at: int) -> int:
    return int.from_bytes(octets[at + 4 : at + 8], "little")


steps = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9_000), st.integers(1, 50), owners_lists), max_size=40
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_the_index_agrees_with_a_dictionary(script: list[tuple[int, int, int, tuple[int, ...]]]) -> None:
    index = EntryIndex()
    model: dict[int, tuple[int, int, list[int]]] = {}
    for way, sequence, size, owners in script:
        if way <= 1 and sequence not in model:
            index.put(sequence, sequence * 3, size, index.owner_set(owners))
            model[sequence] = (sequence * 3, size, list(owners))
        elif way == 2 and sequence in model:
            index.relocate(sequence, sequence * 5, size)
            model[sequence] = (sequence * 5, size, model[sequence][2])
        elif model:
            sequence = min(model, key=lambda each: abs(each - sequence))
            location, old_size, left = model[sequence]
            owner = left[size % len(left)]
            state = index.settle(owner, sequence)
            assert (index.found_location, index.found_size) == (location, old_size)
            left.remove(owner)
            assert state == (layout.PARTLY if left else layout.DEAD)
            assert index.settle(owner, sequence) == layout.UNKNOWN
            if not left:
                del model[sequence]
    assert list(index.live()) == sorted(model)
    assert index.entries == len(model)
    for sequence, (location, size, left) in model.items():
        assert index.locate(sequence)
        assert (index.found_location, index.found_size) == (location, size)
        assert sorted(index.owners_of(sequence)) == sorted(left)
