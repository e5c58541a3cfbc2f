"""Messages as tests see them: what was published, and what waits in a queue."""

from __future__ import annotations

import base64
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flintmq.wire.properties import BasicProperties

# In front of the properties: class, weight and the size of the body.
HEAD_OCTETS = 12


class SeenMessage:
    """One message, whose properties are decoded when somebody looks at them."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.exchange: str = told["exchange"]
        self.routing_key: str = told["routing_key"]
        # Of one that was published: "routed", "unroutable", "nacked", "in a transaction".
        self.outcome: str = told.get("outcome", "")
        # Of one that waits: whether it was delivered before.
        self.redelivered: bool = told.get("redelivered", False)
        self.content = base64.b64decode(told["content"])
        self.header_size: int = told["header_size"]

    @property
    def body(self) -> bytes:
        """Of a message that went to a file as it came, `published` has no body: see `peek`."""
        return self.content[self.header_size :]

    @cached_property
    def properties(self) -> BasicProperties:
        """`properties.headers`, `properties.delivery_mode` and others: None where there is none."""
        from flintmq.wire.properties import decode_basic_properties

        return decode_basic_properties(self.content, HEAD_OCTETS, self.header_size)

    def __repr__(self) -> str:
        outcome = f", {self.outcome}" if self.outcome else ""
        return f"<{self.body[:80]!r} to {self.exchange!r} with {self.routing_key!r}{outcome}>"
