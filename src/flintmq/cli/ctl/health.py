"""Health checks of rabbitmqctl and rabbitmq-diagnostics, as supervisors and probes run them, and the cluster.

A check that fails ends with 69, node_health_check with 70, as they do there.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from flintmq.cli.ctl.ctl import NODE, RABBITMQ_VERSION, SOFTWARE, UNAVAILABLE, USAGE, Ctl, check_running
from flintmq.cli.ctl.lists import FEATURE_FLAGS
from flintmq.cli.ctl.node import listener_lines, listener_rows, listeners_of, node_of
from flintmq.cli.operating import running_broker
from flintmq.cli.output.statuses import CommandFault

NO_ALARMS = f"Node {NODE} reported no alarms, local or clusterwide"


def alarms_of(found: dict[str, Any]) -> list[str]:
    """Names of resources, of what broker.info says."""
    return [each["resource"] for each in found.get("alarms", ())]


def alarm_lines(ctl: Ctl, known: str) -> list[str]:
    ctl.say(f"Asking node {NODE} to report any {known} resource alarms ...")
    return [f"{name.capitalize()} alarm on node {NODE}" for name in alarms_of(ctl.ask("broker.info"))]


def alarms(ctl: Ctl) -> None:
    if ctl.formatter == "json":
        print(json.dumps({"result": "ok", "node": NODE, "alarms": alarms_of(ctl.ask("broker.info"))}))
        return
    print("\n".join(alarm_lines(ctl, "known") or [NO_ALARMS]))


def check_alarms(ctl: Ctl, well: str = NO_ALARMS) -> None:
    if found := alarm_lines(ctl, "local"):
        raise CommandFault("\n".join(found), UNAVAILABLE)
    if not ctl.is_silent:
        print(well)


def check_local_alarms(ctl: Ctl) -> None:
    check_alarms(ctl, f"Node {NODE} reported no local alarms")


def node_health_check(ctl: Ctl) -> None:
    ctl.say(f"Checking health of node {NODE} ...")
    if found := alarms_of(ctl.ask("broker.info")):
        raise CommandFault(
            f"Error: health check failed. Message: resource alarm(s) in effect: {', '.join(found)}", SOFTWARE
        )
    ctl.say("Health check passed")


def check_virtual_hosts(ctl: Ctl) -> None:
    ctl.say(f"Checking if all vhosts are running on node {NODE} ...")
    with ctl.connected() as connection:
        rows = list(running_broker.rows_of(connection, "vhost.list"))
    if down := [row["virtual-host"] for row in rows if row["state"] != "running"]:
        raise CommandFault(f"Some virtual hosts on node {NODE} are down:\n" + "\n".join(down), UNAVAILABLE)
    if not ctl.is_silent:
        print(f"Node {NODE} reported all vhosts as running")


def check_port_listener(ctl: Ctl) -> None:
    (text,) = ctl.words
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:6]) < 65_536:
        raise CommandFault(f"(argument validation): {text}: expected a port from 1 to 65535", USAGE)
    ctl.say(f"Asking node {NODE} if there's an active listener on port {text} ...")
    require_listener(ctl, "port", int(text))


def check_protocol_listener(ctl: Ctl) -> None:
    (name,) = ctl.words
    ctl.say(f"Asking node {NODE} if there's an active listener for protocol {name} ...")
    require_listener(ctl, "protocol", PROTOCOLS.get(name, name))


# Names of protocols that rabbitmq-diagnostics takes as well.
PROTOCOLS = {"amqp091": "amqp", "amqps": "amqp/ssl", "amqp091/ssl": "amqp/ssl"}


def require_listener(ctl: Ctl, what: str, wanted: int | str) -> None:
    known = {row[what] for row in listeners_of(ctl)}
    if wanted not in known:
        found = ", ".join(map(str, sorted(known)))
        raise CommandFault(
            f"No listener for {what} {wanted} is active on node {NODE}. "
            f"Found listeners that use the following {what}s: {found}",
            UNAVAILABLE,
        )
    if not ctl.is_silent:
        print(f"A listener for {what} {wanted} is running on node {NODE}.")


def check_port_connectivity(ctl: Ctl) -> None:
    """All ports that the broker tells of; for who may not ask, that of AMQP, which the question came by."""
    with ctl.connected() as connection:
        address = connection.endpoint
        rows = listener_rows(node_of(connection))
    given = ctl.options.get("--address")
    places = [(row, given or place_of(row["interface"].strip("[]"), address.host)) for row in rows]
    # Without those on the loopback interface of another machine.
    reachable = [(row, where) for row, where in places if where is not None]
    if not reachable:
        ctl.say(f"Successfully connected to {address} on node {NODE}.")
        return
    ctl.say(f"Testing TCP connections to all active listeners on node {NODE} ...")
    closed, ports = [], []
    for row, where in reachable:
        try:
            socket.create_connection((where, row["port"]), CONNECT_S).close()
            ports.append(str(row["port"]))
        except OSError as error:
            (line,) = listener_lines([row])
            closed.append(f"{line}: {where}: {error.strerror or error}")
    if closed:
        raise CommandFault(
            f"Connection to ports of the following listeners on node {NODE} failed:\n" + "\n".join(closed),
            UNAVAILABLE,
        )
    ctl.say(f"Successfully connected to ports {', '.join(dict.fromkeys(ports))} on node {NODE}.")


CONNECT_S = 5.0


def place_of(listening: str, host: str) -> str | None:
    """Where a listener is reached from here; `host` is where the broker has been reached."""
    if ip_address(listening).is_unspecified:
        return host
    if not ip_address(listening).is_loopback:
        return listening
    return listening if is_here(host) else None


def is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_running(ctl: Ctl) -> None:
    check_running(ctl)


def server_version(ctl: Ctl) -> None:
    ctl.say(f"Asking node {NODE} for its RabbitMQ version...")
    ctl.ask("broker.info")
    print(RABBITMQ_VERSION)


def await_online_nodes(ctl: Ctl) -> None:
    (text,) = ctl.words
    if not text.isascii() or not text.isdigit() or int(text) > 1:
        raise CommandFault(f"await_online_nodes {text}: the broker is a single node", UNAVAILABLE)
    ctl.ask("broker.info")


def enable_feature_flag(ctl: Ctl) -> None:
    (name,) = ctl.words
    ctl.say("Enabling all feature flags ..." if name == "all" else f'Enabling feature flag "{name}" ...')
    if name != "all" and name not in FEATURE_FLAGS:
        raise CommandFault(f"This feature flag is not supported by node {NODE}", USAGE)
    ctl.ask("broker.info")


def cluster_status(ctl: Ctl) -> None:
    """A cluster of one node, which is what there is."""
    found = ctl.ask("broker.info")
    alarmed = alarms_of(found)
    if ctl.formatter == "json":
        version = {"rabbitmq_name": found["product"], "rabbitmq_version": RABBITMQ_VERSION}
        document = {
            "alarms": alarmed,
            "cluster_name": found.get("cluster-name") or NODE,
            "disk_nodes": [NODE],
            "ram_nodes": [],
            "running_nodes": [NODE],
            "partitions": {},
            "maintenance_status": {NODE: "not under maintenance"},
            "versions": {NODE: {**version, "erlang_version": ""}},
            "feature_flags": [{"name": name, "state": "enabled"} for name in FEATURE_FLAGS],
        }
        print(json.dumps(document))
        return
    ctl.say(f"Cluster status of node {NODE} ...")
    sections = {
        "Basics": [f"Cluster name: {found.get('cluster-name') or NODE}"],
        "Disk Nodes": [NODE],
        "Running Nodes": [NODE],
        "Versions": [f"{NODE}: {found['product']} {found['version']}"],
        "Maintenance status": [f"Node: {NODE}, status: not under maintenance"],
        "Alarms": [f"{name.capitalize()} alarm on node {NODE}" for name in alarmed] or ["(none)"],
        "Network Partitions": ["(none)"],
        "Feature flags": [f"Flag: {name}, state: enabled" for name in FEATURE_FLAGS],
    }
    for title, lines in sections.items():
        print(f"{title}\n\n" + "\n".join(lines) + "\n")


CHECKS: dict[str, Callable[[Ctl], int | None]] = {
    each.__name__: each
    for each in (
        alarms, check_alarms, check_local_alarms, node_health_check, check_virtual_hosts,
        check_port_listener, check_protocol_listener, check_port_connectivity, is_running,
        server_version, await_online_nodes, enable_feature_flag,
        cluster_status,
    )
}  # fmt: skip
