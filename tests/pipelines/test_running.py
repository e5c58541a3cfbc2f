"""Pipelines of one's own: formats, malformed rows, sinks, restarts, changed files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from running import bodies, drain, of_text, run, run_until

from flintmq.pipelines.errors import CheckpointUnfit
from flintmq.pipelines.run import status

SCHEMA = "id BIGINT NOT NULL, word STRING"


def text_of(uri: str, queue: str, more: str, sink: str, name: str = "test") -> str:
    return f"""
[pipeline]
name = "{name}"
[[source]]
name = "rows"
uri = "{uri}"
queue = "{queue}"
{more}
[[sink]]
name = "out"
from = "rows"
{sink}
"""


def send(connection: Any, queue: str, *rows: bytes) -> None:
    with connection.channel(confirm=True) as channel:
        channel.queue(queue, durable=True)
        channel.publish_many(list(rows), "", queue, persistent=True)


def parquet_rows(spark: Any, path: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(path)).select("id", "word").collect())


def avro_of(rows: list[dict[str, Any]], schema: dict[str, Any]) -> list[bytes]:
    import fastavro

    made = []
    for row in rows:
        octets = io.BytesIO()
        fastavro.schemaless_writer(octets, schema, row)
        made.append(octets.getvalue())
    return made


def arrow_of(rows: list[dict[str, Any]]) -> bytes:
    octets = io.BytesIO()
    table = pyarrow.Table.from_pylist(rows)
    with pyarrow.ipc.new_stream(octets, table.schema) as writer:
        writer.write_table(table)
    return octets.getvalue()


def test_formats(spark: Any, uri: str, connection: Any, state: Path, tmp_path: Path) -> None:
    """All formats in one pipeline: a queue and a sink for each. What cannot be read is dropped."""
    rows = [{"id": 1, "word": "one"}, {"id": 2, "word": None}]
    avro: dict[str, Any] = {
        "type": "record", "name": "row",
        "fields": [{"name": "id", "type": "long"}, {"name": "word", "type": ["null", "string"]}],
    }  # fmt: skip
    (tmp_path / "row.avsc").write_text(json.dumps(avro))
    sent = {
        "json": [json.dumps(row).encode() for row in rows]
        + [b"{", b'{"word": "no id"}', b'{"id": "x"}', b""],
        "csv": [b"1,one", b"2,", b"x,y"],
        "avro": [*avro_of(rows, avro), b"\xff\xff"],
        "arrow": [arrow_of(rows), b"not arrow"],
    }
    text = '[pipeline]\nname = "formats"\n'
    for form, messages in sent.items():
        send(connection, f"form-{form}", *messages)
        text += f'[[source]]\nname = "{form}_rows"\nuri = "{uri}"\nqueue = "form-{form}"\nformat = "{form}"\n'
        text += f'schema = "{SCHEMA}"\nmalformed = "drop"\n'
        text += f'avro_schema = "{tmp_path}/row.avsc"\n' if form == "avro" else ""
    for form in sent:
        text += f'[[sink]]\nname = "{form}"\nfrom = "{form}_rows"\nparquet = "{tmp_path}/{form}"\n'
    done, told = run(spark, of_text(text), state)
    assert done, told
    for form in sent:
        assert parquet_rows(spark, tmp_path / form) == [(1, "one"), (2, None)], form


def test_malformed_fails_and_says_which(
    spark: Any, uri: str, connection: Any, state: Path, tmp_path: Path
) -> None:
    send(connection, "fails", b'{"id": 1, "word": "a"}', b'{"id": nothing}')
    more = f'format = "json"\nschema = "{SCHEMA}"\n'
    text = text_of(uri, "fails", more, f'parquet = "{tmp_path}/out"')
    done, told = run(spark, of_text(text), state)
    assert not done
    known = status.read(state, "test")
    assert known is not None
    assert (known.state, known.flows["out"].restarts) == (status.FAILED, 0), "another try reads it again"
    said = "source rows: the message at offset 2 of fails is malformed: not json of the schema"
    assert said in told[-1], told
    assert 'malformed = "drop" leaves such messages out' in told[-1], told
    mended = text.replace("schema =", 'malformed = "drop"\nschema =')
    done, told = run(spark, of_text(mended), state)
    assert done, told
    assert parquet_rows(spark, tmp_path / "out") == [(1, "a")], "nothing was lost, nothing came twice"


def test_exchange_bound_and_delta(spark: Any, uri: str, connection: Any, state: Path, tmp_path: Path) -> None:
    import deltalake

    text = f"""
[pipeline]
name = "bound"
[[source]]
name = "rows"
uri = "{uri}"
exchange = "orders"
exchange_type = "topic"
binding = ["order.#"]
format = "json"
schema = "{SCHEMA}"
metadata = ["routing_key"]
[[transform]]
name = "shouted"
python = "shouting:shout"
arguments = {{ mark = "!" }}
[[sink]]
name = "table"
from = "shouted"
delta = "{tmp_path}/table"
partition_by = "routing_key"
"""
    (tmp_path / "shouting.py").write_text(
        "def shout(frames, arguments):\n"
        "    (frame,) = frames.values()\n"
        "    return frame.selectExpr('id', f\"concat(word, '{arguments['mark']}') AS word\", 'routing_key')\n"
    )
    pipeline = of_text(text, tmp_path)
    done, told = run(spark, pipeline, state)  # declares and binds its queue
    assert done, told
    for number in (1, 2):
        with connection.channel(confirm=True) as channel:
            body = json.dumps({"id": number, "word": "hey"}).encode()
            channel.publish(body, "orders", "order.new", persistent=True)
            channel.publish(body, "orders", "invoice.new", persistent=True)
        done, told = run(spark, pipeline, state)
        assert done, told
    found = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["word"], row["routing_key"]) for row in found) == [
        (1, "hey!", "order.new"),
        (2, "hey!", "order.new"),
    ]


def test_delta_skips_a_batch_it_has(spark: Any, tmp_path: Path) -> None:
    import deltalake

    from flintmq.pipelines.queries.fingerprint import FlowRecord
    from flintmq.pipelines.queries.sinks import DeltaWriter
    from flintmq.pipelines.queries.spark_files import SparkFiles

    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n7")
    text = f'[pipeline]\nname = "d"\n[[source]]\nname = "r"\nrate = 1\n[[sink]]\ndelta = "{tmp_path}/t"\n'
    pipeline = of_text(text)
    batch = spark.range(3)
    for record_id in ("one", "one", "fresh"):
        record = FlowRecord(str(tmp_path), record_id, run="5f3c")
        DeltaWriter(pipeline, pipeline.sinks[0], record, SparkFiles(spark))(batch, 0)
    assert deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().num_rows == 6, (
        "a fresh checkpoint counts anew"
    )


def test_goes_on_after_a_failure_and_ends_when_told(
    spark: Any, uri: str, connection: Any, state: Path, tmp_path: Path
) -> None:
    """The queue is not there at first: the flow is tried again until it is."""
    pipeline = of_text(
        text_of(
            uri, "late-queue", "", f'exchange = ""\nrouting_key = "late-out"\nvalue = "raw"\nuri = "{uri}"'
        )
    )
    connection.channel().queue("late-out", durable=True)
    sent: list[bytes] = []
    found: list[Any] = []

    def seen() -> bool:
        known = status.read(state, "test")
        if known is not None and "late-queue" in (known.flows["out"].last_error or "") and not sent:
            sent.append(b'{"id": 1}')
            send(connection, "late-queue", *sent)
        found.extend(drain(connection, "late-out"))
        return bool(found)

    told = run_until(spark, pipeline, state, seen)
    assert bodies(found) == [{"id": 1}]
    assert any("late-queue" in line and "again in" in line for line in told), told
    known = status.read(state, "test")
    assert known is not None
    assert known.state == status.STOPPED


@pytest.mark.parametrize("mode", ["confirm", "transactional"])
def test_rows_that_go_to_no_queue_are_told_and_counted(
    spark: Any, uri: str, connection: Any, state: Path, mode: str
) -> None:
    channel = connection.channel(confirm=True)
    channel.exchange("some-listen", "topic", durable=True)
    channel.queue(f"heard-{mode}", durable=True).bind("some-listen", f"{mode}.1")
    send(connection, f"spoken-{mode}", *(b'{"id": %d}' % (number % 3) for number in range(30)))
    sink = f'exchange = "some-listen"\nrouting_key = "{mode}.{{id}}"\nmode = "{mode}"\nuri = "{uri}"'
    source = 'format = "json"\nschema = "id BIGINT"'
    done, told = run(spark, of_text(text_of(uri, f"spoken-{mode}", source, sink)), state)
    assert done, told
    assert len(drain(connection, f"heard-{mode}")) == 10
    known = status.read(state, "test")
    assert known is not None
    assert known.flows["out"].unrouted == 20
    assert known.flows["out"].rows == 30
    assert any("20 rows went to no queue" in line for line in told), told
    # A run counts anew.
    done, told = run(spark, of_text(text_of(uri, f"spoken-{mode}", source, sink)), state)
    known = status.read(state, "test")
    assert known is not None
    assert known.flows["out"].unrouted == 0


def test_a_changed_pipeline_says_that_its_checkpoint_does_not_fit(
    spark: Any, state: Path, tmp_path: Path
) -> None:
    text = f"""
[pipeline]
name = "counts"
trigger = "100 ms"
[[source]]
name = "rows"
rate = 100
watermark = {{ column = "timestamp", delay = "1 second" }}
[[transform]]
name = "counted"
sql = "SELECT window, count(*) AS n FROM rows GROUP BY window(timestamp, '1 second')"
[[sink]]
from = "counted"
parquet = "{tmp_path}/counts"
"""
    run_until(spark, of_text(text), state, lambda: any(Path(tmp_path, "counts").glob("*.parquet")))
    with pytest.raises(CheckpointUnfit, match="transform counted has changed"):
        run(spark, of_text(text.replace("'1 second')", "'2 seconds')")), state)


def test_sql_that_spark_refuses(spark: Any, uri: str, state: Path) -> None:
    from flintmq.pipelines.errors import PipelineFailed
    from flintmq.pipelines.queries.frames import build_empty

    text = text_of(uri, "q", f'format = "json"\nschema = "{SCHEMA}"', "console = true").replace(
        "[[sink]]", '[[transform]]\nname = "t"\nsql = "SELECT no_such_function(id) FROM rows"\n[[sink]]'
    ).replace('from = "rows"', 'from = "t"')  # fmt: skip
    with pytest.raises(PipelineFailed, match=r"test.toml:10: .*`no_such_function`"):
        build_empty(spark.newSession(), of_text(text))
    done, told = run(spark, of_text(text.replace("guest:guest@", "guest:s3cret@")), state)
    assert not done
    assert "no_such_function" in told[0]
    assert "s3cret" not in "".join(told), "no password in what a user sees"


def test_headers_are_known_to_a_check_with_spark(spark: Any, uri: str) -> None:
    from flintmq.pipelines.queries.frames import build_empty

    more = f'format = "json"\nschema = "{SCHEMA}"\nmetadata = ["headers", "priority"]'
    text = text_of(uri, "q", more, "console = true").replace(
        "[[sink]]",
        "[[transform]]\nname = \"t\"\nsql = \"SELECT headers['x'].long + priority AS n FROM rows\"\n[[sink]]",
    ).replace('from = "rows"', 'from = "t"')  # fmt: skip
    build_empty(spark.newSession(), of_text(text))


def test_a_bad_row_of_a_stream_with_two_flows_gives_one_dead_letter(
    spark: Any, uri: str, connection: Any, state: Path, tmp_path: Path
) -> None:
    channel = connection.channel(confirm=True)
    channel.exchange("bad-rows", "fanout", durable=True)
    channel.queue("bad-rows", durable=True).bind("bad-rows", "")
    channel.queue("two-flows", durable=True, arguments={"x-queue-type": "stream"})
    channel.publish_many([b'{"id": 1, "word": "a"}', b"{"], "", "two-flows", persistent=True)
    more = (
        f'format = "json"\nschema = "{SCHEMA}"\nmalformed = "dead-letter"\ndead_letter_exchange = "bad-rows"'
    )
    text = text_of(uri, "two-flows", more, f'parquet = "{tmp_path}/out"').replace("queue =", "stream =")
    text += f'[[sink]]\nname = "other"\nfrom = "rows"\nparquet = "{tmp_path}/other"\n'
    done, told = run(spark, of_text(text), state)
    assert done, told
    assert [message.body for message in drain(connection, "bad-rows")] == [b"{"]
    for place in ("out", "other"):
        assert parquet_rows(spark, tmp_path / place) == [(1, "a")]


def test_a_column_of_another_type_does_not_spoil_a_directory(
    spark: Any, uri: str, connection: Any, state: Path, tmp_path: Path
) -> None:
    """Neither the first rows nor the later ones could be read."""
    sink = f'parquet = "{tmp_path}/lake"'

    def run_with(schema: str, row: bytes) -> tuple[bool, list[str]]:
        send(connection, "retyped", row)
        more = f'format = "json"\nschema = "{schema}"'
        return run(spark, of_text(text_of(uri, "retyped", more, sink)), state)

    assert run_with("id BIGINT NOT NULL", b'{"id": 1}')[0]
    assert run_with("id BIGINT NOT NULL, word STRING", b'{"id": 2, "word": "a"}')[0]
    done, told = run_with("id STRING, word STRING", b'{"id": "three", "word": "b"}')
    assert not done
    assert "column 'id' is bigint in the files of" in told[-1]
    assert "and string now" in told[-1]
    merged = spark.read.option("mergeSchema", "true").parquet(f"{tmp_path}/lake")
    assert sorted(tuple(row) for row in merged.select("id").collect()) == [(1,), (2,)]


def test_a_delta_table_takes_a_new_column(
    spark: Any, uri: str, connection: Any, state: Path, tmp_path: Path
) -> None:
    import deltalake

    sink = f'delta = "{tmp_path}/table"'
    rows = [
        ("id BIGINT NOT NULL", b'{"id": 1}'),
        ("id BIGINT NOT NULL, word STRING", b'{"id": 2, "word": "a"}'),
    ]
    for schema, row in rows:
        send(connection, "widened", row)
        more = f'format = "json"\nschema = "{schema}"'
        done, told = run(spark, of_text(text_of(uri, "widened", more, sink)), state)
        assert done, told
    found = deltalake.DeltaTable(f"{tmp_path}/table").to_pyarrow_table().to_pylist()
    assert sorted(found, key=lambda each: each["id"]) == [{"id": 1, "word": None}, {"id": 2, "word": "a"}]
