"""Spark Connect: the same reads and writes from a client that has no JVM of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from flintmq.client import Connection

CLIENT = Path(__file__).parent / "connect_client.py"


def test_reads_and_writes(
    uri: str, connection: Connection, stream: str, out: str, fill: Any, drain: Any, tmp_path: Path
) -> None:
    fill(stream, 0, 60)
    command = [sys.executable, str(CLIENT), uri, stream, out, str(tmp_path / "checkpoint")]
    # Of the session that other tests of this process have.
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["session"].startswith("pyspark.sql.connect")
    assert told["read"] == 60
    assert told["lag"] == [40, 20, 0]
    assert told["rows"] == 60
    assert "no queue 'nowhere'" in told["failure"]
    assert sorted(drain(out)) == sorted([*range(3), *range(60)])
    assert connection.request("dtx.list").results["rows"] == []
