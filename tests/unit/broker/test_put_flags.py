"""What enqueue returns has the same bits in Python and in C."""

from __future__ import annotations

import re
from pathlib import Path

from flintmq.broker.queues import put_flags


def test_outcomes_have_one_number_in_both_halves_of_the_twin() -> None:
    declared = Path(put_flags.__file__).with_suffix(".pxd").read_text()
    found = {name: int(value) for name, value in re.findall(r"^    (\w+) = (\d+)$", declared, re.MULTILINE)}
    assert found == {name: value for name, value in vars(put_flags).items() if name.isupper()}
    assert sum(found.values()) == (1 << len(found)) - 1, "each of them is a bit of its own"
