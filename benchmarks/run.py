"""FlintMQ's benchmark: the same loads on FlintMQ and, where it is installed, on RabbitMQ, in turns.

    python benchmarks/run.py                          everything, three rounds
    python benchmarks/run.py --only a16,c16,f --rounds 5 --time 5
    python benchmarks/run.py --port 5672 --pid 4711   a broker that runs already
    python benchmarks/run.py --permissions --only a16,b16,e      what permissions cost
    python benchmarks/run.py --beside "OLD/bin/python -m flintmq serve --port 0 --data {directory}"
    python benchmarks/run.py --markdown               the table for docs/performance.md

The loads are made by load.c, which is compiled by gcc first and checks all that it measures: a round in which
one message is lost, repeated, out of order or changed counts as failed and has no figures. Brokers take turns
within a round, in random order, so that both meet the same noise; compare ratios, since absolute values
belong to the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import brokers
import results
from brokers import Broker, BrokerFailure
from results import Row, Samples
from scenarios import Figure, Load, choose, figures

HERE = Path(__file__).resolve().parent
LOAD_SECONDS_MAX = 300


@dataclass(frozen=True)
class Contender:
    """A broker in the comparison: one that stands by all the time, and how to start another one."""

    standing: Broker
    start: Callable[[], contextlib.AbstractContextManager[Broker]] | None  # None: not ours to start

    @property
    def name(self) -> str:
        """What the table calls it."""
        return self.standing.name


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--broker-command",
        default=brokers.FLINTMQ_COMMAND,
        metavar="COMMAND",
        help="starts the broker; {python}, {port} and {directory} are filled in (%(default)s)",
    )
    parser.add_argument(
        "--port", type=int, help="measure a broker that listens here, instead of starting one"
    )
    parser.add_argument("--pid", type=int, help="its process, for CPU and memory")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--time", type=float, default=3.0, metavar="SECONDS", help="of publishing, per load")
    parser.add_argument("--only", default="", metavar="NAMES", help="scenarios, separated by commas")
    parser.add_argument("--connections", type=int, default=10_000, metavar="N", help="held open in 'many'")
    parser.add_argument("--without-rabbitmq", action="store_true")
    beside = parser.add_mutually_exclusive_group()
    beside.add_argument(
        "--beside",
        metavar="COMMAND",
        help="starts another FlintMQ, such as an earlier build, not RabbitMQ",
    )
    beside.add_argument(
        "--permissions",
        action="store_true",
        help="beside a broker whose user may use only what the loads need, not beside RabbitMQ",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was found")
    parser.add_argument(
        "--markdown", action="store_true", help="print the table as Markdown, with the machine"
    )
    chosen = parser.parse_args(given)
    if (chosen.port is None) != (chosen.pid is None):
        parser.error("--port and --pid belong together")
    if chosen.permissions and chosen.port is not None:
        parser.error("--permissions is for brokers that are started here")
    if chosen.rounds < 1 or chosen.time <= 0 or chosen.connections < 1:
        parser.error("--rounds, --time and --connections must be above zero")
    try:
        chosen.figures = choose(figures(chosen.connections), chosen.only)
    except ValueError as error:
        parser.error(str(error))
    return chosen


def build_load_tool(folder: Path) -> Path:
    """Compile load.c."""
    tool = folder / "load"
    command = ["gcc", "-O2", "-pthread", "-Wall", "-Wextra", "-o", str(tool), str(HERE / "load.c")]
    subprocess.run(command, check=True)
    return tool


def measure(tool: Path, broker: Broker, load: Load, seconds: float) -> Mapping[str, object]:
    """Run one load on one broker; the report says "ok", or what failed."""
    command = [str(tool), "--port", str(broker.port), "--pid", str(broker.pid), "--seconds", str(seconds)]
    try:
        done = subprocess.run(
            command + load.arguments.split(),
            capture_output=True,
            text=True,
            timeout=LOAD_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"ok": False, "failure": f"not finished after {LOAD_SECONDS_MAX} s"}
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        said = (done.stdout + done.stderr).strip()[-200:]
        return {"ok": False, "failure": f"the load tool ended with status {done.returncode}: {said}"}
    return report if isinstance(report, dict) else {"ok": False, "failure": f"not a report: {report!r}"}


def take(row: Row, broker: str, report: Mapping[str, object]) -> None:
    """Enter a report into a row."""
    samples = row.samples[broker]
    if not report.get("ok"):
        samples.failures.append(str(report.get("failure")))
        return
    try:
        samples.add(row.figure.read(report), report)
    except (KeyError, TypeError) as error:
        samples.failures.append(str(error))


def compare(
    chosen: Sequence[Figure],
    tested: Sequence[Contender],
    rounds: int,
    run: Callable[[Contender, Load], Mapping[str, object]],
) -> Iterator[list[Row]]:
    """Run each load in turns over the brokers; yields the rows of one load when its rounds are over."""
    for load in dict.fromkeys(figure.load for figure in chosen):
        rows = [Row(f, {c.name: Samples() for c in tested}) for f in chosen if f.load == load]
        for _ in range(rounds):
            for contender in random.sample(tested, len(tested)):
                report = run(contender, load)
                for row in rows:
                    take(row, contender.name, report)
        yield rows


@contextlib.contextmanager
def contenders(options: argparse.Namespace, folder: Path) -> Iterator[list[Contender]]:
    """The broker that is measured and the one beside it: another FlintMQ, or RabbitMQ where it can be had."""
    numbers = itertools.count()

    def start_flintmq() -> contextlib.AbstractContextManager[Broker]:
        return brokers.flintmq(options.broker_command, folder / f"flintmq{next(numbers)}")

    def start_beside() -> contextlib.AbstractContextManager[Broker]:
        return brokers.flintmq(options.beside, folder / f"flintmq{next(numbers)}", name="beside")

    def start_with_permissions() -> contextlib.AbstractContextManager[Broker]:
        directory = folder / f"flintmq{next(numbers)}"
        return brokers.flintmq(options.broker_command, directory, "with permissions", brokers.PERMISSIONS)

    def start_rabbitmq() -> contextlib.AbstractContextManager[Broker]:
        return brokers.rabbitmq(folder / f"rabbitmq{next(numbers)}")

    with contextlib.ExitStack() as stack:
        if options.port is not None:
            tested = [Contender(stack.enter_context(brokers.attached(options.port, options.pid)), None)]
        else:
            tested = [Contender(stack.enter_context(start_flintmq()), start_flintmq)]
        if options.beside:
            tested.append(Contender(stack.enter_context(start_beside()), start_beside))
        elif options.permissions:
            tested.append(Contender(stack.enter_context(start_with_permissions()), start_with_permissions))
        elif not options.without_rabbitmq and brokers.RABBITMQ_SERVER.exists():
            tested.append(Contender(stack.enter_context(start_rabbitmq()), start_rabbitmq))
        elif not options.without_rabbitmq:
            sys.stderr.write(
                "RabbitMQ is not installed (Debian: apt-get install rabbitmq-server): measured alone\n"
            )
        yield tested


def measure_in_turn(tool: Path, contender: Contender, load: Load, seconds: float) -> Mapping[str, object]:
    """Run a load on the contender's standing broker, or on one started for it where the load wants that."""
    with contextlib.ExitStack() as stack:
        if load.fresh and contender.start is not None:
            broker = stack.enter_context(contender.start())
            broker.settle(brokers.FRESH_LOOKS)
        else:
            broker = contender.standing
            broker.settle()
        return measure(tool, broker, load, seconds)


def run_all(options: argparse.Namespace, folder: Path) -> list[Row]:
    """Measure, printing each load's rows as they are found; returns all rows."""
    tool = build_load_tool(folder)
    rows: list[Row] = []
    with contenders(options, folder) as tested:

        def run(contender: Contender, load: Load) -> Mapping[str, object]:
            return measure_in_turn(tool, contender, load, options.time)

        for found in compare(options.figures, tested, options.rounds, run):
            rows += found
            for row in found:
                sys.stderr.write("  ".join(cell for cell in results.cells(row) if cell) + "\n")
        show(options, rows, [contender.standing for contender in tested])
    return rows


def show(options: argparse.Namespace, rows: Sequence[Row], tested: Sequence[Broker]) -> None:
    """Print the table and write the files that were asked for."""
    names = [broker.name for broker in tested]
    machine = results.machine_description({broker.name: broker.version for broker in tested})
    command = shlex.join(["python", "benchmarks/run.py", *sys.argv[1:]])
    if options.markdown:
        sys.stdout.write(results.markdown(rows, names, machine, command))
    else:
        table = [results.heading(names), *(results.cells(row) for row in rows)]
        lines = [*results.text_lines(table), "", *(f"{key}: {value}" for key, value in machine.items())]
        sys.stdout.write("\n".join([*lines, *(f"FAILED {line}" for line in results.failures(rows))]) + "\n")
    if options.json:
        options.json.write_text(json.dumps(results.as_json(rows, machine, command), indent=1) + "\n")


def main() -> int:
    """Returns 1 when a round failed."""
    options = arguments()
    brokers.raise_descriptor_limit()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that brokers are stopped on the way out
    folder = Path(tempfile.mkdtemp(prefix="flintmq-bench-"))
    try:
        return 1 if results.failures(run_all(options, folder)) else 0
    except BrokerFailure as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
