"""decode: messages to columns for who uses the amqp format without a pipeline."""

from __future__ import annotations

import io
from typing import Any

import pyarrow
import pytest
from running import drain

from flintmq.pipelines.queries.decoding import decode
from flintmq.spark.errors import BadOption

SCHEMA = "id BIGINT NOT NULL, name STRING"


@pytest.fixture
def rows(spark: Any, uri: str, connection: Any, request: pytest.FixtureRequest) -> Any:
    queue = str(request.node.name)
    with connection.channel(confirm=True) as channel:
        channel.queue(queue, durable=True)
        channel.queue(f"{queue}-dead", durable=True)
        channel.publish_many([b'{"id": 1, "name": "a"}', b"{", b'{"name": "b"}'], routing_key=queue)
    return spark.read.format("amqp").option("url", uri).option("queue", queue).load()


def test_malformed_rows_fail(rows: Any) -> None:
    with pytest.raises(Exception, match="offset 1 of test_malformed_rows_fail is malformed: not json"):
        decode(rows, "json", SCHEMA).collect()


def test_malformed_rows_go_to_an_exchange_with_the_reason(rows: Any, uri: str, connection: Any) -> None:
    dead = "test_malformed_rows_go_to_an_exchange_with_the_reason-dead"
    made = decode(rows, "json", SCHEMA, "dead-letter", "", dead, uri)
    assert [row.asDict() for row in made.collect()] == [{"id": 1, "name": "a"}]
    found = drain(connection, dead)
    assert [message.body for message in found] == [b"{", b'{"name": "b"}']
    assert found[1].headers["x-reason"] == "it has no id"
    with pytest.raises(Exception, match=r"'nowhere'.* nothing is lost"):
        decode(rows, "json", SCHEMA, "dead-letter", "nowhere", dead, uri).collect()
    with pytest.raises(Exception, match=r"no queue is bound.* nothing is lost"):
        decode(rows, "json", SCHEMA, "dead-letter", "", "unbound", uri).collect()


def test_malformed_rows_are_dropped(rows: Any) -> None:
    assert decode(rows, "json", SCHEMA, "drop").count() == 1


def arrow_of(*rows: dict[str, Any]) -> bytes:
    octets = io.BytesIO()
    table = pyarrow.Table.from_pylist(list(rows))
    with pyarrow.ipc.new_stream(octets, table.schema) as writer:
        writer.write_table(table)
    return octets.getvalue()


def test_a_schema_may_have_a_column_called_value(spark: Any, uri: str, connection: Any) -> None:
    """In the frame of the amqp source a column of that name is the body of the message."""
    measured = {"sensor": "a", "value": 1.5}
    with connection.channel(confirm=True) as channel:
        channel.queue("measured", durable=True)
        channel.publish_many([arrow_of(measured), b"not arrow"], routing_key="measured")
    frame = spark.read.format("amqp").option("url", uri).option("queue", "measured").load()
    made = decode(frame, "arrow", "sensor STRING, value DOUBLE", "drop")
    assert [row.asDict() for row in made.collect()] == [measured]
    text = decode(frame, "arrow", "sensor STRING, value STRING", "drop")
    assert text.collect() == [], "1.5 is no text, and the octets of the message are none"


def test_a_message_that_lacks_a_column_is_malformed_in_any_format(
    spark: Any, uri: str, connection: Any
) -> None:
    whole, lacking = {"id": 1, "name": "a"}, {"id": None, "name": "b"}
    with connection.channel(confirm=True) as channel:
        channel.queue("lacking", durable=True)
        channel.publish_many([arrow_of(whole, whole), arrow_of(whole, lacking)], routing_key="lacking")
    frame = spark.read.format("amqp").option("url", uri).option("queue", "lacking").load()
    assert [row.asDict() for row in decode(frame, "arrow", SCHEMA, "drop").collect()] == [whole, whole]
    with pytest.raises(Exception, match="offset 1 of lacking is malformed: it has no id"):
        decode(frame, "arrow", SCHEMA).collect()


def test_what_is_asked_wrongly_is_told(rows: Any) -> None:
    for frame, options, said in (
        (rows, {"format": "xml"}, "one of json"),
        (rows, {"format": "json", "malformed": "dead-letter"}, "belong together"),
        (rows.select("value"), {"format": "json"}, "no column 'queue'"),
    ):
        with pytest.raises(BadOption, match=said):
            decode(frame, schema=SCHEMA, **options)
