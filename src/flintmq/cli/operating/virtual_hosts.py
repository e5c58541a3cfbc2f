"""`flintmq vhosts`, `limits` and `bans`: virtual hosts, how much they and users may have, who is kept out."""

from __future__ import annotations

import argparse
from typing import Any

from flintmq.cli.operating import running_broker
from flintmq.cli.operating.topology import done
from flintmq.cli.operating.users import request, task
from flintmq.cli.output import statuses, tables
from flintmq.cli.output.statuses import CommandFault

VIRTUAL_HOSTS = ("virtual_host", "state", "queues", "connections", "fixed")
LIMITS = ("user", "virtual_host", "name", "value")
BANS = ("address", "seconds", "failures")
LISTS = {
    "vhosts": ("vhost.list", VIRTUAL_HOSTS),
    "limits": ("limit.list", LIMITS),
    "bans": ("ban.list", BANS),
}
LIMIT_NAMES = "max-connections, max-channels, max-queues, max-message-size or max-publish-rate"


def add(command: str, parser: argparse.ArgumentParser) -> None:
    tables.add_options(parser, is_list=True)
    running_broker.add_options(parser)
    parser.set_defaults(run=listed)
    tasks = parser.add_subparsers(dest="task", metavar="TASK")
    ADDED[command](tasks)


def add_virtual_hosts(tasks: Any) -> None:
    new = task(tasks, "add", "add a virtual host, which nobody may use yet", add_host)
    gone = task(tasks, "delete", "delete a virtual host with all that is in it", delete_host)
    for each in (new, gone):
        each.add_argument("name", metavar="NAME")
    tables.add_yes(gone)
    gone.add_argument("--force", action="store_true", help="also if nobody can administer afterwards")


def add_limits(tasks: Any) -> None:
    given = task(tasks, "set", "set a limit", set_limit)
    gone = task(tasks, "clear", "take a limit away", clear_limit)
    for each in (given, gone):
        each.add_argument("name", metavar="LIMIT", help=LIMIT_NAMES)
        each.add_argument("--user", metavar="U", help="of this user, instead of the virtual host")
    given.add_argument("value", type=tables.whole, metavar="N")
    given.add_argument("--force", action="store_true", help="also if nobody can administer afterwards")


def add_bans(tasks: Any) -> None:
    gone = task(tasks, "clear", "end the ban of an address, or all of them", clear_bans)
    gone.add_argument("address", nargs="?", metavar="ADDRESS")


ADDED = {"vhosts": add_virtual_hosts, "limits": add_limits, "bans": add_bans}


def listed(options: argparse.Namespace) -> int:
    service, columns = LISTS[options.command]
    with running_broker.connected(options) as connection:
        return tables.show(list(running_broker.rows_of(connection, service)), columns, options)


def add_host(options: argparse.Namespace) -> int:
    line = f"virtual host {options.name!r} added; give permissions by: flintmq permissions set"
    return request(options, "vhost.add", line, virtual_host=options.name)


def delete_host(options: argparse.Namespace) -> int:
    tables.confirm(options, f"virtual host {options.name!r} with all its queues and messages will be lost")
    line = f"virtual host {options.name!r} deleted"
    return request(options, "vhost.delete", line, virtual_host=options.name, force=options.force)


def limited(options: argparse.Namespace) -> dict[str, Any]:
    """Whose limit is meant: without a word of it, that of the virtual host of the URL."""
    if options.user is not None:
        if options.virtual_host is not None:
            raise CommandFault("a limit is of a user or of a virtual host, not of both", statuses.USAGE)
        return {"user": options.user}
    return {"virtual-host": options.virtual_host or running_broker.settings_of(options).virtual_host}


def said(whose: dict[str, Any]) -> str:
    ((kind, name),) = whose.items()
    return f"{kind.replace('-', ' ')} {name!r}"


def set_limit(options: argparse.Namespace) -> int:
    whose = limited(options)
    with running_broker.connected_anywhere(options) as connection:
        arguments = {"name": options.name, "value": options.value, "force": options.force}
        connection.request("limit.set", {**whose, **arguments})
    facts = {**whose, "name": options.name, "value": options.value}
    done(options, f"{options.name} of {said(whose)}: {options.value}", facts)
    return 0


def clear_limit(options: argparse.Namespace) -> int:
    whose = limited(options)
    with running_broker.connected_anywhere(options) as connection:
        connection.request("limit.clear", {**whose, "name": options.name})
    done(options, f"{options.name} of {said(whose)} is gone", {**whose, "name": options.name})
    return 0


def clear_bans(options: argparse.Namespace) -> int:
    given = {} if options.address is None else {"address": options.address}
    with running_broker.connected(options) as connection:
        cleared: Any = connection.request("ban.clear", given).results["cleared"]
    done(options, f"{cleared} ban(s) ended", {"cleared": cleared})
    return 0
