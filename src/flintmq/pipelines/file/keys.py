"""What may stand in a pipeline's file: the keys of each table, what each takes, and what it is for.

docs/pipelines.md has the same tables; a test holds the two together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flintmq.checks import Check, Unfit, any_text, count, expected, one_of, some_text, switch, table

_INTERVAL = re.compile(
    r"\s*(\d+(?:\.\d+)?)\s*(ms|millisecond|s|second|m|minute|h|hour|d|day|week)s?\s*", re.IGNORECASE
)
_UNITS = {"ms": "millisecond", "s": "second", "m": "minute", "h": "hour", "d": "day"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise expected("a name: a letter, then letters, digits, _ or -, 64 at most")
    return value


def view(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value) or "-" in value:
        raise expected("a name that SQL takes: a letter, then letters, digits or _, 64 at most")
    return value


def speed(value: object) -> float:
    if value == "max":
        return 0.0
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise expected('a number above 0, or "max"') from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise expected('a number above 0, or "max"')
    return float(value)


def names(value: object) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not given or not all(isinstance(item, str) and item for item in given):
        raise expected("one name or a list of them")
    return tuple(given)


def texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(
        isinstance(item, str | int | float | bool) for item in value.values()
    ):
        raise expected("a table of names and texts")
    return {name: str(item).lower() if isinstance(item, bool) else str(item) for name, item in value.items()}


def interval(value: object) -> str:
    """A time, in the words that Spark knows."""
    found = _INTERVAL.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise expected('a time such as "1 second" or "500 ms"')
    unit = found[2].lower()
    return f"{found[1]} {_UNITS.get(unit, unit)}s"


def trigger(value: object) -> str:
    if value == "available-now":
        return "available-now"
    try:
        return interval(value)
    except Unfit:
        raise expected('a time such as "1 second", or "available-now"') from None


def python(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[\w.]+:[A-Za-z_]\w*", value):
        raise expected('"module:function"')
    return value


def watermark(value: object) -> tuple[str, str]:
    shape = '{ column = "time", delay = "2 seconds" }'
    if not isinstance(value, dict) or set(value) != {"column", "delay"}:
        raise expected(shape)
    made: list[str] = []
    for key, check in (("column", some_text), ("delay", interval)):
        try:
            made.append(check(value[key]))
        except Unfit as unfit:
            raise Unfit(str(unfit), f".{key}", value[key]) from None
    return made[0], made[1]


def order(value: object) -> tuple[tuple[str, ...], str]:
    shape = '{ within = "symbol", by = "start" }'
    if not isinstance(value, dict) or set(value) != {"within", "by"}:
        raise expected(shape)
    try:
        return names(value["within"]), some_text(value["by"])
    except Unfit:
        raise expected(shape) from None


def rules(value: object) -> object:
    """A list of rules, or the name of a file that holds them; checked with the rest of the transform."""
    if not isinstance(value, list | str) or not value:
        raise expected(
            'a list of { when = "SQL", exchange = "name", routing_key = "text" }, or a file of them'
        )
    return value


@dataclass(frozen=True)
class Key:
    name: str
    check: Check
    help: str


def _keys(*keys: Key) -> dict[str, Key]:
    return {key.name: key for key in keys}


FORMATS = ("json", "csv", "raw", "avro", "arrow")

PIPELINE = _keys(
    Key("name", name, "what `list` and `status` call it"),
    Key("description", some_text, "one sentence for readers"),
    Key("checkpoint", some_text, "directory or URI; one directory in it for each flow"),
    Key("trigger", trigger, 'how often a batch is cut, or "available-now" to take what is there and end'),
    Key("restarts_max", count, "how many failures in a row end a flow (none: it is tried for ever)"),
    Key("spark", texts, "settings of Spark, by their full names"),
)

SOURCE = _keys(
    Key("name", view, "what SQL calls it"),
    Key("uri", some_text, "the broker; without it FLINTMQ_URI, or localhost"),
    Key("queue", some_text, "a queue to read"),
    Key("queues", names, "several queues"),
    Key("queue_pattern", some_text, "queues by a regular expression"),
    Key("stream", some_text, "a stream to read; it may feed any number of sinks, each once"),
    Key("exchange", some_text, "an exchange to bind a queue of its own to"),
    Key(
        "lake", some_text, "a directory of Parquet files or a Delta table, read in the order of a time column"
    ),
    Key("rate", count, "rows per second of Spark's own test source: timestamp, value"),
    Key("binding", names, "routing keys to bind with (exchange)"),
    Key("exchange_type", some_text, "declare the exchange, durable, as direct, topic, fanout, ..."),
    Key("declare", switch, "declare the queue or stream, durable, where it is missing"),
    Key("format", one_of(*FORMATS), "what is in a message: json, csv, raw, avro, arrow"),
    Key("schema", some_text, "its columns as in SQL: `symbol STRING NOT NULL, price DOUBLE`"),
    Key("avro_schema", some_text, "a file with the Avro schema of the messages"),
    Key("metadata", names, "columns of the amqp source to keep beside: routing_key, timestamp, ..."),
    Key("columns", texts, "further columns, each an SQL expression"),
    Key("watermark", watermark, "column of event time, and how late a row may be"),
    Key(
        "malformed", one_of("fail", "drop", "dead-letter"), "what becomes of rows that the format cannot read"
    ),
    Key("dead_letter_exchange", any_text, "where malformed rows go, with the reason in their headers"),
    Key("dead_letter_routing_key", any_text, "and with which routing key (the source's name)"),
    Key("time_column", some_text, "the column that orders a lake (timestamp)"),
    Key("since", any_text, "first time of a lake to read, as in SQL"),
    Key("until", any_text, "time of a lake at which to end"),
    Key("speed", speed, 'how fast a lake is read: 1 is the original pace, 10 ten times as fast, "max"'),
    Key("slice_rows_max", count, "rows of a lake in a batch at most, about"),
    Key("options", texts, "further options of the amqp source"),
)

TRANSFORM = _keys(
    Key("name", view, "what SQL and sinks call it"),
    Key("sql", some_text, "a SELECT over sources and earlier transforms"),
    Key("python", python, "module:function(frames, arguments), which returns a DataFrame"),
    Key("arguments", table, "the arguments of the function"),
    Key("inputs", names, "the sources and transforms that the function gets"),
    Key("from", view, "what distinct_by and rules work on"),
    Key("distinct_by", names, "drop rows whose values here were seen before, within the source's watermark"),
    Key("rules", rules, "route each row by SQL conditions: adds the columns exchange and routing_key"),
    Key("match", one_of("first", "all"), "whether the first rule that holds counts, or each"),
    Key("watermark", watermark, "column of event time of the result, and how late a row may be"),
)

SINK = _keys(
    Key("name", name, "the flow's name"),
    Key("from", view, "the source or transform that is written"),
    Key("exchange", any_text, "an exchange; columns in braces: {exchange}"),
    Key("parquet", some_text, "a directory of Parquet files, each row once"),
    Key("delta", some_text, "a Delta table, each row once"),
    Key("console", switch, "the terminal"),
    Key("uri", some_text, "the broker; without it the first source's"),
    Key("exchange_type", some_text, "declare the exchange, durable, as direct, topic, fanout, ..."),
    Key("routing_key", any_text, "text with columns or SQL in braces: bar.{symbol}"),
    Key(
        "value", one_of("json", "csv", "raw"), "how a row becomes a message; raw: its column value, as it is"
    ),
    Key("columns", names, "the columns that go into the message (all but those of routing)"),
    Key("properties", texts, "properties of the message, each an SQL expression"),
    Key(
        "mode",
        one_of("confirm", "transactional"),
        "at least once, on any broker; or exactly once, on FlintMQ",
    ),
    Key("order", order, 'what comes in order: `{ within = "symbol", by = "start" }`, both columns'),
    Key("persistent", switch, "whether messages outlive a restart of the broker (true)"),
    Key("partition_by", names, "columns that become directories"),
    Key("output_mode", one_of("append", "update", "complete"), "Spark's output mode (append)"),
    Key("trigger", trigger, "other than the pipeline's"),
    Key("options", texts, "further options of the amqp sink or of Spark's writer"),
)

TABLES = {"pipeline": PIPELINE, "source": SOURCE, "transform": TRANSFORM, "sink": SINK}
SOURCE_KINDS = ("queue", "queues", "queue_pattern", "stream", "exchange", "lake", "rate")
TRANSFORM_KINDS = ("sql", "python", "distinct_by", "rules")
SINK_KINDS = ("exchange", "parquet", "delta", "console")
