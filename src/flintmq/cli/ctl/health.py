"""Health checks of rabbitmqctl and rabbitmq-diagnostics, as supervisors and probes run them, and the cluster.

A check that fails ends with 69, node_health_check with 70, as they do there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from flintmq.cli.ctl.ctl import NODE, RABBITMQ_VERSION, SOFTWARE, UNAVAILABLE, USAGE, Ctl, check_running
from flintmq.cli.ctl.lists import FEATURE_FLAGS
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


def check_port_connectivity(ctl: Ctl) -> None:
    """The port of AMQP that the commands use: others of the broker may be open to others alone."""
    with ctl.connected() as connection:
        address = connection.settings.address
    ctl.say(f"Successfully connected to {address} on node {NODE}.")


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
        check_port_connectivity, is_running, server_version, await_online_nodes, enable_feature_flag,
        cluster_status,
    )
}  # fmt: skip
