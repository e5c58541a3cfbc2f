"""Rows of a task on their way to messages."""

from __future__ import annotations

from typing import Any

import pyarrow
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from flintmq.spark.errors import BadOption
from flintmq.spark.options import WriteOptions
from flintmq.spark.write.rows import RowReader, check_columns, in_order


def options(**given: str) -> WriteOptions:
    return WriteOptions.of({"queue": "out", **given})


def batch(bodies: list[bytes], **columns: list[Any]) -> Any:
    return pyarrow.RecordBatch.from_pydict({"value": bodies, **columns})


def bodies_of(batches: Any, chosen: WriteOptions) -> list[bytes]:
    reader = RowReader(chosen)
    return [body for each in in_order(batches, chosen) for run in reader.runs(each) for body in run.bodies]


def test_rows_of_all_batches_of_a_task_are_sorted() -> None:
    batches = [batch([b"d", b"a"], at=[4, 1]), batch([b"c", b"b", b"b2"], at=[3, 2, 2])]
    assert bodies_of(iter(batches), options(orderBy="at")) == [b"a", b"b", b"b2", b"c", b"d"]
    assert bodies_of(iter([]), options(orderBy="at")) == []


def test_without_an_order_batches_are_taken_one_by_one() -> None:
    batches = iter([batch([b"b"]), batch([b"a"])])
    assert in_order(batches, options()) is batches


def test_a_property_that_orders_stays_a_property() -> None:
    chosen = options(orderBy="priority")
    (found,) = in_order([batch([b"b", b"a"], priority=[2, 1])], chosen)
    (run,) = RowReader(chosen).runs(found)
    assert isinstance(run.properties, list)
    assert [each.priority for each in run.properties] == [1, 2]


def test_the_column_of_the_order_has_to_be_there() -> None:
    fields = [StructField("value", BinaryType()), StructField("at", LongType())]
    check_columns(StructType(fields), options(orderBy="at"))
    with pytest.raises(BadOption, match="'orderBy': there is no column 'time'"):
        check_columns(StructType(fields[:1]), options(orderBy="time"))
    with pytest.raises(BadOption, match="no column 'at' in a message"):
        check_columns(StructType(fields), options())


@pytest.mark.parametrize("column", ["exchange", "routing_key"])
def test_a_queue_and_a_column_do_not_both_say_where_a_row_goes(column: str) -> None:
    schema = StructType([StructField("value", BinaryType()), StructField(column, StringType())])
    check_columns(schema, WriteOptions.of({"exchange": "out"}))
    with pytest.raises(BadOption, match=f"option 'queue' and the column '{column}' both say"):
        check_columns(schema, options())
