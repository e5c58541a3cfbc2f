"""Users whom the broker does not know itself: by a token, and by a password that a server checks."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from identity_provider import ISSUER, Provider
from management_http import Answer, Http
from permission_server import PermissionServer, Question, permission_server

from flintmq.auth import visitors
from flintmq.auth.user import User
from flintmq.auth.visitors import Visitors
from flintmq.management.requests.identities import PEER_WAITING_MAX
from flintmq.server.logins.back_end_threads import THREADS_MAX

MANAGEMENT = re.compile(r"management on http://127\.0\.0\.1:(\d+)")
ALL = ("flintmq.tag:management", "flintmq.configure:*/*", "flintmq.write:*/*", "flintmq.read:*/*")


class Place:
    def __init__(self, broker: BrokerProcess, provider: Provider, web: PermissionServer, audit: Path) -> None:
        self.broker = broker
        self.provider = provider
        self.web = web
        self.audit = audit
        self.http = Http(int(broker.wait_for(MANAGEMENT)[1]), broker.port)

    def bearer(self, token: str) -> Http:
        return Http(self.http.port, 0, user="", headers={"authorization": f"Bearer {token}"})


def decide(path: str, question: Question) -> str:
    """Ada may enter `/` and use what begins with her name."""
    if question["username"] not in ("ada", "ada\0"):
        return "deny"
    if path.endswith("/user"):
        return "allow management" if question["password"] == "engine" else "deny"
    if path.endswith("/vhost"):
        return "allow" if question["vhost"] == "/" else "deny"
    return "allow" if question["name"].startswith("ada") or question["name"] == "amq.default" else "deny"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("users")
    provider = Provider()
    (directory / "jwks.json").write_text(json.dumps(provider.jwks()))
    with permission_server() as web:
        web.decide = decide
        settings = directory / "broker.toml"
        settings.write_text(
            f"""
[auth]
backends = ["internal", "oauth", "http"]
[auth.oauth]
resource_server_id = "flintmq"
issuer = "{ISSUER}"
jwks_file = "{directory}/jwks.json"
leeway_s = 0
[auth.http]
user_path = "{web.url}/auth/user"
vhost_path = "{web.url}/auth/vhost"
resource_path = "{web.url}/auth/resource"
topic_path = "{web.url}/auth/topic"
timeout_s = 15
[audit]
file = "{directory}/audit.log"
"""
        )
        with BrokerProcess("--management-port", "0", "--config", str(settings)) as broker:
            yield Place(broker, provider, web, directory / "audit.log")


def test_a_token(place: Place) -> None:
    """Its scopes are what the user may do: tags, virtual hosts, permissions."""
    user = place.bearer(place.provider.token(*ALL))
    assert user.get("whoami") == {"name": "service-account-orders", "tags": ["management"]}
    assert user.ok("PUT", "queues/%2F/by-token", {}) == 201
    message = {"properties": {}, "routing_key": "by-token", "payload": "x"}
    published = user("POST", "/api/exchanges/%2F/amq.default/publish", message)
    assert published.json() == {"routed": True}
    assert user.get("flintmq/queues/%2F/by-token/peek")["messages"][0]["payload"] == "x"
    assert user("GET", "/api/users").status == 401
    assert user.ok("DELETE", "queues/%2F/by-token") == 204


def test_a_token_allows_what_it_names_alone(place: Place) -> None:
    place.http.ok("PUT", "queues/%2F/secret", {})
    reader = place.bearer(place.provider.token("flintmq.tag:management", "flintmq.read:*/open*"))
    assert reader("PUT", "/api/queues/%2F/mine", {}).status == 401
    assert reader("GET", "/api/flintmq/queues/%2F/secret/peek").status == 401
    untagged = place.bearer(place.provider.token("flintmq.read:*/*"))
    answer = untagged("GET", "/api/whoami")
    assert (answer.status, answer.json()["reason"]) == (401, "Not management user")


def test_an_administrator_with_a_token_adds_a_virtual_host(place: Place) -> None:
    """The broker has no such user to give permissions to: the token says what this one may do there."""
    administrator = place.bearer(place.provider.token("flintmq.tag:administrator", "flintmq.configure:*/*"))
    for status in (201, 204):
        assert administrator("PUT", "/api/vhosts/by-token", {}).status == status
    assert administrator.ok("PUT", "queues/by-token/q", {}) == 201
    assert administrator.get("vhosts/by-token/permissions") == []
    assert administrator.ok("DELETE", "vhosts/by-token") == 204


def refused(answer: Answer) -> bool:
    return (answer.status, answer.json()["reason"]) == (401, "Login failed")


def test_tokens_that_are_no_good(place: Place) -> None:
    for token in (
        place.provider.token(*ALL, seconds=-5),
        place.provider.token(*ALL, iss="https://evil.example"),
        Provider().token(*ALL),
        "x" * 9000,
        "guest",
        "",
    ):
        assert refused(place.bearer(token)("GET", "/api/whoami")), token[:40]
    assert '"event": "http.login", "outcome": "refused"' in place.audit.read_text()


def test_a_password_that_a_server_checks(place: Place) -> None:
    """Each permission is asked of the server, over AMQP and HTTP alike."""
    ada = place.http.as_user("ada", "engine")
    assert ada.get("whoami") == {"name": "ada", "tags": ["management"]}
    assert [row["name"] for row in ada.get("vhosts")] == ["/"]
    assert ada.ok("PUT", "queues/%2F/ada.notes", {}) == 201
    assert ada("PUT", "/api/queues/%2F/babbage", {}).status == 401
    assert ada("GET", "/api/flintmq/queues/%2F/ada.notes/peek").status == 200
    assert refused(place.http.as_user("ada", "wrong")("GET", "/api/whoami"))
    place.http.ok("DELETE", "queues/%2F/ada.notes")


def test_a_name_with_a_control_code_is_nobodys(place: Place) -> None:
    """A server that cuts names off at a NUL takes it for Ada's; it must not be taken for more than hers."""
    place.http.ok("PUT", "queues/%2F/secret", {})
    assert refused(place.http.as_user("ada\0", "engine")("DELETE", "/api/queues/%2F/secret"))
    assert refused(place.http.as_user("ada\n", "engine")("GET", "/api/whoami"))


def test_a_session_of_such_a_user(place: Place) -> None:
    browser = Http(place.http.port, 0, user="")
    begun = browser("POST", "/api/session", {"username": "ada", "password": "engine"})
    assert begun.status == 200, begun
    browser.headers["cookie"] = begun.headers["set-cookie"].split(";")[0]
    assert browser.get("session")["name"] == "ada"
    token = {"x-csrf-token": begun.json()["csrf_token"]}
    assert browser("PUT", "/api/queues/%2F/ada.page", {}, headers=token).status == 201
    assert browser("DELETE", "/api/queues/%2F/ada.page", headers=token).status == 204


def test_nobody_waits_for_the_back_end_of_others(place: Place) -> None:
    """While it hangs, users of the broker itself log in and ask as ever."""
    place.http.ok("PUT", "users/local", {"password": "secret", "tags": "management"})
    ada = place.http.as_user("ada", "engine")
    ada.get("whoami")
    calls = [partial(ada, "GET", f"/api/flintmq/queues/%2F/ada.{at}/peek") for at in range(6)]
    calls += [partial(place.http.as_user(f"nobody{at}"), "GET", "/api/whoami") for at in range(6)]
    threads = [threading.Thread(target=call) for call in calls]
    before = len(place.web.asked)
    place.web.mode = "slow"
    try:
        for thread in threads:
            thread.start()
        deadline_s = time.monotonic() + 10
        while len(place.web.asked) < before + len(calls):
            assert time.monotonic() < deadline_s, "some wait for others before they are asked about"
            time.sleep(0.01)
        assert place.http("GET", "/api/whoami").status == 200
        assert place.http.as_user("local")("GET", "/api/whoami").status == 200
        assert all(thread.is_alive() for thread in threads)
    finally:
        place.web.mode = ""
        place.web.released.set()
        for thread in threads:
            thread.join()


def test_a_back_end_that_hangs_leaves_room_for_the_logins_of_others(place: Place) -> None:
    """Of as many as one address may have at a time it holds a part."""
    place.http.ok("PUT", "users/neighbour", {"password": "secret", "tags": "management"})
    calls = [partial(place.http.as_user(f"hung{at}"), "GET", "/api/whoami") for at in range(PEER_WAITING_MAX)]
    threads = [threading.Thread(target=call) for call in calls]
    before = len(place.web.asked)
    place.web.released.clear()
    place.web.mode = "slow"
    try:
        for thread in threads:
            thread.start()
        deadline_s = time.monotonic() + 10
        while len(place.web.asked) < before + THREADS_MAX or all(map(threading.Thread.is_alive, threads)):
            assert time.monotonic() < deadline_s, "all of them wait for it"
            time.sleep(0.01)
        assert place.http.as_user("neighbour")("GET", "/api/whoami").status == 200
    finally:
        place.web.mode = ""
        place.web.released.set()
        for thread in threads:
            thread.join()


def test_visitors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number is good with its name, until the token ends; of too many the idlest goes."""
    monkeypatch.setattr(visitors, "VISITORS_MAX", 2)
    kept = Visitors()
    ada, bob, eve = User("ada", expires_ms=1000), User("bob"), User("eve")
    first, second = kept.enter(ada), kept.enter(bob)
    assert kept.find(first, "bob", 0) is None
    assert kept.find(first, "ada", 999) is ada
    third = kept.enter(eve)
    assert kept.find(second, "bob") is None
    assert kept.find(third, "eve") is eve
    assert kept.find(first, "ada", 1000) is None
    assert kept.find(first, "ada", 0) is None
    assert len(kept) == 1
