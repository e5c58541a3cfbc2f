"""GET /api/doctor: the findings of `flintmq doctor`, from what the management process knows."""

from __future__ import annotations

import time
from typing import Any

from management_http import Http

from flintmq.client import connect

# A busy machine may take so long to look again.
WAIT_S = 30.0


def found(http_api: Http, kind: str, vhost: str) -> dict[str, Any]:
    """The finding of a kind in a virtual host, once the broker was examined again."""
    end_s = time.monotonic() + WAIT_S
    while True:
        said = http_api.get("doctor")
        for each in said["findings"]:
            if (each["kind"], each["virtual_host"]) == (kind, vhost):
                assert (said["status"], said["exit_status"]) == ("trouble", 6)
                assert said["counts"][kind] >= 1
                return dict(each)
        assert time.monotonic() < end_s, said
        time.sleep(0.2)


def test_what_is_found_names_its_object_and_what_to_do(http_api: Http, vhost: str) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url, name="careless program") as connection, connection.channel(confirm=True) as channel:
        channel.queue("orphan", arguments={"x-dead-letter-exchange": "nowhere"})
        death = {"queue": "jobs", "reason": "rejected", "count": 3, "exchange": "", "routing-keys": ["jobs"]}
        channel.queue("graveyard")
        channel.publish(b"bad", routing_key="graveyard", headers={"x-death": [death]})
        channel.publish(b"x", "amq.topic", "nobody.wants.it")
        lost = found(http_api, "dead letters are lost", vhost)
        assert (lost["object_type"], lost["object_name"], lost["is_urgent"]) == ("queue", "orphan", True)
        assert lost["seen"] == (
            f"virtual host {vhost!r}: queue 'orphan' would send dead letters to exchange 'nowhere'"
        )
        assert lost["next_step"].startswith(f"flintmq declare exchange -V '{vhost}' 'nowhere' fanout")
        assert abs(lost["first_seen_ms"] - 1000 * time.time()) < 60_000
        letters = found(http_api, "dead letters pile up", vhost)
        assert letters["cause"] == "the first of them died in queue 'jobs': rejected, 3 time(s)"
        assert letters["object_name"] == "graveyard"
        assert abs(letters["since_ms"] - 1000 * time.time()) < 60_000
        nowhere = found(http_api, "unroutable messages", vhost)
        assert nowhere["object_type"] == "connection"
        named = http_api.get(f"connections/{nowhere['object_name']}")
        assert named["user_provided_name"] == "careless program"
        assert "(careless program) of user 'guest'" in nowhere["seen"]
        # Policies lead dead letters away as arguments do.
        policy = {"pattern": "^graveyard$", "definition": {"dead-letter-exchange": "gone"}}
        http_api.ok("PUT", f"policies/{vhost}/letters", policy)
        end_s = time.monotonic() + WAIT_S
        while not any("exchange 'gone'" in each["seen"] for each in http_api.get("doctor")["findings"]):
            assert time.monotonic() < end_s
            time.sleep(0.2)


def test_the_default_password_is_told_until_it_is_another(http_api: Http) -> None:
    def is_told() -> bool:
        (finding, *_) = [each for each in http_api.get("doctor")["findings"] if is_it(each)] or [None]
        assert finding is None or not finding["is_urgent"]
        return finding is not None

    def is_it(finding: dict[str, Any]) -> bool:
        return bool(finding["seen"] == "user 'guest' gets in with the password 'guest' from this machine")

    assert is_told()
    http_api.ok("PUT", "users/root", {"password": "secret", "tags": "administrator"})
    root = http_api.as_user("root")
    try:
        assert root("PUT", "/api/users/guest", {"password": "other", "tags": "administrator"}).status == 204
        assert not any(map(is_it, root.get("doctor")["findings"]))
    finally:
        root("PUT", "/api/users/guest", {"password": "guest", "tags": "administrator"})
        http_api.ok("DELETE", "users/root")
    assert is_told()


def test_it_is_for_those_who_monitor(http_api: Http) -> None:
    http_api.ok("PUT", "users/visitor", {"password": "secret", "tags": "management"})
    try:
        assert http_api.as_user("visitor")("GET", "/api/doctor").status == 401
    finally:
        http_api.ok("DELETE", "users/visitor")


def test_many_who_ask_have_the_broker_examined_once(http_api: Http) -> None:
    first = http_api.get("doctor")
    again = http_api.get("doctor")
    assert abs(again["looked_ms"] - first["looked_ms"]) <= 2
    assert first["checks"] > 10
