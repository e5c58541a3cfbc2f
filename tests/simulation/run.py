"""The long runs: python -m tests.simulation.run --seeds 0..99999 [--workers 2] [--faults | --staging]

With --faults the broker's own functions raise at calls that chance picks; for the pure build. With --staging
the histories are of contents that come in parts.
Prints each seed that failed, how far it has come every so often, and how many histories ran; the exit
status says whether any failed. With --seconds it ends by itself, when the portions in work are done.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from flintmq.build import build

from . import broker_history, staging_history

PORTION = 100
TELL_S = 30.0


def run_portion(
    first: int, last: int, steps: int, is_faulty: bool, is_staging: bool
) -> tuple[int, list[tuple[int, str]]]:
    """How many lives there were, or faults, and the seeds that failed with their tracebacks."""
    run_seed = staging_history.run_seed if is_staging else broker_history.run_seed
    if is_faulty:
        from . import fault_history  # only here: it replaces functions of the broker

        run_seed = fault_history.run_seed
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
    parser.add_argument("--faults", action="store_true", help="the broker's own functions raise")
    parser.add_argument("--staging", action="store_true", help="contents that come in parts")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    arguments = parser.parse_args()
    if arguments.faults and arguments.staging:
        parser.error("--faults and --staging are histories of their own")
    if arguments.faults and build() != "pure":
        parser.error("functions of the compiled build cannot be made to raise: --faults is for the pure one")
    first, last = map(int, arguments.seeds.split(".."))
    started = told = time.monotonic()
    count = lives = 0
    failures: list[int] = []
    portions = iter(range(first, last + 1, PORTION))
    with ProcessPoolExecutor(arguments.workers) as pool:
        running: dict[Future[tuple[int, list[tuple[int, str]]]], int] = {}
        while True:
            in_time = time.monotonic() - started < arguments.seconds
            while in_time and len(running) < 2 * arguments.workers:
                start = next(portions, None)
                if start is None:
                    break
                end = min(last, start + PORTION - 1)
                portion = pool.submit(
                    run_portion, start, end, arguments.steps, arguments.faults, arguments.staging
                )
                running[portion] = end - start + 1
            if not running:
                break
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                count += running.pop(done)
                more, failed = done.result()
                lives += more
                for seed, text in failed:
                    failures.append(seed)
                    # The first few in full; of the others the number is enough to see them again.
                    sys.stdout.write(f"-- seed {seed}\n" + (text if len(failures) <= 3 else ""))
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                sys.stdout.write(f"{count} so far\n")
            sys.stdout.flush()
    took_s = time.monotonic() - started
    sys.stdout.write(
        f"{count} histories on the {build()} build, {lives} {'faults' if arguments.faults else 'lives'}, "
        f"{took_s:.0f} s, "
        f"{count / took_s:.0f} a second: {len(failures)} failed\n"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
