"""`flintmq exchanges`, `bindings`, `declare`, `delete`, `bind` and `unbind`: where messages go."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from flintmq.cli.operating import running_broker
from flintmq.cli.output import statuses, tables
from flintmq.cli.output.statuses import CommandFault

if TYPE_CHECKING:
    from flintmq.client import Channel

EXCHANGE_COLUMNS = ("name", "type", "bindings", "durable", "internal", "auto_delete", "arguments")
BINDING_COLUMNS = ("source", "destination", "destination_type", "routing_key", "arguments")


def add(command: str, parser: argparse.ArgumentParser) -> None:
    if command == "declare":
        add_declare(parser)
    elif command == "delete":
        add_delete(parser)
    else:
        running_broker.add_options(parser)
        tables.add_options(parser, is_list=command in ("exchanges", "bindings"))
        ADDED[command](parser)


def add_exchanges(parser: argparse.ArgumentParser) -> None:
    tables.add_pattern(parser)
    parser.set_defaults(run=exchanges)


def add_bindings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", metavar="E", help="from this exchange")
    parser.add_argument("--destination", metavar="Q", help="to this queue or exchange")
    parser.set_defaults(run=bindings)


def add_bind(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="EXCHANGE")
    parser.add_argument("destination", metavar="QUEUE")
    parser.add_argument("routing_key", nargs="?", metavar="KEY")
    add_routing_key(parser)
    parser.add_argument("--exchange", action="store_true", help="the destination is an exchange")
    add_arguments(parser)
    parser.set_defaults(run=bind)


def add_routing_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--routing-key", dest="key", metavar="KEY", help="the same as KEY")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-a", "--argument", action="append", default=[], metavar="NAME=VALUE", help="VALUE is JSON, or a text"
    )


ADDED = {"exchanges": add_exchanges, "bindings": add_bindings, "bind": add_bind, "unbind": add_bind}


def add_declare(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="queue|exchange", required=True)
    queue = kinds.add_parser("queue", help="a queue, durable unless you say otherwise")
    queue.add_argument("name", metavar="NAME")
    queue.add_argument("--type", choices=("classic", "quorum", "stream"), help="the argument x-queue-type")
    exchange = kinds.add_parser("exchange", help="an exchange, durable unless you say otherwise")
    exchange.add_argument("name", metavar="NAME")
    exchange.add_argument("type", nargs="?", default="direct", metavar="TYPE", help="direct")
    exchange.add_argument("--internal", action="store_true", help="clients cannot publish to it")
    for each in (queue, exchange):
        kept = each.add_mutually_exclusive_group()
        kept.add_argument("--transient", action="store_true", help="gone after a restart")
        kept.add_argument("--durable", action="store_true", help="there after a restart, as is the default")
        each.add_argument("--auto-delete", action="store_true", help="goes with its last user")
        add_arguments(each)
        running_broker.add_options(each)
        tables.add_options(each)
        each.set_defaults(run=declare)


def add_delete(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="queue|exchange", required=True)
    for kind in ("queue", "exchange"):
        each = kinds.add_parser(kind, help=f"the {kind} and all its bindings")
        each.add_argument("name", metavar="NAME")
        each.add_argument("--if-unused", action="store_true", help="only if nobody uses it")
        if kind == "queue":
            each.add_argument("--if-empty", action="store_true", help="only if no message waits in it")
        tables.add_yes(each)
        running_broker.add_options(each)
        tables.add_options(each)
        each.set_defaults(run=delete)


def arguments_of(texts: list[str]) -> dict[str, Any]:
    """NAME=VALUE, where VALUE is JSON, or else a text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise CommandFault(f"{text!r}: expected NAME=VALUE", statuses.USAGE)
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def exchanges(options: argparse.Namespace) -> int:
    with running_broker.connected(options) as connection:
        rows = list(running_broker.rows_of(connection, "exchange.list"))
    return tables.show(tables.matching(rows, options.pattern, "name"), EXCHANGE_COLUMNS, options)


def bindings(options: argparse.Namespace) -> int:
    with running_broker.connected(options) as connection:
        rows = list(
            running_broker.rows_of(
                connection, "binding.list", source=options.source, destination=options.destination
            )
        )
    return tables.show(rows, BINDING_COLUMNS, options)


def declare(options: argparse.Namespace) -> int:
    arguments = arguments_of(options.argument)
    with running_broker.connected(options) as connection, connection.channel() as channel:
        common = {
            "durable": not options.transient,
            "auto_delete": options.auto_delete,
            "arguments": arguments,
        }
        name = options.name
        if options.kind == "queue":
            if options.type is not None:
                arguments["x-queue-type"] = options.type
            name = channel.queue(options.name, **common).name
        else:
            channel.exchange(options.name, options.type, internal=options.internal, **common)
    done(options, f"{options.kind} {name!r} declared", {"name": name})
    return 0


def delete(options: argparse.Namespace) -> int:
    with running_broker.connected(options) as connection, connection.channel() as channel:
        if options.kind == "queue":
            from flintmq.cli.operating.queues import depth

            waiting = depth(connection, options.name)
            tables.confirm(options, f"queue {options.name!r} with {waiting:,} messages will be lost")
            count = channel.delete_queue(options.name, if_unused=options.if_unused, if_empty=options.if_empty)
            done(options, f"queue {options.name!r} deleted with {count:,} messages", {"messages": count})
            return 0
        tables.confirm(options, f"exchange {options.name!r} and its bindings will be lost")
        channel.exchange(options.name, passive=True)  # a delete of what is not there is no error of AMQP
        channel.delete_exchange(options.name, if_unused=options.if_unused)
        done(options, f"exchange {options.name!r} deleted", {})
    return 0


def bind(options: argparse.Namespace) -> int:
    """Also for unbind: the command says which."""
    if options.key is not None and options.routing_key is not None:
        raise CommandFault("KEY and --routing-key: expected one of them", statuses.USAGE)
    key = options.key or options.routing_key or ""
    with running_broker.connected(options) as connection, connection.channel() as channel:
        bound(channel, options)(options.destination, options.source, key, arguments_of(options.argument))
    verb = "bound to" if options.command == "bind" else "unbound from"
    done(options, f"{options.destination!r} {verb} {options.source!r}", {})
    return 0


def bound(channel: Channel, options: argparse.Namespace) -> Any:
    if options.command == "bind":
        return channel.bind_exchange if options.exchange else channel.bind_queue
    return channel.unbind_exchange if options.exchange else channel.unbind_queue


def done(options: argparse.Namespace, line: str, facts: dict[str, Any]) -> None:
    if options.json:
        tables.print_json({"done": True, **facts})
    else:
        print(tables.printable(line))
