"""What is wrong with a pipeline: findings that name the line, and faults of a run in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flintmq.errors import ConfigFault, FlintError


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that is wrong: the line of the file it stands on, and what to do."""

    line: int
    text: str

    def shown(self, file: str) -> str:
        return f"{file}:{self.line}: {self.text}"


class PipelineWrong(ConfigFault):
    """The file does not describe a pipeline that can run."""

    def __init__(self, file: str, findings: Sequence[Finding]) -> None:
        self.file = file
        self.findings = sorted(findings)
        self.lines = tuple(finding.shown(file) for finding in self.findings)
        super().__init__("\n".join(self.lines))


class PipelineFailed(FlintError):
    """A run cannot begin, or has ended; the text says why and what to do."""


class CheckpointUnfit(PipelineFailed):
    """The pipeline was changed so that its old checkpoint cannot be used."""
