"""The lists of `flintmq ctl`: rows under RabbitMQ's column names, printed as rabbitmqctl prints them.

A column that RabbitMQ has and FlintMQ does not know is empty. A list without rows has no line of names.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flintmq.cli.operating.policies import QueuePolicies
from flintmq.cli.operating.running_broker import own_number, rows_of
from flintmq.cli.output.tables import json_text, plain, printable

if TYPE_CHECKING:
    from flintmq.client import Connection

Row = dict[str, Any]

# What scripts take apart: <node.creation.number.serial>. Ours has the numbers of connection and channel.
PID = "<flintmq@localhost.1.{connection}.{channel}>"
_PID = re.compile(r"<flintmq@localhost\.1\.(\d+)\.\d+>|(\d+)")

QUEUE_COLUMNS = (
    "name durable auto_delete arguments policy operator_policy effective_policy_definition pid owner_pid "
    "exclusive exclusive_consumer_pid exclusive_consumer_tag single_active_consumer_tag "
    "single_active_consumer_pid messages_ready messages_unacknowledged messages_delayed messages "
    "messages_ready_ram messages_unacknowledged_ram messages_ram messages_persistent message_bytes "
    "message_bytes_ready message_bytes_unacknowledged message_bytes_ram message_bytes_persistent "
    "head_message_timestamp disk_reads disk_writes consumers consumer_utilisation consumer_capacity memory "
    "slave_pids synchronised_slave_pids state type leader members online"
)
IN_FORCE_COLUMNS = {"policy", "operator_policy", "effective_policy_definition"}
CONNECTION_COLUMNS = (
    "pid name port host peer_port peer_host ssl ssl_protocol ssl_key_exchange ssl_cipher ssl_hash "
    "peer_cert_subject peer_cert_issuer peer_cert_validity state channels protocol auth_mechanism user vhost "
    "timeout frame_max channel_max client_properties recv_oct recv_cnt send_oct send_cnt send_pend "
    "connected_at"
)
CHANNEL_COLUMNS = (
    "pid connection name number user vhost transactional confirm consumer_count messages_unacknowledged "
    "messages_uncommitted acks_uncommitted messages_unconfirmed prefetch_count global_prefetch_count"
)
CONSUMER_COLUMNS = (
    "queue_name channel_pid consumer_tag ack_required prefetch_count active activity_status arguments"
)
BINDING_COLUMNS = "source_name source_kind destination_name destination_kind routing_key arguments"
EXCHANGE_COLUMNS = "name type durable auto_delete internal arguments policy"
POLICY_COLUMNS = "vhost name pattern apply-to definition priority"


@dataclass(frozen=True)
class List:
    """One list: what it says first, its columns, those that are shown by default, and its rows."""

    banner: str
    columns: str
    shown: str
    rows: Callable[[Connection, Wanted], Iterable[Row]]
    # Whether its rows are of the virtual host that the connection is in.
    is_in_host: bool = False


@dataclass(frozen=True)
class Wanted:
    """What a list is asked for."""

    virtual_host: str
    columns: tuple[str, ...]
    words: tuple[str, ...] = ()


def pid_of(connection: int, channel: int = 0) -> str:
    return PID.format(connection=connection, channel=channel)


def number_of(pid: str) -> int | None:
    """The connection that a pid of ours, or its number alone, means."""
    found = _PID.fullmatch(pid)
    return None if found is None else int(found[1] or found[2])


# Rows


def queue_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    looks_closer = "arguments" in wanted.columns
    asks_for_policies = bool(IN_FORCE_COLUMNS & set(wanted.columns))
    policies = QueuePolicies(connection) if asks_for_policies else None
    caps = QueuePolicies(connection, "operator-policy.list") if asks_for_policies else None
    for row in rows_of(connection, "queue.list"):
        arguments: Any = {}
        if looks_closer:
            arguments = connection.request("queue.info", {"queue": row["name"]}).results["arguments"]
        yield {
            "name": row["name"],
            "durable": row["durable"],
            "auto_delete": row["auto-delete"],
            "exclusive": row["exclusive"],
            "arguments": arguments,
            "type": row["type"],
            **policy_cells(
                None if policies is None else policies.row_for(row),
                None if caps is None else caps.row_for(row),
            ),
            "messages_ready": row["messages-ready"],
            "messages_unacknowledged": row["messages-unacked"],
            "messages_delayed": row.get("messages-delayed", 0),
            "messages": row["messages-ready"] + row["messages-unacked"],
            "consumers": row["consumers"],
            "head_message_timestamp": row["oldest-ms"] // 1000 if "oldest-ms" in row else "",
            "state": "running",
        }


def policy_cells(policy: Row | None, cap: Row | None) -> Row:
    """The policies that hold for a queue, and what both ask for: of two numbers the lower one."""
    definition = {} if policy is None else dict(policy["definition"])
    for name, value in ({} if cap is None else cap["definition"]).items():
        own = definition.get(name)
        definition[name] = min(own, value) if isinstance(own, int) and isinstance(value, int) else value
    return {
        "policy": "" if policy is None else policy["name"],
        "operator_policy": "" if cap is None else cap["name"],
        "effective_policy_definition": definition,
    }


def exchange_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    yield {
        "name": "",
        "type": "direct",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {},
    }
    for row in rows_of(connection, "exchange.list"):
        yield {key.replace("-", "_"): value for key, value in row.items()}


def binding_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    for row in rows_of(connection, "queue.list"):
        yield binding_row("", row["name"], "queue", row["name"], {})
    for row in rows_of(connection, "binding.list"):
        yield binding_row(
            row["source"], row["destination"], row["destination-type"], row["routing-key"], row["arguments"]
        )


def binding_row(source: str, destination: str, kind: str, key: str, arguments: Row) -> Row:
    return {
        "source_name": source,
        "source_kind": "exchange",
        "destination_name": destination,
        "destination_kind": kind,
        "routing_key": key,
        "arguments": arguments,
    }


def connection_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    here, own = connection.settings.endpoints[0], own_number(connection)
    for row in rows_of(connection, "connection.list", everywhere=True):
        if row["number"] == own:
            continue  # rabbitmqctl has none
        peer = f"{row['peer-address']}:{row['peer-port']}"
        properties = {"connection_name": row["connection-name"], "product": row["product"]}
        yield {
            "pid": pid_of(row["number"]),
            "name": f"{peer} -> {here}",
            "port": here.port,
            "host": here.host,
            "peer_host": row["peer-address"],
            "peer_port": row["peer-port"],
            "state": "blocked" if row["blocked"] else "running",
            "channels": row["channels"],
            "protocol": f"{{{row['protocol'].replace('-', ',')}}}",
            "user": row["user"],
            "vhost": row["virtual-host"],
            "client_properties": {name: text for name, text in properties.items() if text},
            "connected_at": row["connected-ms"],
        }


def channel_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    names = {row["pid"]: row["name"] for row in connection_rows(connection, wanted)}
    for row in rows_of(connection, "channel.list", everywhere=True):
        owner = pid_of(row["connection"])
        if owner not in names:
            continue  # of the connection that asks
        yield {
            "pid": pid_of(row["connection"], row["channel"]),
            "connection": owner,
            "name": f"{names[owner]} ({row['channel']})",
            "number": row["channel"],
            "user": row["user"],
            "vhost": row["virtual-host"],
            "transactional": row["transactional"],
            "confirm": row["confirm"],
            "consumer_count": row["consumers"],
            "messages_unacknowledged": row["unacked"],
            "messages_unconfirmed": row["unconfirmed"],
            "prefetch_count": row["prefetch-count"],
            "global_prefetch_count": row["global-prefetch-count"],
        }


def consumer_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    for row in rows_of(connection, "consumer.list"):
        if row["queue"] == "amq.rabbitmq.reply-to":
            continue  # no queue that anybody has declared
        yield {
            "queue_name": row["queue"],
            "channel_pid": pid_of(row["connection"], row["channel"]),
            "consumer_tag": row["consumer-tag"],
            "ack_required": not row["no-ack"],
            "prefetch_count": row["prefetch-count"],
            "active": True,
            "activity_status": "up",
            "arguments": row["arguments"],
        }


def user_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    for row in rows_of(connection, "user.list"):
        yield {"user": row["user"], "tags": row["tags"]}


def vhost_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    for row in rows_of(connection, "vhost.list"):
        yield {
            "name": row["virtual-host"],
            "tracing": row.get("tracing", False),
            "cluster_state": row["state"],
            "description": row.get("description", ""),
            "tags": row.get("tags", []),
            "default_queue_type": row.get("default-queue-type", "undefined"),
        }


def permission_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    return rows_of(connection, "permission.list", virtual_host=wanted.virtual_host)


def user_permission_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    for row in rows_of(connection, "permission.list", user=wanted.words[0]):
        yield {**row, "vhost": row["virtual-host"]}


def topic_permission_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    return rows_of(connection, "topic-permission.list", virtual_host=wanted.virtual_host)


def user_topic_permission_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    for row in rows_of(connection, "topic-permission.list", user=wanted.words[0]):
        yield {**row, "vhost": row["virtual-host"]}


def policy_rows(connection: Connection, wanted: Wanted, service: str = "policy.list") -> Iterator[Row]:
    for row in rows_of(connection, service, virtual_host=wanted.virtual_host):
        definition = json.dumps(plain(row["definition"]), separators=(",", ":"))
        yield {**row, "vhost": row["virtual-host"], "definition": definition}


def operator_policy_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    return policy_rows(connection, wanted, "operator-policy.list")


def parameter_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    for row in rows_of(connection, "parameter.list", virtual_host=wanted.virtual_host):
        yield {**row, "value": json.dumps(plain(row["value"]), separators=(",", ":"))}


def global_parameter_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    return parameter_rows(connection, Wanted("", wanted.columns))


FEATURE_FLAGS = ("quorum_queue", "stream_queue", "user_limits", "virtual_host_metadata")


def feature_flag_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    """What can be switched on in RabbitMQ and is there: all of it is on."""
    for name in FEATURE_FLAGS:
        yield {"name": name, "state": "enabled"}


def no_rows(connection: Connection, wanted: Wanted) -> Iterator[Row]:
    return iter(())


LISTS = {
    "list_queues": List(
        "Listing queues for vhost {vhost} ...", QUEUE_COLUMNS, "name messages", queue_rows, True
    ),
    "list_exchanges": List(
        "Listing exchanges for vhost {vhost} ...", EXCHANGE_COLUMNS, "name type", exchange_rows, True
    ),
    "list_bindings": List(
        "Listing bindings for vhost {vhost}...", BINDING_COLUMNS, BINDING_COLUMNS, binding_rows, True
    ),
    "list_connections": List(
        "Listing connections ...", CONNECTION_COLUMNS, "user peer_host peer_port state", connection_rows
    ),
    "list_channels": List(
        "Listing channels ...",
        CHANNEL_COLUMNS,
        "pid user consumer_count messages_unacknowledged",
        channel_rows,
    ),
    "list_consumers": List(
        "Listing consumers in vhost {vhost} ...",
        CONSUMER_COLUMNS,
        "queue_name channel_pid consumer_tag ack_required prefetch_count active arguments",
        consumer_rows,
        True,
    ),
    "list_feature_flags": List("Listing feature flags ...", "name state", "name state", feature_flag_rows),
    "list_users": List("Listing users ...", "user tags", "user tags", user_rows),
    "list_vhosts": List(
        "Listing vhosts ...",
        "name tracing cluster_state description tags default_queue_type",
        "name",
        vhost_rows,
    ),
    "list_permissions": List(
        'Listing permissions for vhost "{vhost}" ...',
        "user configure write read",
        "user configure write read",
        permission_rows,
    ),
    "list_user_permissions": List(
        'Listing permissions for user "{word}" ...',
        "vhost configure write read",
        "vhost configure write read",
        user_permission_rows,
    ),
    "list_topic_permissions": List(
        'Listing topic permissions for vhost "{vhost}" ...',
        "user exchange write read",
        "user exchange write read",
        topic_permission_rows,
    ),
    "list_user_topic_permissions": List(
        'Listing topic permissions for user "{word}" ...',
        "vhost exchange write read",
        "vhost exchange write read",
        user_topic_permission_rows,
    ),
    "list_policies": List(
        'Listing policies for vhost "{vhost}" ...', POLICY_COLUMNS, POLICY_COLUMNS, policy_rows
    ),
    "list_operator_policies": List(
        'Listing operator policy overrides for vhost "{vhost}" ...',
        POLICY_COLUMNS,
        POLICY_COLUMNS,
        operator_policy_rows,
    ),
    "list_parameters": List(
        'Listing runtime parameters for vhost "{vhost}" ...',
        "component name value",
        "component name value",
        parameter_rows,
    ),
    "list_global_parameters": List(
        "Listing global runtime parameters ...", "name value", "name value", global_parameter_rows
    ),
    "list_unresponsive_queues": List(
        "Listing unresponsive queues for vhost {vhost} ...", QUEUE_COLUMNS, "name", no_rows, True
    ),
}
# Lists whose first word is a user rather than a column.
OF_USERS = ("list_user_permissions", "list_user_topic_permissions")


# Printing


def erlang(value: Any) -> str:
    """A value inside of a term."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "[" + ",".join(f'{{"{key}",{erlang(each)}}}' for key, each in value.items()) + "]"
    if isinstance(value, list):
        return "[" + ",".join(map(erlang, value)) + "]"
    if isinstance(value, int | float):
        return str(value)
    return '"' + text_of(value) + '"'


def text_of(value: Any) -> str:
    """On one line and in one column, without what would take over a terminal."""
    return printable(str(plain(value)))


def cell(value: Any) -> str:
    """A value of a column."""
    if value is None or value == "":
        return ""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "[" + ", ".join(map(text_of, value)) + "]"
    if isinstance(value, bool | dict | list | int | float):
        return erlang(value)
    return text_of(value)


def json_value(value: Any) -> Any:
    """Tables as lists of name, type and value, as rabbitmqctl has them."""
    if isinstance(value, dict):
        return [[name, type_of(each), json_value(each)] for name, each in value.items()]
    return plain(value)


def type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -(1 << 31) <= value < 1 << 31 else "long"
    if isinstance(value, float):
        return "double"
    if isinstance(value, dict):
        return "table"
    return "array" if isinstance(value, list) else "longstr"


def lines_of(rows: list[Row], columns: tuple[str, ...], formatter: str, with_names: bool) -> Iterator[str]:
    if formatter == "json":
        yield "["
        for at, row in enumerate(rows):
            shown = {name: json_value(row.get(name, "")) for name in columns}
            yield ("," if at else "") + json_text(shown, separators=(",", ":"))
        yield "]"
        return
    cells = [[cell(row.get(name)) for name in columns] for row in rows]
    lines = [list(columns), *cells] if with_names and rows else cells
    if formatter == "pretty_table":
        yield from boxed(lines)
        return
    for line in lines:
        if formatter == "csv":
            stream = io.StringIO()
            csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="").writerow(line)
            yield stream.getvalue()
        else:
            yield "\t".join(line)


def boxed(lines: list[list[str]]) -> Iterator[str]:
    """A table with a frame; lines of it lie between all rows."""
    if not lines:
        return
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + right

    yield rule("┌", "┬", "┐")
    for at, line in enumerate(lines):
        if at:
            yield rule("├", "┼", "┤")
        yield "│" + "│".join(f" {text:<{width}} " for text, width in zip(line, widths, strict=True)) + "│"
    yield rule("└", "┴", "┘")
