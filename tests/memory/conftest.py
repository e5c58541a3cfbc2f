"""A broker with little memory for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from memory.watched import Watched

Start = Callable[..., Watched]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(has_store: bool = True, settings: str = "") -> Watched:
            return stack.enter_context(Watched(tmp_path, has_store, settings))

        yield begin
