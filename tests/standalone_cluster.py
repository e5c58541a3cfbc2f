"""A standalone cluster of Spark on this machine, of the pip package: a master, two workers of a core each."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

WORKERS = 2
# Enough for an executor of the default size, of 1 GB; it is not taken before it is used.
WORKER_LIMITS = ("--cores", "1", "--memory", "1200m")


# Lives of a minute: the second compiler of the JVM would not earn back what it costs.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass
class Cluster:
    """What to give as the master, and the processes of the workers, whose children are the executors."""

    url: str
    directory: Path
    workers: list[int] = field(default_factory=list)

    def logs(self) -> str:
        """All that master, workers and executors have said."""
        names = ("*.log", "worker-*/**/stderr", "worker-*/**/stdout")
        places = [place for name in names for place in self.directory.glob(name)]
        return "".join(place.read_text(errors="replace") for place in places)


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[Cluster]:
    import pyspark

    from flintmq.spark.sessions import prepare_environment

    prepare_environment()
    home = Path(pyspark.__file__).parent
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cluster = Cluster(f"spark://127.0.0.1:{port}", directory)
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["JAVA_TOOL_OPTIONS"] = SHORT_LIVED  # of the executors, too
    started: list[subprocess.Popen[bytes]] = []

    def launch(name: str, *words: str) -> int:
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
        with (directory / f"{name}-{len(started)}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        started.append(process)
        return process.pid

    try:
        launch("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        for number in range(WORKERS):
            work = ("--webui-port", "0", "--work-dir", str(directory / f"worker-{number}"))
            pid = launch("worker.Worker", "--host", "127.0.0.1", *WORKER_LIMITS, *work, cluster.url)
            cluster.workers.append(pid)
        yield cluster
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGKILL)  # with its executors, which are of its session
            process.wait()
