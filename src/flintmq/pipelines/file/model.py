"""A pipeline that was checked: sources, transforms, sinks, and the flows they make.

source ticks --+                       a flow is one sink with all that leads to it:
               +-- transform bars -- sink bars        one streaming query, one checkpoint
source halts --+
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Rule:
    """Rows for which `when` holds go to this exchange."""

    when: str
    exchange: str
    routing_key: str


@dataclass(frozen=True)
class Source:
    name: str
    kind: str
    target: Any
    given: dict[str, Any]
    line: int

    @property
    def format(self) -> str:
        return str(self.given.get("format", "raw"))

    @property
    def is_shared_by_flows(self) -> bool:
        """Whether each flow that reads it gets every row."""
        return self.kind in ("stream", "exchange", "lake", "rate")


@dataclass(frozen=True)
class Transform:
    name: str
    kind: str
    given: dict[str, Any]
    inputs: tuple[str, ...]
    is_stateful: bool
    line: int
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class Sink:
    name: str
    kind: str
    target: Any
    input: str
    given: dict[str, Any]
    line: int

    @property
    def directory(self) -> str | None:
        """Where one flow alone may write: Spark takes a batch of another, of the same number, for written."""
        return os.path.normpath(self.target) if self.kind == "parquet" else None


@dataclass(frozen=True)
class Flow:
    """A sink and everything upstream of it, in the order of the file."""

    sink: Sink
    sources: tuple[Source, ...]
    transforms: tuple[Transform, ...]

    @property
    def name(self) -> str:
        return self.sink.name


@dataclass(frozen=True)
class Pipeline:
    name: str
    description: str
    file: str
    directory: Path | None
    checkpoint: str | None
    trigger: str
    restarts_max: int | None
    spark: dict[str, str]
    sources: tuple[Source, ...]
    transforms: tuple[Transform, ...]
    sinks: tuple[Sink, ...]
    parameters: dict[str, Any] = field(default_factory=dict)

    def flows(self) -> list[Flow]:
        return [self._flow(sink) for sink in self.sinks]

    def _flow(self, sink: Sink) -> Flow:
        wanted = {sink.input}
        for transform in reversed(self.transforms):
            if transform.name in wanted:
                wanted.update(transform.inputs)
        return Flow(
            sink,
            tuple(source for source in self.sources if source.name in wanted),
            tuple(transform for transform in self.transforms if transform.name in wanted),
        )
