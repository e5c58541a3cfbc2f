"""`flintmq publish`, `get`, `consume`, `peek` and `search`: messages in, out, and looked at."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flintmq.cli.operating import running_broker
from flintmq.cli.operating.topology import add_routing_key, arguments_of, done
from flintmq.cli.output import statuses, tables
from flintmq.cli.output.statuses import CommandFault
from flintmq.clock import Clock

if TYPE_CHECKING:
    from flintmq.client import ClientError, Message, Properties, PublishFailed

LOOKED_AT = ("place", "age", "exchange", "routing_key", "redelivered", "size", "body")
# Published by one call of the client.
BATCH = 1000
BODY_SHOWN = 200
# Messages that a search shows unless more are asked for.
SEARCHED = 100


def add(command: str, parser: argparse.ArgumentParser) -> None:
    running_broker.add_options(parser)
    tables.add_options(parser, is_list=command in ("peek", "search"))
    if command == "publish":
        add_publish(parser)
        return
    parser.add_argument("queue", metavar="QUEUE")
    if command in ("peek", "search"):
        parser.add_argument(
            "--limit", type=tables.whole, default=10 if command == "peek" else SEARCHED, metavar="N"
        )
        parser.add_argument("--selector", default="", metavar="S", help='such as "amount > 100"')
        parser.add_argument("--contains", default="", metavar="T", help="bodies with this text")
        parser.set_defaults(run=look)
        return
    parser.add_argument(
        "--count",
        type=tables.whole,
        default=1 if command == "get" else None,
        metavar="N",
        help="so many" + (" (1)" if command == "get" else ""),
    )
    parser.add_argument(
        "--requeue", action="store_true", help="put back what was shown, marked as redelivered"
    )
    if command == "consume":
        parser.add_argument(
            "--idle", type=tables.amount, metavar="S", help="end when nothing came for so long"
        )
        parser.add_argument("--prefetch", type=tables.whole, default=100, metavar="N")
        parser.add_argument(
            "--offset",
            type=stream_offset,
            metavar="FROM",
            help="where to begin in a stream: first, last, next, an offset, an age such as 1h, "
            "or a time such as 2026-01-31T12:00 (next)",
        )
    parser.set_defaults(run=get if command == "get" else consume)


def stream_offset(text: str) -> int | datetime | str:
    """For argparse: what `x-stream-offset` takes; of words and ages the broker says what it knows."""
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return text


def add_publish(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "routing_key", nargs="?", metavar="KEY", help="the queue, unless an exchange is named"
    )
    parser.add_argument("body", nargs="?", metavar="BODY", help="else of --file or of standard input")
    add_routing_key(parser)
    parser.add_argument("--payload", metavar="BODY", help="the same as BODY")
    parser.add_argument("-e", "--exchange", default="", metavar="E")
    parser.add_argument("-f", "--file", metavar="FILE", help="its octets are the body")
    parser.add_argument("--lines", action="store_true", help="each line of the input is a message")
    parser.add_argument("--count", type=tables.whole, default=1, metavar="N", help="the same so often")
    parser.add_argument("-H", "--header", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("-P", "--property", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--transient", action="store_true", help="not kept over a restart")
    parser.add_argument("--drop-unroutable", action="store_true", help="no error where no queue gets it")
    parser.set_defaults(run=publish)


def take_words(options: argparse.Namespace) -> None:
    """Key and body are words, or values of options that tools of RabbitMQ have."""
    words = [word for word in (options.routing_key, options.body) if word is not None]
    if options.key is not None:
        words.insert(0, options.key)
    if options.payload is not None:
        words.insert(1, options.payload)
    if not words or (options.payload is not None and len(words) < 2):
        raise CommandFault("expected KEY or --routing-key", statuses.USAGE)
    if len(words) > 2:
        raise CommandFault("expected one KEY and one BODY", statuses.USAGE)
    options.routing_key, options.body = [*words, None][:2]


def bodies_of(options: argparse.Namespace) -> Iterator[bytes]:
    """The messages of a publish, one by one."""
    if options.lines and options.body is None:
        with Path(options.file).open("rb") if options.file else nullcontext(sys.stdin.buffer) as stream:
            yield from (line.rstrip(b"\r\n") for line in stream)
        return
    if options.body is not None:
        body = options.body.encode("utf-8", "surrogateescape")
    else:
        body = Path(options.file).read_bytes() if options.file else sys.stdin.buffer.read()
    yield from repeat(body, options.count)


def properties_of(options: argparse.Namespace) -> Properties:
    from flintmq.client import Properties

    given = arguments_of(options.property)
    for name in given:
        if name not in Properties.FIELDS or name == "headers":
            known = ", ".join(each for each in Properties.FIELDS if each != "headers")
            raise CommandFault(f"--property {name}: expected one of {known}", statuses.USAGE)
    for name in ("content_type", "correlation_id", "expiration", "message_id", "type", "app_id", "reply_to"):
        if name in given:
            given[name] = str(given[name])
    given.setdefault("delivery_mode", 1 if options.transient else 2)
    return Properties(headers=arguments_of(options.header) or None, **given)


def refusal(failure: PublishFailed, count: int) -> ClientError:
    """Why not all of `count` messages were taken. Where the broker closed the channel it was for one of them,
    as nothing but messages went over it: that message and those behind it are in no queue."""
    from flintmq.client import ChannelClosed

    cause = failure.__cause__
    if not isinstance(cause, ChannelClosed):
        return failure
    before = count - len(failure.rows())
    cause.args = (f"refused: {cause}" + (f"; {before:,} were published before" if before else ""),)
    return cause


def publish(options: argparse.Namespace) -> int:
    from flintmq.client import PublishFailed

    take_words(options)
    properties = properties_of(options)
    published = 0
    with running_broker.connected(options) as connection, connection.channel(confirm=True) as channel:
        bodies = bodies_of(options)
        with tables.Progress("publishing") as progress:
            while batch := list(islice(bodies, BATCH)):
                try:
                    channel.publish_many(
                        batch,
                        options.exchange,
                        options.routing_key,
                        properties=properties,
                        mandatory=not options.drop_unroutable,
                    )
                except PublishFailed as failure:
                    raise refusal(failure, published + len(batch)) from failure
                published += len(batch)
                progress.tell(published)
    done(options, f"{published:,} published", {"published": published})
    return 0


def given(properties: Properties) -> dict[str, Any]:
    """The properties that a message has."""
    found = {name: getattr(properties, name) for name in properties.FIELDS}
    return {name: value for name, value in found.items() if value is not None}


def told(message: Message, options: argparse.Namespace) -> None:
    """One message: its body, or all of it as a line of JSON."""
    if not options.json:
        sys.stdout.buffer.write(shown(message.body) + b"\n")
        return
    properties = message.properties
    facts = {
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "redelivered": message.redelivered,
        "properties": given(properties),
        "body": message.body,
    }
    sys.stdout.buffer.write(tables.json_text(facts).encode() + b"\n")


def shown(body: bytes) -> bytes:
    """As it is, but to a terminal in lines without what would take it over."""
    if not sys.stdout.isatty():
        return body
    text = body.decode("utf-8", "backslashreplace").replace("\t", "    ")
    return "\n".join(map(tables.printable, text.split("\n"))).encode()


def get(options: argparse.Namespace) -> int:
    taken: list[Message] = []
    with running_broker.connected(options) as connection, connection.channel() as channel:
        while len(taken) < options.count:
            message = channel.get(options.queue)
            if message is None:
                break
            told(message, options)
            taken.append(message)
            sys.stdout.buffer.flush()
            if not options.requeue:
                message.ack()
        if options.requeue and taken:
            taken[-1].nack(multiple=True, requeue=True)
    if options.count and not taken:
        raise CommandFault(f"queue {options.queue!r} is empty", statuses.NOT_FOUND)
    return 0


def consume(options: argparse.Namespace) -> int:
    """Until the count is reached, nothing came for a while, or an interrupt."""
    count = 0
    with (
        running_broker.connected(options) as connection,
        connection.channel(prefetch=options.prefetch) as channel,
    ):
        if options.count == 0:
            return 0
        kept: list[Message] = []
        arguments = {} if options.offset is None else {"x-stream-offset": options.offset}
        with channel.consume(options.queue, arguments=arguments, timeout_s=options.idle) as consumer:
            for message in consumer:
                told(message, options)
                sys.stdout.buffer.flush()
                count += 1
                if options.requeue:
                    kept.append(message)
                else:
                    message.ack()
                if options.requeue and len(kept) == options.prefetch:
                    break  # no more come before these are settled
                if count == options.count:
                    break
        for message in kept:
            message.nack(requeue=True)
    return 0


def look(options: argparse.Namespace) -> int:
    """Messages as they wait: nothing is taken."""
    with running_broker.connected(options) as connection:
        rows = connection.browse(options.queue).search(
            selector=options.selector, contains=options.contains, columns=("properties",)
        )
        found = [looked_at(row, options.json) for row in islice(rows, options.limit)]
    return tables.show(found, LOOKED_AT, options)


def looked_at(row: dict[str, Any], whole: bool) -> dict[str, Any]:
    from flintmq.wire.properties import decode_basic_properties

    octets = bytes(row["properties"])
    properties = decode_basic_properties(octets, 0, len(octets))
    body = bytes(row["value"])
    return {
        "place": row["offset"],
        "age": tables.age(max(0, Clock().wall_ms() - row["timestamp"] // 1000)),
        "arrived_ms": row["timestamp"] // 1000,
        "exchange": text(row["exchange"]),
        "routing_key": text(row["routing_key"]),
        "redelivered": bool(row["redelivered"]),
        "size": len(body),
        "properties": given(properties),
        "body": body if whole else body[:BODY_SHOWN],
    }


def text(octets: Any) -> str:
    return bytes(octets).decode("utf-8", "backslashreplace")
