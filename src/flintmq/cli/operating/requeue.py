"""`flintmq requeue`: dead letters go back to the queues that they died in."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from flintmq.cli.operating import running_broker
from flintmq.cli.operating.queues import depth, told
from flintmq.cli.output import tables
from flintmq.client.core.dead_letters import (
    HELD_BYTES_MAX,
    LOOKED_AT_MAX,
    TOGETHER,
    place_of_death,
    without_copies,
)

if TYPE_CHECKING:
    from flintmq.client import Channel, Connection, Message


def add(command: str, parser: argparse.ArgumentParser) -> None:
    running_broker.add_options(parser)
    tables.add_options(parser, is_list=False)
    parser.add_argument("queue", metavar="QUEUE", help="the queue that holds dead letters")
    parser.add_argument("--limit", type=tables.whole, metavar="N", help="so many, from the head (all)")
    parser.set_defaults(run=requeue)


def requeue(options: argparse.Namespace) -> int:
    with running_broker.connected(options) as connection:
        waiting = depth(connection, options.queue)
        wanted = waiting if options.limit is None else min(options.limit, waiting)
        requeued = kept = 0
        is_over = False
        with tables.Progress("requeueing", wanted) as progress:
            while requeued < wanted:
                # Rounds go on where the one before did: what it kept is at the head again, and counts once.
                sent, kept, is_over = one_round(connection, options.queue, wanted - requeued)
                requeued += sent
                progress.tell(requeued)
                if is_over or not sent:
                    break
        left = depth(connection, options.queue)
    line = f"{requeued:,} messages went back, {left:,} left"
    if kept:
        line += f"; {kept:,} cannot go: they did not die in another queue, it is gone, or another user's"
        if not is_over and requeued < wanted and left > kept:
            line += f"; {left - kept:,} behind them were not looked at"
    told(options, {"requeued": requeued, "kept": kept, "left": left}, line)
    return 0


def one_round(connection: Connection, queue: str, most: int) -> tuple[int, int, bool]:
    """On a channel of its own: how many went back, how many cannot, and whether all were looked at."""
    requeued = kept = 0
    with connection.channel(confirm=True) as channel:
        while requeued < most and requeued + kept < LOOKED_AT_MAX:
            taken = take(channel, queue, min(TOGETHER, most - requeued))
            if not taken:
                return requeued, kept, True
            sent = send_back(channel, queue, connection.settings.user, taken)
            requeued += sent
            kept += len(taken) - sent
    return requeued, kept, False


def take(channel: Channel, queue: str, most: int) -> list[Message]:
    taken: list[Message] = []
    held_bytes = 0
    while len(taken) < most and held_bytes < HELD_BYTES_MAX and (message := channel.get(queue)) is not None:
        taken.append(message)
        held_bytes += len(message.body)
    return taken


def send_back(channel: Channel, queue: str, user: str, taken: list[Message]) -> int:
    """Publishes messages to where they died, and lets go of those that arrived; how many."""
    from flintmq.client import PublishFailed

    places = [(message, place_of_death(message, queue, user)) for message in taken]
    going = [(message, place) for message, place in places if place]
    if not going:
        return 0
    failed: set[int] = set()
    try:
        channel.publish_many(
            [message.body for message, _ in going],
            routing_keys=[place for _, place in going],
            properties=[without_copies(message) for message, _ in going],
            mandatory=True,
        )
    except PublishFailed as failure:
        if failure.unknown or failure.unsent:
            raise
        failed = set(failure.rows())
    for row, (message, _) in enumerate(going):
        if row not in failed:
            message.ack()
    return len(going) - len(failed)
