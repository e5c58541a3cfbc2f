"""The broker as a process, for `flintmq ctl`: status, listeners, memory by use, a report, and two limits.

The sections and names are those of rabbitmqctl status where it has them. Who has not the tag `monitoring`
sees what broker.info tells to everybody.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flintmq.checks import SIZE_UNITS, quantity
from flintmq.cli.ctl.ctl import DATA, NODE, RABBITMQ_VERSION, USAGE, Ctl, answer
from flintmq.cli.operating import running_broker
from flintmq.cli.output.statuses import CommandFault
from flintmq.cli.output.tables import json_text, plain, printable, size

if TYPE_CHECKING:
    from flintmq.client import Connection

UNITS = {"gb": 10**9, "mb": 10**6, "kb": 10**3, "bytes": 1}
# Uses of memory under RabbitMQ's names, where it has one: a queue and a channel are no processes here.
MEMORY_NAMES = {
    "queues": "queue_procs",
    "unacked": "connection_channels",
    "outputs": "connection_writers",
    "journal": "journal",
}
PURPOSES = {
    "amqp": "AMQP 0-9-1, 0-9, 0-8 and AMQP/Fast 0.8",
    "amqp/ssl": "AMQP 0-9-1, 0-9, 0-8 and AMQP/Fast 0.8 over TLS",
    "amqp-fast": "AMQP/Fast 0.9",
    "http": "HTTP API",
    "https": "HTTP API over TLS",
}
# Access refused; not found and not implemented, as by a broker that is older than the service.
UNTOLD = (403, 404, 540)
OCTETS_MAX = 2**60  # of a limit, as the settings have it
# As RabbitMQ reads them, in letters of any size: k, M and G alone are powers of 1024.
SIZES = {
    **{unit.lower(): octets for unit, octets in SIZE_UNITS.items()},
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
}


# What there is to tell


def facts_of(ctl: Ctl) -> dict[str, Any]:
    with ctl.connected() as connection:
        info = connection.request("broker.info").results
        return {**info, **totals(connection), **node_of(connection)}


def unless_refused(ask: Callable[[], dict[str, Any]], otherwise: dict[str, Any]) -> dict[str, Any]:
    """What is told, or something else to those who may not ask, and by a broker that does not tell it."""
    from flintmq.client import ServiceError

    try:
        return ask()
    except ServiceError as error:
        if error.code not in UNTOLD:
            raise
        return otherwise


def totals(connection: Connection) -> dict[str, Any]:
    """How much there is in all virtual hosts. Who may not list them has the counts of one, by broker.info."""

    def counted() -> dict[str, Any]:
        rows = list(running_broker.rows_of(connection, "vhost.list"))
        counts = {name: sum(row.get(name, 0) for row in rows) for name in ("queues", "connections")}
        return {"counted": "Totals", "virtual-hosts": len(rows), **counts}

    here = f"Totals of vhost {connection.settings.virtual_host}"
    return unless_refused(counted, {"counted": here, "virtual-hosts": 1})


def node_of(connection: Connection) -> dict[str, Any]:
    """The process; nothing of it for those who have not the tag `monitoring`."""
    return unless_refused(lambda: connection.request("broker.node").results, {})


def listeners_of(ctl: Ctl) -> list[dict[str, Any]]:
    with ctl.connected() as connection:
        return listener_rows(connection.request("broker.node").results)


def listener_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "interface": f"[{each['ip_address']}]" if ":" in each["ip_address"] else each["ip_address"],
            "node": NODE,
            "port": each["port"],
            "protocol": each["protocol"],
            "purpose": PURPOSES.get(each["protocol"], each["protocol"]),
        }
        for each in found.get("listeners", ())
    ]


def listener_lines(rows: Iterable[dict[str, Any]]) -> list[str]:
    names = ("port", "protocol", "purpose")
    return [
        f"Interface: {row['interface']}, " + ", ".join(f"{name}: {row[name]}" for name in names)
        for row in rows
    ]


def memory_of(found: dict[str, Any]) -> dict[str, int]:
    """Octets by use, the largest first; what is not counted is `other_system`."""
    uses = {MEMORY_NAMES.get(name, name): octets for name, octets in found.get("memory", {}).items()}
    if uses:
        uses["other_system"] = max(0, found["memory-bytes"] - sum(uses.values()))
    return dict(sorted(uses.items(), key=lambda use: -use[1]))


def unit_of(ctl: Ctl) -> tuple[str, int]:
    unit = ctl.options.get("--unit", "gb").lower()
    if unit not in UNITS:
        raise CommandFault(f"(argument validation): --unit {unit}: expected one of {', '.join(UNITS)}", USAGE)
    return unit, UNITS[unit]


def amount(octets: int, unit: tuple[str, int]) -> str:
    name, each = unit
    return f"{octets} bytes" if each == 1 else f"{octets / each:.4f} {name}"


# Status


def status(ctl: Ctl) -> None:
    unit = unit_of(ctl)
    found = facts_of(ctl)
    if ctl.formatter == "json":
        print(json_text(status_document(found)))
        return
    ctl.say(f"Status of node {NODE} ...")
    for title, lines in sections_of(found, unit).items():
        print(f"{title}\n")
        for line in lines:
            print(printable(line))
        print()


def sections_of(found: dict[str, Any], unit: tuple[str, int]) -> dict[str, list[str]]:
    sections = {
        "Runtime": [
            *([f"OS PID: {found['pid']}", f"OS: {found['system']}"] if "pid" in found else []),
            f"Uptime (seconds): {found['uptime-ms'] // 1000}",
            f"Product: {found['product']} {found['version']}",
            f"RabbitMQ version: {RABBITMQ_VERSION}",
            f"Node name: {NODE}",
            *([f"Python {found['python']}, {found['event-loop']}"] if "python" in found else []),
        ]
    }
    if "directory" in found:
        sections["Data directory"] = [f"Node data directory: {found['directory']}"]
    files = [f" * {found[name]}" for name in ("log-file", "audit-file") if name in found]
    if files:
        sections["Log file(s)"] = files
    alarms = [f"{each['resource']}: {each['reason']}" for each in found.get("alarms", ())]
    sections["Alarms"] = alarms or ["(none)"]
    sections["Memory"] = memory_lines(found, unit)
    if "files-open" in found:
        of_sockets = found["strangers"]
        sections["File Descriptors"] = [
            f"Total: {found['files-open']}, limit: {found['files-max']}",
            f"Sockets: {of_sockets['connections']}, limit: {of_sockets['connections-max']}",
        ]
    if "disk-bytes-free" in found:
        sections["Free Disk Space"] = [
            f"Low free disk space watermark: {amount(found['disk-bytes-free-min'], unit)}",
            f"Free disk space: {amount(found['disk-bytes-free'], unit)}",
        ]
    sections[found["counted"]] = [
        f"Connection count: {found['connections']}",
        f"Queue count: {found['queues']}",
        f"Virtual host count: {found['virtual-hosts']}",
    ]
    if "listeners" in found:
        sections["Listeners"] = listener_lines(listener_rows(found))
    return sections


def memory_lines(found: dict[str, Any], unit: tuple[str, int]) -> list[str]:
    high = amount(found["memory-bytes-high"], unit)
    lines = [f"Total memory used: {amount(found['memory-bytes'], unit)}"]
    if "memory-high-share" in found:
        share = found["memory-high-share"]
        lines.append(f"Memory high watermark setting: {share:g} of available memory, computed to: {high}")
    else:
        lines.append(f"Memory high watermark: {high}")
    uses = use_lines(found, unit)
    return [*lines, "", *uses] if uses else lines


def use_lines(found: dict[str, Any], unit: tuple[str, int]) -> list[str]:
    total = max(1, found["memory-bytes"])
    return [
        f"{name}: {amount(octets, unit)} ({100 * octets / total:.4g} %)"
        for name, octets in memory_of(found).items()
    ]


def status_document(found: dict[str, Any]) -> dict[str, Any]:
    total, high = found["memory-bytes"], found["memory-bytes-high"]
    document = {
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": found["product"],
        "product_version": found["version"],
        "uptime": found["uptime-ms"] // 1000,
        "alarms": [each["resource"] for each in found.get("alarms", ())],
        "memory": {**memory_of(found), "strategy": "rss", "total": total},
        "vm_memory_limit": high,
        "vm_memory_calculation_strategy": "rss",
        "vm_memory_high_watermark_limit": high,
        "disk_free": found.get("disk-bytes-free"),
        "disk_free_limit": found.get("disk-bytes-free-min"),
        "is_under_maintenance": False,
        "totals": {
            "connection_count": found["connections"],
            "queue_count": found["queues"],
            "virtual_host_count": found["virtual-hosts"],
        },
    }
    return {**document, **process_document(found)} if "pid" in found else document


def process_document(found: dict[str, Any]) -> dict[str, Any]:
    """What broker.node adds."""
    of_sockets = found["strangers"]
    return {
        "pid": found["pid"],
        "os": found["system"],
        "python_version": found["python"],
        "data_directory": found.get("directory"),
        "log_files": [found["log-file"]] if "log-file" in found else [],
        "vm_memory_high_watermark_setting": (
            {"relative": found["memory-high-share"]}
            if "memory-high-share" in found
            else {"absolute": found["memory-bytes-high"]}
        ),
        "file_descriptors": {
            "total_used": found["files-open"],
            "total_limit": found["files-max"],
            "sockets_used": of_sockets["connections"],
            "sockets_limit": of_sockets["connections-max"],
        },
        "listeners": listener_rows(found),
    }


def memory_breakdown(ctl: Ctl) -> None:
    unit = unit_of(ctl)
    with ctl.connected() as connection:
        info, node = connection.request("broker.info").results, connection.request("broker.node").results
    found: dict[str, Any] = {**info, **node}
    ctl.say(f"Reporting memory breakdown on node {NODE}...")
    if ctl.formatter == "json":
        total = max(1, found["memory-bytes"])
        uses = {
            name: {"bytes": octets, "percentage": round(100 * octets / total, 4)}
            for name, octets in memory_of(found).items()
        }
        print(json_text(uses))
        return
    print("\n".join(use_lines(found, unit)))


def listeners(ctl: Ctl) -> None:
    ctl.say(f"Asking node {NODE} to report its protocol listeners ...")
    rows = listeners_of(ctl)
    if ctl.formatter == "json":
        print(json_text({"result": "ok", "node": NODE, "listeners": rows}))
        return
    print("\n".join(listener_lines(rows)))


def environment(ctl: Ctl) -> None:
    with ctl.connected() as connection:
        found = plain({**connection.request("broker.info").results, **node_of(connection)})
    ctl.say(f"Application environment of node {NODE} ...")
    if ctl.formatter == "json":
        print(json_text(found))
        return
    for name, value in found.items():
        print(printable(f"{name}: {json.dumps(value, default=str)}"))


# A report

OF_BROKER = (
    "status",
    "cluster_status",
    "environment",
    "alarms",
    "list_users",
    "list_vhosts name tracing cluster_state",
    "list_connections pid name user vhost state channels protocol client_properties",
    "list_channels pid user vhost consumer_count messages_unacknowledged messages_unconfirmed prefetch_count",
    "list_vhost_limits --global",
    "list_user_limits --global",
    "list_global_parameters",
    "list_feature_flags",
)
OF_HOSTS = (
    "list_queues name type durable policy messages_ready messages_unacknowledged messages_delayed consumers "
    "arguments",
    "list_exchanges name type durable auto_delete internal arguments",
    "list_bindings",
    "list_consumers",
    "list_permissions",
    "list_topic_permissions",
    "list_policies",
    "list_operator_policies",
    "list_parameters component name",
)


def report(ctl: Ctl) -> None:
    """What the commands print, one after the other; what the asker may not see is told with the reason."""
    if ctl.formatter in ("json", "csv"):
        raise CommandFault(
            f"(argument validation): --formatter {ctl.formatter}: a report is text; have the single commands "
            "print it, such as status --formatter json",
            USAGE,
        )
    with ctl.connected() as connection:
        hosts = [row["virtual-host"] for row in running_broker.rows_of(connection, "vhost.list")]
    ctl.say(f"Reporting server status of node {NODE} ...")
    for line in OF_BROKER:
        part_of_report(ctl, line.split())
    for host in hosts:
        for line in OF_HOSTS:
            part_of_report(ctl, [*line.split(), "--vhost", host])


def part_of_report(ctl: Ctl, words: list[str]) -> None:
    from flintmq.errors import FlintError

    of_broker = ("--url", "--credentials", "--profile", "--timeout")
    options = [f"{name}={ctl.options[name]}" for name in of_broker if name in ctl.options]
    options += [name for name in ("--password-in-url",) if name in ctl.options]
    print()
    try:
        answer(Ctl([*words, *options]))
    except FlintError as error:
        print(printable(f"{' '.join(words)}: {error}"))


# Limits


def set_vm_memory_high_watermark(ctl: Ctl) -> None:
    first, *more = ctl.words
    wanted = "expected a share of the machine's memory from 0.01 to 1, such as 0.6, or absolute and a size"
    if first == "absolute" and len(more) == 1:
        octets = octets_of(more[0])
        if octets is None or not 2**20 <= octets <= OCTETS_MAX:
            raise wrong(ctl, f"expected a size from 1 MiB to {OCTETS_MAX} bytes, such as 2GiB or 512MB")
        ctl.say(f"Setting memory threshold on {NODE} to {octets} bytes ...")
        found = ctl.ask("memory-limit.set", bytes=octets)
        setting = f"memory_high_bytes = {octets}"
    else:
        share = fraction_of(first)
        if more or share is None or not 0.01 <= share <= 1:
            raise wrong(ctl, f"{wanted}, such as absolute 2GiB")
        ctl.say(f"Setting memory threshold on {NODE} to {share:g} ...")
        found = ctl.ask("memory-limit.set", share=share)
        setting = f"memory_high_share = {share:g}"
    high, machine = found["memory-bytes-high"], found["machine-bytes"]
    beyond = f", which is more than the {size(machine)} of the machine" if high > machine else ""
    ctl.say(
        f"Publishers wait when the broker uses more than {size(high)}{beyond}; it uses "
        f"{size(found['memory-bytes'])} now."
    )
    keep(ctl, setting)


def set_disk_free_limit(ctl: Ctl) -> None:
    first, *more = ctl.words
    if first == "mem_relative" and len(more) == 1:
        share = fraction_of(more[0])
        if share is None or not 0 <= share <= 100:
            raise wrong(ctl, "expected how many times the machine's memory, from 0 to 100, such as 1.0")
        ctl.say(f"Setting disk free limit on {NODE} to {share:g} times the total RAM ...")
        found = ctl.ask("disk-limit.set", memory_share=share)
    else:
        octets = octets_of(first)
        if more or octets is None:
            raise wrong(
                ctl,
                "expected a size, such as 1GB or 512MiB, or mem_relative and a number, such as "
                "mem_relative 1.0",
            )
        if octets > OCTETS_MAX:
            raise wrong(ctl, f"expected at most {OCTETS_MAX} bytes")
        ctl.say(f"Setting disk free limit on {NODE} to {octets} bytes ...")
        found = ctl.ask("disk-limit.set", bytes=octets)
    least = found["disk-bytes-free-min"]
    free = f"; {size(found['disk-bytes-free'])} is free now" if "disk-bytes-free" in found else ""
    ctl.say(f"Publishers wait when less than {size(least)} is free{free}.")
    keep(ctl, f"disk_free_bytes_min = {least}")


def keep(ctl: Ctl, setting: str) -> None:
    ctl.say(
        f"This holds until the broker ends. To keep it, set {setting} in [limits] of the configuration file."
    )


def wrong(ctl: Ctl, expected: str) -> CommandFault:
    return CommandFault(f"(argument validation): {ctl.command} {' '.join(ctl.words)}: {expected}", DATA)


def octets_of(text: str) -> int | None:
    found = quantity(text.lower(), SIZES)
    return None if found is None else int(found)


def fraction_of(text: str) -> float | None:
    with suppress(ValueError):
        return float(text)
    return None


OF_NODE: dict[str, Callable[[Ctl], int | None]] = {
    each.__name__: each
    for each in (
        status, memory_breakdown, listeners, environment, report,
        set_vm_memory_high_watermark, set_disk_free_limit,
    )
}  # fmt: skip
