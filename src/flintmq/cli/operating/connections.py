"""`flintmq connections`, `channels`, `consumers` and `close`: who is connected, and what they do."""

from __future__ import annotations

import argparse
from typing import Any

from flintmq.cli.operating import running_broker
from flintmq.cli.operating.topology import done
from flintmq.cli.output import statuses, tables
from flintmq.cli.output.statuses import CommandFault

CONNECTIONS = (
    "number", "user", "virtual_host", "peer_address", "protocol", "channels", "age", "product",
    "connection_name", "blocked",
)  # fmt: skip
CHANNELS = (
    "connection", "channel", "user", "virtual_host", "consumers", "unacked", "unconfirmed", "unrouted",
    "prefetch_count", "confirm", "transactional",
)  # fmt: skip
CONSUMERS = (
    "queue", "consumer_tag", "connection", "channel", "no_ack", "exclusive", "prefetch_count", "unacked",
    "arguments",
)  # fmt: skip
SERVICES = {
    "connections": ("connection.list", CONNECTIONS),
    "channels": ("channel.list", CHANNELS),
    "consumers": ("consumer.list", CONSUMERS),
}


def add(command: str, parser: argparse.ArgumentParser) -> None:
    running_broker.add_options(parser)
    tables.add_options(parser, is_list=command != "close")
    if command == "close":
        parser.add_argument(
            "connection", type=tables.whole, nargs="?", metavar="NUMBER", help="as `connections` has it"
        )
        parser.add_argument("--user", metavar="U", help="all connections of this user")
        parser.add_argument("--all", action="store_true", help="all connections but the own one")
        parser.add_argument("--reason", default="closed by an administrator", help="what the client is told")
        tables.add_yes(parser)
        parser.set_defaults(run=close)
        return
    parser.add_argument("--everywhere", action="store_true", help="of all virtual hosts")
    if command == "consumers":
        parser.add_argument("--queue", metavar="Q", help="of this queue")
    parser.set_defaults(run=listed)


def listed(options: argparse.Namespace) -> int:
    service, columns = SERVICES[options.command]
    arguments: dict[str, Any] = {"everywhere": options.everywhere, "queue": getattr(options, "queue", None)}
    with running_broker.connected(options) as connection:
        rows = list(running_broker.rows_of(connection, service, **arguments))
        if options.command == "connections" and not options.json:
            now_ms: Any = connection.request("broker.info").results["now-ms"]
            rows = [{**row, "age": tables.age(now_ms - row["connected-ms"])} for row in rows]
    return tables.show(rows, columns, options)


def close(options: argparse.Namespace) -> int:
    if sum((options.connection is not None, options.user is not None, options.all)) != 1:
        raise CommandFault("expected a NUMBER, --user U or --all", statuses.USAGE)
    with running_broker.connected(options) as connection:
        numbers = [options.connection]
        if options.connection is None:
            own = running_broker.own_number(connection)
            rows = running_broker.rows_of(connection, "connection.list", everywhere=True)
            rows = (row for row in rows if row["number"] != own)
            numbers = [row["number"] for row in rows if options.user in (None, row["user"])]
        tables.confirm(options, f"{len(numbers)} connection(s) will be closed")
        for number in numbers:
            arguments = {"number": number, "reason": options.reason}
            connection.request("connection.close", arguments)
    done(options, f"{len(numbers)} connection(s) closed", {"closed": len(numbers)})
    return 0
