"""Spans of OpenTelemetry for turns of the event loop that take long, where the settings ask for them.

The program that runs the broker sets up the SDK, as `opentelemetry-instrument flintmq serve` does; without an
SDK the spans go nowhere. A broker that is not asked for spans loads nothing of OpenTelemetry.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from flintmq.errors import ConfigFault

if TYPE_CHECKING:
    from flintmq.clock import Clock
    from flintmq.server.event_loop.pass_scheduler import PassScheduler

log = logging.getLogger("flintmq.server")

# Spans in a second: a broker that is always late must not be made later by telling so.
SPANS_MAX = 10


class TurnSpans:
    """Told by the scheduler of each turn that took too long."""

    def __init__(self, scheduler: PassScheduler, least_ms: int, clock: Clock, provider: Any = None) -> None:
        try:
            trace = importlib.import_module("opentelemetry.trace")
        except ImportError:
            raise ConfigFault(
                "log.turn_span_ms needs OpenTelemetry: pip install 'flintmq[otel]', or leave it out"
            ) from None
        self.tracer = trace.get_tracer("flintmq.broker", tracer_provider=provider)
        self.scheduler = scheduler
        self.clock = clock
        self.second = 0
        self.spans = 0  # in this second
        self.untold = 0  # since the last span
        scheduler.slow_us = 1000 * least_ms
        scheduler.slow_turn = self.note

    def note(self, took_us: int) -> None:
        """Never fails: the turn is over, and the next one is due."""
        try:
            self.tell(took_us)
        except Exception:
            log.exception("a bug, or the SDK of OpenTelemetry, keeps the span of a turn from being told")
            self.scheduler.slow_turn = None

    def tell(self, took_us: int) -> None:
        second = int(self.clock.monotonic_s())
        if second != self.second:
            self.second, self.spans = second, 0
        if self.spans >= SPANS_MAX:
            self.untold += 1
            return
        self.spans += 1
        end_ns = self.clock.wall_ms() * 1_000_000
        work = self.scheduler.pass_work
        attributes = {
            "flintmq.passes": work.passes,
            "flintmq.queues_waiting": len(work.queues),
            "flintmq.untold": self.untold,
        }
        self.untold = 0
        span = self.tracer.start_span("turn", start_time=end_ns - 1000 * took_us, attributes=attributes)
        span.end(end_ns)
