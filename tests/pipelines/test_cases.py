"""`flintmq pipeline test`: rows in, rows out, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from running import of_shipped, of_text

from flintmq.cli import main
from flintmq.errors import ConfigFault
from flintmq.pipelines.run import cases
from flintmq.pipelines.run.cases import Case

PIPELINE = """
[pipeline]
name = "orders"
[[source]]
name = "orders"
stream = "orders"
format = "json"
schema = "id BIGINT NOT NULL, customer STRING, amount DOUBLE NOT NULL"
metadata = ["timestamp", "headers"]
malformed = "dead-letter"
dead_letter_exchange = "malformed"
[[transform]]
name = "dear"
sql = "SELECT id, customer, amount FROM orders WHERE amount > 1000"
[[sink]]
name = "dear"
from = "dear"
exchange = "dear-orders"
routing_key = "dear.{customer}"
properties = { type = "'order'" }
[[sink]]
name = "lake"
from = "orders"
parquet = "orders-lake"
"""

CASES = """
[[case]]
name = "dear orders go on"
in.orders = [{ id = 1, customer = "ann", amount = 5000.0 }, { id = 2, amount = 1 }, "not an order"]
out.dear = [{ routing_key = "dear.ann", id = 1, amount = 5000, type = "order" }]
out.lake = [{ id = 1 }, { id = 2, customer = "ann" }]
"""


def test_a_case(tmp_path: Path, capfd: pytest.CaptureFixture[str], spark: Any) -> None:
    (tmp_path / "orders.toml").write_text(PIPELINE)
    (tmp_path / "orders.test.toml").write_text(CASES)
    pipeline = of_text(PIPELINE)
    found = cases.load(cases.file_of(str(tmp_path / "orders.toml")), pipeline)
    (outcome,) = cases.run(spark, pipeline, found)
    assert outcome.faults[0] == 'lake: did not come: {"id": 2, "customer": "ann"}'
    assert outcome.faults[1].startswith('lake: came unasked: {"id": 2, "customer": null, "amount": 1.0,')
    assert len(outcome.faults) == 2
    assert main(["pipeline", "test", str(tmp_path / "orders.toml"), "--cases", str(tmp_path / "none")]) == 2
    assert "name the file of the cases with --cases" in capfd.readouterr().err


def test_windows_over_batches(spark: Any) -> None:
    """A shipped pipeline with state: the second batch closes the window of the first."""
    tick = {"feed": "f", "symbol": "A", "size": 10}
    first = [{**tick, "seq": 1, "price": 5.0, "time": 1000}, {**tick, "seq": 2, "price": 7.0, "time": 1500}]
    later = [{**tick, "seq": 3, "price": 6.0, "time": 60_000}]
    wanted = {"bars": [{"routing_key": "bar.A", "open": 5.0, "high": 7.0, "close": 7.0, "ticks": 2}]}
    (outcome,) = cases.run(spark, of_shipped("bars"), [Case("bars", {"ticks": [first, later]}, wanted)])
    assert outcome.faults == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected [[case]] tables"),
        ("[[case]]\nin.orders = []", "expected in and out"),
        ("[[case]]\nin.oders = []\nout.dear = []", "there is no such name; did you mean 'orders'?"),
        ("[[case]]\nin.orders = []\nout.deer = []", "there is no such name; did you mean 'dear'?"),
        ("[[case]]\nin.orders = 1\nout.dear = []", "expected a list of rows"),
        ("[[case]]\nin.orders = []\nout.dear = [1]", "expected a table for each row"),
        ("[[case", "this is not TOML"),
    ],
)
def test_wrong_cases(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ConfigFault) as caught:
        cases.load(tmp_path / "c.toml", of_text(PIPELINE))
    assert said in str(caught.value)


def test_differences() -> None:
    wanted: list[dict[str, Any]] = [{"a": 1}, {"a": 1}, {"b": {"c": [1, 2.0]}}]
    found: list[dict[str, Any]] = [{"a": 1, "x": 2}, {"b": {"c": [1, 2], "d": 0}}, {"a": True}]
    assert list(cases.differences("s", wanted, found)) == [
        's: did not come: {"a": 1}',
        's: came unasked: {"a": true}',
    ]
