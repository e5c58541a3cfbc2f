"""From the start of a fixture to the first message: `benchmarks/fixture.py [ROUNDS]`.

Runs pytest in a project of its own, ROUNDS times (5), with ten tests that each have a broker. A test notes
when its fixture began, when the broker was there and when a message had come back through it. Tells the first
test of a run apart, which may wait for the process that forks brokers to load, and the others. The client is
loaded before: it is the same whatever the broker.

`with spare time` has a module of tests, and so of a program, that takes half a second to import, as most do.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 5
BAR_MS = 100
TESTS = """
import json, pathlib, time
import pytest
from flintmq.client import connect

SPARE_TIME

@pytest.fixture
def began_s():
    return time.monotonic()

@pytest.mark.parametrize("number", range(10))
def test_a_message_comes_back(began_s, flintmq, number):
    there_s = time.monotonic()
    with connect(flintmq.uri) as connection, connection.channel() as channel:
        queue = channel.queue("q")
        channel.publish(b"x", routing_key="q")
        assert queue.get().body == b"x"
        done_s = time.monotonic()
        queue.purge()
    with open("times", "a") as times:
        times.write(json.dumps([(there_s - began_s) * 1000, (done_s - began_s) * 1000]) + "\\n")
"""
SPARE_TIME = "time.sleep(0.5)"


def measured(project: Path, spare_time: str) -> list[list[float]]:
    """For each test of a run: milliseconds until the broker was there, and until the message was back."""
    (project / "test_fixture.py").write_text(TESTS.replace("SPARE_TIME", spare_time))
    (project / "times").unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "flintmq.pytest_plugin", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([*command, "."], cwd=project, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return [json.loads(line) for line in (project / "times").read_text().splitlines()]


def shown(times: list[list[float]]) -> str:
    there, back = zip(*times, strict=True)
    verdict = "under" if statistics.median(back) < BAR_MS else "OVER"
    return (
        f"broker {statistics.median(there):6.1f} ms, message {statistics.median(back):6.1f} ms "
        f"(best {min(back):.1f}, worst {max(back):.1f}): {verdict} {BAR_MS} ms"
    )


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    print(f"medians of {rounds} runs; load of the machine {os.getloadavg()[0]:.1f}")
    for title, spare_time in (("at once", ""), ("with spare time", SPARE_TIME)):
        with tempfile.TemporaryDirectory() as project:
            runs = [measured(Path(project), spare_time) for _ in range(rounds)]
        print(f"{title}: first test  {shown([times[0] for times in runs])}")
        print(f"{title}: other tests {shown([each for times in runs for each in times[1:]])}")


if __name__ == "__main__":
    main()
