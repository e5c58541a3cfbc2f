"""Messages over HTTP: publish and get in all their modes, peek, search, move."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from broker_process import BrokerProcess
from management_http import Http

from flintmq.client import connect

PUBLISH = "exchanges/{}/amq.default/publish"


def publish(http_api: Http, vhost: str, key: str, payload: str, **properties: object) -> bool:
    body = {"properties": properties, "routing_key": key, "payload": payload}
    answer = http_api("POST", f"/api/{PUBLISH.format(vhost)}", body)
    assert answer.status == 200, answer
    routed: bool = answer.json()["routed"]
    return routed


def test_publish_and_get(http_api: Http, vhost: str) -> None:
    http_api.ok("PUT", f"queues/{vhost}/q")
    headers = {"n": 1, "deep": {"list": ["a", True, None]}}
    assert publish(http_api, vhost, "q", "héllo", headers=headers, delivery_mode=2, priority=3, timestamp=7)
    assert not publish(http_api, vhost, "nowhere", "x")
    octets = base64.b64encode(b"\xff\x00").decode()
    body = {"properties": {}, "routing_key": "q", "payload": octets, "payload_encoding": "base64"}
    assert http_api("POST", f"/api/{PUBLISH.format(vhost)}", body).json() == {"routed": True}
    ask = {"count": 5, "ackmode": "reject_requeue_true", "encoding": "auto"}
    first, second = http_api("POST", f"/api/queues/{vhost}/q/get", ask).json()
    assert first == {
        "payload_bytes": 6,
        "payload": "héllo",
        "payload_encoding": "string",
        "redelivered": False,
        "exchange": "",
        "routing_key": "q",
        "properties": {"headers": headers, "delivery_mode": 2, "priority": 3, "timestamp": 7},
        "message_count": 1,
    }
    assert (second["payload"], second["payload_encoding"], second["message_count"]) == (octets, "base64", 0)
    ask = {"count": 5, "ackmode": "ack_requeue_false", "encoding": "base64", "truncate": 2}
    (again, _) = http_api("POST", f"/api/queues/{vhost}/q/get", ask).json()
    assert (again["redelivered"], base64.b64decode(again["payload"])) == (True, "hé".encode()[:2])
    assert http_api("POST", f"/api/queues/{vhost}/q/get", ask).json() == []
    assert http_api("POST", f"/api/queues/{vhost}/nothing/get", ask).status == 404


def test_what_cannot_be_published(http_api: Http) -> None:
    fine = {"properties": {}, "routing_key": "q", "payload": "x"}
    for change in (
        {"properties": {"priority": "high"}},
        {"properties": {"colour": 1}},
        {"routing_key": 1},
        {"payload": None},
        {"payload": "?", "payload_encoding": "base64"},
        {"payload_encoding": "rot13"},
    ):
        answer = http_api("POST", f"/api/{PUBLISH.format('%2F')}", fine | change)
        assert answer.status == 400, change
    assert http_api("POST", "/api/exchanges/%2F/nothing/publish", fine).status == 404


def test_peek_search_and_move(http_api: Http, vhost: str) -> None:
    for name in ("q", "other"):
        http_api.ok("PUT", f"queues/{vhost}/{name}")
    for number in range(5):
        publish(http_api, vhost, "q", f"message {number}", headers={"n": number})
    look = http_api.get(f"flintmq/queues/{vhost}/q/peek?limit=2")
    assert [row["payload"] for row in look["messages"]] == ["message 0", "message 1"]
    assert look["messages"][1]["properties"] == {"headers": {"n": 1}}
    rest = http_api.get(f"flintmq/queues/{vhost}/q/peek?after={look['last']}")
    assert [row["payload"] for row in rest["messages"]] == ["message 2", "message 3", "message 4"]
    found = http_api.get(f"flintmq/queues/{vhost}/q/peek?selector=n%20%3E%203")
    assert [row["payload"] for row in found["messages"]] == ["message 4"]
    moved = http_api("POST", f"/api/flintmq/queues/{vhost}/q/move", {"to": "other", "limit": 3})
    assert moved.status == 200
    counts = {row["name"]: row["messages"] for row in http_api.get(f"queues/{vhost}")}
    assert counts == {"q": 2, "other": 3}
    queue = http_api.get(f"queues/{vhost}/q")
    assert queue["oldest_age_ms"] >= 0


def test_declarations(http_api: Http, vhost: str) -> None:
    """201 for what is new, 204 for what is there, 400 for what is otherwise, 404 for what is not."""
    queue = {"durable": True, "arguments": {"x-max-length": 5}}
    assert http_api.ok("PUT", f"queues/{vhost}/q", queue) == 201
    assert http_api.ok("PUT", f"queues/{vhost}/q", queue) == 204
    other = http_api("PUT", f"/api/queues/{vhost}/q", {"durable": False})
    assert other.status == 400
    assert "inequivalent" in other.json()["reason"]
    assert http_api.ok("PUT", f"exchanges/{vhost}/e", {"type": "direct"}) == 201
    assert http_api("PUT", f"/api/exchanges/{vhost}/f", {"type": "nonsense"}).status == 400
    assert http_api("PUT", f"/api/exchanges/{vhost}/f", {}).status == 400
    path = f"bindings/{vhost}/e/e/q/q"
    made = http_api("POST", f"/api/{path}", {"routing_key": "a/b~c", "arguments": {"x": 1}})
    assert made.status == 201
    place, _, key = made.headers["location"].partition("/")
    assert place == "q"
    assert http_api.get(f"{path}/{key}")["routing_key"] == "a/b~c"
    assert http_api.ok("DELETE", f"{path}/{key}") == 204
    assert http_api.get(path) == []
    arguments = {"x-match": "all", "n": 5, "large": 2**40, "f": 1.5, "in": {"a": [1, None, True]}}
    for given in (arguments, dict(reversed(arguments.items())), {}):
        made = http_api("POST", f"/api/{path}", {"routing_key": "k", "arguments": given})
        key = made.headers["location"].rpartition("/")[2]
        assert http_api.get(f"{path}/{key}")["arguments"] == given
    assert len(http_api.get(path)) == 2
    assert http_api("POST", f"/api/bindings/{vhost}/e/e/q/nothing", {}).status == 404
    assert http_api("DELETE", f"/api/exchanges/{vhost}/nothing").status == 404
    assert http_api.ok("DELETE", f"queues/{vhost}/q?if-empty=true") == 204
    assert http_api("DELETE", f"/api/queues/{vhost}/q").status == 404
    assert http_api("GET", f"/api/queues/{vhost}-missing").status == 404


@pytest.mark.parametrize("arguments", [{}, {"x": 1}], ids=["plain", "with-arguments"])
@pytest.mark.parametrize("key", ["#", "a.*", "a b", "a+b", "%23", "plain"])
def test_tools_find_the_binding_that_they_have_made(
    http_api: Http, vhost: str, key: str, arguments: dict[str, int]
) -> None:
    """Terraform decodes the last segment of Location; Ansible puts the key as it is listed into the path."""
    http_api.ok("PUT", f"queues/{vhost}/a%20q", {})
    http_api.ok("PUT", f"exchanges/{vhost}/t", {"type": "topic"})
    path = f"bindings/{vhost}/e/t/q/a%20q"
    made = http_api("POST", f"/api/{path}", {"routing_key": key, "arguments": arguments})
    place, _, last = made.headers["location"].rpartition("/")
    (found,) = http_api.get(path)
    assert (place, unquote(last)) == ("a%20q", found["properties_key"])
    assert http_api.ok("DELETE", f"{path}/{found['properties_key']}") == 204
    assert http_api.get(path) == []


def fill(broker: BrokerProcess, vhost: str, queue: str, bodies: list[bytes]) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}/{vhost}"
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        for body in bodies[:10]:
            channel.publish(body, routing_key=queue)
        channel.publish_many(bodies[10:], "", queue)


def test_all_that_wait_are_moved_and_copied(http_api: Http, broker: BrokerProcess, vhost: str) -> None:
    for name in ("q", "other", "third"):
        http_api.ok("PUT", f"queues/{vhost}/{name}", {"durable": False})
    path = f"/api/flintmq/queues/{vhost}/q"
    assert http_api("POST", f"{path}/move", {"to": "other"}).json() == {"moved": 0, "left": 0}
    assert http_api("POST", f"{path}/move", {"to": "nothing"}).status == 404
    fill(broker, vhost, "q", [b"%d" % number for number in range(12_500)])
    assert http_api("POST", f"{path}/copy", {"to": "other"}).json()["copied"] == 12_500
    assert http_api("POST", f"{path}/copy", {"to": "q", "limit": 20_000}).json()["copied"] == 12_500
    assert http_api("POST", f"{path}/move", {"to": "third", "limit": 11_000}).json() == {
        "moved": 11_000,
        "left": 14_000,
    }
    assert http_api("POST", f"{path}/move", {"to": "third"}).json() == {"moved": 14_000, "left": 0}
    last = http_api.get(f"flintmq/queues/{vhost}/third/peek?after=24998")
    assert [row["payload"] for row in last["messages"]] == ["12499"]


def test_numbers_with_too_many_digits(http_api: Http, vhost: str) -> None:
    http_api.ok("PUT", f"queues/{vhost}/q", {})
    many = "1" * 5000
    for path in (
        "queues?page=1&page_size=000000000001000000",
        f"queues?page={many}",
        f"flintmq/queues/{vhost}/q/peek?limit=00000000000199999",
    ):
        assert http_api("GET", f"/api/{path}").status == 400, path[:60]
    for count in (many, "\u0662", "--5", "-1"):
        ask = {"count": count, "ackmode": "ack_requeue_true", "encoding": "auto"}
        assert http_api("POST", f"/api/queues/{vhost}/q/get", ask).status == 400, count[:60]
        body = {"properties": {"priority": count}, "routing_key": "q", "payload": "x"}
        assert http_api("POST", f"/api/{PUBLISH.format(vhost)}", body).status == 400, count[:60]
    for priority in (many, "\u0662", "--5"):
        policy = {"pattern": "x", "definition": {"max-length": 1}, "priority": priority}
        assert http_api("PUT", f"/api/policies/{vhost}/p", policy).status == 400, priority[:60]
    assert http_api.ok("PUT", f"policies/{vhost}/p", policy | {"priority": "-5"}) == 201
    assert http_api.get(f"policies/{vhost}/p")["priority"] == -5


def test_requeue_says_whether_more_is_left(http_api: Http, vhost: str) -> None:
    http_api.ok("PUT", f"queues/{vhost}/grave")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
    http_api.ok("PUT", f"queues/{vhost}/living", {"arguments": letters})
    for number in range(5):
        publish(http_api, vhost, "living", f"{number}")
    ask = {"count": 5, "ackmode": "reject_requeue_false", "encoding": "auto"}
    assert len(http_api("POST", f"/api/queues/{vhost}/living/get", ask).json()) == 5
    publish(http_api, vhost, "grave", "never died")
    path = f"/api/flintmq/queues/{vhost}/grave/requeue"
    assert http_api("POST", path, {"limit": 2}).json() == {"requeued": 2, "kept": 0, "more": True}
    assert http_api("POST", path, {}).json() == {"requeued": 3, "kept": 1, "more": False}
    ready = {row["name"]: row["messages_ready"] for row in http_api.get(f"queues/{vhost}")}
    assert ready == {"grave": 1, "living": 5}


def test_a_get_of_large_messages_is_cut_short(http_api: Http, broker: BrokerProcess, vhost: str) -> None:
    """What one request holds in memory is bounded, whatever count it asks for."""
    http_api.ok("PUT", f"queues/{vhost}/q", {"durable": False})
    fill(broker, vhost, "q", [bytes([65 + number]) * (12 << 20) for number in range(5)])
    ask = {"count": 5, "ackmode": "ack_requeue_false", "encoding": "auto"}
    rows = http_api("POST", f"/api/queues/{vhost}/q/get", ask).json()
    assert [(row["payload"][0], row["message_count"]) for row in rows] == [("A", 4), ("B", 3), ("C", 2)]
    again = ask | {"truncate": 1, "ackmode": "reject_requeue_true"}
    rows = http_api("POST", f"/api/queues/{vhost}/q/get", again).json()
    assert [(row["payload"], row["message_count"]) for row in rows] == [("D", 1), ("E", 0)]
    rows = http_api("POST", f"/api/queues/{vhost}/q/get", ask | {"truncate": 1}).json()
    assert [(row["payload"], row["redelivered"]) for row in rows] == [("D", True), ("E", True)]


def test_a_get_that_truncates_keeps_no_bodies(http_api: Http, broker: BrokerProcess, vhost: str) -> None:
    process = int(http_api.get("nodes")[0]["os_pid"])
    (management,) = [
        child
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()
        if b"flintmq.management" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]

    def peak_mib() -> int:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{management}/status").read_text())
        assert found is not None
        return int(found[1]) >> 10

    http_api.ok("PUT", f"queues/{vhost}/q", {"durable": False})
    fill(broker, vhost, "q", [b"y" * (8 << 20)] * 10)
    ask = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 10}
    http_api("POST", f"/api/queues/{vhost}/q/get", ask)
    Path(f"/proc/{management}/clear_refs").write_text("5")  # the peak begins anew
    before = peak_mib()
    rows = http_api("POST", f"/api/queues/{vhost}/q/get", ask | {"count": 10}).json()
    assert [row["payload"] for row in rows] == ["y" * 10] * 10
    assert peak_mib() - before < 40
