"""The body of a message as JSON, for selectors that name a path in it: body.order.lines.0.price

A step of a path is a member of an object, or the index of an element of an array. What is not there, what is
an object or array itself, and all of a body that is no JSON is NULL.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message

# A larger body is not looked into: as much JSON is parsed in half a millisecond, and takes 4 MB at the worst.
JSON_BYTES_MAX = 65_536
# What integers of 64 bits can hold, signed or not.
WHOLE_MAX = 1 << 64


def parsed(message: Message) -> Any:
    """The value that the body is, None if it is no JSON."""
    if message.traits & traits.SPOOLED or not 0 < message.body_size() <= JSON_BYTES_MAX:
        return None
    try:
        return json.loads(message.content[message.header_size :])
    except (ValueError, RecursionError):  # no JSON, or nested deeper than anybody's
        return None


def value_at(body: Any, path: tuple[str, ...]) -> Any:
    """What a selector sees at a path: str, int, float, bool, or None for NULL."""
    found = body
    for step in path:
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list) and step.isdecimal() and len(step) < 6 and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    if isinstance(found, bool | str):
        return found
    if isinstance(found, int):
        return found if -WHOLE_MAX <= found <= WHOLE_MAX else None
    return found if isinstance(found, float) and found == found else None
