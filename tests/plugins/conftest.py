"""The package of plug-ins that these tests install."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker.exchanges.exchange_types import EXCHANGE_TYPES
from flintmq.broker.exchanges.transform_exchange import TRANSFORMS
from flintmq.broker.services import request, service_plugins

EXAMPLE = Path(__file__).parent / "example"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example package is installed, here and for processes started from here.

    Afterwards no plug-in is known any more, whatever loaded it: a broker in this process loads all kinds.
    """
    request.load_services()  # the broker's own are registered once: they belong to what is kept
    kept: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (known, dict(known))
        for known in (
            EXCHANGE_TYPES,
            TRANSFORMS,
            request.SERVICES,
            request.ARGUMENTS,
            service_plugins._added,
        )
    ]
    changing = set(request.CHANGING)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [str(EXAMPLE), os.environ.get("PYTHONPATH")]))
    )
    yield EXAMPLE
    for known, before in kept:
        known.clear()
        known.update(before)
    request.CHANGING.clear()
    request.CHANGING.update(changing)
    for module in EXAMPLE.glob("*.py"):
        sys.modules.pop(module.stem, None)
