"""The template for Spark Declarative Pipelines, copied and run by spark-pipelines, twice."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
import pytest
from running import bodies, drain
from standalone_cluster import SHORT_LIVED

from flintmq.pipelines.file.document import copy_template
from flintmq.spark.sessions import prepare_environment

RUN_S_MAX = 130
CATALOG = ("--conf", "spark.sql.catalogImplementation=hive")
# Of flintmq[sdp], which brings them.
NEEDED = ("grpc", "grpc_status", "google.rpc", "yaml", "zstandard")


def is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


missing = [name for name in NEEDED if not is_there(name)]


def run(directory: Path) -> str:
    prepare_environment()
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["JAVA_TOOL_OPTIONS"] = SHORT_LIVED
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [str(home / "bin" / "spark-pipelines"), "run", *CATALOG]
    log = directory / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    try:
        status = process.wait(RUN_S_MAX)
    finally:
        with suppress(ProcessLookupError):  # all of its processes have ended
            os.killpg(process.pid, signal.SIGKILL)
    assert status == 0, log.read_text()
    return log.read_text()


@pytest.mark.skipif(bool(missing), reason=f"pip install 'flintmq[sdp]' brings {', '.join(missing)}")
def test_the_template_runs_twice(uri: str, connection: Any, tmp_path: Path) -> None:
    copy_template(str(tmp_path / "market"))
    settings = tmp_path / "market" / "spark-pipeline.yml"
    text = settings.read_text().replace("file:///tmp/flintmq-sdp", (tmp_path / "storage").as_uri())
    text = text.replace("localhost:5672/", uri.rpartition("@")[2]).replace("ticks\n", "sdp-ticks\n")
    settings.write_text(text.replace("flintmq.exchange: bars", "flintmq.exchange: sdp-bars"))
    channel = connection.channel(confirm=True)
    channel.queue("sdp-ticks", durable=True, arguments={"x-queue-type": "stream"})
    channel.exchange("sdp-bars", "topic", durable=True)
    channel.queue("sdp-out", durable=True).bind("sdp-bars", "#")

    def tick(seq: int, price: float, time_ms: int) -> bytes:
        return json.dumps(
            {"feed": "F", "seq": seq, "symbol": "A", "price": price, "size": 1, "time": time_ms}
        ).encode()

    channel.publish_many(
        [tick(1, 10.0, 1000), tick(2, 12.0, 2000), tick(3, 1.0, 200_000)], routing_key="sdp-ticks"
    )
    told = run(tmp_path / "market")
    (bar,) = bodies(drain(connection, "sdp-out"))
    assert (bar["symbol"], bar["open"], bar["close"], bar["ticks"]) == ("A", 10.0, 12.0, 2), told
    channel.publish_many([tick(4, 2.0, 900_000)], routing_key="sdp-ticks")
    told = run(tmp_path / "market")
    (bar,) = bodies(drain(connection, "sdp-out"))
    assert (bar["open"], bar["ticks"]) == (1.0, 1), told
