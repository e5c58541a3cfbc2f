"""Makes tools/conversation.py importable: a broker and its clients without sockets.

Whatever is done to a broker here is done to one that lives in memory and to one with a data directory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

TOOLS = str(Path(__file__).resolve().parent.parent.parent / "tools")
if TOOLS not in sys.path:
    sys.path.insert(0, TOOLS)

if TYPE_CHECKING:
    from conversation import House


@pytest.fixture(params=["memory", "store"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    from conversation import House

    house = House(directory=str(tmp_path / "data") if request.param == "store" else "")
    yield house
    house.close()
