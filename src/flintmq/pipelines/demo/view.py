"""How the demo looks: tables in a terminal, or a plain line per second where there is none."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flintmq.pipelines.demo.demo import Snapshot

_MEBIBYTE = 1 << 20


class PlainView:
    """A line for each moment: for logs, pipes and tests."""

    def tell(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def show(self, shown: Snapshot) -> None:
        parts = [f"{shown.seconds:5.0f} s", f"ticks {shown.sent_per_s:7.0f}/s"]
        for pipeline in shown.pipelines:
            for flow in pipeline.flows.values():
                lag_s = "" if flow.lag_s is None else f" {flow.lag_s:.1f} s"
                parts.append(
                    f"{pipeline.name} {flow.rows_per_s:7.0f}/s lag {flow.lag_rows or 0}{lag_s} "
                    f"batch {flow.batch_ms} ms"
                )
        parts.append(f"gaps {shown.gaps_found} of {shown.gaps_made}")
        parts.append(f"bars {len(shown.bars)}")
        memory = " ".join(f"{name} {size // _MEBIBYTE}" for name, size in shown.memory_bytes.items())
        parts.append(f"MiB {memory}")
        self.tell(" | ".join(parts))

    def __enter__(self) -> PlainView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was taken over that must be given back."""


class TerminalView:
    """Tables that are drawn anew each second, as large as the terminal is: 24 lines of 80 are enough.

    rates    a title, a heading, the feed, a line for each flow, memory
    bars     a title, a heading, a line for each symbol
    gaps     a title, a heading, and as many lines as are left, the newest first
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console: Any = Console(highlight=False, markup=False)  # errors have brackets in them
        self._live: Any = Live(console=self._console, auto_refresh=False, screen=False)

    def tell(self, line: str) -> None:
        from rich.text import Text

        self._console.print(Text(line, style="dim"))

    def show(self, shown: Snapshot) -> None:
        self._live.update(self._lines(shown), refresh=True)

    def _lines(self, shown: Snapshot) -> Any:
        from rich.console import Group
        from rich.text import Text

        left = self._console.size.height - 1  # the last line is empty, and the cursor's
        made: list[Any] = []
        flows = sum(len(pipeline.flows) for pipeline in shown.pipelines)
        for needed, table in (
            (3 + flows, self._rates(shown)),
            (1, self._memory(shown)),
            (2 + len(shown.bars), self._bars(shown, left - 3 - flows - 1 - 2)),
        ):
            if left >= min(needed, 3):
                made.append(table)
                left -= needed
        if left >= 3:
            made.append(self._gaps(shown, left - 2))
        # The terminal shows Ctrl-C as ^C where the cursor is. Behind a full line that would be a new line,
        # and the next picture would begin one line too low.
        return Group(*made, Text(""))

    def _table(self, title: str, left: tuple[str, ...], right: tuple[str, ...], rest: str = "") -> Any:
        """A table without lines, each row of which is one line whatever is in it. The column `rest` is the
        last one, and has what the others leave."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(title, no_wrap=True, overflow="ellipsis"), box=None, pad_edge=False)
        table.expand, table.title_justify = True, "left"
        for name in (*left, *right):
            justify = "left" if name in left else "right"
            table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")
        if rest:
            table.add_column(rest, no_wrap=True, overflow="ellipsis", ratio=1, min_width=8)
        return table

    def _rates(self, shown: Snapshot) -> Any:
        title = f"FlintMQ demo, {shown.seconds:.0f} s; Ctrl-C ends it"
        table = self._table(title, ("",), ("rows/s", "rows", "lag", "batch"), rest="state")
        table.add_row("feed", f"{shown.sent_per_s:,.0f}", f"{shown.sent:,}", "", "", "")
        for pipeline in shown.pipelines:
            for flow in pipeline.flows.values():
                lag = "" if flow.lag_rows is None else f"{flow.lag_rows:,} rows"
                lag += "" if flow.lag_s is None else f", {flow.lag_s:.1f} s"
                rows = (f"{flow.rows_per_s:,.0f}", f"{flow.rows:,}", lag, f"{flow.batch_ms} ms")
                table.add_row(pipeline.name, *rows, flow.last_error or flow.state)
        return table

    def _memory(self, shown: Snapshot) -> Any:
        from rich.text import Text

        sizes = ", ".join(f"{name} {size // _MEBIBYTE:,} MiB" for name, size in shown.memory_bytes.items())
        return Text(f"memory: {sizes}", style="dim", no_wrap=True, overflow="ellipsis")

    def _bars(self, shown: Snapshot, rows_max: int) -> Any:
        names = ("open", "high", "low", "close", "volume", "vwap", "ticks")
        table = self._table("bars, as they come back from the exchange", ("symbol", "start"), names)
        for symbol in sorted(shown.bars)[: max(0, rows_max)]:
            bar = shown.bars[symbol]
            prices = (f"{bar[name]:.2f}" for name in names[:4])
            start = str(bar["start"])[11:19]
            table.add_row(
                symbol, start, *prices, f"{bar['volume']:.0f}", f"{bar['vwap']:.2f}", f"{bar['ticks']:.0f}"
            )
        return table

    def _gaps(self, shown: Snapshot, rows_max: int) -> Any:
        title = (
            f"dropout: {shown.gaps_found} gaps found of {shown.gaps_made} made, "
            f"{shown.numbers_missed} numbers missing of {shown.numbers_left_out}"
        )
        table = self._table(title, ("feed",), ("first", "last", "missing", "told at"))
        for gap in list(reversed(shown.gaps))[:rows_max]:
            numbers = (str(gap[name]) for name in ("first", "last", "missing"))
            table.add_row(gap["feed"], *numbers, str(gap["at"])[11:19])
        return table

    def __enter__(self) -> TerminalView:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


def view_for(is_plain: bool) -> PlainView | TerminalView:
    """The tables where someone sits before them and rich is there to draw them."""
    if is_plain or not sys.stdout.isatty():
        return PlainView()
    try:
        return TerminalView()
    except ImportError:
        return PlainView()
