"""The commands of `flintmq ctl`: the words and options that each takes, what it does, an example.

A command line with other options than these, or with fewer or more words, is refused before anything is asked
of the broker.
"""

from __future__ import annotations

from typing import NamedTuple

ALIASES = {
    "-p": "--vhost",
    "-q": "--quiet",
    "-s": "--silent",
    "-n": "--node",
    "-t": "--timeout",
    "-l": "--longnames",
    "-h": "--help",
    "-V": "--vhost",
    "--virtual-host": "--vhost",
}
# Each option: the value that it takes, if it takes one, and what it means.
OPTIONS = {
    "--vhost": ("<vhost>", "the virtual host (/)"),
    "--quiet": ("", "without the line that says what is done"),
    "--silent": ("", "without that line and without the names of columns"),
    "--formatter": ("<formatter>", "table, json, csv or pretty_table (table)"),
    "--no-table-headers": ("", "without the names of columns"),
    "--table-headers": ("", "with the names of columns, as is usual"),
    "--timeout": ("<seconds>", "for each answer (60)"),
    "--url": ("<url>", "the broker, amqp[s]://user@host:port (FLINTMQ_URL, amqp://localhost)"),
    "--credentials": ("<file>", "url, user and password in TOML"),
    "--profile": ("<name>", "this section of the credentials file"),
    "--password-in-url": ("", "take a password in --url, which others can see"),
    "--node": ("<node>", "ignored: --url says which broker"),
    "--longnames": ("", "ignored"),
    "--script-name": ("<name>", "ignored"),
    "--verbose": ("", "ignored"),
    "--help": ("", "what the command does, and what it takes"),
    "--force": ("", "also if nobody can administer afterwards"),
    "--pre-hashed-password": ("", "the password is the hash of one"),
    "--apply-to": ("<what>", "queues, exchanges or all (all)"),
    "--priority": ("<number>", "of several policies that match a queue the highest holds (0)"),
    "--online": ("", "queues of nodes that run: all"),
    "--offline": ("", "queues of nodes that do not run: none"),
    "--local": ("", "queues of this node: all"),
    "--if-empty": ("", "only if no messages wait"),
    "--if-unused": ("", "only if it has no consumers"),
    "--global": ("", "of all, rather than of one"),
    "--limit": ("<number>", "so many at most; 0 is all (0)"),
    "--per-connection-delay": ("<ms>", "between two of them (0)"),
    "--format": ("<format>", "json, which is the only one"),
    "--dry-run": ("", "say what would change, and change nothing"),
    "--unit": ("<unit>", "gb, mb, kb or bytes (gb)"),
    "--address": ("<address>", "connect to the ports here rather than where they listen"),
    "--user": ("<username>", "the user (guest)"),
    "--description": ("<text>", "what it is for"),
    "--tags": ("<tags>", "words for people and tools, with commas between them"),
    "--default-queue-type": ("<type>", "classic, quorum or stream: is kept, and changes nothing here"),
}
# Which every command takes; each has its meaning there, or changes nothing on a single node.
COMMON = frozenset(
    (
        "--quiet",
        "--silent",
        "--no-table-headers",
        "--table-headers",
        "--longnames",
        "--password-in-url",
        "--verbose",
        "--vhost",
        "--node",
        "--timeout",
        "--formatter",
        "--url",
        "--credentials",
        "--profile",
        "--script-name",
        "--help",
    )
)
# Of these, what the help of a command names.
COMMON_SHOWN = ("--quiet", "--silent", "--formatter", "--timeout", "--url")


class Command(NamedTuple):
    """One command. `words` has each in <> or, if it may be left out, in []; `...` is for more of the last."""

    does: str
    words: str = ""
    options: str = ""
    example: str = ""

    def least(self) -> int:
        return sum(word.startswith("<") for word in self.words.split())

    def most(self) -> int:
        return WORDS_MAX if "..." in self.words else len(self.words.split())


WORDS_MAX = 1024

USERS = {
    "add_user": Command(
        "adds a user without permissions; the password may be a line of standard input",
        "<username> [<password>]",
        "--pre-hashed-password",
        "add_user shop < password.txt",
    ),
    "delete_user": Command("deletes a user", "<username>", "--force", "delete_user shop"),
    "change_password": Command(
        "changes a user's password, which may be a line of standard input",
        "<username> [<password>]",
        example="change_password shop < password.txt",
    ),
    "authenticate_user": Command(
        "tries whether a user gets in with a password",
        "<username> [<password>]",
        example="authenticate_user shop < password.txt",
    ),
    "set_user_tags": Command(
        "gives a user these tags in place of those there were: administrator, monitoring, policymaker, "
        "management, impersonator",
        "<username> [<tag> ...]",
        "--force",
        "set_user_tags shop monitoring",
    ),
    "set_permissions": Command(
        "lets a user into a virtual host: patterns over what the user may declare, write to and read from",
        "<username> <configure> <write> <read>",
        "--vhost --force",
        "set_permissions -p / shop '^shop\\.' '.*' '.*'",
    ),
    "clear_permissions": Command(
        "takes all permissions in a virtual host away",
        "<username>",
        "--vhost --force",
        "clear_permissions -p / shop",
    ),
    "set_topic_permissions": Command(
        "patterns over the routing keys that a user may publish with and bind by at a topic exchange",
        "<username> <exchange> <write> <read>",
        "--vhost",
        "set_topic_permissions -p / shop amq.topic '^shop\\.' '.*'",
    ),
    "clear_topic_permissions": Command(
        "takes a user's patterns over routing keys away: those of an exchange, or all",
        "<username> [<exchange>]",
        "--vhost",
        "clear_topic_permissions -p / shop amq.topic",
    ),
    "set_user_limits": Command(
        "limits a user: max-connections, max-channels, max-queues, max-message-size (octets of a body), "
        "max-publish-rate (messages in a second); -1 is no limit",
        "<username> <json>",
        "--force",
        "set_user_limits shop '{\"max-connections\": 100}'",
    ),
    "clear_user_limits": Command(
        "takes a limit of a user away, or all", "<username> [<limit>|all]", "", "clear_user_limits shop all"
    ),
    "list_user_limits": Command(
        "the limits of a user, or of all", "", "--user --global", "list_user_limits --user shop"
    ),
}
HOSTS = {
    "add_vhost": Command(
        "adds a virtual host, with what is said of it",
        "<vhost>",
        "--description --tags --default-queue-type",
        "add_vhost orders --description 'all orders' --tags shop,eu",
    ),
    "delete_vhost": Command(
        "deletes a virtual host with all that is in it", "<vhost>", "--force", "delete_vhost orders"
    ),
    "set_vhost_limits": Command(
        "limits a virtual host: max-connections, max-channels, max-queues, max-message-size (octets of a "
        "body), max-publish-rate (messages in a second); -1 is no limit",
        "<json>",
        "--vhost --force",
        "set_vhost_limits -p orders '{\"max-queues\": 500}'",
    ),
    "clear_vhost_limits": Command(
        "takes all limits of a virtual host away", "", "--vhost", "clear_vhost_limits -p orders"
    ),
    "list_vhost_limits": Command(
        "the limits of a virtual host, or of all", "", "--vhost --global", "list_vhost_limits --global"
    ),
    "set_policy": Command(
        "sets a policy: a definition for the queues and exchanges whose names match a pattern",
        "<name> <pattern> <json>",
        "--vhost --priority --apply-to",
        "set_policy short '^tmp\\.' '{\"max-length\": 1000}' --apply-to queues",
    ),
    "clear_policy": Command("deletes a policy", "<name>", "--vhost", "clear_policy short"),
    "set_operator_policy": Command(
        "sets a policy of the operator, which caps what policies and arguments ask for",
        "<name> <pattern> <json>",
        "--vhost --priority --apply-to",
        "set_operator_policy cap '.*' '{\"max-length\": 1000000}'",
    ),
    "clear_operator_policy": Command(
        "deletes a policy of the operator", "<name>", "--vhost", "clear_operator_policy cap"
    ),
    "set_parameter": Command(
        "sets a parameter of a virtual host",
        "<component> <name> <json>",
        "--vhost",
        "set_parameter tool colour '\"red\"'",
    ),
    "clear_parameter": Command(
        "deletes a parameter of a virtual host",
        "<component> <name>",
        "--vhost",
        "clear_parameter tool colour",
    ),
    "set_global_parameter": Command(
        "sets a parameter of the broker", "<name> <json>", "", "set_global_parameter owner '\"shop\"'"
    ),
    "clear_global_parameter": Command(
        "deletes a parameter of the broker", "<name>", "", "clear_global_parameter owner"
    ),
    "set_cluster_name": Command(
        "names the broker, for those who look at several", "<name>", "", "set_cluster_name production"
    ),
}
TRAFFIC = {
    "purge_queue": Command(
        "drops the messages that wait in a queue", "<queue>", "--vhost", "purge_queue -p / orders"
    ),
    "delete_queue": Command(
        "deletes a queue", "<queue>", "--vhost --if-empty --if-unused", "delete_queue orders --if-empty"
    ),
    "close_connection": Command(
        "closes a connection, named by the pid that list_connections shows, or by its number",
        "<pid> <explanation>",
        "",
        "close_connection '<flintmq@localhost.1.7.0>' 'maintenance'",
    ),
    "close_all_connections": Command(
        "closes the connections of a virtual host, or all",
        "<explanation>",
        "--vhost --global --limit --per-connection-delay",
        "close_all_connections --global 'maintenance'",
    ),
    "close_all_user_connections": Command(
        "closes the connections of a user",
        "<username> <explanation>",
        "--limit --per-connection-delay",
        "close_all_user_connections shop 'new password'",
    ),
    "trace_on": Command(
        "copies every message of a virtual host to its exchange amq.rabbitmq.trace, until trace_off or a "
        "restart",
        "",
        "--vhost",
        "trace_on -p /",
    ),
    "trace_off": Command("ends what trace_on began", "", "--vhost", "trace_off -p /"),
    "export_definitions": Command(
        "writes users, virtual hosts, policies and topology as RabbitMQ's JSON; - is standard output",
        "<file>",
        "--vhost --format",
        "export_definitions broker.json",
    ),
    "import_definitions": Command(
        "takes in what export_definitions wrote, here or on RabbitMQ; without a file, of standard input",
        "[<file>]",
        "--vhost --format --dry-run",
        "import_definitions --dry-run broker.json",
    ),
}
BROKER = {
    "status": Command(
        "how the broker is: uptime, memory by use, open files, disk, listeners, totals",
        "",
        "--unit",
        "status --formatter json",
    ),
    "environment": Command("what the broker says of itself, name by name", example="environment"),
    "report": Command(
        "all that one needs to look into a problem: status, alarms, limits, and every list, of all virtual "
        "hosts; it has no passwords",
        example="report > report.txt",
    ),
    "set_vm_memory_high_watermark": Command(
        "changes how much memory the broker may use before publishers wait, until it ends: a share of the "
        "machine's memory, or a size",
        "<fraction>|absolute [<size>]",
        "",
        "set_vm_memory_high_watermark absolute 2GiB",
    ),
    "set_disk_free_limit": Command(
        "changes how much free space the disk must have, or publishers wait, until the broker ends: a size, "
        "or so many times the machine's memory",
        "<size>|mem_relative [<fraction>]",
        "",
        "set_disk_free_limit mem_relative 1.0",
    ),
    "version": Command("the version of RabbitMQ whose behaviour the broker has", example="version"),
    "server_version": Command(
        "the version of RabbitMQ whose behaviour the broker that answers has", example="server_version"
    ),
    "cluster_status": Command("the cluster, which is one node", example="cluster_status --formatter json"),
    "await_startup": Command(
        "waits until the broker lets clients in, for --timeout seconds at most (300)",
        example="await_startup --timeout 30",
    ),
    "await_online_nodes": Command(
        "waits for so many nodes; there is one", "<count>", "", "await_online_nodes 1"
    ),
    "enable_feature_flag": Command(
        "nothing: all feature flags are on", "<feature_flag>|all", "", "enable_feature_flag all"
    ),
    "help": Command(
        "the commands; or what one does, and what it takes", "[<command>]", "", "help list_queues"
    ),
}
HEALTH = {
    "ping": Command("whether the broker answers a request", example="ping"),
    "check_running": Command("whether the broker runs and lets clients in", example="check_running"),
    "is_running": Command("whether the broker runs and lets clients in", example="is_running"),
    "alarms": Command("the alarms that block publishers", example="alarms"),
    "check_alarms": Command("fails if there is an alarm", example="check_alarms"),
    "check_local_alarms": Command(
        "fails if there is an alarm on this node, which is the only one", example="check_local_alarms"
    ),
    "check_virtual_hosts": Command("fails if a virtual host does not run", example="check_virtual_hosts"),
    "node_health_check": Command("fails, with 70, if there is an alarm", example="node_health_check"),
    "listeners": Command(
        "where the broker listens, and for which protocol", example="listeners --formatter json"
    ),
    "check_port_listener": Command(
        "fails if the broker does not listen on a port", "<port>", "", "check_port_listener 5672"
    ),
    "check_protocol_listener": Command(
        "fails if the broker does not listen for a protocol: amqp, amqp/ssl, amqp-fast, http or https",
        "<protocol>",
        "",
        "check_protocol_listener amqp/ssl",
    ),
    "check_port_connectivity": Command(
        "fails if a port that the broker listens on cannot be connected to from here",
        "",
        "--address",
        "check_port_connectivity",
    ),
    "memory_breakdown": Command(
        "what the memory of the broker is used for, as far as it is counted",
        "",
        "--unit",
        "memory_breakdown --unit mb",
    ),
}
LISTS = {
    "list_queues": Command(
        "the queues of a virtual host",
        "[<column> ...]",
        "--vhost --online --offline --local",
        "list_queues -p / name messages consumers --formatter json",
    ),
    "list_exchanges": Command(
        "the exchanges of a virtual host", "[<column> ...]", "--vhost", "list_exchanges name type"
    ),
    "list_bindings": Command(
        "the bindings of a virtual host",
        "[<column> ...]",
        "--vhost",
        "list_bindings source_name destination_name",
    ),
    "list_connections": Command(
        "the connections of all virtual hosts",
        "[<column> ...]",
        "",
        "list_connections pid user peer_host state",
    ),
    "list_channels": Command(
        "the channels of all virtual hosts",
        "[<column> ...]",
        "",
        "list_channels connection number prefetch_count",
    ),
    "list_consumers": Command(
        "the consumers of a virtual host", "[<column> ...]", "--vhost", "list_consumers -p /"
    ),
    "list_users": Command("the users and their tags", "[<column> ...]", "", "list_users --formatter json"),
    "list_vhosts": Command("the virtual hosts", "[<column> ...]", "", "list_vhosts name description tags"),
    "list_permissions": Command(
        "who may do what in a virtual host", "[<column> ...]", "--vhost", "list_permissions -p /"
    ),
    "list_user_permissions": Command(
        "what a user may do in each virtual host", "<username>", "", "list_user_permissions guest"
    ),
    "list_topic_permissions": Command(
        "the patterns over routing keys in a virtual host",
        "[<column> ...]",
        "--vhost",
        "list_topic_permissions -p /",
    ),
    "list_user_topic_permissions": Command(
        "the patterns over routing keys that a user has in each virtual host",
        "<username>",
        "",
        "list_user_topic_permissions guest",
    ),
    "list_policies": Command(
        "the policies of a virtual host", "[<column> ...]", "--vhost", "list_policies -p /"
    ),
    "list_operator_policies": Command(
        "the policies of the operator in a virtual host",
        "[<column> ...]",
        "--vhost",
        "list_operator_policies -p /",
    ),
    "list_parameters": Command(
        "the parameters of a virtual host", "[<column> ...]", "--vhost", "list_parameters -p /"
    ),
    "list_global_parameters": Command(
        "the parameters of the broker", "[<column> ...]", "", "list_global_parameters"
    ),
    "list_feature_flags": Command(
        "the feature flags of RabbitMQ that are there: all are on", "[<column> ...]", "", "list_feature_flags"
    ),
    "list_unresponsive_queues": Command(
        "nothing: a queue is no process of its own that could hang",
        "[<column> ...]",
        "--vhost",
        "list_unresponsive_queues",
    ),
}
GROUPS = {
    "Users and permissions": USERS,
    "Virtual hosts, policies and parameters": HOSTS,
    "Queues, connections, definitions": TRAFFIC,
    "Lists": LISTS,
    "The broker": BROKER,
    "Health": HEALTH,
}
COMMANDS: dict[str, Command] = {name: each for group in GROUPS.values() for name, each in group.items()}
USAGE_LINE = "flintmq ctl [--vhost <vhost>] [--quiet] [--formatter <formatter>] [--url <url>] <command>"


def usage_of(name: str) -> str:
    """The command, its options and its words, on a line."""
    command = COMMANDS[name]
    shown = [option_text(each) for each in command.options.split()]
    return " ".join(["flintmq ctl", name, *(f"[{each}]" for each in shown), *command.words.split()])


def option_text(option: str) -> str:
    value, _ = OPTIONS[option]
    return f"{option} {value}" if value else option


def overview() -> str:
    """Every command with a line, for `flintmq ctl help`."""
    lines = ["Usage", "", USAGE_LINE, "", "`flintmq ctl help <command>` tells what a command takes."]
    width = max(map(len, COMMANDS))
    for title, group in GROUPS.items():
        lines += ["", f"{title}:", ""]
        lines += [f"   {name:<{width}}  {each.does}" for name, each in group.items()]
    return "\n".join(lines)


def help_of(name: str, columns: str = "") -> str:
    """What `flintmq ctl help <command>` prints; `columns` are those of a list."""
    command = COMMANDS[name]
    letters = {option: letter for letter, option in reversed(ALIASES.items()) if len(letter) == 2}
    options = [*command.options.split(), *COMMON_SHOWN]
    shown = {
        f"{letters[each]}, {option_text(each)}" if each in letters else option_text(each): OPTIONS[each][1]
        for each in options
    }
    width = max(map(len, shown))
    lines = ["Usage", "", usage_of(name), "", f"{command.does[0].upper()}{command.does[1:]}.", ""]
    lines += ["Options", "", *(f"   {option:<{width}}  {text}" for option, text in shown.items()), ""]
    if columns:
        import textwrap

        lines += [
            "Columns",
            "",
            *textwrap.wrap(columns, 80, initial_indent="   ", subsequent_indent="   "),
            "",
        ]
    return "\n".join([*lines, "Example", "", f"   flintmq ctl {command.example}"])
