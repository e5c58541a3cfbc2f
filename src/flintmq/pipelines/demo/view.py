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
    """Tables that are drawn anew each second."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console: Any = Console()
        self._live: Any = Live(console=self._console, auto_refresh=False, screen=False)
        self._is_live = False

    def tell(self, line: str) -> None:
        self._console.print(f"[dim]{line}[/dim]")

    def show(self, shown: Snapshot) -> None:
        from rich.console import Group

        self._live.update(Group(self._rates(shown), self._bars(shown), self._gaps(shown)), refresh=True)

    def _rates(self, shown: Snapshot) -> Any:
        from rich.table import Table

        table = Table(title=f"FlintMQ demo, {shown.seconds:.0f} s; Ctrl-C ends it", expand=True)
        for name in ("", "rows/s", "rows", "lag", "batch", "state"):
            table.add_column(name, justify="left" if name in ("", "state") else "right")
        table.add_row("feed to stream ticks", f"{shown.sent_per_s:,.0f}", f"{shown.sent:,}", "", "", "")
        for pipeline in shown.pipelines:
            for flow in pipeline.flows.values():
                lag = "" if flow.lag_rows is None else f"{flow.lag_rows:,} rows"
                lag += "" if flow.lag_s is None else f", {flow.lag_s:.1f} s"
                rows = (f"{flow.rows_per_s:,.0f}", f"{flow.rows:,}", lag, f"{flow.batch_ms} ms")
                table.add_row(f"pipeline {pipeline.name}", *rows, flow.last_error or flow.state)
        memory = ", ".join(f"{name} {size // _MEBIBYTE:,} MiB" for name, size in shown.memory_bytes.items())
        table.caption = f"memory: {memory}"
        return table

    def _bars(self, shown: Snapshot) -> Any:
        from rich.table import Table

        names = ("symbol", "start", "open", "high", "low", "close", "volume", "vwap", "ticks")
        table = Table(title="bars, as they come back from the exchange", expand=True)
        for name in names:
            table.add_column(name, justify="left" if name in ("symbol", "start") else "right")
        for symbol in sorted(shown.bars):
            bar = shown.bars[symbol]
            prices = (f"{bar[name]:.2f}" for name in ("open", "high", "low", "close"))
            start = str(bar["start"])[11:19]
            table.add_row(symbol, start, *prices, str(bar["volume"]), f"{bar['vwap']:.2f}", str(bar["ticks"]))
        return table

    def _gaps(self, shown: Snapshot) -> Any:
        from rich.table import Table

        title = (
            f"dropout: {shown.gaps_found} gaps found of {shown.gaps_made} made, "
            f"{shown.numbers_missed} numbers missing of {shown.numbers_left_out}"
        )
        table = Table(title=title, expand=True)
        for name in ("feed", "first", "last", "missing", "told at"):
            table.add_column(name, justify="left" if name == "feed" else "right")
        for gap in reversed(shown.gaps):
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
