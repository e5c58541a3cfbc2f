"""`flintmq queues`, `purge` and `move`: queues with what is in them, emptied, and moved elsewhere."""

from __future__ import annotations

import argparse
import threading
from typing import TYPE_CHECKING, Any

from flintmq.cli.operating import running_broker
from flintmq.cli.operating.policies import QueuePolicies
from flintmq.cli.output import tables

if TYPE_CHECKING:
    from flintmq.client import Connection

# fmt: off
COLUMNS = (
    "name", "messages_ready", "messages_unacked", "messages_delayed", "consumers", "oldest", "policy",
    "features",
)
# fmt: on
# Messages that wait for a retry; left out where there are none.
DELAYED = "messages-delayed"
# Moved by one request; between two of them progress is told, and an interrupt holds.
MOVED_AT_ONCE = 10_000
LOOK_EACH_S = 0.2
PURGE_TIMEOUT_S = 3600.0


def add(command: str, parser: argparse.ArgumentParser) -> None:
    running_broker.add_options(parser)
    tables.add_options(parser, is_list=command == "queues")
    if command == "queues":
        tables.add_pattern(parser)
        parser.set_defaults(run=queues)
        return
    parser.add_argument("queue", metavar="QUEUE")
    if command == "move":
        parser.add_argument("to", metavar="TO", help="the queue that gets the messages, at its end")
        parser.add_argument("--limit", type=tables.whole, metavar="N", help="so many, from the head (all)")
        parser.set_defaults(run=move)
    else:
        tables.add_yes(parser)
        parser.set_defaults(run=purge)


def queues(options: argparse.Namespace) -> int:
    with running_broker.connected(options) as connection:
        rows = list(
            tables.matching(running_broker.rows_of(connection, "queue.list"), options.pattern, "name")
        )
        policies = policies_of(connection)
    rows = [{**row, DELAYED: row.get(DELAYED, 0)} for row in rows]
    if policies is not None:
        rows = [{**row, "policy": policies.name_for(row)} for row in rows]
    shown = rows if options.json else [described(row) for row in rows]
    columns = [name for name in COLUMNS if name != "policy" or policies is not None]
    return tables.show(shown, columns, options)


def policies_of(connection: Connection) -> QueuePolicies | None:
    """Which policy holds for each queue; None for a user who may not see policies."""
    from flintmq.client import ServiceError

    try:
        return QueuePolicies(connection)
    except ServiceError as error:
        if error.code != 403:
            raise
        return None


def described(row: dict[str, Any]) -> dict[str, Any]:
    kinds = [row["type"]] if row["type"] != "classic" else []
    kinds += [name for name in ("durable", "exclusive", "auto-delete") if row[name]]
    return {**row, "oldest": tables.age(row.get("oldest-age-ms")), "features": kinds}


def depth(connection: Connection, queue: str) -> int:
    """How many messages are ready in it."""
    return depths(connection, queue)[0]


def depths(connection: Connection, queue: str) -> tuple[int, int]:
    """How many messages are ready in it, and how many wait for a retry."""
    found: Any = connection.request("queue.info", {"queue": queue}).results
    return int(found["messages-ready"]), int(found.get(DELAYED, 0))


def gone_of(row: dict[str, Any]) -> int:
    """Of a row of queue.list: the messages that the queue has got rid of."""
    held = row["messages-ready"] + row["messages-unacked"] + row.get(DELAYED, 0)
    return int(row["messages-entered"] - held)


def purge(options: argparse.Namespace) -> int:
    settings = running_broker.settings_of(options)
    from flintmq.client import connect

    with connect(settings) as connection, connect(settings, timeout_s=PURGE_TIMEOUT_S) as working:
        waiting = sum(depths(connection, options.queue))
        tables.confirm(options, f"{waiting:,} messages of queue {options.queue!r} will be lost")
        count = watched_purge(connection, working, options.queue, waiting)
    told(options, {"queue": options.queue, "purged": count}, f"{count:,} messages purged")
    return 0


def watched_purge(connection: Connection, working: Connection, queue: str, waiting: int) -> int:
    """Purges on one connection, and looks how far it is on the other."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            with working.channel() as channel:
                outcome.append(channel.purge_queue(queue))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    with tables.Progress("purging", waiting) as progress:
        thread.join(LOOK_EACH_S)
        while thread.is_alive():
            progress.tell(max(0, waiting - sum(depths(connection, queue))))
            thread.join(LOOK_EACH_S)
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return int(outcome[0])


def move(options: argparse.Namespace) -> int:
    with running_broker.connected(options) as connection:
        waiting = depth(connection, options.queue)
        total = waiting if options.limit is None else min(options.limit, waiting)
        moved, stopped = 0, ""
        # Where nothing waits the broker is asked all the same: it says whether there is the target.
        wanted = max(total, 1) if options.limit != 0 else 0
        with tables.Progress("moving", total) as progress:
            while moved < wanted and not stopped:
                arguments = {
                    "queue": options.queue,
                    "to": options.to,
                    "limit": min(MOVED_AT_ONCE, wanted - moved),
                }
                results: Any = connection.request("queue.move", arguments).results
                stopped = results.get("stopped", "")
                moved += results["moved"]
                if not results["moved"]:
                    break  # others have taken the rest, or it was stopped
                progress.tell(moved)
        left = depth(connection, options.queue)
    facts: dict[str, Any] = {"moved": moved, "left": left}
    line = f"{moved:,} messages moved, {left:,} left"
    if stopped:
        facts["stopped"] = stopped
        line += f": {stopped}"
    told(options, facts, line)
    return 1 if stopped else 0


def told(options: argparse.Namespace, facts: dict[str, Any], line: str) -> None:
    """The outcome of a command that changes something."""
    if options.json:
        tables.print_json(facts)
    else:
        print(line)
