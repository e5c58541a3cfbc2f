"""Pages, order, columns and names in lists, and rates."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from management_http import Http

from flintmq.client import connect
from flintmq.wire.properties import BasicProperties

MANAGEMENT = re.compile(r"management on http://127\.0\.0\.1:(\d+)")


@pytest.fixture
def filled(http_api: Http, vhost: str) -> Iterator[Http]:
    """Queues q0 to q9; the number in the name is how many messages each has."""
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        for number in range(10):
            channel.queue(f"q{number}")
            for _ in range(number):
                channel.publish(b"x", routing_key=f"q{number}")
        yield http_api


def test_pages_and_order(filled: Http, vhost: str) -> None:
    page = filled.get(f"queues/{vhost}?page=2&page_size=3&name=q[0-7]&use_regex=true&columns=name")
    counts = {name: value for name, value in page.items() if name != "items"}
    assert counts == {
        "filtered_count": 8,
        "item_count": 3,
        "page": 2,
        "page_count": 3,
        "page_size": 3,
        "total_count": 10,
    }
    assert page["items"] == [{"name": "q3"}, {"name": "q4"}, {"name": "q5"}]
    rows = filled.get(f"queues/{vhost}?sort=messages&sort_reverse=true&columns=name,messages")
    assert [row["messages"] for row in rows] == list(range(9, -1, -1))
    by_stats = filled.get(f"queues/{vhost}?sort=message_stats.publish&columns=message_stats.publish")
    assert [row.get("message_stats", {}).get("publish", 0) for row in by_stats] == list(range(10))


def test_wrong_queries(http_api: Http) -> None:
    wrong = ("page=0", "page=9", "page=x", "page=1&page_size=9999", "sort=a%20b", "name=(&use_regex=true")
    for query in wrong:
        answer = http_api("GET", f"/api/queues/%2F?{query}")
        assert answer.status == 400, query
        assert set(answer.json()) == {"error", "reason"}


def test_long_lists_come_in_portions(http_api: Http, vhost: str) -> None:
    """A list that is streamed is one array, with all of it."""
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url) as connection, connection.channel() as channel:
        for number in range(600):
            channel.queue(f"q{number:03}")
    names = [row["name"] for row in http_api.get(f"queues/{vhost}?columns=name")]
    assert names == [f"q{number:03}" for number in range(600)]
    assert len(http_api.get(f"bindings/{vhost}")) == 600


def test_what_is_counted(http_api: Http, vhost: str) -> None:
    """message_stats of a queue, a channel, an exchange and the virtual host, after each kind of operation."""
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        channel.queue("q", arguments={"x-max-priority": 3})
        channel.exchange("e", "fanout")
        channel.bind_queue("q", "e")
        for _ in range(7):
            channel.publish(b"x", "e", "any")
        channel.publish(b"x", routing_key="nowhere")
        assert channel.get("q", no_ack=True)
        first = channel.get("q")
        assert first is not None
        first.reject(requeue=True)
        with channel.consume("q") as consumer:
            taken = consumer.take(6, 5)
            while len(taken) < 6:
                taken += consumer.take(6, 5)
            assert sum(message.redelivered for message in taken) == 1
            for message in taken[:4]:
                message.ack()
            taken[4].reject(requeue=False)
            channel.queue("q", passive=True, arguments={"x-max-priority": 3})  # all of that is done
            queue = http_api.get(f"queues/{vhost}/q")
            (row,) = [row for row in http_api.get("channels") if row["vhost"] == vhost]
    stats = {name: value for name, value in queue["message_stats"].items() if not name.endswith("details")}
    assert stats == {
        "ack": 4,
        "deliver": 6,
        "deliver_get": 8,
        "deliver_no_ack": 0,
        "get": 1,
        "get_empty": 0,
        "get_no_ack": 1,
        "publish": 7,
        "redeliver": 1,
    }
    assert (queue["messages_ready"], queue["messages_unacknowledged"]) == (0, 1)
    of_channel = row["message_stats"]
    assert (of_channel["publish"], of_channel["confirm"]) == (8, 8)
    assert (of_channel["drop_unroutable"], of_channel["return_unroutable"]) == (1, 0)
    assert (of_channel["deliver"], of_channel["get"], of_channel["get_no_ack"]) == (6, 1, 1)
    assert (of_channel["ack"], of_channel["redeliver"]) == (4, 1)
    exchange = http_api.get(f"exchanges/{vhost}/e")["message_stats"]
    assert (exchange["publish_in"], exchange["publish_out"]) == (7, 7)
    whole = http_api.get(f"vhosts/{vhost}")["message_stats"]
    assert (whole["publish"], whole["ack"], whole["deliver_get"]) == (8, 4, 8)


def test_octets_of_a_virtual_host_are_those_of_all_its_connections(http_api: Http, vhost: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        channel.queue("q")
        channel.publish(b"x" * 100_000, routing_key="q")
        during = http_api.get(f"vhosts/{vhost}")
    assert during["recv_oct"] > 100_000 > during["send_oct"] > 0
    assert set(during["recv_oct_details"]) == set(during["send_oct_details"]) == {"rate"}
    time.sleep(0.2)  # totals are as fresh as that
    after = http_api.get(f"vhosts/{vhost}")
    assert during["recv_oct"] < after["recv_oct"] < during["recv_oct"] + 10_000
    assert during["send_oct"] <= after["send_oct"]


def test_what_is_said_of_a_virtual_host(http_api: Http, vhost: str) -> None:
    name = f"{vhost}-2"
    said = {"description": "all orders", "tags": "shop,eu", "default_queue_type": "quorum"}
    assert http_api("PUT", f"/api/vhosts/{name}", said | {"default_queue_type": "fast"}).status == 400
    assert http_api.ok("PUT", f"vhosts/{name}", said) == 201
    shown = http_api.get(f"vhosts/{name}")
    assert http_api.ok("PUT", f"vhosts/{name}", {"description": "those of today"}) == 204
    later = http_api.get(f"vhosts/{name}")
    assert http_api.ok("DELETE", f"vhosts/{name}") == 204
    about = {"description": "all orders", "tags": ["shop", "eu"], "default_queue_type": "quorum"}
    assert {key: shown[key] for key in about} == shown["metadata"] == about
    assert later["metadata"] == {**about, "description": "those of today"}
    plain = http_api.get(f"vhosts/{vhost}")
    assert plain["metadata"] == {"description": "", "tags": []}
    assert plain["default_queue_type"] == "undefined"


def test_values_that_json_does_not_have(http_api: Http, vhost: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    arguments = {"x-large": 2**63 - 1, "x-octets": b"\xff", "x-cost": Decimal("1.5"), "x-none": None}
    with connect(url) as connection, connection.channel() as channel:
        channel.queue("q", arguments=arguments)
        (row,) = http_api.get(f"queues/{vhost}")
    assert row["arguments"] == {"x-large": 2**63 - 1, "x-octets": "\ufffd", "x-cost": 1.5, "x-none": None}


def test_names_of_arguments_that_are_no_text(http_api: Http, vhost: str) -> None:
    """Octets that are not UTF-8 in the name of one argument, or of one header, hide no list."""
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        channel.queue("q", arguments={"\udcff": 1, "in": {"\udcfe": [{"\udcfd": 2}]}})
        channel.publish(b"x", routing_key="q", properties=BasicProperties(headers={"\udcff": 3}))
        (row,) = http_api.get(f"queues/{vhost}?sort=arguments")
        taken = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
        messages = http_api("POST", f"/api/queues/{vhost}/q/get", taken).json()
        peeked = http_api.get(f"flintmq/queues/{vhost}/q/peek")["messages"]
    assert row["arguments"] == {"?": 1, "in": {"?": [{"?": 2}]}}
    for message in (*messages, *peeked):
        assert message["properties"]["headers"] == {"?": 3}


def test_definitions_of_arguments_that_json_does_not_have(http_api: Http, vhost: str) -> None:
    """They are exported with the rest, and their octets can be imported."""
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    arguments = {"\udcff": 1, "octets": b"\xff", "none": math.nan, "in": {"none": -math.inf}}
    with connect(url) as connection, connection.channel() as channel:
        channel.queue("q", arguments=arguments)
    definitions = http_api.get(f"definitions/{vhost}")
    (queue,) = definitions["queues"]
    assert queue["arguments"] == {"\udcff": 1, "octets": "\udcff", "none": None, "in": {"none": None}}
    http_api.ok("DELETE", f"queues/{vhost}/q")
    http_api.ok("POST", f"definitions/{vhost}", definitions)
    assert http_api.get(f"definitions/{vhost}")["queues"] == [queue]


def test_a_quorum_queue_is_told_as_one_with_the_policy_of_its_type(http_api: Http, vhost: str) -> None:
    for name, kind in (("plain", "classic"), ("voted", "quorum"), ("kept", "stream")):
        target = "streams" if kind == "stream" else f"{kind}_queues"
        policy = {"pattern": ".*", "definition": {"max-length-bytes": 1_000_000}, "apply-to": target}
        http_api.ok("PUT", f"policies/{vhost}/of-{kind}", policy)
        queue = {"durable": True, "arguments": {"x-queue-type": kind}}
        http_api.ok("PUT", f"queues/{vhost}/{name}", queue)
    rows = http_api.get(f"queues/{vhost}?columns=name,type,policy")
    assert {row["name"]: (row["type"], row["policy"]) for row in rows} == {
        "plain": ("classic", "of-classic"),
        "voted": ("quorum", "of-quorum"),
        "kept": ("stream", "of-stream"),
    }


def test_octets_of_messages_on_disk_are_told_after_a_restart(tmp_path: Path) -> None:
    """Of a plain queue, one with priorities, one with a body in a file, one whose messages wait, a stream."""
    retried = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 3_600_000}
    bodies = {"plain": 1000, "ranked": 300, "large": 5_000_000, "retried": 500, "kept": 200}
    arguments = {"ranked": {"x-max-priority": 5}, "retried": retried, "kept": {"x-queue-type": "stream"}}
    options = ("--data", str(tmp_path), "--management-port", "0")
    with (
        BrokerProcess(*options) as broker,
        connect(f"amqp://guest:guest@127.0.0.1:{broker.port}") as connection,
        connection.channel(confirm=True) as channel,
    ):
        for name, octets in bodies.items():
            channel.queue(name, durable=True, arguments=arguments.get(name, {}))
            for number in range(3):
                channel.publish(
                    b"x" * octets,
                    routing_key=name,
                    properties=BasicProperties(delivery_mode=2, priority=number),
                )
        rejected = channel.get("retried")
        assert rejected is not None
        rejected.reject(requeue=True)
        channel.queue("retried", passive=True, arguments=retried)  # it has been rejected
    with BrokerProcess(*options) as broker:
        http_api = Http(int(broker.wait_for(MANAGEMENT)[1]), broker.port)
        rows = {row["name"]: row for row in http_api.get("queues/%2F")}
        told = {name: row["message_bytes"] for name, row in rows.items()}
        assert told.pop("kept") > 3 * 200
        assert told == {"plain": 3000, "ranked": 900, "large": 15_000_000, "retried": 1000}
        assert rows["plain"]["message_bytes_ready"] == rows["plain"]["message_bytes_persistent"] == 3000
        assert rows["plain"]["message_bytes_paged_out"] == 3000
        assert rows["plain"]["message_bytes_ram"] == rows["plain"]["memory"] == 0
        assert rows["ranked"]["messages_paged_out"] == 3
        assert rows["ranked"]["messages_ram"] == 0
        assert rows["kept"]["messages_ram"] == 0
        by_size = http_api.get("queues/%2F?sort=message_bytes&sort_reverse=true&columns=name")
        assert [row["name"] for row in by_size][:2] == ["large", "plain"]
        metrics = http_api("GET", "/metrics/per-object").octets.decode()
        assert re.search(r'^rabbitmq_queue_messages_bytes\{.*queue="plain".*\} 3000', metrics, re.M)
        # In memory, and given back: they are counted there.
        with (
            connect(f"amqp://guest:guest@127.0.0.1:{broker.port}") as connection,
            connection.channel() as channel,
        ):
            first = channel.get("plain")
            assert first is not None
            first.reject(requeue=True)
            channel.queue("plain", durable=True, passive=True)
            row = http_api.get("queues/%2F/plain")
            while row["message_bytes_paged_out"]:  # as of the list above, which may answer for a moment
                row = http_api.get("queues/%2F/plain")
        assert 3000 < row["message_bytes_ram"] == row["message_bytes"] < 3300
