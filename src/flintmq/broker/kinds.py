"""The exchange types that can be declared, by name."""

from __future__ import annotations

from flintmq.broker.exchange import STANDARD_KINDS, Exchange

KINDS: dict[str, type[Exchange]] = {**STANDARD_KINDS}
