"""`flintmq status` and `flintmq alarms`: how a running broker is."""

from __future__ import annotations

import argparse
from typing import Any

from flintmq.cli.operating import running_broker
from flintmq.cli.output import statuses, tables

SHOWN = ("product", "version", "build", "virtual-host", "user")
COUNTS = ("connections", "channels", "consumers", "exchanges", "queues", "bindings", "messages-ready")
# Counts that an older broker does not tell.
NEW_COUNTS = ("messages-delayed",)


def add(command: str, parser: argparse.ArgumentParser) -> None:
    running_broker.add_options(parser)
    tables.add_options(parser)
    if command == "alarms":
        parser.epilog = f"Status {statuses.TROUBLE} if there is an alarm."
    parser.set_defaults(run=status if command == "status" else alarms)


def status(options: argparse.Namespace) -> int:
    with running_broker.connected(options) as connection:
        found = connection.request("broker.info").results
    if options.json:
        tables.show_facts(found, options)
        return 0
    facts: dict[str, Any] = {name: found[name] for name in SHOWN}
    facts["uptime"] = tables.age(number(found["uptime-ms"]))
    facts["protocols"] = found["protocols"]
    facts.update({name: found[name] for name in COUNTS})
    facts.update({name: found[name] for name in NEW_COUNTS if name in found})
    facts["memory"] = f"{amount(found, 'memory-bytes')} of {amount(found, 'memory-bytes-high')}"
    if "disk-bytes" in found:
        facts["disk"] = f"{amount(found, 'disk-bytes')} used, {amount(found, 'disk-bytes-free')} free"
    facts["connections-blocked"] = found.get("connections-blocked", 0)
    told = alarms_of(found)
    facts["alarms"] = [f"{each['resource']}: {each['reason']}" for each in told] or "none"
    tables.show_facts(facts, options)
    return 0


def number(value: Any) -> int:
    return int(value)


def amount(found: dict[str, Any], name: str) -> str:
    return tables.size(found[name]) if name in found else "unknown"


def alarms_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    return list(found.get("alarms", ()))


def alarms(options: argparse.Namespace) -> int:
    with running_broker.connected(options) as connection:
        found = alarms_of(connection.request("broker.info").results)
    if options.json:
        tables.print_json(found)
    elif not found:
        print("no alarms")
    for each in [] if options.json else found:
        print(tables.printable(f"{each['resource']}: {each['reason']}"))
    return statuses.TROUBLE if found else 0
