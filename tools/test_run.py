"""Runs pytest, and what failed once more by itself: python tools/test_run.py NAME [arguments of pytest]

Some tests kill processes, start browsers and Java, or wait for another machine's word. Beside thousands of
others on two processors one of these may fail for no fault of the code. A test that fails beside others is
therefore run again, one test at a time, in a new process. A test that fails twice fails the run. So does a
run with more than RERUN_MAX failures: these have one cause, and it is not the machine. Each test that passed
only the second time is named at the end. NAME is that of the stage: its cache is build/tests/NAME here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RERUN_MAX = 8
PYTEST = str(Path(sys.executable).with_name("pytest"))


def failed_tests(cache: Path) -> list[str]:
    """The tests that failed in the last run with this cache."""
    noted = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(noted.read_text())) if noted.is_file() else []


def second_arguments(arguments: list[str]) -> list[str]:
    """The same selection of tests, but without workers: one test at a time."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in ("-n", "--dist"):
            next(words)
        else:
            kept.append(word)
    return kept


def run(name: str, arguments: list[str]) -> int:
    cache = Path("build", "tests", name).absolute()
    command = [PYTEST, "-o", f"cache_dir={cache}"]
    status = subprocess.run([*command, "--cache-clear", *arguments]).returncode
    failed = failed_tests(cache)
    if status != 1 or not 0 < len(failed) <= RERUN_MAX:
        return status
    print(f"\n== {len(failed)} failed beside others; once more, one at a time:", flush=True)
    print("\n".join(failed), flush=True)
    second = ["--last-failed", "--last-failed-no-failures=none", *second_arguments(arguments)]
    status = subprocess.run([*command, *second]).returncode
    again = failed_tests(cache)
    for test in failed:
        print(f"{'failed twice' if test in again else 'passed only by itself'}: {test}", flush=True)
    return status


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1], sys.argv[2:]))
