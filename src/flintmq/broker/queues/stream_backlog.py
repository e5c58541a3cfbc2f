"""What a queue holds of the stream class while its consumer is behind, and which of it goes first.

    priority 0   positions  17 18 21 24 ...     the oldest of the lowest priority is dropped first
    priority 9   positions  19 20 22 23 ...

A message that has left by another way stays here until it is looked for, and is passed over then. It has
nothing to do with queues of the type stream (broker/streams/).
"""

from __future__ import annotations

from collections import deque

# What a queue without limits of its own keeps: some seconds of a stream, and not what memory is for.
MESSAGES_MAX = 4096
BYTES_MAX = 8_388_608


class StreamBacklog:
    """The stream messages of one queue."""

    __slots__ = ("bytes_max", "count", "length_max", "octets", "positions")

    def __init__(self) -> None:
        self.count = 0
        self.octets = 0
        self.length_max = MESSAGES_MAX
        self.bytes_max = BYTES_MAX
        self.positions: dict[int, deque[int]] = {}

    def limit(self, length_max: int, bytes_max: int) -> None:
        """As much as the queue may have of anything; -1 where it has no such limit."""
        self.length_max = MESSAGES_MAX if length_max < 0 else length_max
        self.bytes_max = BYTES_MAX if bytes_max < 0 else bytes_max

    def change(self, count: int, size: int) -> None:
        """So many more messages are ready, with so many octets of bodies, or fewer."""
        self.count += count
        self.octets += size

    def is_exceeded(self, coming: int) -> bool:
        """Whether it is too much, with one more message if so many octets are coming; -1 for none."""
        count, octets = self.count, self.octets
        if coming >= 0:
            count, octets = count + 1, octets + coming
        return count > self.length_max or octets > self.bytes_max

    def is_crowded(self, priority: int) -> bool:
        """Whether most positions of this priority are of messages that have left by another way."""
        positions = self.positions.get(priority)
        return positions is not None and len(positions) > 2 * self.count + MESSAGES_MAX

    def noted(self, priority: int) -> list[int]:
        return list(self.positions[priority])

    def keep(self, priority: int, positions: list[int]) -> None:
        """No others of this priority have messages."""
        self.positions[priority] = deque(positions)

    def note(self, priority: int, position: int, first: int) -> None:
        """A message is ready at this position; the queue has nothing new before `first`."""
        positions = self.positions.get(priority)
        if positions is None:
            positions = self.positions[priority] = deque()
        while positions and positions[0] < first:
            positions.popleft()
        positions.append(position)

    def lowest(self) -> int:
        """The lowest priority that there may be messages of; -1 if there are none."""
        return min(self.positions) if self.positions else -1

    def oldest(self, priority: int) -> int:
        """The first position of this priority, which is forgotten here."""
        positions = self.positions[priority]
        position = positions.popleft() if positions else -1
        if not positions:
            del self.positions[priority]
        return position

    def put_first(self, priority: int, position: int) -> None:
        """What was the oldest is so still."""
        self.positions.setdefault(priority, deque()).appendleft(position)

    def clear(self) -> None:
        self.count = 0
        self.octets = 0
        self.positions.clear()
