"""Tables of the wire as JSON has them."""

from __future__ import annotations

from flintmq.management.broker_state import shapes
from flintmq.wire.tables import encode_table


def test_large_tables_are_not_remembered() -> None:
    """Clients choose what they say of themselves, and come and go: 4096 such tables may be 1 GB."""
    shapes.remembered.cache_clear()
    small = encode_table({"product": "a client"})
    assert shapes.table(small) is shapes.table(bytes(bytearray(small)))
    for number in range(10):
        large = {"product": "x" * 60_000, "number": number}
        assert shapes.table(encode_table(large)) == large
    assert shapes.remembered.cache_info().currsize == 1
