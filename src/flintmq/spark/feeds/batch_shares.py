"""How much a batch may take, and how it is cut into tasks. Plain arithmetic, known to nobody else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# A few guesses get near enough: octets per message vary little over a long range.
GUESSES_MAX = 12


@dataclass(frozen=True)
class Span:
    """Numbers start..end-1 of a queue; of a lease those after start, up to and with end."""

    queue: str
    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start


def share_rows(spans: list[Span], rows_max: int) -> list[Span]:
    """Cuts the spans so that together they have at most `rows_max`, in proportion to what waits in each.

    Every queue that has something gets at least a row while there are rows to give, so that a short queue
    beside a long one is not left waiting.
    """
    total = sum(span.rows for span in spans)
    if total <= rows_max:
        return spans
    shares = {
        span.queue: min(span.rows, max(1, span.rows * rows_max // total)) for span in spans if span.rows
    }
    excess = sum(shares.values()) - rows_max
    for queue in sorted(shares, key=lambda name: (-shares[name], name)):
        if excess <= 0:
            break
        given_back = min(excess, shares[queue] - 1)
        shares[queue] -= given_back
        excess -= given_back
    for queue in sorted(shares, reverse=True):  # more queues than rows: the last ones wait for another batch
        if excess <= 0:
            break
        excess -= shares.pop(queue)
    return [Span(span.queue, span.start, span.start + shares.get(span.queue, 0)) for span in spans]


def share_bytes(spans: list[Span], bytes_max: int, bytes_of: Callable[[str, int, int], int]) -> list[Span]:
    """Cuts the spans so that together they have at most `bytes_max` octets, but never to nothing at all."""
    sizes = {span.queue: bytes_of(span.queue, span.start, span.end) if span.rows else 0 for span in spans}
    total = sum(sizes.values())
    if total <= bytes_max:
        return spans
    cut = [
        _fitting(span, sizes[span.queue], bytes_max * sizes[span.queue] // total, bytes_of) for span in spans
    ]
    if any(span.rows for span in cut):
        return cut
    first = next(span for span in spans if span.rows)
    return [Span(span.queue, span.start, span.start + (span is first)) for span in spans]


def _fitting(span: Span, size: int, bytes_max: int, bytes_of: Callable[[str, int, int], int]) -> Span:
    """The longest beginning of the span that has at most `bytes_max` octets, or nearly."""
    if size <= bytes_max or not span.rows:
        return span
    low, high = 0, span.rows  # low fits, high does not
    low_bytes, high_bytes = 0, size
    for _ in range(GUESSES_MAX):
        if high - low <= 1 or low_bytes >= bytes_max * 15 // 16:
            break
        per_row = max(1, high_bytes - low_bytes)
        guess = low + (high - low) * (bytes_max - low_bytes) // per_row
        guess = min(max(guess, low + 1), high - 1)
        found = bytes_of(span.queue, span.start, span.start + guess)
        if found <= bytes_max:
            low, low_bytes = guess, found
        else:
            high, high_bytes = guess, found
    return Span(span.queue, span.start, span.start + low)


def split(spans: list[Span], partitions_min: int | None) -> list[Span]:
    """One task for each span, or more of them, of about the same size, where that many are asked for."""
    spans = [span for span in spans if span.rows]
    if partitions_min is None or len(spans) >= partitions_min or not spans:
        return spans
    total = sum(span.rows for span in spans)
    pieces: list[Span] = []
    for span in spans:
        count = min(span.rows, max(1, round(span.rows * partitions_min / total)))
        cuts = [span.start + span.rows * index // count for index in range(count + 1)]
        pieces += [Span(span.queue, cuts[index], cuts[index + 1]) for index in range(count)]
    return pieces
