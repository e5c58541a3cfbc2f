"""Where a dead letter came from, and what of it goes back there.

A message goes back by a publish that the broker confirms, and is acknowledged afterwards: what fails between
the two leaves it in both queues, never in none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.client.core.message import Message
    from flintmq.wire.properties import BasicProperties

# Messages that are looked at on one channel: those that cannot go back are taken out meanwhile, and return
# to their places when the channel is closed.
LOOKED_AT_MAX = 10_000
TOGETHER = 256
# Bodies that are held at a time: one more message is taken as long as there is less.
HELD_BYTES_MAX = 8_388_608


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
