"""`flintmq demo`: its options. The demo itself is imported when it runs."""

from __future__ import annotations

import argparse

RATE = 50_000
SYMBOLS = 10_000


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser(
        "demo",
        help="the whole system alive: broker, market data, pipelines on Spark, a view",
        description="Run a broker, market data, the pipelines bars and dropout, and show what they do.",
    )
    demo.add_argument("--rate", type=int, default=RATE, metavar="N", help=f"ticks per second ({RATE})")
    demo.add_argument("--seconds", type=float, metavar="S", help="end by itself after so long")
    demo.add_argument("--symbols", type=int, default=SYMBOLS, metavar="N", help=f"symbols ({SYMBOLS})")
    broker = demo.add_mutually_exclusive_group()
    broker.add_argument("--uri", metavar="URI", help="use this broker instead of starting one")
    broker.add_argument(
        "--port", type=int, metavar="N", help="port of the broker (5672, or another where that is taken)"
    )
    demo.add_argument(
        "--format", choices=("json", "csv"), default="json", help="how a tick is written (json)"
    )
    demo.add_argument("--master", default="local[2]", metavar="URL", help="where Spark runs (local[2])")
    demo.add_argument(
        "--state", metavar="DIR", help="keep data, statuses and logs here (a directory that goes)"
    )
    demo.add_argument("--plain", action="store_true", help="a line per second instead of the view")
    demo.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> int:
    from flintmq.pipelines.demo.demo import DemoOptions, run

    return run(
        DemoOptions(
            rate=options.rate,
            seconds=options.seconds,
            symbols=options.symbols,
            uri=options.uri,
            port=options.port,
            format=options.format,
            master=options.master,
            state=options.state,
            is_plain=options.plain,
        )
    )
