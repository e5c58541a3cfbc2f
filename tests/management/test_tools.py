"""Tools that know RabbitMQ's HTTP API: pyrabbit2, amqpstorm's management client, Flower's broker page."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from amqpstorm.management import ApiError, ManagementApi
from management_http import Http
from pyrabbit2.api import Client
from pyrabbit2.http import HTTPError

from flintmq.client import connect
from flintmq.clock import Clock


def test_pyrabbit2(http_api: Http, vhost: str) -> None:
    client = Client(f"127.0.0.1:{http_api.port}", "guest", "guest")
    assert client.is_alive()
    assert client.is_alive(vhost)
    assert client.get_whoami()["name"] == "guest"
    assert client.get_overview()["rabbitmq_version"]
    assert len(client.get_nodes()) == 1
    assert vhost in client.get_vhost_names()
    assert client.get_vhost(vhost)["name"] == vhost
    assert client.create_exchange(vhost, "bills", "topic")
    assert client.get_exchange(vhost, "bills")["type"] == "topic"
    assert client.create_queue(vhost, "paid", durable=True)
    assert client.create_binding(vhost, "bills", "paid", "paid.*")
    assert client.publish(vhost, "bills", "paid.today", "12 pence")
    assert client.get_queue_depth(vhost, "paid") == 1
    (message,) = client.get_messages(vhost, "paid", requeue=True)
    assert message["payload"] == "12 pence"
    assert {each["routing_key"] for each in client.get_queue_bindings(vhost, "paid")} == {"paid", "paid.*"}
    assert client.purge_queue(vhost, "paid")
    assert client.get_queue_depth(vhost, "paid") == 0
    assert client.create_policy(vhost, "short", pattern="^p", definition={"max-length": 3})
    assert client.get_policy(vhost, "short")["definition"] == {"max-length": 3}
    client.delete_policy(vhost, "short")
    client.delete_binding(vhost, "bills", "paid", "paid.*")
    assert client.create_user("pyrabbit", "a long one", tags="monitoring")
    assert client.set_vhost_permissions(vhost, "pyrabbit", ".*", ".*", ".*")
    assert client.get_permission(vhost, "pyrabbit")["configure"] == ".*"
    client.delete_permission(vhost, "pyrabbit")
    client.delete_user("pyrabbit")
    client.delete_queue(vhost, "paid")
    client.delete_exchange(vhost, "bills")
    with pytest.raises(HTTPError, match="404"):
        client.get_queue(vhost, "paid")
    assert {"vhosts", "users", "queues"} <= client.get_definitions().keys()
    assert isinstance(client.get_extensions(), list)
    assert client.get_cluster_name()["name"]


def test_connections_of_pyrabbit2(http_api: Http, vhost: str) -> None:
    client = Client(f"127.0.0.1:{http_api.port}", "guest", "guest")
    with connect(f"amqp://localhost:{http_api.amqp_port}/{vhost}") as connection, connection.channel():
        (own,) = [each for each in client.get_connections() if each["vhost"] == vhost]
        (channel,) = [each for each in client.get_channels() if each["vhost"] == vhost]
        assert client.get_connection(own["name"])["user"] == "guest"
        assert client.get_channel(channel["name"])["number"] == channel["number"]


def test_amqpstorm(http_api: Http, vhost: str) -> None:
    api = ManagementApi(f"http://127.0.0.1:{http_api.port}", "guest", "guest")
    assert api.aliveness_test(vhost) == {"status": "ok"}
    assert api.healthchecks.get()["status"] == "ok"
    assert api.whoami()["name"] == "guest"
    (node,) = api.nodes()
    assert api.healthchecks.get(node["name"])["status"] == "ok"
    with pytest.raises(ApiError, match="NOT-FOUND"):
        api.healthchecks.get("other@host")
    assert api.overview()["node"] == node["name"]
    assert api.virtual_host.get(vhost)["name"] == vhost
    assert api.virtual_host.get_permissions(vhost)
    api.exchange.declare("bills", "topic", virtual_host=vhost, durable=True)
    assert api.exchange.get("bills", vhost)["durable"]
    api.queue.declare("paid", virtual_host=vhost, durable=True, arguments={"x-max-length": 10})
    api.queue.bind(queue="paid", exchange="bills", routing_key="paid", virtual_host=vhost)
    assert api.basic.publish("12 pence", "paid", exchange="bills", virtual_host=vhost) == {"routed": True}
    (message,) = api.basic.get("paid", virtual_host=vhost, requeue=True)
    assert message.body == "12 pence"
    assert api.queue.get("paid", vhost)["messages"] == 1
    assert "paid" in [each["name"] for each in api.queue.list(vhost)]
    assert len(api.queue.bindings("paid", vhost)) == 2
    api.queue.purge("paid", vhost)
    api.queue.unbind(queue="paid", exchange="bills", routing_key="paid", virtual_host=vhost)
    api.user.create("storm", "a long one", tags="monitoring")
    api.user.set_permission("storm", vhost)
    assert api.user.get_permission("storm", vhost)["write"] == ".*"
    api.user.delete_permission("storm", vhost)
    api.user.delete("storm")
    with connect(f"amqp://localhost:{http_api.amqp_port}/{vhost}") as connection, connection.channel():
        (own,) = [each for each in api.connection.list() if each["vhost"] == vhost]
        (channel,) = [each for each in api.channel.list() if each["vhost"] == vhost]
        assert api.channel.get(channel["name"])["vhost"] == vhost
        api.connection.close(own["name"], reason="enough")
    api.queue.delete("paid", vhost)
    api.exchange.delete("bills", vhost)
    with pytest.raises(ApiError, match="NOT-FOUND"):
        api.queue.get("paid", vhost)


def test_the_broker_page_of_flower(http_api: Http, tmp_path: Path) -> None:
    with (
        connect(f"amqp://localhost:{http_api.amqp_port}") as connection,
        connection.channel(confirm=True) as channel,
    ):
        queue = channel.queue("celery", durable=True)
        channel.publish_many([b"{}"] * 3, routing_key="celery")
        page = broker_page(http_api, tmp_path)
        queue.delete()
    row = re.search(r"<td>\s*celery\s*</td>(.*?)</tr>", page, re.S)
    assert row, page
    # Messages, unacked, ready, consumers, idle since.
    cells = re.findall(r"<td[^>]*>\s*(.*?)\s*</td>", row[1], re.S)
    assert cells[:4] == ["3", "0", "3", "0"]


def broker_page(http_api: Http, directory: Path) -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        *(sys.executable, "-m", "celery", "-b", f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}//"),
        *("flower", f"--port={port}", "--address=127.0.0.1", "--inspect_timeout=100"),
        f"--broker_api=http://guest:guest@127.0.0.1:{http_api.port}/api/",
    ]
    clock = Clock()
    with (directory / "flower.log").open("w") as log:
        flower = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)
        try:
            due_s = clock.monotonic_s() + 60
            while True:
                assert flower.poll() is None, (directory / "flower.log").read_text()
                try:
                    answer: Any = urllib.request.urlopen(f"http://127.0.0.1:{port}/broker", timeout=30)
                except urllib.error.URLError as error:
                    if clock.monotonic_s() > due_s or not isinstance(error.reason, ConnectionRefusedError):
                        raise
                    clock.sleep(0.1)
                else:
                    return str(answer.read().decode())
        finally:
            flower.terminate()
            flower.wait()
