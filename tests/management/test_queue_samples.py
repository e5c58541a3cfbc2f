"""Rates and samples of queues that nobody has looked at before."""

from __future__ import annotations

import time
from typing import Any

from management_http import Http

from flintmq.client import connect

LENGTHS = "lengths_age=600&lengths_incr=5"
SAMPLED = f"msg_rates_age=600&msg_rates_incr=5&{LENGTHS}"
# Two looks of the management process, and something for a busy machine.
TRAFFIC_S = 13.0


def is_history(details: dict[str, Any], count: int) -> bool:
    """Whether samples go back from a count, newest first, and average and rate are theirs."""
    samples = details["samples"]
    times = [each["timestamp"] for each in samples]
    numbers = [each["sample"] for each in samples]
    seconds = (times[0] - times[-1]) / 1000
    return (
        len(samples) >= 2
        and times == sorted(times, reverse=True)
        and numbers[0] <= count
        and abs(details["avg"] - sum(numbers) / len(numbers)) < 0.001
        and abs(details["avg_rate"] - (numbers[0] - numbers[-1]) / seconds) < 0.01
    )


def test_the_first_look_at_a_queue_has_its_rate_and_its_past(http_api: Http, vhost: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        channel.queue("busy")
        channel.queue("idle")
        end_s = time.monotonic() + TRAFFIC_S
        while time.monotonic() < end_s:
            channel.publish(b"x", routing_key="busy")
            time.sleep(0.02)
        listed = http_api.get(f"queues/{vhost}?columns=name,message_stats")
        (rate,) = [row["message_stats"]["publish_details"]["rate"] for row in listed if row["name"] == "busy"]
        assert rate > 5
        queue = http_api.get(f"queues/{vhost}/busy?{SAMPLED}")
        stats = queue["message_stats"]
        assert stats["publish_details"]["rate"] > 5
        assert stats["publish_details"]["avg_rate"] > 5
        for name in ("publish", "deliver_get", "ack"):
            assert is_history(stats[f"{name}_details"], stats[name]), name
        for name in ("messages", "messages_ready", "messages_unacknowledged"):
            assert is_history(queue[f"{name}_details"], queue[name]), name
        depths = [each["sample"] for each in queue["messages_ready_details"]["samples"]]
        assert depths == sorted(depths, reverse=True)
        # A queue that has not changed holds its values.
        idle = http_api.get(f"queues/{vhost}/idle?{SAMPLED}")
        assert "message_stats" not in idle
        assert {each["sample"] for each in idle["messages_details"]["samples"]} == {0}
        assert len(idle["messages_details"]["samples"]) >= 2
        # Without a query nothing is told but the rate, as in RabbitMQ.
        assert set(http_api.get(f"queues/{vhost}/busy")["messages_details"]) == {"rate"}
        column = "columns=name,messages_ready_details.samples"
        for path in (f"queues/{vhost}?{LENGTHS}", f"queues/{vhost}?page=1&{LENGTHS}", f"queues?{LENGTHS}"):
            found = http_api.get(f"{path}&{column}&name=busy")
            (row,) = found["items"] if "page" in path else found
            assert len(row["messages_ready_details"]["samples"]) >= 2, path


def test_long_lists_have_no_samples(http_api: Http, vhost: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url) as connection, connection.channel() as channel:
        for number in range(501):
            channel.queue(f"q{number:03}")
    rows = http_api.get(f"queues/{vhost}?{SAMPLED}")
    assert len(rows) == 501
    assert all(set(row["messages_details"]) == {"rate"} for row in rows)


def test_a_queue_that_is_declared_again_has_no_rate_of_the_one_before(http_api: Http, vhost: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        for published in (50, 1):
            channel.queue("again")
            for _ in range(published):
                channel.publish(b"x", routing_key="again")
            http_api.get(f"queues/{vhost}")
            time.sleep(1.2)
            queue = http_api.get(f"queues/{vhost}/again?{SAMPLED}")
            assert queue["message_stats"]["publish"] == published
            assert queue["message_stats"]["publish_details"]["rate"] >= 0
            assert queue["message_stats"]["publish_details"].get("avg_rate", 0) >= 0
            channel.delete_queue("again")


def test_queries_that_are_no_stretch_of_time(http_api: Http, vhost: str) -> None:
    http_api.ok("PUT", f"queues/{vhost}/q", {})
    for path in (f"queues/{vhost}/q", f"queues/{vhost}", "queues"):
        for query in ("lengths_age=x", "msg_rates_age=-1", "lengths_age=60&lengths_incr=0"):
            assert http_api("GET", f"/api/{path}?{query}").status == 400, (path, query)


def test_the_document_names_what_queues_take(http_api: Http) -> None:
    paths = http_api.get("openapi.json")["paths"]
    for path in ("/api/overview", "/api/queues", "/api/queues/{vhost}", "/api/queues/{vhost}/{name}"):
        named = {each["name"] for each in paths[path]["get"]["parameters"]}
        assert {"msg_rates_age", "msg_rates_incr", "lengths_age", "lengths_incr"} <= named, path
