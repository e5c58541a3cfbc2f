"""`flintmq users` and `flintmq permissions`: who may log in, and what they may do."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from flintmq.cli.operating import running_broker
from flintmq.cli.operating.topology import done
from flintmq.cli.output import statuses, tables
from flintmq.cli.output.statuses import CommandFault

USERS = ("user", "tags", "fixed")
PERMISSIONS = ("user", "virtual_host", "configure", "write", "read", "fixed")
TOPIC_PERMISSIONS = ("user", "virtual_host", "exchange", "write", "read")
NEW_PASSWORD = "FLINTMQ_NEW_PASSWORD"


def add(command: str, parser: argparse.ArgumentParser) -> None:
    tables.add_options(parser, is_list=True)
    running_broker.add_options(parser)
    if command == "users":
        tables_of_users(parser)
    else:
        tables_of_permissions(parser)


def task(tasks: Any, name: str, words: str, run: Any) -> argparse.ArgumentParser:
    """One task of a noun, with the options that each has."""
    parser: argparse.ArgumentParser = tasks.add_parser(name, help=words)
    running_broker.add_options(parser)
    tables.add_options(parser)
    parser.set_defaults(run=run)
    return parser


def tables_of_users(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=users)
    tasks = parser.add_subparsers(dest="task", metavar="TASK")
    new = task(tasks, "add", "add a user; the password is asked for, or a line of standard input", add_user)
    new.add_argument("--tags", default="", metavar="A,B", help="administrator, monitoring, policymaker, ...")
    new.add_argument("--all-permissions", action="store_true", help="on all of the virtual host")
    password = task(tasks, "password", "change a password", set_password)
    tags = task(tasks, "tags", "these tags in the place of those there were", set_tags)
    gone = task(tasks, "delete", "delete a user and close the user's connections", delete_user)
    for each in (new, password, tags, gone):
        each.add_argument("user", metavar="USER")
    tags.add_argument("tags", nargs="*", metavar="TAG", help="apart by spaces or commas; none takes all away")
    tables.add_yes(gone)
    for each in (tags, gone):
        each.add_argument("--force", action="store_true", help="also the last administrator")


def tables_of_permissions(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=permissions)
    parser.add_argument("--user", metavar="U", help="of this user")
    parser.add_argument("--topic", action="store_true", help="topic permissions")
    tasks = parser.add_subparsers(dest="task", metavar="TASK")
    given = task(tasks, "set", "set the three patterns of a user", set_permissions)
    topic = task(tasks, "set-topic", "patterns over routing keys of a topic exchange", set_topic)
    gone = task(tasks, "clear", "the user may not use the virtual host any more", clear_permissions)
    free = task(tasks, "clear-topic", "all routing keys of the exchange again", clear_topic)
    for each in (given, topic, gone, free):
        each.add_argument("user", metavar="USER")
    for each in (topic, free):
        each.add_argument("exchange", metavar="EXCHANGE")
    for name in ("configure", "write", "read"):
        given.add_argument(name, metavar=name.upper(), help="a pattern over names")
    for name in ("write", "read"):
        topic.add_argument(name, metavar=name.upper(), help="a pattern over routing keys")
    for each in (given, gone):
        each.add_argument("--force", action="store_true", help="also if nobody can administer afterwards")
    tables.add_yes(gone)


def new_password(user: str) -> str:
    """Of the environment, of the terminal twice, or a line of standard input; never of the command line."""
    if found := os.environ.get(NEW_PASSWORD):
        return found
    if not sys.stdin.isatty():
        line = sys.stdin.readline().rstrip("\r\n")
        if not line:
            raise CommandFault(f"standard input has no password for {user!r}", statuses.USAGE)
        return line
    from getpass import getpass

    password = getpass(f"New password of {user}: ")
    if getpass("Again: ") != password:
        raise CommandFault("the two passwords differ; try again", statuses.USAGE)
    return password


def request(options: argparse.Namespace, service: str, line: str, **arguments: Any) -> int:
    """Asks for one change, and says that it is done."""
    given = {name.replace("_", "-"): value for name, value in arguments.items() if value is not None}
    with running_broker.connected(options) as connection:
        connection.request(service, given)
    done(options, line, {})
    return 0


def users(options: argparse.Namespace) -> int:
    with running_broker.connected(options) as connection:
        return tables.show(list(running_broker.rows_of(connection, "user.list")), USERS, options)


def add_user(options: argparse.Namespace) -> int:
    user, tags = options.user, [each for each in options.tags.split(",") if each]
    password = new_password(user)
    with running_broker.connected(options) as connection:
        connection.request("user.add", {"user": user, "password": password, "tags": tags})
        if options.all_permissions:
            everything = {"configure": ".*", "write": ".*", "read": ".*"}
            connection.request("permission.set", {"user": user, **everything})
    hint = "" if options.all_permissions else f"; give permissions by: flintmq permissions set {user} ..."
    done(options, f"user {user!r} added{hint}", {})
    return 0


def set_password(options: argparse.Namespace) -> int:
    password = new_password(options.user)
    line = f"the password of {options.user!r} is changed"
    return request(options, "user.set-password", line, user=options.user, password=password)


def set_tags(options: argparse.Namespace) -> int:
    tags = [tag for words in options.tags for tag in words.replace(",", " ").split()]
    line = f"the tags of {options.user!r}: {', '.join(tags) or 'none'}"
    return request(options, "user.set-tags", line, user=options.user, tags=tags, force=options.force)


def delete_user(options: argparse.Namespace) -> int:
    tables.confirm(options, f"user {options.user!r} will be deleted and disconnected")
    line = f"user {options.user!r} deleted"
    return request(options, "user.delete", line, user=options.user, force=options.force)


def permissions(options: argparse.Namespace) -> int:
    kind, columns = ("topic-permission", TOPIC_PERMISSIONS) if options.topic else ("permission", PERMISSIONS)
    with running_broker.connected_anywhere(options) as connection:
        rows = running_broker.rows_of(
            connection, f"{kind}.list", user=options.user, virtual_host=options.virtual_host
        )
        return tables.show(list(rows), columns, options)


def administer(options: argparse.Namespace, service: str, line: str, **arguments: Any) -> int:
    """As `request`, about the virtual host of the options, from that of the URL."""
    given = {name.replace("_", "-"): value for name, value in arguments.items() if value is not None}
    if options.virtual_host is not None:
        given["virtual-host"] = options.virtual_host
    with running_broker.connected_anywhere(options) as connection:
        connection.request(service, given)
    done(options, line, {})
    return 0


def set_permissions(options: argparse.Namespace) -> int:
    return administer(
        options,
        "permission.set",
        f"the permissions of {options.user!r} are set",
        user=options.user,
        configure=options.configure,
        write=options.write,
        read=options.read,
        force=options.force,
    )


def set_topic(options: argparse.Namespace) -> int:
    return administer(
        options,
        "topic-permission.set",
        f"the topic permissions of {options.user!r} on {options.exchange!r} are set",
        user=options.user,
        exchange=options.exchange,
        write=options.write,
        read=options.read,
    )


def clear_permissions(options: argparse.Namespace) -> int:
    tables.confirm(options, f"user {options.user!r} will be shut out of the virtual host")
    line = f"the permissions of {options.user!r} are cleared"
    return administer(options, "permission.clear", line, user=options.user, force=options.force)


def clear_topic(options: argparse.Namespace) -> int:
    line = f"the topic permissions of {options.user!r} on {options.exchange!r} are cleared"
    return administer(options, "topic-permission.clear", line, user=options.user, exchange=options.exchange)
