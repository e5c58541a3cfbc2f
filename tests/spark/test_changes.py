"""What changed under a query: every row once, or the query stops and says why and how to go on.

tools/spark_changes.py walks through all changes, sources and sinks; here are those that lost rows in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from changed_queries import CHANGES, Broker, Round, walk


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("changes"))
    yield broker
    broker.stop()


HERE = [
    ("checkpoint restored", "stream", "transactional"),
    ("checkpoint restored, other cuts", "stream", "transactional"),
    ("checkpoint rewound", "stream", "transactional"),
    ("checkpoint emptied", "queue", "transactional"),
    ("source made again, longer", "stream", "transactional"),
    ("source made again, longer", "queue", "confirm"),
    ("source made again, shorter", "stream", "confirm"),
    ("source of another kind", "queue", "transactional"),
    ("source of another kind", "stream", "confirm"),
    ("broker's data lost", "stream", "transactional"),
    ("target full", "stream", "transactional"),
    ("target deleted", "stream", "transactional"),
]


@pytest.mark.parametrize(("change", "source", "mode"), HERE)
def test_what_changed_is_told_or_made_up_for(
    spark: Any, own_broker: Broker, tmp_path: Path, change: str, source: str, mode: str
) -> None:
    chosen = next(each for each in CHANGES if each.name == change)
    name = f"{change}-{source}-{mode}".replace(" ", "-").replace(",", "").replace("'", "")
    round_ = Round(spark, own_broker, tmp_path, name, source, mode)
    outcome = walk(round_, chosen, source)
    assert bool(outcome.told) == chosen.stops(round_), outcome.told
    if outcome.told:
        assert chosen.says in outcome.told
    assert outcome.is_good, str(outcome)
