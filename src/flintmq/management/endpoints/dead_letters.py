"""Dead letters, back to the queues that they died in.

A message goes back by a publish that the broker confirms, and is acknowledged afterwards: what fails between
the two leaves it in both queues, never in none.
"""

from __future__ import annotations

from typing import Any

from flintmq.client.aio.channel import Channel
from flintmq.client.core.errors import PublishFailed
from flintmq.client.core.message import Message
from flintmq.management.endpoints.messages import number_of
from flintmq.management.requests.routes import Call, endpoint
from flintmq.wire.properties import BasicProperties

# Of one request, which takes a second or two for so many; whoever wants more asks again.
REQUEUED_MAX = 5_000
# Messages that are looked at for it: those that cannot go back are taken out meanwhile, and returned.
LOOKED_AT_MAX = 10_000
TOGETHER = 256
# Bodies that are held at a time: one more message is taken as long as there is less.
HELD_BYTES_MAX = 8_388_608


@endpoint("POST", "/api/flintmq/queues/{vhost}/{name}/requeue", body={"type": "object"})
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
    return {"requeued": requeued, "kept": kept, "more": left > 0 and requeued < wanted}


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


def place_of_death(message: Message, queue: str, user: str) -> str:
    """The queue that a message died in last; nothing for one that did not, or that `user` cannot publish."""
    properties = message.properties
    deaths = (properties.headers or {}).get("x-death")
    if properties.user_id not in (None, user) or not isinstance(deaths, list) or not deaths:
        return ""
    latest = deaths[0]
    place = latest.get("queue") if isinstance(latest, dict) else None
    return place if isinstance(place, str) and place != queue else ""


def without_copies(message: Message) -> BasicProperties:
    """The properties without the headers that would send copies to other queues."""
    properties = message.properties
    headers = {name: value for name, value in (properties.headers or {}).items() if name not in ("CC", "BCC")}
    properties.headers = headers
    return properties
