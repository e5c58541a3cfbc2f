"""`flintmq pipeline run` on a standalone cluster of two workers: the same file, another --master."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from running import bodies, drain
from standalone_cluster import SHORT_LIVED, Cluster, standalone_cluster

from flintmq.client import connect

RUN_S_MAX = 240
# Spark hides values that look like a password to it: this one does not.
PASSWORD = "hunter2"
RULES = """
[[rule]]
when = "amount > 100"
exchange = "large"
routing_key = "large.{kind}"
"""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    """A broker that wants a password; its URI."""
    permissions = 'permissions."/" = { configure = ".*", write = ".*", read = ".*" }'
    (tmp_path / "flintmq.toml").write_text(f'[users.me]\npassword = "{PASSWORD}"\n{permissions}\n')
    with BrokerProcess("--config", str(tmp_path / "flintmq.toml")) as broker:
        yield f"amqp://me:{PASSWORD}@127.0.0.1:{broker.port}/"


def run(cluster: Cluster, *words: str) -> str:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_TOOL_OPTIONS": SHORT_LIVED}
    command = [sys.executable, "-m", "flintmq", "pipeline", "run", *words]
    done = subprocess.run(
        [*command, "--master", cluster.url, "--available-now"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr + cluster.logs()
    return done.stdout + done.stderr


def test_a_shipped_pipeline_runs_on_the_workers(cluster: Cluster, guarded: str, tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(RULES)
    words = ["route", "--state", str(tmp_path / "state"), "--set", f"rules={tmp_path / 'rules.toml'}"]
    given = {"schema": "kind STRING NOT NULL, amount DOUBLE", "malformed": "dead-letter"}
    given |= {"uri": guarded, "dead_letter_exchange": "malformed"}
    words += [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    with connect(guarded) as connection:
        channel = connection.channel(confirm=True)
        for name in ("large", "malformed"):
            channel.exchange(name, "topic", durable=True)
            channel.queue(f"{name}-out", durable=True).bind(name, "#")
        channel.queue("incoming", durable=True)
        sent = [b'{"kind": "sale", "amount": %d}' % amount for amount in range(200)]
        channel.publish_many([*sent, b"not json"], routing_key="incoming", persistent=True)
        told = run(cluster, *words)
        large = bodies(found := drain(connection, "large-out"))
        assert sorted(row["amount"] for row in large) == list(range(101, 200)), told
        assert {message.routing_key for message in found} == {"large.sale"}
        (dead,) = drain(connection, "malformed-out")
        assert dead.body == b"not json"
    logs = cluster.logs()
    assert len(list(cluster.directory.glob("worker-*/app-*/*/stderr"))) >= 2, "an executor on each worker"
    assert "Running task" in logs
    assert PASSWORD not in told
    assert PASSWORD not in logs
