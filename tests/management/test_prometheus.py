"""Metrics, read by prometheus' own parser."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from live.certificates import Authority
from management_http import Http
from prometheus_client.parser import text_string_to_metric_families

from flintmq.client import ClientError, connect
from flintmq.management.endpoints import prometheus
from flintmq.pipelines.run.status import FlowStatus, PipelineStatus, StatusFile

MANAGEMENT = re.compile(r"management on http://127\.0\.0\.1:(\d+)")
LETTERS = {"x-dead-letter-exchange": ""}
# What RabbitMQ's Grafana overview draws.
DRAWN = """
rabbitmq_alarms_free_disk_space_watermark rabbitmq_alarms_memory_used_watermark rabbitmq_build_info
rabbitmq_channel_get_ack_total rabbitmq_channel_get_empty_total rabbitmq_channel_get_total
rabbitmq_channel_messages_acked_total rabbitmq_channel_messages_confirmed_total
rabbitmq_channel_messages_delivered_ack_total rabbitmq_channel_messages_delivered_total
rabbitmq_channel_messages_published_total rabbitmq_channel_messages_redelivered_total
rabbitmq_channel_messages_unroutable_dropped_total rabbitmq_channel_messages_unroutable_returned_total
rabbitmq_channels rabbitmq_channels_closed_total rabbitmq_channels_opened_total rabbitmq_connections
rabbitmq_connections_closed_total rabbitmq_connections_opened_total rabbitmq_consumers
rabbitmq_disk_space_available_bytes rabbitmq_global_messages_acknowledged_total
rabbitmq_global_messages_confirmed_total rabbitmq_global_messages_delivered_consume_auto_ack_total
rabbitmq_global_messages_delivered_consume_manual_ack_total rabbitmq_global_messages_received_total
rabbitmq_identity_info rabbitmq_process_max_fds rabbitmq_process_max_tcp_sockets rabbitmq_process_open_fds
rabbitmq_process_open_tcp_sockets rabbitmq_process_resident_memory_bytes rabbitmq_queue_messages_ready
rabbitmq_queue_messages_unacked rabbitmq_queues rabbitmq_queues_created_total rabbitmq_queues_declared_total
rabbitmq_queues_deleted_total rabbitmq_resident_memory_limit_bytes
"""


def scraped(http_api: Http, path: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = http_api("GET", path)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.octets.decode())
        for sample in family.samples
    }


def test_overview_of_grafana(http_api: Http) -> None:
    stranger = Http(http_api.port, 0, user="")
    found = {name for name, _ in scraped(stranger, "/metrics")}
    assert set(DRAWN.split()) <= found


def test_each_object(http_api: Http, vhost: str) -> None:
    name = 'quo"te\\ \n'
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        channel.queue(name.strip())
        channel.publish(b"x", routing_key=name.strip())
        for path, prefix in (
            ("/metrics/per-object", "rabbitmq_queue_"),
            (f"/metrics/detailed?family=queue_coarse_metrics&vhost={vhost}", "rabbitmq_detailed_queue_"),
        ):
            labels = (("queue", name.strip()), ("vhost", vhost))
            found = scraped(http_api, path)
            assert found[prefix + "messages_ready", labels] == 1
            assert found[prefix + "messages_published_total", labels] == 1
        channels = scraped(http_api, f"/metrics/detailed?family=channel_metrics&vhost={vhost}")
        assert sum(name == "rabbitmq_detailed_channel_consumers" for name, _ in channels) == 1


def test_logins_are_counted_by_protocol(http_api: Http) -> None:
    def counts(protocol: str) -> list[float]:
        time.sleep(prometheus.FRESH_S)
        found = scraped(http_api, "/metrics")
        names = (f"rabbitmq_auth_attempts{kind}_total" for kind in ("", "_succeeded", "_failed"))
        return [found[name, (("protocol", protocol),)] for name in names]

    before = counts("amqp091")
    connect(f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}").close()
    with pytest.raises(ClientError):
        connect(f"amqp://guest:wrong@127.0.0.1:{http_api.amqp_port}")
    assert [now - was for now, was in zip(counts("amqp091"), before, strict=True)] == [2, 1, 1]
    assert counts("http")[0] >= 0


def test_certificates_tell_when_they_end(tmp_path: Path) -> None:
    signed = Authority(tmp_path, "authority").sign("served")
    settings = tmp_path / "flintmq.toml"
    settings.write_text(f'[tls]\nport = 0\ncertificate = "{signed.certificate}"\nkey = "{signed.key}"\n')
    with BrokerProcess("--management-port", "0", "--config", str(settings)) as broker:
        api = Http(int(broker.wait_for(MANAGEMENT)[1]), broker.port)
        found = scraped(api, "/metrics")
    labels = (("certificate", str(signed.certificate)),)
    assert found["flintmq_certificate_expiry_timestamp_seconds", labels] > time.time()


def test_messages_that_wait_for_a_retry(http_api: Http, vhost: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    retries = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 600_000}
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        channel.queue("later", arguments=retries)
        channel.publish_many([b"x"] * 3, routing_key="later")
        for _ in range(2):
            message = channel.get("later")
            assert message is not None
            message.reject(requeue=True)
        connection.request("broker.info")
        labels = (("queue", "later"), ("vhost", vhost))
        for path in ("/metrics/per-object", "/metrics/detailed?family=queue_coarse_metrics"):
            assert scraped(http_api, path)["flintmq_queue_messages_delayed", labels] == 2
        time.sleep(prometheus.FRESH_S)
        assert scraped(http_api, "/metrics")["flintmq_queue_messages_delayed", ()] == 2
        (row,) = http_api.get(f"queues/{vhost}?sort=messages_delayed&lengths_age=60&lengths_incr=5")
        kinds = ("messages", "messages_ready", "messages_unacknowledged", "messages_delayed")
        for counts in (
            row,
            http_api.get(f"queues/{vhost}/later"),
            http_api.get(f"vhosts/{vhost}"),
        ):
            assert [counts[kind] for kind in kinds] == [1, 1, 0, 2]
            assert "rate" in counts["messages_delayed_details"]
        assert http_api.get("overview")["queue_totals"]["messages_delayed"] == 2
        # A purge takes them, and is seen though nothing else of the queue changes.
        http_api.ok("DELETE", f"queues/{vhost}/later/contents")
        assert http_api.get(f"queues/{vhost}/later")["messages_delayed"] == 0


@pytest.mark.parametrize(
    "path", ["/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_metrics"]
)
def test_promtool_finds_nothing_wrong(http_api: Http, path: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool comes with Debian's package prometheus")
    metrics = http_api("GET", path).octets
    assert metrics
    ran = subprocess.run([promtool, "check", "metrics"], input=metrics, capture_output=True, timeout=30)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


HISTOGRAMS = ("flintmq_turn_seconds", "flintmq_message_wait_seconds")
USES = {"messages_ready", "messages_unacked", "output", "journal", "routes", "other"}


class Deadline:
    """Metrics are a second old at most; a busy machine may take longer."""

    def __init__(self, wait_s: float = 30.0) -> None:
        self.until_s = time.monotonic() + wait_s

    def check(self, found: object = None) -> None:
        assert time.monotonic() < self.until_s, found
        time.sleep(0.2)


def values(http_api: Http, path: str, name: str) -> dict[str, float]:
    """The samples of one name, by the label that tells them apart."""
    return {
        next(iter(dict(labels).values()), ""): value
        for (each, labels), value in scraped(http_api, path).items()
        if each == name
    }


def test_histograms_are_whole(http_api: Http, vhost: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        channel.queue("waits")
        channel.publish(b"x", routing_key="waits")
        assert channel.get("waits", no_ack=True) is not None
    for name in HISTOGRAMS:
        for path in ("/metrics", "/metrics/per-object", "/metrics/detailed?family=node_metrics"):
            answer = http_api("GET", path).octets.decode()
            family = next(each for each in text_string_to_metric_families(answer) if each.name == name)
            assert family.type == "histogram"
            buckets = [s.value for s in family.samples if s.name == name + "_bucket"]
            counts = {s.name: s.value for s in family.samples}
            assert buckets == sorted(buckets)
            assert buckets[-1] == counts[name + "_count"] >= 1
            assert counts[name + "_sum"] >= 0


def test_memory_by_use(http_api: Http, vhost: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        channel.queue("full")
        for _ in range(20):
            channel.publish(bytes(100_000), routing_key="full")
        deadline = Deadline()
        while values(http_api, "/metrics", "flintmq_memory_bytes")["messages_ready"] < 2_000_000:
            deadline.check()
        found = values(http_api, "/metrics", "flintmq_memory_bytes")
        assert set(found) == USES
        resident = values(http_api, "/metrics", "rabbitmq_process_resident_memory_bytes")[""]
        assert sum(found.values()) >= 0.9 * resident


def test_what_became_of_messages(http_api: Http, vhost: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    names = ("expired", "dropped", "dead_lettered", "dead_letters_unroutable", "refused", "lost")
    before = {name: values(http_api, "/metrics", f"flintmq_messages_{name}_total")[""] for name in names}
    with connect(url) as connection, connection.channel() as channel:
        channel.queue("graves")
        channel.queue("short", arguments={"x-max-length": 1})
        channel.queue(
            "brief", arguments={"x-message-ttl": 1, **LETTERS, "x-dead-letter-routing-key": "graves"}
        )
        channel.queue("lettered", arguments={**LETTERS, "x-dead-letter-routing-key": "nowhere"})
        channel.queue("closed", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        for name in ("short", "short", "short", "brief", "lettered", "closed", "closed"):
            channel.publish(b"x", routing_key=name)
        received = channel.get("lettered")
        assert received is not None
        received.reject(requeue=False)
        expected = {
            "expired": 1.0,  # of brief
            "dropped": 2.0,  # of short
            "dead_lettered": 2.0,  # of brief and lettered
            "dead_letters_unroutable": 1.0,  # of lettered
            "refused": 1.0,  # of closed
            "lost": 0.0,
        }
        deadline = Deadline()
        while True:
            now = {name: values(http_api, "/metrics", f"flintmq_messages_{name}_total")[""] for name in names}
            if {name: now[name] - before[name] for name in names} == expected:
                break
            deadline.check(now)
        each = scraped(http_api, f"/metrics/detailed?family=queue_metrics&vhost={vhost}")
        for queue, name in (("brief", "expired"), ("short", "dropped"), ("closed", "refused")):
            labels = (("queue", queue), ("vhost", vhost))
            assert each[f"flintmq_queue_messages_{name}_total", labels] == expected[name]
        labels = (("queue", "short"), ("vhost", vhost))
        assert each["flintmq_queue_messages_overflowed_total", labels] == 2.0
        shown = http_api.get(f"queues/{vhost}/short")
        assert [shown[f"messages_{name}"] for name in ("dropped", "expired", "lost")] == [2, 0, 0]
        labels = (("queue", "graves"), ("vhost", vhost))
        assert 0 <= each["flintmq_queue_oldest_message_age_seconds", labels] < 60
        assert each["rabbitmq_detailed_queue_head_message_timestamp", labels] > 1_700_000_000
    strategy = values(http_api, "/metrics", "rabbitmq_global_messages_dead_lettered_maxlen_total")
    assert strategy["disabled"] >= 2


def test_pipelines_and_syncs_of_the_journal(tmp_path: Path) -> None:
    state, settings = tmp_path / "state", tmp_path / "flintmq.toml"
    flow = FlowStatus(state="running", rows=7, lag_rows=5, lag_s=1.5)
    running = StatusFile(state, PipelineStatus("bars", "bars.toml", "running", flows={"main": flow}))
    running.write(1)
    ended = StatusFile(state, PipelineStatus("gone", "gone.toml", "running"))
    ended.write(1)
    ended.close()
    settings.write_text(f'[management]\nport = 0\npipelines = "{state}"\n')
    with BrokerProcess("--config", str(settings), "--data", str(tmp_path / "data")) as broker:
        api = Http(int(broker.wait_for(MANAGEMENT)[1]), broker.port)
        url = f"amqp://guest:guest@127.0.0.1:{broker.port}/"
        with connect(url) as connection, connection.channel(confirm=True) as channel:
            channel.queue("kept", durable=True)
            channel.publish(b"x", routing_key="kept", persistent=True)
        assert values(api, "/metrics", "flintmq_journal_sync_seconds_count")[""] >= 1
        syncs = values(api, "/metrics", "rabbitmq_io_sync_ops_total")[""]
        assert syncs == values(api, "/metrics", "flintmq_journal_sync_seconds_count")[""]
        for path in ("/metrics", "/metrics/detailed?family=pipeline_metrics"):
            found = scraped(api, path)
            labels = (("flow", "main"), ("pipeline", "bars"))
            assert found["flintmq_pipeline_lag_seconds", labels] == 1.5
            assert found["flintmq_pipeline_lag_rows", labels] == 5
            assert found["flintmq_pipeline_rows_total", labels] == 7
            assert found["flintmq_pipeline_up", (("pipeline", "bars"), ("state", "running"))] == 1
            assert found["flintmq_pipeline_up", (("pipeline", "gone"), ("state", "died"))] == 0
    running.close()


def test_tracing_over_http(http_api: Http, vhost: str) -> None:
    assert http_api.get(f"vhosts/{vhost}")["tracing"] is False
    for is_on in (True, False):
        assert http_api.ok("PUT", f"vhosts/{vhost}", {"tracing": is_on}) == 204
        assert http_api.get(f"vhosts/{vhost}")["tracing"] is is_on
    assert http_api("PUT", f"/api/vhosts/{vhost}", {"tracing": "maybe"}).status == 400
