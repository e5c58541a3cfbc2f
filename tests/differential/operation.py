"""One operation of a client, as plain data: printed, read back, left out and played at will.

    Operation("publish", 0, 1, {"exchange": "x0", "key": "q0", "body": "m3"})     channel 1 of connection 0

Names of queues and exchanges are short here (q0, x1); whoever plays an operation gives them a prefix of the
run, so that no run meets what another has left.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Operation:
    """What is asked, on which channel of which connection."""

    name: str
    connection: int
    channel: int
    arguments: dict[str, Any] = field(default_factory=dict)

    def parts(self) -> list[Operation]:
        """The operation itself, or those that are sent together."""
        if self.name != "together":
            return [self]
        return [
            Operation(name, self.connection, self.channel, arguments)
            for name, arguments in self.arguments["operations"]
        ]

    def as_json(self) -> str:
        return json.dumps([self.name, self.connection, self.channel, self.arguments])

    def __str__(self) -> str:
        what = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"connection {self.connection} channel {self.channel}: {self.name}({what})"


def from_json(line: str) -> Operation:
    name, connection, channel, arguments = json.loads(line)
    return Operation(name, connection, channel, arguments)
