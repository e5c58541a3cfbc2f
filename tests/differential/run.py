"""Compares FlintMQ with RabbitMQ: `python -m tests.differential.run --seconds 120 --seed 1`.

Each seed makes one run of random operations. A difference is printed with the fewest operations that show
it. `--replay FILE` plays the operations of a file, one JSON array a line, as they are printed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
for _path in (str(TESTS), str(TESTS.parent / "benchmarks")):
    if _path not in sys.path:
        sys.path.insert(0, _path)
brokers: Any = importlib.import_module("brokers")

from differential.comparison import Comparison, Difference  # noqa: E402
from differential.generator import Generator  # noqa: E402
from differential.operation import from_json  # noqa: E402

OPERATIONS = 60


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def search(comparison: Comparison, first: int, seconds: float, most: int) -> list[Difference]:
    """The differences of the seeds from `first` on, each of them once and reduced."""
    found: dict[tuple[str, str], Difference] = {}
    end = time.monotonic() + seconds
    seed = first
    while time.monotonic() < end and len(found) < most:
        difference = comparison.run(Generator(seed).operations(OPERATIONS))
        if difference is not None and difference.signature() not in found:
            again = comparison.confirmed(difference)
            if again is not None:
                found[again.signature()] = comparison.reduced(again)
                say(f"seed {seed}:\n{found[again.signature()]}\n")
        seed += 1
    say(
        f"seeds {first} to {seed - 1}: {comparison.operations} operations, {len(found)} differences; "
        f"known: {comparison.excused or 'none'}"
    )
    return list(found.values())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to search")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--most", type=int, default=10, help="stop after so many differences")
    parser.add_argument("--replay", type=Path, help="a file of operations to play instead")
    parser.add_argument("--flintmq", type=int, help="the port of a FlintMQ that runs already")
    parser.add_argument("--rabbitmq", type=int, help="the port of a RabbitMQ that runs already")
    given = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        theirs = given.rabbitmq or stack.enter_context(brokers.rabbitmq(directory / "rabbitmq")).port
        ours = given.flintmq
        if ours is None:
            ours = stack.enter_context(brokers.flintmq(brokers.FLINTMQ_COMMAND, directory / "flintmq")).port
        comparison = Comparison(ours, theirs)
        if given.replay:
            lines = [line for line in given.replay.read_text().splitlines() if line.startswith("[")]
            difference = comparison.run([from_json(line) for line in lines])
            say(str(difference or "no difference"))
            return int(difference is not None)
        return int(bool(search(comparison, given.seed, given.seconds, given.most)))


if __name__ == "__main__":
    sys.exit(main())
