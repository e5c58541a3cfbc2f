"""No password is in a plan, a log, the event log, a query's progress or an error, however it was given."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from spark_queries import run_to_end

from flintmq.client import connect

# Spark hides a value that looks like a password to it, whatever its name: this one does not.
PASSWORD = "hunter2"
WRONG = "hunter3"
STREAM, OUT = "credentials-in", "credentials-out"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that wants the password."""
    place = tmp_path_factory.mktemp("guarded")
    permissions = 'permissions."/" = { configure = ".*", write = ".*", read = ".*" }'
    (place / "flintmq.toml").write_text(f'[users.me]\npassword = "{PASSWORD}"\n{permissions}\n')
    with BrokerProcess("--config", str(place / "flintmq.toml")) as broker:
        address = f"127.0.0.1:{broker.port}"
        with connect(f"amqp://me:{PASSWORD}@{address}") as connection:
            channel = connection.channel(confirm=True)
            channel.queue(STREAM, durable=True, arguments={"x-queue-type": "stream"})
            channel.queue(OUT, durable=True)
            channel.publish_many([b"1", b"2"], routing_key=STREAM, persistent=True)
        yield address


class Told:
    """Everything that Spark says while something is done, in any place."""

    def __init__(self, spark: Any, records: Path) -> None:
        self.spark = spark
        self.records = records
        self.texts: dict[str, str] = {}

    def plans(self, name: str, frame: Any) -> None:
        execution = frame._jdf.queryExecution()
        mode = self.spark._jvm.org.apache.spark.sql.execution.ExplainMode
        for each in ("extended", "formatted", "cost"):
            self.texts[f"{name}, explain {each}"] = execution.explainString(mode.fromString(each))
        plans = (execution.logical(), execution.analyzed())
        self.texts[f"{name}, plans"] = "".join(str(plan.toString()) for plan in plans)

    def failure(self, name: str) -> None:
        self.texts[f"{name}, error"] = traceback.format_exc()

    def files(self) -> None:
        log = self.records / "spark.log"
        self.texts["log"] = log.read_text(errors="replace")
        events = [path.read_text() for path in self.records.rglob("events/**/events_*")]
        assert events, "there is no event log"
        self.texts["event log"] = "".join(events)


def ways(address: str, password: str) -> dict[str, dict[str, str]]:
    return {
        "url": {"url": f"amqp://me:{password}@{address}"},
        "password": {"uri": f"amqp://{address}", "username": "me", "password": password},
    }


def use(told: Told, way: str, options: dict[str, str], place: Path) -> None:
    """Reads and writes, in batches and as a stream."""
    spark = told.spark
    batch = spark.read.format("amqp").options(queue=STREAM, **options).load()
    told.plans(f"{way}, batch", batch)
    reader = spark.readStream.format("amqp").options(queue=STREAM, startingOffsets="earliest", **options)
    stream = reader.load().select("value")
    told.plans(f"{way}, stream", stream)
    writer = stream.writeStream.format("amqp").options(queue=OUT, **options).trigger(availableNow=True)
    try:
        query = run_to_end(writer.option("checkpointLocation", str(place / way)))
        reports = [report if isinstance(report, dict) else dict(report) for report in query.recentProgress]
        assert sum(report["numInputRows"] for report in reports) == 2
        told.texts[f"{way}, progress"] = json.dumps(reports, default=str) + json.dumps(query.status)
        told.texts[f"{way}, query's plan"] = query._jsq.explainInternal(True)
        batch.select("value").write.format("amqp").options(queue=OUT, **options).mode("append").save()
    except Exception:
        told.failure(way)


@pytest.mark.parametrize(
    ("password", "way"), [(PASSWORD, "url"), (WRONG, "password")], ids=["right", "wrong"]
)
def test_it_is_nowhere(
    spark: Any, records: Path, guarded: str, tmp_path: Path, password: str, way: str
) -> None:
    told = Told(spark, records)
    options = ways(guarded, password)
    spark.sparkContext.setLogLevel("TRACE")
    try:
        use(told, way, options[way], tmp_path)
        # Hidden by the session's settings.
        reader = spark.readStream.format("amqp").options(queue=STREAM, uri=f"amqp://me:{password}@{guarded}")
        told.plans("uri, stream", reader.load())
    finally:
        spark.sparkContext.setLogLevel("OFF")
    told.files()
    failed = [name for name in told.texts if name.endswith("error")]
    assert len(failed) == (0 if password == PASSWORD else 1), [told.texts[name] for name in failed]
    assert "(redacted)" in told.texts[f"{way}, stream, explain extended"]
    shown = [name for name, text in told.texts.items() if password in text]
    assert shown == []
    assert STREAM in told.texts["log"], "options that are no secret are in the log"
    assert password == PASSWORD or "refused user 'me'" in told.texts[f"{way}, error"]
