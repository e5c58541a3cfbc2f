"""Our answers beside RabbitMQ's recorded ones: which of its fields are there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from management_http import Http

from flintmq.client import connect

# What RabbitMQ 3.10.8 answered to these paths on a test machine, as paths of fields.
RECORDED: dict[str, list[str]] = json.loads((Path(__file__).parent / "rabbitmq_keys.json").read_text())
# Fields that we leave out, by the end of the path. docs/management.md has the reasons.
LEFT_OUT = {
    "disk_reads",
    "disk_reads_details",
    "disk_reads_details.rate",
    "disk_writes",
    "disk_writes_details",
    "disk_writes_details.rate",
    "socket_opts",
}
LEFT_OUT_OF = {
    "overview": {"contexts"},
}


def paths(value: Any, within: str = "") -> set[str]:
    found: set[str] = set()
    if isinstance(value, list):
        for each in value:
            found |= paths(each, within)
    elif isinstance(value, dict):
        for name, inner in value.items():
            path = f"{within}.{name}" if within else name
            found |= {path, *paths(inner, path)}
    return found


@pytest.fixture(scope="module")
def busy(broker: Any) -> Iterator[None]:
    """The names of the recording, in use: a connection that publishes, consumes and gets."""
    with (
        connect(f"amqp://guest:guest@127.0.0.1:{broker.port}") as connection,
        connection.channel(confirm=True) as channel,
    ):
        channel.exchange("s.topic", "topic", durable=True)
        channel.queue("s.q", durable=True, arguments={"x-max-length": 1000})
        channel.queue("s.idle")
        channel.bind_queue("s.q", "s.topic", "a.#")
        for _ in range(5):
            channel.publish(b"x" * 100, "s.topic", "a.b")
        consumer = channel.consume("s.q")
        assert len(consumer.take(2, 5)) > 0
        channel.get("s.idle", no_ack=True)
        yield


@pytest.mark.parametrize("path", sorted(set(RECORDED) - {"queues/%2F/s.stream", "queues/%2F/nothing"}))
def test_fields_of_rabbitmq(path: str, http_api: Http, busy: None) -> None:
    """Nothing that RabbitMQ tells is missing, but for what is listed."""
    if path == "policies":
        http_api.ok("PUT", "policies/%2F/pol1", {"pattern": "^s", "definition": {"max-length": 5000}})
    shown = http_api.get(path)
    missing = set(RECORDED[path]) - paths(shown)
    known = LEFT_OUT_OF.get(path, set())
    missing = {
        each
        for each in missing
        if not any(each == end or each.endswith("." + end) for end in LEFT_OUT)
        and each.split(".")[0] not in known
    }
    assert not missing


def test_missing_queue(http_api: Http) -> None:
    answer = http_api("GET", "/api/queues/%2F/nothing")
    assert (answer.status, answer.json()) == (404, {"error": "Object Not Found", "reason": "Not Found"})
