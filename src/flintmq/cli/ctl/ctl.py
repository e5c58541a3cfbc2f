"""`flintmq ctl`: the commands of rabbitmqctl that scripts use, with its words, output and statuses.

It asks over AMQP, as all commands do: -n, the node, means nothing, and --url or the environment say where the
broker is. The statuses are those of rabbitmqctl:

    64  usage    65  data: no such virtual host, wrong password    67  no such user
    69  the broker cannot be reached or will not    70  failed, as something of that name is there
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flintmq.cli.ctl.command_table import (
    ALIASES,
    COMMANDS,
    COMMON,
    OPTIONS,
    USAGE_LINE,
    help_of,
    overview,
    usage_of,
)
from flintmq.cli.operating import running_broker
from flintmq.cli.output.statuses import CommandFault, with_options
from flintmq.cli.output.tables import printable
from flintmq.errors import FlintError

if TYPE_CHECKING:
    from flintmq.cli.ctl.lists import List, Row
    from flintmq.client import ConnectFailed, Connection, ServiceError

USAGE = 64
DATA = 65
NO_USER = 67
UNAVAILABLE = 69
SOFTWARE = 70

# Services that refuse to leave the broker without an administrator, unless they are given `force`.
FORCIBLE = frozenset(
    ("user.delete", "user.set-tags", "vhost.delete", "permission.set", "permission.clear", "limit.set")
)
VALUED = frozenset(option for option, (value, _) in OPTIONS.items() if value)
FLAGS = OPTIONS.keys() - VALUED
FORMATTERS = ("table", "json", "csv", "pretty_table", "erlang", "report")
STOPS = "the broker is stopped where it was started: by SIGTERM, or by the service that runs it"
REFUSED = {
    "eval": "there is no Erlang to evaluate here; `flintmq ctl help` lists what there is",
    "eval_file": "there is no Erlang to evaluate here; `flintmq ctl help` lists what there is",
    "exec": "there is no Elixir to evaluate here; `flintmq ctl help` lists what there is",
    "stop": STOPS,
    "stop_app": STOPS,
    "start_app": "the broker runs from its start to its end: there is no application to start in it",
    "shutdown": STOPS,
    "reset": "stop the broker and remove its data directory",
    "force_reset": "stop the broker and remove its data directory",
    **dict.fromkeys(
        (
            "join_cluster",
            "forget_cluster_node",
            "rename_cluster_node",
            "update_cluster_nodes",
            "change_cluster_node_type",
            "force_boot",
            "sync_queue",
            "cancel_sync_queue",
        ),
        "the broker is a single node",
    ),
    "rotate_logs": "move the log away and send the broker SIGHUP, which opens it again; or set rotate_bytes "
    "in [log] of the settings",
    "set_log_level": "set level in [log] of the settings and send the broker SIGHUP",
    "wait": "await_startup waits until the broker lets clients in",
    "force_gc": "there is nothing to collect: what is not used is freed at once",
    "suspend_listeners": "keep clients out by a firewall, or by set_vhost_limits with max-connections 0",
    "resume_listeners": "listeners are never suspended; suspend_listeners says what to do instead of it",
    "restart_vhost": "a virtual host does not fail by itself; flintmq journal check looks at what is on disk",
    "hash_password": "`flintmq hash-password` hashes one",
    "clear_password": "a user of the broker always has a password: set a long one that nobody knows, "
    "with change_password",
}


def add(command: str, parser: argparse.ArgumentParser) -> None:
    """For the list of commands alone: `run` is handed all words as they are."""


class Ctl:
    """One command line of rabbitmqctl, taken apart."""

    def __init__(self, words: list[str]) -> None:
        self.options: dict[str, str] = {}
        self.words: list[str] = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word == "--":
                self.words += rest
                break
            name, sign, value = word.partition("=")
            name = ALIASES.get(name, name)
            if name in FLAGS:
                if sign and value not in ("true", "false"):
                    raise CommandFault(f"{word}: expected true or false", USAGE)
                self.options.pop(name, None)
                if value != "false":
                    self.options[name] = "true"
            elif name in VALUED:
                if not sign and not rest:
                    raise CommandFault(f"{name}: a value is missing", USAGE)
                self.options[name] = value if sign else rest.pop(0)
            elif word.startswith("--") and len(word) > 2:
                raise unknown_option(name)
            else:
                self.words.append(word)
        self.command = self.words.pop(0) if self.words else ""
        taken = COMMANDS[self.command].options.split() if self.command in COMMANDS else ()
        # An option that the command does not heed may be meant to keep something from being lost.
        foreign = self.options.keys() - COMMON - set(taken)
        if foreign:
            raise CommandFault(
                f"Invalid options for this command: {', '.join(sorted(foreign))} ({self.command})", USAGE
            )
        self.virtual_host = self.options.get("--vhost", "/")
        self.formatter = self.options.get("--formatter", "table")
        if self.formatter not in FORMATTERS:
            raise CommandFault(
                f"--formatter {self.formatter}: expected one of {', '.join(FORMATTERS)}", USAGE
            )
        self.is_silent = "--silent" in self.options
        self.is_quiet = self.is_silent or "--quiet" in self.options or self.formatter in ("json", "csv")

    def say(self, line: str) -> None:
        """What is being done, for people."""
        if not self.is_quiet:
            print(line, flush=True)

    def check_words(self) -> None:
        """A fault unless there are as many words as the command takes."""
        command = COMMANDS[self.command]
        if command.least() <= len(self.words) <= command.most():
            return
        few = "not enough" if len(self.words) < command.least() else "too many"
        raise CommandFault(
            f"(argument validation): {few} arguments.\nArguments given:\n\t{self.command} "
            f"{' '.join(self.words)}\n\nUsage\n\n{usage_of(self.command)}",
            USAGE,
        )

    def number(self, option: str, default: float) -> float:
        """The value of an option; 0, and what is below, means no limit."""
        text = self.options.get(option)
        try:
            found = default if text is None else float(text)
        except ValueError:
            found = math.nan
        if not math.isfinite(found):
            raise CommandFault(f"(argument validation): {option} {text}: expected a number", USAGE)
        return max(0.0, found)

    def whole(self, option: str, least: int) -> int:
        """The value of an option that is a whole number; 0 where it is not given."""
        text = self.options.get(option, "0")
        try:
            found = int(text)
        except ValueError:
            found = least - 1
        if found < least:
            raise CommandFault(
                f"(argument validation): {option} {text}: expected a whole number"
                f"{' from 0 on' if least == 0 else ''}",
                USAGE,
            )
        return found

    def connected(self, virtual_host: str | None = None, **changed: Any) -> Connection:
        """A connection to the virtual host of the URL, or to the one named."""
        given = argparse.Namespace(
            url=self.options.get("--url"),
            credentials=self.options.get("--credentials"),
            profile=self.options.get("--profile"),
            password_in_url="--password-in-url" in self.options,
            timeout=self.number("--timeout", 0.0) or None,
            virtual_host=virtual_host,
        )
        return running_broker.connected(given, **changed)

    def ask(self, service: str, **arguments: Any) -> dict[str, Any]:
        """One request on a connection of its own."""
        given = {name.replace("_", "-"): value for name, value in arguments.items() if value is not None}
        if service in FORCIBLE and "--force" in self.options:
            given["force"] = True
        with self.connected() as connection:
            return connection.request(service, given).results


def run(options: argparse.Namespace) -> int:
    from flintmq.client.core import errors

    try:
        ctl = Ctl(options.words)  # raises CommandFault alone
        if "--help" in ctl.options:
            explain(ctl.command)
            return 0
        if ctl.command in REFUSED:
            raise CommandFault(f"{ctl.command}: {REFUSED[ctl.command]}", UNAVAILABLE)
        return answer(ctl)
    except CommandFault as fault:
        return fail(str(fault), fault.status if fault.status >= USAGE else USAGE)
    except errors.ServiceError as error:
        return fail(*refusal(error, ctl))
    except errors.ConnectFailed as error:
        return fail(*shut_out(error, ctl))
    except errors.ChannelClosed as error:
        return fail(said(error.text), UNAVAILABLE if error.code == 404 else SOFTWARE)
    except FlintError as error:
        return fail(str(error), UNAVAILABLE)


def answer(ctl: Ctl) -> int:
    from flintmq.cli.ctl.lists import LISTS

    if not ctl.command:
        raise CommandFault(overview(), USAGE)
    if ctl.command not in COMMANDS:
        raise not_found(ctl.command)
    ctl.check_words()
    if ctl.command in LISTS:
        return show(ctl, LISTS[ctl.command])
    return handler_of(ctl.command)(ctl) or 0


def handler_of(command: str) -> Callable[[Ctl], int | None]:
    if command in HANDLERS:
        return HANDLERS[command]
    from flintmq.cli.ctl.health import CHECKS
    from flintmq.cli.ctl.node import OF_NODE

    return CHECKS[command] if command in CHECKS else OF_NODE[command]


def not_found(command: str) -> CommandFault:
    from flintmq.checks import nearest

    near = nearest(command, [*COMMANDS, *REFUSED])
    meant = "" if near is None else f"Did you mean '{near}'?\n\n"
    return CommandFault(
        f"Command '{command}' not found.\n\n{meant}Usage\n\n{USAGE_LINE}\n\n"
        "`flintmq ctl help` lists the commands.",
        USAGE,
    )


def unknown_option(option: str) -> CommandFault:
    from flintmq.checks import suggestion

    near = suggestion(option, OPTIONS)
    return CommandFault(f"Invalid options for this command: {option}{near}", USAGE)


def fail(text: str, status: int) -> int:
    sys.stdout.flush()
    shown = "\n".join(map(printable, text.replace("\t", "    ").split("\n")))
    print(f"Error:\n{shown}", file=sys.stderr)
    return status


def said(text: str) -> str:
    """Without the name of the reply code and the service, which scripts do not expect."""
    return text.partition(" - ")[2] or text


# Of these rabbitmqctl says that a value is not valid, with 69.
VALIDATED = frozenset(
    (
        "policy.set",
        "operator-policy.set",
        "parameter.set",
        "permission.set",
        "topic-permission.set",
    )
)


def refusal(error: ServiceError, ctl: Ctl) -> tuple[str, int]:
    """What rabbitmqctl says of a refusal, and its status."""
    if error.code != 404:
        is_invalid = error.code == 406 and error.service in VALIDATED
        text = with_options(said(error.text).removeprefix(f"{error.service}: "))
        return text, UNAVAILABLE if error.code == 403 or is_invalid else SOFTWARE
    if error.service == "vhost.delete" or "no virtual host" in error.text:
        name = ctl.words[0] if error.service == "vhost.delete" else ctl.virtual_host
        return f"Virtual host '{name}' does not exist", DATA
    if "no user" in error.text:
        return f'User "{ctl.words[0]}" does not exist', NO_USER
    return said(error.text), UNAVAILABLE


def shut_out(error: ConnectFailed, ctl: Ctl) -> tuple[str, int]:
    """Who may not enter a virtual host is told how to be let in; rabbitmqctl asks nobody."""
    if error.code == 530 and "not found" in str(error):
        return f"Virtual host '{ctl.virtual_host}' does not exist", DATA
    way = f"; flintmq ctl set_permissions -p {ctl.virtual_host} USER '.*' '.*' '.*' lets a user in"
    return f"{error}{way if error.code == 530 else ''}", UNAVAILABLE


def show(ctl: Ctl, listed: List) -> int:
    from flintmq.cli.ctl import lists

    words: tuple[str, ...] = ()
    asked = list(ctl.words)
    if ctl.command in lists.OF_USERS:
        words = tuple(ctl.words)
        asked = []
    known = listed.columns.split()
    columns = tuple(name for each in asked for name in each.replace(",", " ").split()) or tuple(
        listed.shown.split()
    )
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise CommandFault(f"(argument validation): Info key(s) {','.join(unknown)} are not supported", USAGE)
    wanted = lists.Wanted(ctl.virtual_host, columns, words)
    if ctl.command == "list_queues":
        ctl.say(f"Timeout: {ctl.number('--timeout', 60.0)} seconds ...")
    ctl.say(listed.banner.format(vhost=ctl.virtual_host, word=words[0] if words else ""))
    with ctl.connected(ctl.virtual_host if listed.is_in_host else None) as connection:
        rows = list(listed.rows(connection, wanted))
    if "--offline" in ctl.options and "--online" not in ctl.options:
        rows = []  # what is on this node is there
    print_rows(ctl, rows, columns)
    return 0


def print_rows(ctl: Ctl, rows: list[Row], columns: tuple[str, ...]) -> None:
    from flintmq.cli.ctl import lists

    with_names = not ctl.is_silent and "--no-table-headers" not in ctl.options
    for line in lists.lines_of(rows, columns, ctl.formatter, with_names):
        print(line)


# Users


def add_user(ctl: Ctl) -> None:
    name, *rest = ctl.words
    password = rest[0] if rest else read_password()
    ctl.say(f'Adding user "{name}" ...')
    secret = "password_hash" if "--pre-hashed-password" in ctl.options else "password"
    refuse_if_there(ctl, "user.list", "user", name, f'User "{name}" already exists')
    ctl.ask("user.add", user=name, tags=[], **{secret: password})
    ctl.say("Done. Don't forget to grant the user permissions to some virtual hosts! See 'set_permissions'.")


def read_password() -> str:
    found = sys.stdin.readline().rstrip("\r\n")
    if not found:
        raise CommandFault("(argument validation): not enough arguments: a password is missing", USAGE)
    return found


def refuse_if_there(ctl: Ctl, service: str, column: str, name: str, text: str) -> None:
    with ctl.connected() as connection:
        if any(row[column] == name for row in running_broker.rows_of(connection, service)):
            raise CommandFault(text, SOFTWARE)


def delete_user(ctl: Ctl) -> None:
    (name,) = ctl.words
    ctl.say(f'Deleting user "{name}" ...')
    ctl.ask("user.delete", user=name)


def change_password(ctl: Ctl) -> None:
    name, *rest = ctl.words
    ctl.say(f'Changing password for user "{name}" ...')
    ctl.ask("user.set-password", user=name, password=rest[0] if rest else read_password())


def authenticate_user(ctl: Ctl) -> None:
    from flintmq.client import ConnectFailed

    name, *rest = ctl.words
    password = rest[0] if rest else read_password()
    ctl.say(f'Authenticating user "{name}" ...')
    with ctl.connected() as connection:  # an error here is one of the broker, not of the password
        virtual_host = connection.settings.virtual_host
    try:
        with ctl.connected(user=name, password=password):
            pass
    except ConnectFailed as error:
        # Who may not enter the virtual host has been let in by the password before.
        if error.code != 530 and f"vhost '{virtual_host}' refused" not in str(error):
            raise CommandFault(f'Error: failed to authenticate user "{name}"\n{error}', DATA) from None
    ctl.say("Success")


def set_user_tags(ctl: Ctl) -> None:
    name, *tags = ctl.words
    ctl.say(f'Setting tags for user "{name}" to [{", ".join(tags)}] ...')
    ctl.ask("user.set-tags", user=name, tags=tags)


# Virtual hosts and permissions


def add_vhost(ctl: Ctl) -> None:
    (name,) = ctl.words
    ctl.say(f'Adding vhost "{name}" ...')
    tags = [each.strip() for each in ctl.options.get("--tags", "").split(",") if each.strip()]
    queue_type = ctl.options.get("--default-queue-type")
    ctl.ask(
        "vhost.add",
        virtual_host=name,
        description=ctl.options.get("--description"),
        tags=tags or None,
        default_queue_type=queue_type,
    )
    if queue_type not in (None, "undefined", "classic"):
        ctl.say(f"The default queue type {queue_type} is kept; queues without x-queue-type are classic here.")


def delete_vhost(ctl: Ctl) -> None:
    (name,) = ctl.words
    ctl.say(f'Deleting vhost "{name}" ...')
    ctl.ask("vhost.delete", virtual_host=name)


def set_permissions(ctl: Ctl) -> None:
    name, configure, write, read = ctl.words
    ctl.say(f'Setting permissions for user "{name}" in vhost "{ctl.virtual_host}" ...')
    host = ctl.virtual_host
    ctl.ask("permission.set", user=name, virtual_host=host, configure=configure, write=write, read=read)


def clear_permissions(ctl: Ctl) -> None:
    from flintmq.client import ServiceError

    (name,) = ctl.words
    ctl.say(f'Clearing permissions for user "{name}" in vhost "{ctl.virtual_host}" ...')
    try:
        ctl.ask("permission.clear", user=name, virtual_host=ctl.virtual_host)
    except ServiceError as error:
        if "no permission of" not in error.text:
            raise  # there was nothing to clear otherwise, which rabbitmqctl takes for done


def set_topic_permissions(ctl: Ctl) -> None:
    name, exchange, write, read = ctl.words
    ctl.say(f'Setting topic permissions on "{exchange}" for user "{name}" in vhost "{ctl.virtual_host}" ...')
    host = ctl.virtual_host
    ctl.ask("topic-permission.set", user=name, virtual_host=host, exchange=exchange, write=write, read=read)


def clear_topic_permissions(ctl: Ctl) -> None:
    name, *exchanges = ctl.words
    ctl.say(f'Clearing topic permissions for user "{name}" in vhost "{ctl.virtual_host}" ...')
    if not exchanges:
        with ctl.connected() as connection:
            rows = running_broker.rows_of(
                connection, "topic-permission.list", user=name, virtual_host=ctl.virtual_host
            )
            exchanges = [row["exchange"] for row in rows]
    for exchange in exchanges:
        ctl.ask("topic-permission.clear", user=name, virtual_host=ctl.virtual_host, exchange=exchange)


def document(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandFault(f"JSON decoding error: {error}", UNAVAILABLE) from None


def limits_of(text: str) -> dict[str, Any]:
    found = document(text)
    if not isinstance(found, dict):
        raise CommandFault("expected a JSON object of limits", DATA)
    return found


def set_vhost_limits(ctl: Ctl) -> None:
    (text,) = ctl.words
    ctl.say(f'Setting vhost limits to "{text}" for vhost "{ctl.virtual_host}" ...')
    set_limits(ctl, limits_of(text), virtual_host=ctl.virtual_host)


def trace_on(ctl: Ctl) -> None:
    ctl.say(f'Starting tracing for vhost "{ctl.virtual_host}" ...')
    ctl.ask("trace.on", virtual_host=ctl.virtual_host)


def trace_off(ctl: Ctl) -> None:
    ctl.say(f'Stopping tracing for vhost "{ctl.virtual_host}" ...')
    ctl.ask("trace.off", virtual_host=ctl.virtual_host)


def set_user_limits(ctl: Ctl) -> None:
    name, text = ctl.words
    ctl.say(f'Setting user limits to "{text}" for user "{name}" ...')
    set_limits(ctl, limits_of(text), user=name)


def set_limits(ctl: Ctl, limits: dict[str, Any], **whose: str) -> None:
    for name, value in limits.items():
        least = max(value, -1) if isinstance(value, int) else value  # below 0 is none
        ctl.ask("limit.set", name=name, value=least, **whose)


def clear_vhost_limits(ctl: Ctl) -> None:
    ctl.say(f'Clearing vhost "{ctl.virtual_host}" limits ...')
    for name in limits_found(ctl, "virtual-host", ctl.virtual_host):
        ctl.ask("limit.clear", name=name, virtual_host=ctl.virtual_host)


def clear_user_limits(ctl: Ctl) -> None:
    user, *names = ctl.words
    ctl.say(f'Clearing "{" ".join(names) or "all"}" limit for user "{user}" ...')
    for name in limits_found(ctl, "user", user) if names in ([], ["all"]) else names:
        ctl.ask("limit.clear", name=name, user=user)


def limits_found(ctl: Ctl, kind: str, whose: str) -> dict[str, int]:
    return all_limits(ctl, kind).get(whose, {})


def all_limits(ctl: Ctl, kind: str) -> dict[str, dict[str, int]]:
    """The limits of each user, or of each virtual host."""
    found: dict[str, dict[str, int]] = {}
    with ctl.connected() as connection:
        for row in running_broker.rows_of(connection, "limit.list"):
            if kind in row:
                found.setdefault(row[kind], {})[row["name"]] = row["value"]
    return found


def list_vhost_limits(ctl: Ctl) -> None:
    list_limits(ctl, "virtual-host", "vhost", ctl.virtual_host)


def list_user_limits(ctl: Ctl) -> None:
    list_limits(ctl, "user", "user", ctl.options.get("--user", "guest"))


def list_limits(ctl: Ctl, kind: str, title: str, whose: str) -> None:
    """Of one, as JSON alone; of all with `--global`, a row each."""
    if "--global" not in ctl.options:
        ctl.say(f'Listing limits for {title} "{whose}" ...')
        print(compact(limits_found(ctl, kind, whose)))
        return
    ctl.say(f"Listing limits for all {title}s ...")
    rows: list[Row] = [
        {title: owner, "limits": compact(limits)} for owner, limits in sorted(all_limits(ctl, kind).items())
    ]
    print_rows(ctl, rows, (title, "limits"))


def compact(limits: dict[str, int]) -> str:
    return json.dumps(limits, separators=(",", ":"))


# Policies and parameters

PRIORITY_MIN = -(1 << 31)


def set_policy(ctl: Ctl, service: str = "policy.set") -> None:
    name, pattern, text = ctl.words
    priority = ctl.whole("--priority", PRIORITY_MIN)
    ctl.say(
        f'Setting policy "{name}" for pattern "{pattern}" to "{text}" with priority "{priority}" '
        f'for vhost "{ctl.virtual_host}" ...'
    )
    ctl.ask(
        service,
        name=name,
        pattern=pattern,
        definition=document(text),
        priority=priority,
        apply_to=ctl.options.get("--apply-to"),
        virtual_host=ctl.virtual_host,
    )


def set_operator_policy(ctl: Ctl) -> None:
    set_policy(ctl, "operator-policy.set")


def clear_policy(ctl: Ctl, service: str = "policy.clear") -> None:
    (name,) = ctl.words
    ctl.say(f'Clearing policy "{name}" on vhost "{ctl.virtual_host}" ...')
    clear(ctl, service, name=name, virtual_host=ctl.virtual_host)


def clear(ctl: Ctl, service: str, **arguments: str) -> None:
    """As rabbitmqctl tells it where there is nothing to clear."""
    from flintmq.client import ServiceError

    try:
        ctl.ask(service, **arguments)
    except ServiceError as error:
        if error.code != 404:
            raise
        raise CommandFault("Parameter does not exist", UNAVAILABLE) from None


def clear_operator_policy(ctl: Ctl) -> None:
    clear_policy(ctl, "operator-policy.clear")


def set_parameter(ctl: Ctl) -> None:
    component, name, text = ctl.words
    ctl.say(
        f'Setting runtime parameter "{name}" for component "{component}" to "{text}" '
        f'in vhost "{ctl.virtual_host}" ...'
    )
    value, host = document(text), ctl.virtual_host
    ctl.ask("parameter.set", component=component, name=name, value=value, virtual_host=host)


def clear_parameter(ctl: Ctl) -> None:
    component, name = ctl.words
    ctl.say(
        f'Clearing runtime parameter "{name}" for component "{component}" on vhost "{ctl.virtual_host}" ...'
    )
    clear(ctl, "parameter.clear", component=component, name=name, virtual_host=ctl.virtual_host)


def set_global_parameter(ctl: Ctl) -> None:
    name, text = ctl.words
    ctl.say(f'Setting global runtime parameter "{name}" to "{text}" ...')
    ctl.ask("parameter.set", component=GLOBAL, name=name, value=document(text), virtual_host="")


def set_cluster_name(ctl: Ctl) -> None:
    (name,) = ctl.words
    ctl.say(f"Setting cluster name to {name} ...")
    ctl.ask("parameter.set", component=GLOBAL, name="cluster_name", value=name, virtual_host="")


def clear_global_parameter(ctl: Ctl) -> None:
    (name,) = ctl.words
    ctl.say(f'Clearing global runtime parameter "{name}" ...')
    clear(ctl, "parameter.clear", component=GLOBAL, name=name, virtual_host="")


# The component of parameters that belong to no virtual host and that RabbitMQ gives none.
GLOBAL = "global"

# Queues and connections


def purge_queue(ctl: Ctl) -> None:
    (name,) = ctl.words
    ctl.say(f"Purging queue '{name}' in vhost '{ctl.virtual_host}' ...")
    with ctl.connected(ctl.virtual_host) as connection, connection.channel() as channel:
        channel.purge_queue(name)


def delete_queue(ctl: Ctl) -> None:
    from flintmq.client import NotFound

    (name,) = ctl.words
    ctl.say(f"Deleting queue '{name}' on vhost '{ctl.virtual_host}' ...")
    conditions = {"if_empty": "--if-empty" in ctl.options, "if_unused": "--if-unused" in ctl.options}
    with ctl.connected(ctl.virtual_host) as connection, connection.channel() as channel:
        try:
            channel.queue(name, passive=True)
        except NotFound:
            raise CommandFault("Queue not found", USAGE) from None
        count = channel.delete_queue(name, **conditions)
    ctl.say(f"Queue was successfully deleted with {count} ready messages")


def close_connection(ctl: Ctl) -> None:
    from flintmq.cli.ctl.lists import number_of

    pid, reason = ctl.words
    ctl.say(f"Closing connection {pid}, reason: {reason}...")
    number = number_of(pid)
    if number is None:
        raise CommandFault(f"{pid}: no pid of list_connections", UNAVAILABLE)
    ctl.ask("connection.close", number=number, reason=reason)


def close_connections(ctl: Ctl, chosen: Callable[[dict[str, Any]], bool], reason: str) -> None:
    from flintmq.clock import Clock

    limit, pause_s = ctl.whole("--limit", 0), ctl.number("--per-connection-delay", 0.0) / 1000
    with ctl.connected() as connection:
        own = running_broker.own_number(connection)
        rows = list(running_broker.rows_of(connection, "connection.list", everywhere=True))
        numbers = [row["number"] for row in rows if row["number"] != own and chosen(row)]
        numbers = numbers[: limit or None]
        for at, number in enumerate(numbers):
            if at and pause_s:
                Clock().sleep(pause_s)
            connection.request("connection.close", {"number": number, "reason": reason})
    ctl.say(f"Closed {len(numbers)} connections")


def close_all_connections(ctl: Ctl) -> None:
    (reason,) = ctl.words
    everywhere = "--global" in ctl.options
    where = "" if everywhere else f" in vhost {ctl.virtual_host}"
    ctl.say(f"Closing all connections{where}, reason: {reason}...")
    close_connections(ctl, lambda row: everywhere or row["virtual-host"] == ctl.virtual_host, reason)


def close_all_user_connections(ctl: Ctl) -> None:
    name, reason = ctl.words
    ctl.say(f'Closing all connections of user "{name}", reason: {reason}...')
    close_connections(ctl, lambda row: row["user"] == name, reason)


# The broker


# What scripts compare versions with: the RabbitMQ whose behaviour the broker has.
RABBITMQ_VERSION = "3.10.8"
NODE = "flintmq@localhost"


def version(ctl: Ctl) -> None:
    print(RABBITMQ_VERSION)


def ping(ctl: Ctl) -> None:
    ctl.say(f"Will ping {NODE}. This logs in and asks the broker.")
    ctl.ask("broker.info")
    ctl.say("Ping succeeded")


def check_running(ctl: Ctl) -> None:
    ctl.say(f"Checking if FlintMQ is running on node {NODE} ...")
    ctl.ask("broker.info")
    ctl.say(f"FlintMQ on node {NODE} is fully booted and running")


def await_startup(ctl: Ctl) -> None:
    """Until the broker lets us in; --timeout says how many seconds at most."""
    from flintmq.client import ConnectFailed, LoginRefused
    from flintmq.clock import Clock

    clock = Clock()
    until_s = clock.monotonic_s() + ctl.number("--timeout", AWAIT_S)
    ctl.options.pop("--timeout", None)
    while True:
        try:
            ctl.ask("broker.info")
            return
        except LoginRefused:
            raise
        except ConnectFailed:
            if clock.monotonic_s() >= until_s:
                raise
        clock.sleep(AWAIT_EACH_S)


AWAIT_S = 300.0
AWAIT_EACH_S = 0.2


def export_definitions(ctl: Ctl) -> None:
    from flintmq.cli.operating.definitions import exported, write

    (file,) = ctl.words
    require_json(ctl)
    if file != "-":  # there they are alone, for a program to read
        ctl.say(f"Exporting definitions in JSON to a file at {file} ...")
    with ctl.connected() as connection:
        write(file, exported(connection, ctl.options.get("--vhost", "")))


def require_json(ctl: Ctl) -> None:
    """Definitions have no other form here; rabbitmqctl has Erlang's besides."""
    found = ctl.options.get("--format", "json")
    if found.lower() != "json":
        raise CommandFault(f"(argument validation): --format {found}: expected json", USAGE)


def import_definitions(ctl: Ctl) -> int:
    from flintmq.cli.operating.definitions import imported, read, told

    (file,) = ctl.words or ["-"]
    require_json(ctl)
    ctl.say(f"Importing definitions in JSON from a file at {file} ...")
    found = read(file)
    arguments = {"dry-run": "--dry-run" in ctl.options, "partial": False}
    with ctl.connected() as connection:
        report = imported(connection, found, ctl.options.get("--vhost", ""), arguments)
    for line in told(report):
        ctl.say(line)
    return SOFTWARE if report["refused_count"] else 0


def help_command(ctl: Ctl) -> None:
    explain(ctl.words[0] if ctl.words else "")


def explain(command: str) -> None:
    """What a command does and takes; without one, the commands there are."""
    from flintmq.cli.ctl.lists import LISTS

    if not command:
        print(overview())
    elif command in REFUSED:
        print(f"{command}: {REFUSED[command]}")
    elif command not in COMMANDS:
        raise not_found(command)
    else:
        print(help_of(command, LISTS[command].columns if command in LISTS else ""))


HANDLERS: dict[str, Callable[[Ctl], int | None]] = {
    each.__name__: each
    for each in (
        add_user, delete_user, change_password, authenticate_user, set_user_tags,
        add_vhost, delete_vhost, set_permissions, clear_permissions,
        set_topic_permissions, clear_topic_permissions,
        set_vhost_limits, clear_vhost_limits, list_vhost_limits,
        set_user_limits, clear_user_limits, list_user_limits,
        set_policy, set_operator_policy, clear_policy, clear_operator_policy, set_parameter, clear_parameter,
        set_global_parameter, clear_global_parameter, set_cluster_name,
        purge_queue, delete_queue, close_connection, close_all_connections, close_all_user_connections,
        trace_on, trace_off, version, ping, check_running, await_startup,
        export_definitions, import_definitions,
    )
}  # fmt: skip
HANDLERS["help"] = help_command
