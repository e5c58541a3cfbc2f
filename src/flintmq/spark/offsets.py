"""How far a query has come, as it lies in Spark's checkpoint.

    {"initial": "latest"}                                            before the first batch
    {"queues": {"ticks": {"0": 120}}, "start": {"ticks": {"0": 100}}}    the end of the first one
    {"queues": {"ticks": {"0": 150}}}                                    the end of any later one

Spark asks for the initial offset again when it replays the first batch in a new process. Were that resolved
at once, `latest` would have moved on meanwhile, and what came between be lost. So it stays a word, and the
end of a batch carries where it began wherever that is not where the one before it ended: all queues in the
first batch, later those that a pattern has newly found, and those that retention has taken something of.

For a stream the number is the offset that is read next. For a leased queue it is the last number of the
lease, so that the next batch follows it; `consumer` is then the name that the leases were taken under.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flintmq.spark.errors import AmqpError

_PARTITION = "0"


@dataclass
class Progress:
    """An offset of the query: where each queue has been read to."""

    queues: dict[str, int] = field(default_factory=dict)
    start: dict[str, int] = field(default_factory=dict)
    consumer: str | None = None
    initial: str | None = None

    def json(self) -> dict[str, Any]:
        if self.initial is not None:
            return {"initial": self.initial}
        made: dict[str, Any] = {"queues": _nested(self.queues)}
        if self.start:
            made["start"] = _nested(self.start)
        if self.consumer is not None:
            made["consumer"] = self.consumer
        return made

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Progress:
        try:
            if "initial" in given:
                return cls(initial=str(given["initial"]))
            return cls(
                queues=_flat(given["queues"]),
                start=_flat(given.get("start", {})),
                consumer=given.get("consumer"),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise AmqpError(
                f"The checkpoint holds an offset that the amqp format did not write: {given!r}; "
                "use a checkpoint directory of its own for each query."
            ) from None

    def begin_of(self, queue: str, end: Progress) -> int:
        """Where the batch from here to `end` begins in this queue: what the end says comes first."""
        if queue in end.start:
            return end.start[queue]
        return self.queues.get(queue, end.queues[queue])

    def follow(self, ends: Mapping[str, int], starts: Mapping[str, int], consumer: str | None) -> Progress:
        """The end of a batch that begins here; `starts` are those resolved just now."""
        queues = {**self.queues, **ends}
        return Progress(queues=queues, start=dict(starts), consumer=consumer)


def _nested(numbers: Mapping[str, int]) -> dict[str, dict[str, int]]:
    return {queue: {_PARTITION: number} for queue, number in sorted(numbers.items())}


def _flat(nested: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return {queue: int(numbers[_PARTITION]) for queue, numbers in nested.items()}


def lag(source_progress: Mapping[str, Any]) -> dict[str, int]:
    """Messages that each queue is behind, from one of `query.lastProgress["sources"]`."""
    import json

    def read(name: str) -> dict[str, int]:
        given = source_progress.get(name)
        found = json.loads(given) if isinstance(given, str) else given
        return {} if not found or "queues" not in found else _flat(found["queues"])

    end, latest = read("endOffset"), read("latestOffset")
    return {queue: max(0, latest[queue] - end.get(queue, 0)) for queue in latest if queue in end}
