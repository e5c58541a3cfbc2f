"""RabbitMQ's own export, imported here: users log in with the old passwords, and all of it goes out again.

definitions with plain passwords --> RabbitMQ --rabbitmqctl export_definitions--> file --> FlintMQ
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess

from flintmq.cli import main
from flintmq.cli.operating.running_broker import URL
from flintmq.client import LoginRefused, connect

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
brokers: Any = importlib.import_module("brokers")

USERS = 50
HOSTS = 20
QUEUES = 1000
TAGS = [[], ["monitoring"], ["policymaker"], ["administrator"], ["management", "impersonator"]]
HINT = "RabbitMQ is not installed: apt-get install rabbitmq-server, or make interop-deps"

pytestmark = pytest.mark.timeout(300)


def password_of(number: int) -> str:
    return f"pässword {number}"


NAMES = ["/", *[f"team {number}" for number in range(HOSTS - 1)]]
KINDS: list[dict[str, Any]] = [
    {},
    {"x-message-ttl": 60000, "x-dead-letter-exchange": "dead", "x-max-length-bytes": 2**40},
    {"x-max-priority": 5, "x-single-active-consumer": True},
    {"x-queue-type": "classic", "x-overflow": "reject-publish", "x-max-length": 100, "ours": [1, "a"]},
    {"x-queue-mode": "lazy", "x-expires": 86400000},
]
POLICIES: list[tuple[str, str, str, int, dict[str, Any]]] = [
    ("short", "^queue\\.1", "queues", 5, {"max-length": 1000, "overflow": "drop-head"}),
    ("mirrored", "^queue\\.[2-4]", "queues", 1, {"ha-mode": "exactly", "ha-params": 2}),
    ("spare", "^direct", "exchanges", 0, {"alternate-exchange": "amq.fanout"}),
]
CAP = {
    "pattern": "^queue",
    "apply-to": "queues",
    "priority": 2,
    "definition": {"max-length": 10_000_000, "expires": 10**9},
}


def secret_of(number: int) -> dict[str, str]:
    """Most of them in plain, for RabbitMQ to hash; some as the other hashes that it knows."""
    algorithm = {8: "sha512", 9: "md5"}.get(number % 10)
    if algorithm is None:
        return {"password": password_of(number)}
    salt = number.to_bytes(4, "big")
    digest = hashlib.new(algorithm, salt + password_of(number).encode()).digest()
    return {
        "password_hash": base64.b64encode(salt + digest).decode(),
        "hashing_algorithm": f"rabbit_password_hashing_{algorithm}",
    }


def accounts() -> dict[str, Any]:
    users: list[dict[str, Any]] = [
        {"name": f"user{number}", "tags": TAGS[number % len(TAGS)], **secret_of(number)}
        for number in range(USERS)
    ]
    granted = [(user["name"], NAMES[at % HOSTS]) for at, user in enumerate(users)] + [("user0", "team 3")]
    patterns = {"configure": "^mine\\.", "write": ".*", "read": ".*"}
    keys = {"exchange": "topic.exchange", "write": "^{username}\\.", "read": ".*"}
    return {
        "users": users,
        "vhosts": [
            {"name": name, "metadata": {"description": f"of {name}", "tags": ["a"]}} for name in NAMES
        ],
        "permissions": [{"user": user, "vhost": host, **patterns} for user, host in granted],
        "topic_permissions": [{"user": user, "vhost": host, **keys} for user, host in granted[:10]],
    }


def rules() -> dict[str, Any]:
    caps = [{"vhost": host, "component": "operator_policy", "name": "cap", "value": CAP} for host in NAMES]
    limits: list[dict[str, Any]] = [
        {
            "vhost": host,
            "component": "vhost-limits",
            "name": "limits",
            "value": {"max-connections": 100 + at, "max-queues": 1000},
        }
        for at, host in enumerate(NAMES[:5])
    ]
    names = ("name", "pattern", "apply-to", "priority", "definition")
    return {
        "parameters": [*caps, *limits],
        "global_parameters": [{"name": "mqtt_port_to_vhost_mapping", "value": {"1883": "team 1"}}],
        "policies": [
            {"vhost": host, **dict(zip(names, policy, strict=True))} for host in NAMES for policy in POLICIES
        ],
    }


def topology() -> dict[str, Any]:
    queues = [
        {
            "name": f"queue.{number}",
            "vhost": NAMES[number % HOSTS],
            "durable": number % 7 != 0,
            "auto_delete": number % 11 == 0,
            "arguments": KINDS[number % len(KINDS)],
        }
        for number in range(QUEUES)
    ]
    exchanges = [
        {
            "name": f"{kind}.exchange",
            "vhost": host,
            "type": kind,
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"alternate-exchange": "amq.fanout"} if kind == "topic" else {},
        }
        for host in NAMES
        for kind in ("direct", "fanout", "topic", "headers")
    ]
    ends = [("topic.exchange", queue["vhost"], queue["name"], "queue") for queue in queues]
    ends += [("headers.exchange", host, "fanout.exchange", "exchange") for host in NAMES]
    return {
        "exchanges": exchanges,
        "queues": queues,
        "bindings": [
            {
                "source": source,
                "vhost": host,
                "destination": destination,
                "destination_type": kind,
                "routing_key": f"{destination}.#" if kind == "queue" else "",
                "arguments": {} if kind == "queue" else {"x-match": "all", "kind": "order", "count": 5},
            }
            for source, host, destination, kind in ends
        ],
    }


def definitions() -> dict[str, Any]:
    return {**accounts(), **rules(), **topology()}


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What RabbitMQ writes of all that."""
    if not brokers.RABBITMQ_SERVER.exists():
        if os.environ.get("CI") == "true":
            pytest.fail(HINT)
        pytest.skip(HINT)
    directory = tmp_path_factory.mktemp("definitions")
    given, written = directory / "given.json", directory / "export.json"
    given.write_text(json.dumps(definitions()))
    with brokers.rabbitmq(directory / "rabbitmq", f"load_definitions = {given}\n") as rabbitmq:
        brokers.rabbitmqctl(directory / "rabbitmq", rabbitmq.port, "export_definitions", str(written))
    return written


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    with BrokerProcess("--data", str(tmp_path / "data"), "--log-level", "warning") as process:
        monkeypatch.setenv(URL, f"amqp://guest:guest@127.0.0.1:{process.port}")
        yield process


def in_order(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


def compared(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Each field that RabbitMQ writes is the same; ours has guest besides, who did the import."""
    for section in definitions():
        others = [
            {key: value for key, value in item.items() if section != "exchanges" or key != "internal"}
            for item in ours[section]
            if "guest" not in (item.get("user"), item["name"] if section == "users" else "")
        ]
        for item in others:
            if section == "users":
                item["tags"] = sorted(item["tags"])
        for item in theirs[section]:
            if section == "users":
                item["tags"] = sorted(item["tags"])
        assert in_order(others) == in_order(theirs[section]), section


def test_a_rabbitmq_moves_with_one_file(
    export: Path, broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = json.loads(export.read_text())
    assert len(theirs["users"]) == USERS
    assert len({user["hashing_algorithm"] for user in theirs["users"]}) == 3
    assert len(theirs["vhosts"]) == HOSTS
    assert len(theirs["queues"]) == QUEUES
    assert main(["definitions", "check", str(export)]) == 0
    assert main(["definitions", "import", str(export)]) == 0
    said = capsys.readouterr().out
    assert "refused" not in said
    assert "key 'ha-mode' is kept and changes nothing" in said
    assert main(["definitions", "import", str(export)]) == 0
    assert "changed: nothing" in capsys.readouterr().out
    out = tmp_path / "ours.json"
    assert main(["definitions", "export", str(out)]) == 0
    assert out.stat().st_mode & 0o777 == 0o600
    compared(theirs, json.loads(out.read_text()))
    for number in range(USERS):
        login = {"user": f"user{number}", "virtual_host": NAMES[number % HOSTS]}
        url = f"amqp://127.0.0.1:{broker.port}"
        connect(url, password=password_of(number), **login).close()
        if number == 0:
            with pytest.raises(LoginRefused):
                connect(url, password=password_of(1), **login)


def test_the_file_is_loaded_at_a_start(export: Path, tmp_path: Path) -> None:
    options = ("--data", str(tmp_path / "data"), "--definitions", str(export), "--log-level", "warning")
    for _ in range(2):  # the second start finds it all there
        with BrokerProcess(*options) as process:
            login = {"user": "user3", "password": password_of(3), "virtual_host": "team 2"}
            with connect(f"amqp://127.0.0.1:{process.port}", **login) as connection:
                assert connection.request("queue.info", {"queue": "queue.3"}).results["durable"] is True
            assert not [line for line in process.lines if "not done" in line]
            assert [line for line in process.lines if "ha-mode" in line]
