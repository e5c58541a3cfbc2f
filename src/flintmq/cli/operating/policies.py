"""`flintmq policies` and `flintmq parameters`: rules for queues by their names, and values for components."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from flintmq.cli.operating import running_broker
from flintmq.cli.operating.users import administer, task
from flintmq.cli.output import statuses, tables
from flintmq.cli.output.statuses import CommandFault
from flintmq.patterns.name_pattern import NamePattern

if TYPE_CHECKING:
    from flintmq.client import Connection

POLICIES = ("name", "virtual_host", "pattern", "apply_to", "priority", "definition", "fixed")
PARAMETERS = ("virtual_host", "component", "name", "value")
APPLY_TO = ("all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams")
# What `apply-to` calls the queues of a type.
TARGETS = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}


class QueuePolicies:
    """Which policy of the connection's virtual host holds for a queue, found by its name and type."""

    def __init__(self, connection: Connection, service: str = "policy.list") -> None:
        host = connection.settings.virtual_host
        rows = list(running_broker.rows_of(connection, service, virtual_host=host))
        rows.sort(key=lambda row: (-row["priority"], row["name"]))
        self.known = [(row, NamePattern(row["pattern"])) for row in rows if row["apply-to"] != "exchanges"]

    def row_for(self, queue: dict[str, Any]) -> dict[str, Any] | None:
        """The policy for a row of queue.list."""
        targets = ("all", "queues", TARGETS[queue["type"]])
        for row, pattern in self.known:
            if row["apply-to"] in targets and pattern.matches(queue["name"]):
                return row
        return None

    def name_for(self, queue: dict[str, Any]) -> str | None:
        row = self.row_for(queue)
        return None if row is None else str(row["name"])


def add(command: str, parser: argparse.ArgumentParser) -> None:
    tables.add_options(parser, is_list=True)
    running_broker.add_options(parser)
    parser.set_defaults(run=listed)
    tasks = parser.add_subparsers(dest="task", metavar="TASK")
    if command == "parameters":
        add_parameters(parser, tasks)
        return
    parser.add_argument("--operator", action="store_true", help="operator policies")
    given = task(tasks, "set", "set a policy", set_policy)
    gone = task(tasks, "clear", "take a policy out of force", clear_policy)
    for each in (given, gone):
        each.add_argument("name", metavar="NAME")
        each.add_argument("--operator", action="store_true", help="an operator policy")
    given.add_argument("pattern", metavar="PATTERN", help="over names of queues and exchanges")
    given.add_argument("definition", metavar="JSON", help='such as {"max-length": 1000}')
    given.add_argument("--priority", type=int, default=0, metavar="N")
    given.add_argument("--apply-to", choices=APPLY_TO)


def add_parameters(parser: argparse.ArgumentParser, tasks: Any) -> None:
    parser.add_argument("--component", metavar="C", help="of this component")
    given = task(tasks, "set", "set a parameter", set_parameter)
    gone = task(tasks, "clear", "forget a parameter", clear_parameter)
    for each in (given, gone):
        each.add_argument("component", metavar="COMPONENT")
        each.add_argument("name", metavar="NAME")
    given.add_argument("value", metavar="JSON")


def listed(options: argparse.Namespace) -> int:
    service: str = "parameter.list"
    columns: tuple[str, ...] = PARAMETERS
    if options.command == "policies":
        service, columns = ("operator-policy.list" if options.operator else "policy.list", POLICIES)
    with running_broker.connected_anywhere(options) as connection:
        rows = running_broker.rows_of(
            connection,
            service,
            virtual_host=options.virtual_host,
            component=getattr(options, "component", None),
        )
        return tables.show(list(rows), columns, options)


def value_of(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandFault(f"{what} is no JSON: {error}", statuses.USAGE) from None


def kind_of(options: argparse.Namespace) -> str:
    return "operator-policy" if options.operator else "policy"


def set_policy(options: argparse.Namespace) -> int:
    definition = value_of(options.definition, "the definition")
    if not isinstance(definition, dict):
        raise CommandFault('the definition: expected an object, such as {"max-length": 1000}', statuses.USAGE)
    return administer(
        options,
        f"{kind_of(options)}.set",
        f"policy {options.name!r} is in force",
        name=options.name,
        pattern=options.pattern,
        definition=definition,
        priority=options.priority,
        apply_to=options.apply_to,
    )


def clear_policy(options: argparse.Namespace) -> int:
    line = f"policy {options.name!r} is out of force"
    return administer(options, f"{kind_of(options)}.clear", line, name=options.name)


def set_parameter(options: argparse.Namespace) -> int:
    value = value_of(options.value, "the value")
    line = f"parameter {options.name!r} of {options.component!r} is set"
    return administer(
        options, "parameter.set", line, component=options.component, name=options.name, value=value
    )


def clear_parameter(options: argparse.Namespace) -> int:
    line = f"parameter {options.name!r} of {options.component!r} is gone"
    return administer(options, "parameter.clear", line, component=options.component, name=options.name)
