"""Each shipped pipeline does what its page says, on a real broker and a real Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running import bodies, drain, of_shipped, run, run_until


def tap(connection: Any, exchange: str, name: str, key: str = "#") -> str:
    """A queue that gets what is published to a topic exchange."""
    channel = connection.channel()
    channel.exchange(exchange, "topic", durable=True)
    channel.queue(name, durable=True).bind(exchange, key)
    return name


def publish(connection: Any, queue: str, rows: list[Any], **options: Any) -> None:
    with connection.channel(confirm=True) as channel:
        channel.queue(queue, durable=True)
        made = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        channel.publish_many(made, "", queue, persistent=True, **options)


def test_archive_and_replay(spark: Any, uri: str, connection: Any, state: Path, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    for first in (0, 50):  # two runs: the second goes on where the first ended
        publish(connection, "to-archive", [b"%d" % number for number in range(first, first + 50)])
        done, told = run(spark, of_shipped("archive", uri=uri, queues="to-archive", lake=lake), state)
        assert done, told
    assert drain(connection, "to-archive") == []
    found = spark.read.parquet(lake)
    assert sorted(int(row.value) for row in found.select("value").collect()) == list(range(100))
    assert {"date", "hour"} <= set(found.columns)

    tapped = tap(connection, "again", "replayed")
    replay = of_shipped("replay", uri=uri, lake=lake, exchange="again", speed="max")
    done, told = run(spark, replay, state)
    assert done, told
    messages = drain(connection, tapped)
    assert [int(message.body) for message in messages] == list(range(100)), "each once, in order"
    assert {message.routing_key for message in messages} == {"to-archive"}
    done, told = run(spark, replay, state)
    assert done, told
    assert drain(connection, tapped) == [], "a second run has nothing left to do"


def test_dedupe(spark: Any, uri: str, connection: Any, state: Path) -> None:
    tapped = tap(connection, "deduplicated", "deduped")
    pipeline = of_shipped(
        "dedupe", uri=uri, queue="with-doubles", by="get_json_object(CAST(value AS STRING), '$.id')"
    )
    publish(connection, "with-doubles", [{"id": 1}, {"id": 2}, {"id": 1}, {"no": "id"}, {"no": "id"}])
    assert run(spark, pipeline, state)[0]
    publish(connection, "with-doubles", [{"id": 2}, {"id": 3}])
    assert run(spark, pipeline, state)[0]
    found = bodies(drain(connection, tapped))
    assert sorted(row["id"] for row in found if "id" in row) == [1, 2, 3]
    assert sum("no" in row for row in found) == 2, "rows without a key are like no other"


def test_route(spark: Any, uri: str, connection: Any, state: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rule]]\nwhen = "amount > 100"\nexchange = "big"\nrouting_key = "big.{kind}"\n'
        '[[rule]]\nwhen = "kind = \'refund\'"\nexchange = "refunds"\n'
    )
    big, refunds = tap(connection, "big", "big-ones"), tap(connection, "refunds", "refund-ones")
    malformed = tap(connection, "malformed", "malformed-ones")
    rows = [
        {"kind": "sale", "amount": 500.0},
        {"kind": "refund", "amount": 5.0},
        {"kind": "refund", "amount": 900.0},
        {"kind": "sale", "amount": 1.0},
        b"not json",
    ]
    publish(connection, "to-route", rows)
    pipeline = of_shipped(
        "route", uri=uri, queue="to-route", schema="kind STRING NOT NULL, amount DOUBLE", rules=str(rules),
        malformed="dead-letter", dead_letter_exchange="malformed",
    )  # fmt: skip
    done, told = run(spark, pipeline, state)
    assert done, told
    found = drain(connection, big)
    assert bodies(found) == [rows[0], rows[2]]
    assert [message.routing_key for message in found] == ["big.sale", "big.refund"]
    assert bodies(drain(connection, refunds)) == [rows[1]], "the first rule that holds counts"
    (dead,) = drain(connection, malformed)
    assert dead.body == b"not json"
    assert "not json of the schema" in dead.headers["x-reason"]
    assert dead.headers["x-queue"] == "to-route"


def declare_stream(connection: Any, name: str) -> None:
    connection.channel().queue(name, durable=True, arguments={"x-queue-type": "stream"})


def tick(seq: int, symbol: str, price: float, size: int, time: int, feed: str = "F1") -> dict[str, Any]:
    return {"feed": feed, "seq": seq, "symbol": symbol, "price": price, "size": size, "time": time}


def test_bars(spark: Any, uri: str, connection: Any, state: Path) -> None:
    declare_stream(connection, "bar-ticks")
    tapped = tap(connection, "bars", "all-bars")
    rows = [
        tick(1, "A", 10.0, 1, 1000), tick(2, "A", 12.0, 3, 1400), tick(3, "B", 5.0, 2, 1500),
        tick(4, "A", 8.0, 1, 1900), tick(5, "A", 9.0, 1, 2100), tick(6, "B", 6.0, 1, 60_000),
    ]  # fmt: skip
    with connection.channel(confirm=True) as channel:
        channel.publish_many([json.dumps(row).encode() for row in rows], "", "bar-ticks")
    pipeline = of_shipped("bars", uri=uri, stream="bar-ticks", mode="transactional")
    done, told = run(spark, pipeline, state)
    assert done, told
    found = drain(connection, tapped)
    made = {(row["symbol"], row["start"][14:19]): row for row in bodies(found)}
    assert set(made) == {("A", "00:01"), ("A", "00:02"), ("B", "00:01")}
    bar = made["A", "00:01"]
    assert (bar["open"], bar["high"], bar["low"], bar["close"]) == (10.0, 12.0, 8.0, 8.0)
    assert (bar["volume"], bar["ticks"], bar["vwap"]) == (5, 3, 10.8)
    assert {message.routing_key for message in found} == {"bar.A", "bar.B"}


@pytest.mark.parametrize("mode", ["confirm", "transactional"])
def test_bars_of_a_symbol_come_in_order(
    spark: Any, uri: str, connection: Any, state: Path, mode: str
) -> None:
    """Also where many windows end in one batch, which several tasks write."""
    stream, exchange = f"order-ticks-{mode}", f"order-bars-{mode}"
    declare_stream(connection, stream)
    tapped = tap(connection, exchange, f"order-all-{mode}")
    rows = [tick(at, symbol, 1.0, 1, at * 1000) for at in range(60) for symbol in ("A", "B", "C", "D")]
    rows.append(tick(60, "A", 1.0, 1, 600_000))
    with connection.channel(confirm=True) as channel:
        channel.publish_many([json.dumps(row).encode() for row in rows], "", stream)
    done, told = run(spark, of_shipped("bars", uri=uri, stream=stream, exchange=exchange, mode=mode), state)
    assert done, told
    found = bodies(drain(connection, tapped))
    assert len(found) == 240
    for symbol in ("A", "B", "C", "D"):
        starts = [bar["start"] for bar in found if bar["symbol"] == symbol]
        assert len(starts) == 60
        assert starts == sorted(starts), symbol


def test_dropout(spark: Any, uri: str, connection: Any, state: Path) -> None:
    declare_stream(connection, "gap-ticks")
    tapped = tap(connection, "gaps", "all-gaps")
    rows = [tick(seq, "A", 1.0, 1, 0, feed) for feed, seq in
            [("F1", 1), ("F1", 2), ("F1", 5), ("F2", 7), ("F2", 8), ("F1", 6), ("F2", 10)]]  # fmt: skip
    pipeline = of_shipped("dropout", uri=uri, stream="gap-ticks", patience_ms="300")

    def send(given: list[Any]) -> None:
        with connection.channel(confirm=True) as channel:
            channel.publish_many([json.dumps(row).encode() for row in given], "", "gap-ticks")

    send(rows)
    found: list[Any] = []

    def seen() -> bool:
        found.extend(bodies(drain(connection, tapped)))
        return len(found) >= 2

    told = run_until(spark, pipeline, state, seen)
    assert sorted((row["feed"], row["kind"], row["first"], row["last"], row["missing"]) for row in found) == [
        ("F1", "gap", 3, 4, 2),
        ("F2", "gap", 9, 9, 1),
    ], told
