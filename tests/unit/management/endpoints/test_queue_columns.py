"""Queues are sorted by what they show, though none is shaped for that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings, strategies

from flintmq.management.broker_state.queue_policies import PolicyRow
from flintmq.management.broker_state.shapes import inner
from flintmq.management.endpoints.queues_and_connections import QueueShapes
from flintmq.management.requests.context import Context, Listening
from flintmq.management.requests.identities import NOBODY
from flintmq.management.requests.listing import ListResponse
from flintmq.management.requests.routes import Call
from flintmq.snapshot_rows import QueueRow
from flintmq.wire.tables import encode_table

FLAG = strategies.booleans()
COUNT = strategies.integers(0, 4)
ARGUMENTS = strategies.fixed_dictionaries(
    {},
    optional={
        "x-max-length": strategies.none() | COUNT | strategies.sampled_from(["x", b"\xff", [1], {"a": 1}]),
        "x-queue-type": strategies.sampled_from(["classic", "quorum"]),
        "deep": strategies.dictionaries(strategies.sampled_from("ab"), COUNT),
    },
)
COUNTS = QueueRow._fields.index("oldest_ms") - QueueRow._fields.index("consumers") - 1
ROW = strategies.tuples(
    *(FLAG, FLAG, FLAG, FLAG),
    ARGUMENTS.map(lambda table: encode_table(table) if table else b""),
    *(COUNT, COUNT),
    *([COUNT] * COUNTS),
    *(FLAG, COUNT),
)
# Of these columns it is not the shown value that counts: a queue without message_stats has counts of 0.
COUNTED = ("message_stats.", "messages")
# Tables are sorted by one of the values in them.
TABLES = ("message_stats", "owner_pid_details", "backing_queue_status", "readers", "members", "online")


def context_of(rows: list[tuple[Any, ...]]) -> Context:
    """Every other queue has been there before, and was empty."""
    link: Any = None
    context = Context(link, Listening([], []))
    snapshot = context.snapshots.queues("/")
    now = [QueueRow(f"q{at:02}", *row) for at, row in enumerate(rows)]
    before = [row._replace(**dict.fromkeys(QueueRow._fields[8:-2], 0)) for row in now[::2]]
    snapshot.rows = {row.name: row for row in now}
    # Two seconds: rates are exact.
    snapshot.taken_s = context.clock.monotonic_s() + 1000
    snapshot.older = (snapshot.taken_s - 2, {row.name: row for row in before})
    snapshot.change_shown = snapshot.change
    for is_operator, pattern in ((False, "[1-4]$"), (True, "[3-6]$")):
        row = {"name": f"p{pattern}", "pattern": pattern, "apply-to": "queues", "priority": 0}
        policy = PolicyRow({**row, "definition": {"max-length": int(is_operator), pattern[1]: {"a": 1}}})
        context._policies["/", is_operator] = (0, 1e12, [policy])
    return context


def columns_in(shown: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in shown.items():
        if f"{prefix}{name}" not in TABLES and not name.endswith("_details") and "@" not in name:
            yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from columns_in(value, f"{prefix}{name}.")


def plain_order(row: dict[str, Any], column: str) -> tuple[int, Any]:
    value = inner(row, column.split("."))
    if value is None:
        return (1, 0) if column.startswith(COUNTED) else (0, 0)
    if isinstance(value, str):
        return 2, value
    return (3, str(value)) if isinstance(value, dict | list) else (1, value)


@settings(max_examples=25)
@given(strategies.lists(ROW, min_size=1, max_size=9))
def test_each_column_is_sorted_as_it_is_shown(rows: list[tuple[Any, ...]]) -> None:
    async def use() -> None:
        context = context_of(rows)

        async def told(query: dict[str, str]) -> list[dict[str, Any]]:
            request: Any = type("Request", (), {"query_params": query})
            call = Call(context, request, NOBODY, {})
            found = await ListResponse(call, [await QueueShapes(context, "/").listing()]).made()
            shown: list[dict[str, Any]] = json.loads(found.body)
            return shown

        await told({})  # from now on it is known since when they are idle
        shown = await told({})
        columns = {column for row in shown for column in columns_in(row)}
        assert {"garbage_collection", "effective_policy_definition", "messages_details.rate"} <= columns
        for column in (*columns, "nobody", "nobody.has", "messages.deeper", "arguments.none.deeper"):
            for reverse in (False, True):
                expected = sorted(shown, key=lambda row: plain_order(row, column), reverse=reverse)
                found = await told({"sort": column, "sort_reverse": str(reverse).lower()})
                assert [row["name"] for row in found] == [row["name"] for row in expected], column

    asyncio.run(use())
