"""Debian's rabbitmqadmin, through all its verbs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from management_http import Http

from flintmq.client import connect

PLACES = (
    "/usr/bin/rabbitmqadmin",
    *map(
        str, Path("/usr/lib/rabbitmq").glob("lib/*/plugins/rabbitmq_management-*/priv/www/cli/rabbitmqadmin")
    ),
)


def script() -> str:
    found = shutil.which("rabbitmqadmin") or next((each for each in PLACES if Path(each).exists()), None)
    assert found, "rabbitmqadmin is not installed: make interop-deps"
    return found


class Admin:
    def __init__(self, http_api: Http, vhost: str) -> None:
        self.start = [
            *(sys.executable, script()),
            *("-H", "127.0.0.1", "-P", str(http_api.port), "-u", "guest", "-p", "guest", "-V", vhost),
        ]

    def __call__(self, *words: str) -> str:
        ran = subprocess.run([*self.start, *words], capture_output=True, text=True, timeout=30)
        assert ran.returncode == 0, (words, ran.stdout, ran.stderr)
        return ran.stdout

    def rows(self, *words: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = json.loads(self("-f", "raw_json", *words))
        return rows


@pytest.fixture
def admin(http_api: Http, vhost: str) -> Admin:
    return Admin(http_api, vhost)


def test_declares_lists_and_deletes(admin: Admin, vhost: str) -> None:
    """declare, list, show and delete, of everything that they know."""
    admin("declare", "exchange", "name=e1", "type=topic")
    admin("declare", "exchange", "name=e2", "type=fanout", "internal=true", "durable=false")
    admin("declare", "queue", "name=q1", "durable=false", 'arguments={"x-max-length": 10}')
    admin("declare", "binding", "source=e1", "destination=q1", "routing_key=a.#")
    admin("declare", "binding", "source=e1", "destination=e2", "destination_type=exchange", "routing_key=b")
    admin("declare", "policy", "name=p1", "pattern=^q", 'definition={"max-length": 5}', "priority=2")
    admin("declare", "operator_policy", "name=o1", "pattern=^q", 'definition={"max-length": 3}')
    admin("declare", "parameter", "component=shop", "name=x", 'value={"a": 1}')
    admin("declare", "vhost_limit", f"vhost={vhost}", "name=max-queues", "value=100")
    admin("declare", "user", f"name={vhost}-u", "password=secret", "tags=monitoring")
    admin("declare", "permission", f"vhost={vhost}", f"user={vhost}-u", "configure=.*", "write=.*", "read=.*")
    assert [row["name"] for row in admin.rows("list", "queues")] == ["q1"]
    assert {"e1", "e2", "amq.topic"} <= {row["name"] for row in admin.rows("list", "exchanges")}
    bindings = admin.rows("list", "bindings")
    assert {(row["source"], row["destination"], row["properties_key"]) for row in bindings} == {
        ("", "q1", "q1"),
        ("e1", "q1", "a.%23"),
        ("e1", "e2", "b"),
    }
    for noun in ("connections", "channels", "consumers", "users", "vhosts", "permissions", "nodes"):
        admin("list", noun)
    assert [row["name"] for row in admin.rows("list", "policies") if row["vhost"] == vhost] == ["p1"]
    assert any(row["name"] == "o1" for row in admin.rows("list", "operator_policies"))
    assert any(row["name"] == "x" for row in admin.rows("list", "parameters"))
    assert any(row["vhost"] == vhost for row in admin.rows("list", "vhost_limits"))
    assert "3.10.8" in admin("show", "overview")
    admin(
        "delete", "binding", "source=e1", "destination_type=queue", "destination=q1", "properties_key=a.%23"
    )
    admin("delete", "binding", "source=e1", "destination_type=exchange", "destination=e2", "properties_key=b")
    admin("delete", "exchange", "name=e1")
    admin("delete", "queue", "name=q1")
    admin("delete", "policy", "name=p1")
    admin("delete", "operator_policy", "name=o1")
    admin("delete", "parameter", "component=shop", "name=x")
    admin("delete", "vhost_limit", f"vhost={vhost}", "name=max-queues")
    admin("delete", "permission", f"vhost={vhost}", f"user={vhost}-u")
    admin("delete", "user", f"name={vhost}-u")
    assert admin.rows("list", "queues") == []


def test_messages(admin: Admin) -> None:
    """publish, get and purge."""
    admin("declare", "queue", "name=q")
    assert "Message published" in admin("publish", "routing_key=q", "payload=hello")
    assert "NOT routed" in admin("publish", "routing_key=nowhere", "payload=hello")
    (shown,) = admin.rows("get", "queue=q", "ackmode=ack_requeue_true")
    assert (shown["payload"], shown["redelivered"], shown["message_count"]) == ("hello", False, 0)
    (again,) = admin.rows("get", "queue=q", "ackmode=ack_requeue_false")
    assert again["redelivered"] is True
    admin("publish", "routing_key=q", "payload=hello")
    admin("purge", "queue", "name=q")
    assert admin.rows("get", "queue=q") == []


def test_closes_connections(admin: Admin, http_api: Http, vhost: str) -> None:
    """close connection, by the name that list connections shows."""
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}?recovery_attempts=0"
    with connect(url) as connection:
        (row,) = [row for row in admin.rows("list", "connections", "name", "vhost") if row["vhost"] == vhost]
        admin("close", "connection", f"name={row['name']}")
        names = [each["name"] for each in admin.rows("list", "connections", "name")]
        assert row["name"] not in names
        assert connection is not None


def test_vhosts(admin: Admin, vhost: str) -> None:
    """declare and delete vhost."""
    admin("declare", "vhost", f"name={vhost}-2")
    assert f"{vhost}-2" in {row["name"] for row in admin.rows("list", "vhosts")}
    admin("delete", "vhost", f"name={vhost}-2")
    assert f"{vhost}-2" not in {row["name"] for row in admin.rows("list", "vhosts")}


def test_definitions(admin: Admin, vhost: str, tmp_path: Path) -> None:
    """export and import, of one virtual host."""
    admin("declare", "queue", "name=kept", 'arguments={"x-max-length": 7}')
    admin("declare", "policy", "name=p", "pattern=^kept", 'definition={"max-length": 5}')
    file = tmp_path / "definitions.json"
    admin("export", str(file))
    assert [row["name"] for row in json.loads(file.read_text())["queues"]] == ["kept"]
    admin("delete", "queue", "name=kept")
    admin("delete", "policy", "name=p")
    admin("import", str(file))
    assert [row["name"] for row in admin.rows("list", "queues")] == ["kept"]
    assert any(row["vhost"] == vhost for row in admin.rows("list", "policies"))
