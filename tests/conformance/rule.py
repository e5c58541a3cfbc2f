"""Ties a test to the rules of the standard that it proves.

    @rule("0-9,0-9-1/queue.declare/default-binding")

A test that takes `peer` or `version` runs once for each version its rules name, see `versions_of`.
An id that spec/rules.txt does not know fails the import of the test, and so the collection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from generate_conformance import EXTENSIONS, expand, read_rules

F = TypeVar("F", bound=Callable[..., Any])

KNOWN = {found.id for found in read_rules()}


def rule(*patterns: str) -> Callable[[F], F]:
    """Marks a test with rules; a pattern may name several versions, with commas between them."""
    ids = [identifier for pattern in patterns for identifier in expand(pattern)]
    unknown = sorted(set(ids) - KNOWN)
    if unknown:
        raise LookupError(f"spec/rules.txt has no rule {', '.join(unknown)}")

    def mark(test: F) -> F:
        test.rules = ids  # type: ignore[attr-defined]
        return test

    return mark


def versions_of(ids: list[str]) -> list[str]:
    """The versions that a test of these rules speaks.

    The extensions are spoken with 0-9-1. The rules of 0-8 have no names to refer to; the same code serves
    it, so what is tested in 0-9 is tested in 0-8 as well, but for the message class, which 0-8 has not.
    """
    named = {identifier.split("/")[0] for identifier in ids}
    spoken = {"0-9-1" if version == EXTENSIONS else version for version in named}
    is_of_messages = any(identifier.startswith("0-9/message") for identifier in ids)
    return sorted(spoken | ({"0-8"} if "0-9" in spoken and not is_of_messages else set()))
