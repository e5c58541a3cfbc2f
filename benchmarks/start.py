"""From the start of `flintmq serve` to its first answer: `benchmarks/start.py [ROUNDS [PYTHON]]`.

Starts a broker ROUNDS times (20) in each of three ways, which take turns: in memory, with a fresh data
directory, and with such a directory and the HTTP API. A round ends when the broker has answered a protocol
header with connection.start. With PYTHON that interpreter runs the brokers, to measure another build.
"""

from __future__ import annotations

import os
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

ROUNDS = 20
BAR_MS = 300
ANSWER_TIMEOUT_S = 30.0
HEADER = b"AMQP\x00\x00\x09\x01"
LISTENS = re.compile(rb"listening on amqp://127\.0\.0\.1:(\d+)")
DATA = ("--data", "{directory}")
WAYS: dict[str, Sequence[str]] = {
    "in memory": (),
    "with a data directory": DATA,
    "with the HTTP API too": (*DATA, "--management-port", "0"),
}


def cpu_ms() -> float:
    """Processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def answer_ms(python: str, options: Sequence[str]) -> tuple[float, float]:
    """Milliseconds from the start of a broker to its answer, and its processor time with its end."""
    with tempfile.TemporaryDirectory(prefix="flintmq-start-") as directory:
        words = [option.format(directory=f"{directory}/data") for option in options]
        command = [python, "-m", "flintmq", "serve", "--host", "127.0.0.1", "--port", "0", *words]
        began_s, began_cpu_ms = time.monotonic(), cpu_ms()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as broker:
            try:
                assert broker.stdout is not None
                line = broker.stdout.readline()
                found = LISTENS.search(line)
                if found is None:
                    sys.exit(f"{' '.join(command)} said {line!r}")
                with socket.create_connection(("127.0.0.1", int(found[1])), ANSWER_TIMEOUT_S) as client:
                    client.sendall(HEADER)
                    answer = client.recv(1)
                took_ms = (time.monotonic() - began_s) * 1000
                if answer != b"\x01":  # a method frame
                    sys.exit(f"{' '.join(command)} answered {answer!r}")
            finally:
                broker.terminate()
                broker.communicate()
        return took_ms, cpu_ms() - began_cpu_ms


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    python = sys.argv[2] if len(sys.argv) > 2 else sys.executable
    print(f"{rounds} rounds; load of the machine {os.getloadavg()[0]:.1f}")
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, options in WAYS.items():
            found[way].append(answer_ms(python, options))
    for way, times in found.items():
        took, used = zip(*times, strict=True)
        verdict = "within" if statistics.median(took) <= BAR_MS else "OVER"
        print(
            f"{way:<22} {statistics.median(took):6.1f} ms (best {min(took):.1f}, worst {max(took):.1f}): "
            f"{verdict} {BAR_MS} ms; processor, with its end, {statistics.median(used):6.1f} ms"
        )


if __name__ == "__main__":
    main()
