"""How far a query has come, as it lies in Spark's checkpoint.

    {"initial": "latest"}                                            before the first batch
    {"queues": {"ticks": {"0": 120}}, "start": {"ticks": {"0": 100}}}    the end of the first one
    {"queues": {"ticks": {"0": 150}}, "ids": {"ticks": "5f0c..."}}       the end of any later one

Spark asks for the initial offset again when it replays the first batch in a new process. Were that resolved
at once, `latest` would have moved on meanwhile, and what came between be lost. So it stays a word, and the
end of a batch carries where it began wherever that is not where the one before it ended: all queues in the
first batch, later those that a pattern has newly found, those that retention has taken something of, and
those that were made again. `ids` are the creation ids that the broker has for the queues: numbers belong to
one life of a queue. A checkpoint of an older version has none: those of the moment are taken for its own.

For a stream the number is the offset that is read next. For a leased queue it is the last number of the
lease, so that the next batch follows it; `consumer` is then the name that the leases were taken under.
"""

from __future__ import annotations

import json
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
    ids: dict[str, str] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        if self.initial is not None:
            return {"initial": self.initial}
        made: dict[str, Any] = {"queues": _nested(self.queues)}
        if self.start:
            made["start"] = _nested(self.start)
        if self.consumer is not None:
            made["consumer"] = self.consumer
        if self.ids:
            made["ids"] = dict(sorted(self.ids.items()))
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
                ids={str(queue): str(each) for queue, each in given.get("ids", {}).items()},
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

    def follow(
        self, ends: Mapping[str, int], starts: Mapping[str, int], consumer: str | None, ids: Mapping[str, str]
    ) -> Progress:
        """The end of a batch that begins here; `starts` are those resolved just now."""
        queues = {**self.queues, **ends}
        return Progress(queues=queues, start=dict(starts), consumer=consumer, ids={**self.ids, **ids})


def _nested(numbers: Mapping[str, int]) -> dict[str, dict[str, int]]:
    return {queue: {_PARTITION: number} for queue, number in sorted(numbers.items())}


def _flat(nested: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return {queue: int(numbers[_PARTITION]) for queue, numbers in nested.items()}


@dataclass
class Report:
    """How far the queues go, and what the driver has done: the `latestOffset` of a query's progress."""

    queues: dict[str, int]
    metrics: dict[str, int]

    def json(self) -> dict[str, Any]:
        return {"queues": _nested(self.queues), "metrics": dict(self.metrics)}


def lag(source_progress: Mapping[str, Any]) -> dict[str, int]:
    """Messages that each queue is behind, from one of `query.lastProgress["sources"]`."""

    def read(name: str) -> dict[str, int]:
        found = _offset_in(source_progress, name)
        return _flat(found["queues"]) if "queues" in found else {}

    end, latest = read("endOffset"), read("latestOffset")
    return {queue: max(0, latest[queue] - end.get(queue, 0)) for queue in latest if queue in end}


def metrics(source_progress: Mapping[str, Any]) -> dict[str, int]:
    """What the reader counts, from one of `query.lastProgress["sources"]`; docs/spark.md has the names."""
    found = _offset_in(source_progress, "latestOffset").get("metrics", {})
    behind = lag(source_progress)
    return {**{name: int(value) for name, value in found.items()}, "lag": sum(behind.values())}


def _offset_in(source_progress: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    given = source_progress.get(name)
    found = json.loads(given) if isinstance(given, str) else given
    return found if isinstance(found, Mapping) else {}
