"""docs/alerts.md: the scrapes and the rules that it shows name what a running broker gives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from broker_process import BrokerProcess
from management_http import Http
from prometheus_client.parser import text_string_to_metric_families

from flintmq.client import connect
from flintmq.pipelines.run.status import FlowStatus, PipelineStatus, StatusFile

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "alerts.md").read_text()
SCRAPES, LOGIN, RULES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.S | re.M)
ALERTS: list[dict[str, Any]] = [rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]
MANAGEMENT = re.compile(r"management on http://127\.0\.0\.1:(\d+)")
# Of Prometheus itself.
OF_PROMETHEUS = {"up"}
OF_TLS = {"flintmq_certificate_expiry_timestamp_seconds"}  # told where the broker has certificates
NOT_METRICS = {"and", "or", "unless", "by", "on", "sum", "instance", "protocol"}

Sample = tuple[str, frozenset[str]]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[Sample]]]:
    """By job the names of metrics that the page's scrapes find, each with its labels."""
    folder = tmp_path_factory.mktemp("alerts")
    flow = FlowStatus(state="running", rows=7, lag_rows=5, lag_s=1.5)
    pipeline = StatusFile(folder, PipelineStatus("bars", "bars.toml", "running", flows={"main": flow}))
    pipeline.write(1)
    settings = folder / "flintmq.toml"
    settings.write_text(f'[management]\nport = 0\npipelines = "{folder}"\n')
    with BrokerProcess("--config", str(settings), "--data", str(folder / "data")) as broker:
        api = Http(int(broker.wait_for(MANAGEMENT)[1]), broker.port, user="")
        url = f"amqp://guest:guest@127.0.0.1:{broker.port}/"
        with connect(url) as connection, connection.channel(confirm=True) as channel:
            channel.queue("kept", durable=True)
            channel.publish(b"x", routing_key="kept", persistent=True)
            yield {job["job_name"]: samples(api, job) for job in yaml.safe_load(SCRAPES)["scrape_configs"]}
    pipeline.close()


def samples(api: Http, job: dict[str, Any]) -> set[Sample]:
    query = "&".join(f"{name}={value}" for name, values in job.get("params", {}).items() for value in values)
    answer = api("GET", job["metrics_path"] + ("?" + query if query else ""))
    assert answer.status == 200
    return {
        (sample.name, frozenset(sample.labels))
        for family in text_string_to_metric_families(answer.octets.decode())
        for sample in family.samples
    }


def selectors(expression: str) -> list[tuple[str, str]]:
    """Each metric that an expression names, and the job that it asks for, if it does."""
    found = re.findall(r'([a-z_]\w*)(?:\{job="([^"]+)"\})?(?![\w(]*\()', re.sub(r"\[\w+\]", "", expression))
    return [(name, job) for name, job in found if name not in NOT_METRICS and not name.isdigit()]


def test_names_are_found_in_expressions() -> None:
    expression = 'histogram_quantile(0.99, rate(a_bucket{job="f"}[5m])) > 0.2 and b / c{job="f-g"} == 0'
    assert selectors(expression) == [("a_bucket", "f"), ("b", ""), ("c", "f-g")]


@pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])
def test_a_rule_names_metrics_that_a_broker_gives(
    alert: dict[str, Any], scraped: dict[str, set[Sample]]
) -> None:
    named = selectors(alert["expr"])
    assert named
    for name, job in named:
        if name in OF_PROMETHEUS | OF_TLS:
            assert job in scraped
            continue
        jobs = [each for each, found in scraped.items() if name in {known for known, _ in found}]
        assert job in jobs if job else len(jobs) == 1, f"{name} is in {jobs}"
    assert f"`{alert['alert']}`" in PAGE.partition("| alert | why")[2], "the page says why there is the rule"


def test_metrics_of_one_queue_can_be_joined(scraped: dict[str, set[Sample]]) -> None:
    """`and` holds samples with the same labels together."""
    labels = {labels for _, labels in scraped["flintmq-queues"]}
    assert labels == {frozenset({"queue", "vhost"})}


def test_each_alert_has_a_name_of_its_own_and_a_severity() -> None:
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS) > 12
    assert {alert["labels"]["severity"] for alert in ALERTS} == {"page", "ticket", "info"}


def test_the_login_is_what_a_job_may_have() -> None:
    given = yaml.safe_load("\n".join(line.removeprefix("    ") for line in LOGIN.splitlines()))
    assert given.keys() == {"basic_auth", "scheme", "tls_config"}
