"""`flintmq definitions export|import|check`: RabbitMQ's JSON, out of and into a broker that runs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flintmq.checks import Unfit
from flintmq.cli.operating import running_broker
from flintmq.cli.output.tables import printable
from flintmq.definition_parts import decode, join, split
from flintmq.errors import ConfigFault

if TYPE_CHECKING:
    from flintmq.client import Connection

# A large import hashes passwords and writes a journal.
TIMEOUT_S = 600.0


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    definitions = commands.add_parser(
        "definitions",
        help="users, policies, queues and the rest as RabbitMQ's JSON, out of and into a broker",
        description="Definitions in RabbitMQ's JSON; see docs/definitions.md.",
    )
    tasks = definitions.add_subparsers(dest="task", metavar="TASK", required=True)
    export = tasks.add_parser("export", help="write what the broker has, with the hashes of passwords")
    export.add_argument("file", nargs="?", default="-", metavar="FILE", help="- for standard output")
    take = tasks.add_parser("import", help="put a file into force, all of it or nothing")
    take.add_argument("--partial", action="store_true", help="do what can be done, and list the rest")
    check = tasks.add_parser("check", help="say what an import would refuse; changes nothing")
    for each in (take, check):
        each.add_argument("file", metavar="FILE", help="- for standard input")
    for each in (export, take, check):
        running_broker.add_options(each, virtual_host="this virtual host alone")
        each.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    document = {} if options.task == "export" else read(options.file)
    only = options.virtual_host or ""
    with running_broker.connected_anywhere(options) as connection:
        if options.task == "export":
            write(options.file, exported(connection, only))
            return 0
        arguments = {"dry-run": options.task == "check", "partial": getattr(options, "partial", False)}
        report = imported(connection, document, only, arguments)
    lines = told(report)
    if report["refused_count"] and not report["applied"]:
        lines[-1] += "; flintmq definitions import --partial leaves out what is refused, and does the rest"
    for line in lines:
        sys.stdout.write(line + "\n")
    return 1 if report["refused_count"] else 0


def exported(connection: Connection, virtual_host: str) -> dict[str, Any]:
    """All parts of an export, joined."""
    document: dict[str, Any] = {}
    after = ""
    while True:
        arguments: dict[str, Any] = {"after": after}
        if virtual_host:
            arguments["virtual-host"] = virtual_host
        reply = connection.request("definitions.export", arguments, timeout_s=TIMEOUT_S)
        join(document, json.loads(reply.body))
        after = str(reply.results.get("next", ""))
        if not after:
            return document


def imported(
    connection: Connection, document: dict[str, Any], virtual_host: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    """The report of an import that was sent in parts."""
    parts = list(split(document))
    for number, part in enumerate(parts):
        asked: dict[str, Any] = {**arguments, "part": number, "more": number < len(parts) - 1}
        if virtual_host:
            asked["virtual-host"] = virtual_host
        reply = connection.request("definitions.import", asked, part, timeout_s=TIMEOUT_S)
    report: dict[str, Any] = json.loads(reply.body)
    return report


def told(report: dict[str, Any]) -> list[str]:
    """A report in lines: what to know, what cannot be done, what was done."""
    lines = [printable(f"note: {each['item']}: {each['reason']}") for each in report["noted"]]
    lines += [printable(f"refused: {each['item']}: {each['reason']}") for each in report["refused"]]
    for kind in ("noted", "refused"):
        left = report[f"{kind}_count"] - len(report[kind])
        if left:
            lines.append(f"{kind}: {left} more")
    changed = ", ".join(f"{count} {section}" for section, count in report["changed"].items()) or "nothing"
    if report["applied"]:
        lines.append(f"changed: {changed}; as they were: {sum(report['unchanged'].values())}")
    else:
        lines.append("nothing was changed")
    return lines


def read(file: str) -> dict[str, Any]:
    try:
        octets = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return decode(octets)
    except OSError as error:
        raise ConfigFault(f"{file}: cannot be read: {error.strerror or error}") from None
    except Unfit as unfit:
        raise ConfigFault(f"{file}: {unfit}") from None


def write(file: str, document: dict[str, Any]) -> None:
    """For the owner alone, as there are hashes of passwords in it."""
    text = json.dumps(document, indent=1) + "\n"
    if file == "-":
        sys.stdout.write(text)
        return
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
            stream.write(text)
    except OSError as error:
        raise ConfigFault(f"{file}: cannot be written: {error.strerror or error}") from None
