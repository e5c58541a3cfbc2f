"""Messages that name further routing keys: the headers CC and BCC, arrays of text.

Such a message goes wherever any of its keys leads, once to each queue. BCC is taken out before anybody
else sees the message; the rest of the header stays octet for octet. As its dead letter goes wherever any of
its keys leads too, those of BCC stay with it, behind its route and out of sight:

    | exchange 1+n | routing key 1+n | octets of all that follows 4 | key 4+n | key 4+n | ...
"""

from __future__ import annotations

from flintmq.broker.messages.message import Message
from flintmq.errors import ChannelFault
from flintmq.wire import amqp, traits
from flintmq.wire.fields import is_text
from flintmq.wire.header_edits import without_entry
from flintmq.wire.headers import read_header

CC = "CC"
BCC = "BCC"
# Each key costs a look-up in the exchange: a thousand of them are the work of a millisecond.
KEYS_MAX = 1000


def check(whole: bytes, header_size: int) -> list[str]:
    """The further routing keys of a content; raises 406 for headers of the wrong type."""
    return keys_in(whole, header_size)


def keys_of(message: Message) -> list[str]:
    """The further routing keys of a message."""
    return keys_in(message.content, message.header_size)


def keys_in(whole: bytes, header_size: int, names: tuple[str, ...] = (CC, BCC)) -> list[str]:
    """The keys in the headers of these names; what other headers say is not looked at."""
    keys: list[str] = []
    for name in names:
        value, is_there = read_header(whole, header_size, name.encode())
        if not is_there:
            continue
        if not isinstance(value, list):
            raise unacceptable(name, type(value).__name__)
        for key in value:
            if isinstance(key, bytes):
                key = key_of_octets(key)
            if isinstance(key, str):  # anything else means nothing, as in RabbitMQ
                keys.append(key)
    if len(keys) > KEYS_MAX:
        raise ChannelFault(
            amqp.PRECONDITION_FAILED,
            f"over {KEYS_MAX} routing keys in CC and BCC",
            60,
            40,
        )
    return keys


def key_of_octets(octets: bytes) -> str | None:
    """A key that is no UTF-8. Octets that are text were no text on the wire, but a byte array."""
    key = octets.decode("utf-8", "surrogateescape")
    return None if is_text(key) else key


def unacceptable(name: str, kind: str) -> ChannelFault:
    return ChannelFault(
        amqp.PRECONDITION_FAILED,
        f"header '{name}' must be an array, and is {kind}",
        60,
        40,
    )


def without_blind(message: Message) -> Message:
    """The message as others may see it."""
    old = message.content[: message.header_size]
    header = without_entry(old, BCC)
    found = message.traits & ~traits.HAS_COPIES
    content = header + message.content[message.header_size :]
    route = message.route
    blind = keys_in(message.content, message.header_size, (BCC,))
    if blind:
        route += blind_octets(blind)
        found |= traits.BLIND
    shown = message.variant(route, content, len(header), found)
    shown.arrived_ms = message.arrived_ms
    shown.lifetime_ms = message.lifetime_ms
    return shown


def blind_octets(keys: list[str]) -> bytes:
    octets = b""
    for key in keys:
        each = key.encode("utf-8", "surrogateescape")
        octets += len(each).to_bytes(4, "big") + each
    return len(octets).to_bytes(4, "big") + octets


def blind_keys_of(message: Message) -> list[str]:
    """The keys of the BCC that was taken out of the message."""
    keys: list[str] = []
    if message.traits & traits.BLIND:
        at = len(message.shown_route()) + 4
        while at < len(message.route):
            start, at = at + 4, at + 4 + int.from_bytes(message.route[at : at + 4], "big")
            keys.append(message.route[start:at].decode("utf-8", "surrogateescape"))
    return keys
