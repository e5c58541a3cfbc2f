"""What a sink tells of its batches: in the log, and in a file where one is asked for.

Spark's progress has no place for the figures of a Python sink. The driver runs the sink's commit in a process
of its own, so the option `figuresFile` names a file on the driver's machine, written after each batch:

    {"batches": 12, "rows": 4711, "unrouted": 3, "refused": 0}

The rows are safe when this is told: nothing here fails a batch.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from flintmq.client import Channel, Connection
from flintmq.client.core.errors import ClientError
from flintmq.spark.options import WriteOptions

log = logging.getLogger("flintmq.spark")

PRODUCT = "FlintMQ"
# An answer that takes longer is not worth the wait: the broker may have no room and block this connection.
ANSWER_S = 10.0
# Queries of this process whose unrouted rows were told as a warning; further batches are told as information.
_warned: set[str] = set()
WARNED_MAX = 1000


@dataclass
class Figures:
    """Since the file was made. Rows: all, those that went to no queue, those that a full one did not take."""

    batches: int = 0
    rows: int = 0
    unrouted: int = 0
    refused: int = 0


def read(path: Path) -> Figures:
    """What the file says; nothing if there is none, or it is no such file."""
    try:
        found = json.loads(path.read_text("utf-8"))
        known = {name: found[name] for name in Figures.__dataclass_fields__ if isinstance(found[name], int)}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.debug("%s: %r", path, error)
        return Figures()
    return Figures(**known)


def note(options: WriteOptions, query: str, rows: int, unrouted: int, refused: int = 0) -> None:
    """A batch of the query, or a batch write, is safe."""
    if unrouted or refused:
        said = " and ".join(
            f"{count} {what}"
            for count, what in (
                (unrouted, "went to no queue"),
                (refused, "were not taken by a queue that is full"),
            )
            if count
        )
        is_counted = options.figures_file is not None  # whoever reads the file tells it
        level = logging.INFO if is_counted or query in _warned else logging.WARNING
        log.log(level, "of %d rows %s; %s", rows, said, advice(options))
        if len(_warned) < WARNED_MAX:
            _warned.add(query)
    if options.figures_file is not None:
        add(Path(options.figures_file), Figures(1, rows, unrouted, refused))


def advice(options: WriteOptions) -> str:
    if options.transactional and options.queue is None:
        return "bind a queue for their exchange and routing keys"
    return "bind a queue, or set mandatory to true to have such a write fail"


def add(path: Path, more: Figures) -> None:
    known = read(path)
    made = {name: count + getattr(known, name) for name, count in asdict(more).items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + ".new")
        fresh.write_text(json.dumps(made) + "\n", "utf-8")
        fresh.replace(path)
    except (OSError, ValueError) as error:  # the latter: no name of a file at all
        log.warning("%s: the figures of the sink are not written: %s", path, error)


def unrouted_by(connection: Connection, channel: Channel) -> int:
    """How many messages of this channel went to no queue; 0 where the broker does not tell."""
    if connection.server_properties.get("product") != PRODUCT:
        return 0
    try:
        told = connection.request(
            "channel.info", {"channel": channel.core.number}, timeout_s=ANSWER_S
        ).results
    except ClientError as error:
        log.debug("the broker does not tell how many rows went to no queue: %s", error)
        return 0
    count = told.get("unrouted")
    return count if isinstance(count, int) else 0


def total(counts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Sums of rows, and of unrouted ones."""
    rows = unrouted = 0
    for each, lost in counts:
        rows, unrouted = rows + each, unrouted + lost
    return rows, unrouted
