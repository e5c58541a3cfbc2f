"""Dead letters, back to the queues that they died in; client/core/dead_letters.py knows these."""

from __future__ import annotations

from typing import Any

from flintmq.client.aio.channel import Channel
from flintmq.client.core.dead_letters import (
    HELD_BYTES_MAX,
    LOOKED_AT_MAX,
    TOGETHER,
    place_of_death,
    without_copies,
)
from flintmq.client.core.errors import PublishFailed
from flintmq.client.core.message import Message
from flintmq.management.endpoints.messages import number_of
from flintmq.management.requests.routes import Call, endpoint

# Of one request, which takes a second or two for so many; whoever wants more asks again.
REQUEUED_MAX = 5_000


@endpoint("POST", "/api/flintmq/queues/{vhost}/{name}/requeue", body={"type": "object"}, of_messages=True)
async def requeue(call: Call) -> dict[str, Any]:
    """Sends dead letters back to the queues that they died in: all, or `limit` of them; the rest stays."""
    body = await call.json()
    wanted = number_of(body, "limit", 1, 2**31) if "limit" in body else REQUEUED_MAX
    most = min(wanted, REQUEUED_MAX)
    requeued = kept = 0
    async with (
        call.connection(publishes=True) as connection,
        connection.channel(confirm=True) as channel,
    ):
        # What is not acknowledged goes back to its place when the channel is closed.
        left = (await channel.queue(call["name"], passive=True)).message_count
        while left > 0 and requeued < most and requeued + kept < LOOKED_AT_MAX:
            taken = await take(channel, call["name"], min(TOGETHER, left, most - requeued))
            if not taken:
                break
            left -= len(taken)
            sent = await send_back(channel, call["name"], call.identity.user, taken)
            requeued += sent
            kept += len(taken) - sent
    return {"requeued": requeued, "kept": kept, "more": left > 0}


async def take(channel: Channel, queue: str, most: int) -> list[Message]:
    taken: list[Message] = []
    held_bytes = 0
    while (
        len(taken) < most
        and held_bytes < HELD_BYTES_MAX
        and (message := await channel.get(queue)) is not None
    ):
        taken.append(message)
        held_bytes += len(message.body)
    return taken


async def send_back(channel: Channel, queue: str, user: str, taken: list[Message]) -> int:
    """Publishes messages to where they died, and lets go of those that arrived; how many."""
    places = [(message, place_of_death(message, queue, user)) for message in taken]
    going = [(message, place) for message, place in places if place]
    if not going:
        return 0
    failed: set[int] = set()
    try:
        await channel.publish_many(
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
