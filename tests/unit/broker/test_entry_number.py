"""Entry numbers: what each says, and that no two places share one. Every stored message tries the C half."""

from __future__ import annotations

import pytest

from flintmq.broker.messages import entry_number

SEQUENCES = [1, 2, 12_345, (1 << 62) - 1]


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_an_entry_says_where_it_is(sequence: int) -> None:
    kept, spilled, held = (
        entry_number.of_journal(sequence),
        entry_number.of_overflow(sequence),
        entry_number.of_hold(sequence),
    )
    assert len({0, kept, spilled, held}) == 4
    assert [entry_number.is_in_journal(each) for each in (0, kept, spilled, held)] == [0, 1, 0, 0]
    assert [entry_number.is_transient(each) for each in (0, kept, spilled, held)] == [0, 0, 1, 1]
    assert [entry_number.is_held(each) for each in (0, kept, spilled, held)] == [0, 0, 0, 1]
    assert entry_number.sequence_of(kept) == entry_number.sequence_of(spilled) == sequence
