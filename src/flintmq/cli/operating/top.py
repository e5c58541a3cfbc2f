"""`flintmq top`: queues by what moves in them, rates and alarms, drawn again each second."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flintmq import amounts
from flintmq.cli.operating import running_broker
from flintmq.cli.operating.queues import DELAYED, gone_of
from flintmq.cli.output import tables
from flintmq.clock import Clock

if TYPE_CHECKING:
    from flintmq.client import Connection

Row = dict[str, Any]

SORTS = ("in_rate", "out_rate", "messages_ready", "messages_unacked", "messages_delayed", "name")
# fmt: off
COLUMNS = (
    "name", "messages_ready", "messages_unacked", "messages_delayed", "consumers", "in/s", "out/s", "oldest",
)
# fmt: on
# Lines of a screen above the queues, and below them.
FRAME_LINES = 8
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
OTHER_SCREEN, OWN_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


def add(command: str, parser: argparse.ArgumentParser) -> None:
    running_broker.add_options(parser)
    parser.add_argument(
        "--interval", type=tables.amount, default=1.0, metavar="S", help="seconds between looks (1)"
    )
    parser.add_argument("--count", type=tables.whole, metavar="N", help="so many looks, then the end")
    parser.add_argument("--sort", choices=SORTS, default="in_rate")
    parser.set_defaults(run=top)


class View:
    """What was seen last, to tell rates."""

    def __init__(self) -> None:
        self.queues: dict[str, Row] = {}
        self.seen_s = 0.0

    def look(self, connection: Connection, now_s: float) -> tuple[Row, list[Row]]:
        """The broker and its queues, with rates since the last look."""
        info = connection.request("broker.info").results
        rows = list(running_broker.rows_of(connection, "queue.list"))
        span_s = now_s - self.seen_s
        found = [rated(row, self.queues.get(row["name"]), span_s) for row in rows]
        self.queues = {row["name"]: row for row in rows}
        self.seen_s = now_s
        return info, found


def rated(row: Row, before: Row | None, span_s: float) -> Row:
    """A queue with its rates, which are None at the first look."""
    came = went = None
    if before is not None and span_s > 0:
        came = max(0, row["messages-entered"] - before["messages-entered"]) / span_s
        went = max(0, gone_of(row) - gone_of(before)) / span_s
    return {
        "name": row["name"],
        "messages_ready": row["messages-ready"],
        "messages_unacked": row["messages-unacked"],
        "messages_delayed": row.get(DELAYED, 0),
        "consumers": row["consumers"],
        "in_rate": came,
        "out_rate": went,
        "in/s": came,
        "out/s": went,
        "oldest": tables.age(row.get("oldest-age-ms")),
    }


def total(rows: list[Row], rate: str) -> str:
    """The sum of a rate over the queues whose rates are known."""
    known = [row[rate] for row in rows if row[rate] is not None]
    return f"{sum(known):,.0f}" if known or not rows else amounts.NOTHING


def screen(info: Row, rows: list[Row], sort: str, width: int, height: int) -> Iterator[str]:
    """The lines of one picture; none is wider than the terminal."""
    if sort == "name":
        rows = sorted(rows, key=lambda row: row["name"])
    else:  # of those alike, such as queues in which nothing moves, the longest come first
        rows = tables.in_order(tables.in_order(rows, "messages_ready"), sort)
    alarms = "; ".join(f"{each['resource']}: {each['reason']}" for each in info.get("alarms", ())) or "none"
    host = tables.printable(str(info["virtual-host"]))
    yield f"FlintMQ {info['version']}  up {tables.age(info['uptime-ms'])}  virtual host {host}"
    yield "  ".join(
        (
            f"connections {info['connections']:,}",
            f"channels {info['channels']:,}",
            f"consumers {info['consumers']:,}",
            f"queues {len(rows):,}",
            f"blocked {info.get('connections-blocked', 0):,}",
        )
    )
    disk = f"  disk free {tables.size(info['disk-bytes-free'])}" if "disk-bytes-free" in info else ""
    memory = f"memory {tables.size(info['memory-bytes'])} of {tables.size(info['memory-bytes-high'])}"
    yield f"{memory}{disk}"
    yield (
        f"ready {sum(row['messages_ready'] for row in rows):,}  "
        f"unacked {sum(row['messages_unacked'] for row in rows):,}  "
        f"delayed {sum(row['messages_delayed'] for row in rows):,}  "
        f"in {total(rows, 'in_rate')}/s  out {total(rows, 'out_rate')}/s"
    )
    yield f"alarms: {tables.printable(alarms)}"
    yield ""
    shown = rows[: max(1, height - FRAME_LINES)]
    is_delayed = any(row["messages_delayed"] for row in rows)
    columns = [name for name in COLUMNS if name != "messages_delayed" or is_delayed]
    yield from tables.lines_of(shown, columns, width)
    if len(rows) > len(shown):
        yield f"and {len(rows) - len(shown):,} more"


def top(options: argparse.Namespace) -> int:
    clock, view = Clock(), View()
    is_drawn = sys.stdout.isatty()
    looks = 0
    with running_broker.connected(options) as connection:
        try:
            if is_drawn:
                sys.stdout.write(OTHER_SCREEN)
            while True:
                info, rows = view.look(connection, clock.monotonic_s())
                draw(info, rows, options.sort, is_drawn)
                looks += 1
                if looks == options.count:
                    return 0
                clock.sleep(options.interval)
        except KeyboardInterrupt:
            return 0  # the way to end it
        finally:
            if is_drawn:
                sys.stdout.write(OWN_SCREEN)
                sys.stdout.flush()


def draw(info: Row, rows: list[Row], sort: str, is_drawn: bool) -> None:
    width, height = os.get_terminal_size() if is_drawn else (120, 40)
    lines = list(screen(info, rows, sort, width, height))
    if is_drawn:
        picture = f"{CLEAR_LINE}\n".join(line[:width] for line in lines[:height])
        sys.stdout.write(f"{HOME}{picture}{CLEAR_LINE}{CLEAR_BELOW}")
    else:
        sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.flush()
