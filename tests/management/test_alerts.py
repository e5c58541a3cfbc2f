"""The alert rules of docs/alerts.md: promtool sees each of them fire, and none while all is well."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from management_http import Http

from flintmq.pipelines.run.status import FlowStatus, PipelineStatus, StatusFile

PAGE = Path(__file__).parents[2] / "docs" / "alerts.md"
MANAGEMENT = re.compile(r"management on http://127\.0\.0\.1:(\d+)")
RULES = re.search(r"^```yaml\n(# flintmq-rules.yml\n.*?)^```", PAGE.read_text(), re.S | re.M)
assert RULES is not None
ALERTS = re.findall(r"alert: (\w+)", RULES[1])

BROKER, QUEUE = '{job="flintmq"}', '{job="flintmq-queues",vhost="/",queue="q"}'
BUCKETS = (("0.05", "0+10x120"), ("1.0", "0+20x120"), ("+Inf", "0+20x120"))


def series(name: str, values: str, labels: str = BROKER) -> dict[str, str]:
    return {"series": name + labels, "values": values}


def histogram(name: str) -> list[dict[str, str]]:
    """Of which a half takes a second."""
    return [series(f"{name}_bucket", values, f'{{job="flintmq",le="{le}"}}') for le, values in BUCKETS]


# What Prometheus has scraped each minute for two hours when an alert fires.
TROUBLE: dict[str, list[dict[str, str]]] = {
    "FlintMQDown": [series("up", "0x120")],
    "FlintMQRestarted": [series("rabbitmq_erlang_uptime_seconds", "9x120")],
    "FlintMQMemoryAlarm": [series("rabbitmq_alarms_memory_used_watermark", "1x120")],
    "FlintMQMemoryShort": [
        series("rabbitmq_process_resident_memory_bytes", "80x120"),
        series("rabbitmq_resident_memory_limit_bytes", "100x120"),
    ],
    "FlintMQDiskAlarm": [series("rabbitmq_alarms_free_disk_space_watermark", "1x120")],
    "FlintMQDiskFillsUp": [
        # 100 GB, of which half a GB is gone in a minute.
        series("rabbitmq_disk_space_available_bytes", "100000000000-500000000x120"),
        series("rabbitmq_disk_space_available_limit_bytes", "268435456x120"),
    ],
    "FlintMQPublishersBlocked": [series("flintmq_connections_blocked", "1x120")],
    "FlintMQMessagesLost": [series("flintmq_messages_lost_total", "1x120")],
    "FlintMQMessagesToNowhere": [series("flintmq_messages_dead_letters_unroutable_total", "0+1x120")],
    "FlintMQMessagesRefused": [series("flintmq_messages_refused_total", "0+1x120")],
    "FlintMQJournalSlow": histogram("flintmq_journal_sync_seconds"),
    "FlintMQLoopSlow": histogram("flintmq_turn_seconds"),
    "FlintMQFewDescriptors": [
        series("rabbitmq_process_open_fds", "95x120"),
        series("rabbitmq_process_max_fds", "100x120"),
    ],
    # Time begins at 0 in such a test: the certificate ends after three hours.
    "FlintMQCertificateEnds": [series("flintmq_certificate_expiry_timestamp_seconds", "10800x120")],
    "FlintMQLoginsFail": [
        series("rabbitmq_auth_attempts_failed_total", "0+120x120", '{job="flintmq",protocol="amqp091"}')
    ],
    "FlintMQPipelineDown": [series("flintmq_pipeline_up", "0x120")],
    "FlintMQPipelineLag": [series("flintmq_pipeline_lag_seconds", "90x120")],
    "FlintMQQueueWithoutConsumer": [
        series("rabbitmq_detailed_queue_messages_ready", "3x120", QUEUE),
        series("rabbitmq_detailed_queue_consumers", "0x120", QUEUE),
    ],
    "FlintMQQueueGrows": [series("rabbitmq_detailed_queue_messages_ready", "2000+10x120", QUEUE)],
    "FlintMQQueueLate": [series("flintmq_queue_oldest_message_age_seconds", "0+60x120", QUEUE)],
    "FlintMQRetriesFail": [series("flintmq_queue_messages_delayed", "150x120", QUEUE)],
    "FlintMQUnackedStuck": [
        series("rabbitmq_detailed_queue_messages_unacked", "4x120", QUEUE),
        series("flintmq_queue_messages_acked_total", "70x120", QUEUE),
    ],
}
# The other way into a rule that has two.
SECOND = {
    "FlintMQMessagesToNowhere": [series("rabbitmq_global_messages_unroutable_dropped_total", "0+1x120")]
}
# The same metrics of a broker that is well, where that is not a 0 of them.
WELL = {
    "up": "1x120",
    "rabbitmq_erlang_uptime_seconds": "1000+60x120",
    "rabbitmq_resident_memory_limit_bytes": "1000x120",
    "rabbitmq_disk_space_available_bytes": "100000000000x120",
    "rabbitmq_process_max_fds": "100000x120",
    "flintmq_certificate_expiry_timestamp_seconds": "99999999x120",
    "flintmq_pipeline_up": "1x120",
    "rabbitmq_detailed_queue_consumers": "1x120",
    "flintmq_queue_messages_acked_total": "0+60x120",
    "flintmq_turn_seconds_bucket": "0+20x120",
    "flintmq_journal_sync_seconds_bucket": "0+20x120",
}


def sees(tmp_path: Path, inputs: list[dict[str, str]], firing: list[str]) -> None:
    """Has promtool check which alerts fire after two hours."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool comes with Debian's package prometheus")
    assert RULES is not None
    (tmp_path / "rules.yml").write_text(RULES[1])
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(firing)]
    expected = {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": "115m",
        "exp_samples": samples,
    }
    test: dict[str, Any] = {"interval": "1m", "input_series": inputs, "promql_expr_test": [expected]}
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}))
    ran = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, timeout=60)
    assert ran.returncode == 0, (ran.stdout + ran.stderr).decode()


@pytest.mark.parametrize("alert", ALERTS)
def test_each_rule_fires(alert: str, tmp_path: Path) -> None:
    sees(tmp_path, TROUBLE[alert], [alert])
    if alert in SECOND:
        sees(tmp_path, SECOND[alert], [alert])


def test_none_fires_while_all_is_well(tmp_path: Path) -> None:
    known = {each["series"]: each for inputs in (*TROUBLE.values(), *SECOND.values()) for each in inputs}
    well = [{"series": name, "values": WELL.get(name.partition("{")[0], "0x120")} for name in known]
    sees(tmp_path, well, [])


def test_the_broker_tells_each_metric_that_a_rule_asks_for(tmp_path: Path) -> None:
    state, settings = tmp_path / "state", tmp_path / "flintmq.toml"
    flow = FlowStatus(state="running", rows=7, lag_rows=5, lag_s=1.5)
    StatusFile(state, PipelineStatus("bars", "bars.toml", "running", flows={"main": flow})).write(1)
    settings.write_text(f'[management]\nport = 0\npipelines = "{state}"\n')
    assert RULES is not None
    asked = set(re.findall(r"\b(?:rabbitmq|flintmq)_\w+", RULES[1]))
    assert len(asked) > 20
    with BrokerProcess("--config", str(settings), "--data", str(tmp_path / "data")) as broker:
        api = Http(int(broker.wait_for(MANAGEMENT)[1]), broker.port)
        api.ok("PUT", "queues/%2F/q", {})
        text = "".join(
            api("GET", path).octets.decode()
            for path in ("/metrics", "/metrics/detailed?family=queue_coarse_metrics")
        )
        told = set(re.findall(r"^# TYPE (\w+)", text, re.M))
        limit = re.search(r"^rabbitmq_disk_space_available_limit_bytes (\d+)$", text, re.M)
    assert {name.removesuffix("_bucket") for name in asked} <= told
    assert limit is not None
    assert int(limit[1]) > 0
