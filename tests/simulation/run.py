"""The long runs: python -m tests.simulation.run --seeds 0..99999 [--workers 2] [--steps 80]

Prints how many histories ran and each seed that failed; the exit status says whether any did.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor

from flintmq.build import build

from .broker_history import run_seed

PORTION = 200


def run_portion(first: int, last: int, steps: int) -> tuple[int, list[tuple[int, str]]]:
    """How many lives there were, and the seeds that failed with their tracebacks."""
    lives = 0
    failures = []
    for seed in range(first, last + 1):
        try:
            lives += run_seed(seed, steps)
        except AssertionError:
            failures.append((seed, traceback.format_exc()))
    return lives, failures


def main() -> int:
    parser = argparse.ArgumentParser(description="Histories of a whole broker on a faulty disk.")
    parser.add_argument("--seeds", required=True, help="A..B, both included")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=80)
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split(".."))
    started = time.monotonic()
    lives = 0
    failures: list[tuple[int, str]] = []
    starts = range(first, last + 1, PORTION)
    with ProcessPoolExecutor(arguments.workers) as pool:
        ends = [min(last, start + PORTION - 1) for start in starts]
        for more, failed in pool.map(run_portion, starts, ends, [arguments.steps] * len(ends)):
            lives += more
            for seed, text in failed:
                failures.append((seed, text))
                sys.stdout.write(f"-- seed {seed}\n{text}\n" if len(failures) <= 3 else f"-- seed {seed}\n")
                sys.stdout.flush()
    took_s = time.monotonic() - started
    count = last - first + 1
    sys.stdout.write(
        f"{count} histories on the {build()} build, {lives} lives, {took_s:.0f} s, "
        f"{count / took_s:.0f} a second: {len(failures)} failed\n"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
