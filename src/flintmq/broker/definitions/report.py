"""What came of an import: what was done, what cannot be done, and what is otherwise than in RabbitMQ."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

# Rows of each list in an answer, at up to 700 octets each; the counts are always of all of them.
ROWS_MAX = 10_000
REASON_CHARS_MAX = 400


class Finding(NamedTuple):
    """Something about one item of the file."""

    section: str
    item: str
    reason: str

    def __str__(self) -> str:
        return f"{self.item}: {self.reason}"


class Report:
    """`refused`: not done, or not to be done; `noted`: done, and to be known."""

    def __init__(self) -> None:
        self.refused: list[Finding] = []
        self.noted: list[Finding] = []
        self.refused_count = 0
        self.noted_count = 0
        self.changed: dict[str, int] = {}
        self.unchanged: dict[str, int] = {}
        self.is_applied = False

    def refuse(self, section: str, item: str, reason: str) -> None:
        self.refused_count += 1
        if len(self.refused) < ROWS_MAX:
            self.refused.append(Finding(section, item, reason[:REASON_CHARS_MAX]))

    def note(self, section: str, item: str, reason: str) -> None:
        self.noted_count += 1
        if len(self.noted) < ROWS_MAX:
            self.noted.append(Finding(section, item, reason[:REASON_CHARS_MAX]))

    def count(self, section: str, is_changed: bool) -> None:
        kept = self.changed if is_changed else self.unchanged
        kept[section] = kept.get(section, 0) + 1

    def as_json(self) -> bytes:
        document: dict[str, Any] = {
            "applied": self.is_applied,
            "changed": self.changed,
            "unchanged": self.unchanged,
            "refused_count": self.refused_count,
            "noted_count": self.noted_count,
            "refused": [rows(each) for each in self.refused],
            "noted": [rows(each) for each in self.noted],
        }
        return json.dumps(document).encode()

    def summary(self) -> str:
        done = ", ".join(f"{count} {section}" for section, count in self.changed.items()) or "nothing"
        same = sum(self.unchanged.values())
        return (
            f"{done} changed, {same} as they were, {self.refused_count} refused, "
            f"{self.noted_count} to be known"
        )


def rows(finding: Finding) -> dict[str, str]:
    return {"section": finding.section, "item": finding.item, "reason": finding.reason}
