"""Connections, channels and consumers: their names, their rates, and what holds them back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pika
from management_http import Http

from flintmq.client import connect

# Some looks of the management process, and something for a busy machine.
WAIT_S = 60.0


def awaited(look: Callable[[], Any]) -> Any:
    """What a look finds, once it finds something."""
    end_s = time.monotonic() + WAIT_S
    while not (found := look()):
        assert time.monotonic() < end_s
        time.sleep(0.1)
    return found


def test_channels_and_consumers_are_named_by_their_connection(http_api: Http, vhost: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url, name="order worker") as connection, connection.channel(prefetch=5) as channel:
        queue = channel.queue("named")
        with queue.consume(timeout_s=5):
            (consumer,) = awaited(lambda: http_api.get(f"consumers/{vhost}"))
            assert consumer["channel_details"]["user_provided_name"] == "order worker"
            assert consumer["channel_details"]["connection_name"].startswith("127.0.0.1:")
            (shown,) = http_api.get(f"vhosts/{vhost}/channels")
            assert shown["connection_details"]["user_provided_name"] == "order worker"
            assert shown["connection_details"]["name"] == consumer["channel_details"]["connection_name"]
            assert (consumer["held_back_by"], consumer["held_back_since"]) == (None, None)


def test_the_name_of_a_connection_is_found_by_the_filter(http_api: Http, vhost: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url, name="order worker") as connection, connection.channel():
        for kind in ("connections", "channels"):
            path = f"vhosts/{vhost}/{kind}?page=1&name="
            assert http_api.get(path + "Order+work")["filtered_count"] == 1
            assert http_api.get(path + "127.0.0.1")["filtered_count"] == 1
            assert http_api.get(path + "invoices")["filtered_count"] == 0
            assert http_api.get(path + "%5Eorder.*r%24&use_regex=true")["filtered_count"] == 1


def test_a_consumer_that_acks_nothing_waits_for_acks(http_api: Http, vhost: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    began_ms = 1000 * time.time()
    with connect(url) as connection, connection.channel(confirm=True, prefetch=2) as channel:
        queue = channel.queue("held")
        channel.publish_many([b"x"] * 5, routing_key="held")
        with queue.consume(timeout_s=5) as consumer:
            taken = consumer.take(2, timeout_s=5)

            def held() -> Any:
                (row,) = http_api.get(f"consumers/{vhost}")
                return row if row["held_back_by"] else None

            row = awaited(held)
            assert (row["held_back_by"], row["unacked"], row["activity_status"]) == ("acks", 2, "up")
            assert began_ms - 1000 <= row["held_back_since"] <= 1000 * time.time() - 9000
            (shown,) = http_api.get(f"queues/{vhost}/held")["consumer_details"]
            assert shown["held_back_by"] == "acks"
            taken[0].ack()
            awaited(lambda: held() is None)


def test_a_client_that_has_stopped_the_flow_holds_its_consumer_back(http_api: Http, vhost: str) -> None:
    parameters = pika.ConnectionParameters(port=http_api.amqp_port, virtual_host=vhost)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("stopped")
        channel.basic_consume("stopped", lambda *_: None)
        channel.flow(False)
        (row,) = http_api.get(f"consumers/{vhost}")
        assert row["held_back_by"] == "flow"
        assert "stopped the flow" in row["held_back_reason"]


def test_the_first_who_asks_is_told_of_rates_of_the_last_seconds(http_api: Http, vhost: str) -> None:
    """They are counted by looks of the management process, not by those of who asks."""
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        channel.exchange("busy", "fanout")
        end_s = time.monotonic() + 6
        while time.monotonic() < end_s:
            channel.publish(b"x" * 100, "busy")
            time.sleep(0.02)
        (shown,) = http_api.get(f"vhosts/{vhost}/channels")
        assert shown["message_stats"]["publish_details"]["rate"] > 5
        (row,) = http_api.get(f"vhosts/{vhost}/connections")
        assert row["recv_oct_details"]["rate"] > 500
        assert http_api.get(f"exchanges/{vhost}/busy")["message_stats"]["publish_in_details"]["rate"] > 5


def test_streams_are_told_apart(http_api: Http, vhost: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    before = http_api.get("overview")
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        channel.queue("kept", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue("work")
        channel.publish_many([b"x"] * 7, routing_key="kept")
        channel.publish_many([b"x"] * 2, routing_key="work")

        def added() -> Any:
            after = http_api.get("overview?lengths_age=60&lengths_incr=5")
            ready = after["queue_totals"]["messages_ready"] - before["queue_totals"]["messages_ready"]
            return after if ready == 9 else None  # as RabbitMQ counts them

        after = awaited(added)
        streams = after["stream_totals"]
        assert streams["messages"] - before["stream_totals"]["messages"] == 7
        assert streams["streams"] - before["stream_totals"]["streams"] == 1
        assert "rate" in streams["messages_details"]
        names = lambda types: [row["name"] for row in http_api.get(f"queues/{vhost}?type={types}")]  # noqa: E731
        assert names("stream") == ["kept"]
        assert names("classic,quorum") == ["work"]
        assert http_api("GET", f"/api/queues/{vhost}?type=lazy").status == 400
