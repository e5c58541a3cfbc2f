"""Who may do what over HTTP: the same as over AMQP, and nothing by tricks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from management_http import Http

from flintmq.client import connect
from flintmq.client.core.errors import ServiceError


def add(http_api: Http, name: str, tags: str, vhost: str | None = None, **patterns: str) -> Http:
    http_api.ok("PUT", f"users/{name}", {"password": "secret", "tags": tags})
    if vhost is not None:
        rights = {"configure": "", "write": "", "read": "", **patterns}
        http_api.ok("PUT", f"permissions/{vhost}/{name}", rights)
    return http_api.as_user(name)


def test_wrong_logins(http_api: Http) -> None:
    """Each is answered a second later, all of them at a time."""
    wrong = [("guest", "wrong"), ("nobody", "guest"), ("", ""), ("guest", "")]
    with ThreadPoolExecutor(len(wrong)) as pool:
        answers = list(pool.map(lambda each: http_api.as_user(*each)("GET", "/api/whoami"), wrong))
    for answer in answers:
        assert answer.status == 401
        assert answer.json() == {"error": "not_authorized", "reason": "Login failed"}
        assert answer.headers["www-authenticate"].startswith("Basic ")


def test_wrong_headers(http_api: Http) -> None:
    stranger = Http(http_api.port, 0, user="")
    for header in ("Basic", "Basic !!", "Basic Z3Vlc3Q=", "Digest x", "Basic " + "A" * 9000):
        answer = stranger("GET", "/api/overview", headers={"authorization": header})
        assert answer.status == 401, header


def test_a_user_without_a_tag(http_api: Http, vhost: str) -> None:
    user = add(http_api, f"{vhost}-none", "", vhost, read=".*")
    answer = user("GET", "/api/whoami")
    assert (answer.status, answer.json()["reason"]) == (401, "Not management user")


def test_a_user_sees_the_own_virtual_hosts(http_api: Http, vhost: str) -> None:
    """Tag management: lists of the own virtual hosts alone, and nothing that administrators do."""
    user = add(http_api, f"{vhost}-m", "management", vhost, configure="^mine", write=".*", read=".*")
    assert [row["name"] for row in user.get("vhosts")] == [vhost]
    assert {row["vhost"] for row in user.get("exchanges")} == {vhost}
    assert user("GET", "/api/queues/%2F").status == 401
    for path in ("users", "permissions", "nodes", "global-parameters", "parameters"):
        assert user("GET", f"/api/{path}").status == 401, path
    assert user("PUT", "/api/vhosts/other").status == 401
    assert (
        user("PUT", f"/api/policies/{vhost}/p", {"pattern": "", "definition": {"expires": 1}}).status == 401
    )


def test_permissions_hold_over_http(http_api: Http, vhost: str) -> None:
    """configure, write and read of the user, not of the management process."""
    user = add(http_api, f"{vhost}-p", "management", vhost, configure="^mine", write="^mine", read="^mine")
    assert user.ok("PUT", f"queues/{vhost}/mine") == 201
    assert user("PUT", f"/api/queues/{vhost}/yours").status == 401
    http_api.ok("PUT", f"queues/{vhost}/yours")
    assert user("DELETE", f"/api/queues/{vhost}/yours").status == 401
    assert user("DELETE", f"/api/queues/{vhost}/yours/contents").status == 401
    get = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    assert user("POST", f"/api/queues/{vhost}/yours/get", get).status == 401
    assert user("POST", f"/api/queues/{vhost}/mine/get", get).status == 200
    message = {"properties": {}, "routing_key": "mine", "payload": "x"}
    assert user("POST", f"/api/exchanges/{vhost}/amq.default/publish", message).status == 401
    assert user("GET", f"/api/flintmq/queues/{vhost}/yours/peek").status == 401
    assert user("POST", f"/api/flintmq/queues/{vhost}/mine/move", {"to": "yours"}).status == 401


def test_a_change_of_a_user_holds_at_once(http_api: Http, vhost: str) -> None:
    user = add(http_api, f"{vhost}-c", "monitoring", vhost, read=".*")
    assert user.get("whoami")["tags"] == ["monitoring"]
    http_api.ok("PUT", f"users/{vhost}-c", {"password": "other", "tags": "administrator"})
    assert user("GET", "/api/whoami").status == 401
    assert user.as_user(user.user, "other").get("whoami")["tags"] == ["administrator"]
    http_api.ok("DELETE", f"users/{vhost}-c")
    assert user.as_user(user.user, "other")("GET", "/api/whoami").status == 401


def test_the_password_of_a_user_of_before(http_api: Http, vhost: str) -> None:
    """A user who was deleted and added again has the new password alone, however few changes there were."""
    user = add(http_api, f"{vhost}-again", "monitoring")
    assert user.get("whoami")["tags"] == ["monitoring"]
    http_api.ok("DELETE", f"users/{user.user}")
    http_api.ok("PUT", f"users/{user.user}", {"password": "other", "tags": "administrator"})
    assert user("GET", "/api/whoami").status == 401
    assert user.as_user(user.user, "other").get("whoami")["tags"] == ["administrator"]
    http_api.ok("DELETE", f"users/{user.user}")


def test_connections_of_others(http_api: Http, vhost: str) -> None:
    """One's own, unless one monitors; only administrators close those of others."""
    user = add(http_api, f"{vhost}-o", "management", vhost, read=".*")
    watcher = add(http_api, f"{vhost}-w", "monitoring", vhost, read=".*")
    with connect(f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}/{vhost}"):
        (row,) = [row for row in watcher.get("connections") if row["vhost"] == vhost]
        assert user.get("connections") == []
        assert user("DELETE", f"/api/connections/{row['number']}").status == 404
        assert watcher("DELETE", f"/api/connections/{row['number']}").status == 401


INTERNAL: dict[str, dict[str, Any]] = {
    "management.totals": {},
    "management.snapshot": {"kind": "connections"},
    "management.changed-queues": {"virtual-host": "/", "since": 0},
    "management.authenticate": {"user": "guest", "password": "guest", "peer-address": "127.0.0.1"},
    "management.identity": {"user": "guest"},
    "management.default-password": {},
    "management.journal": {},
    "management.exchange-counts": {"virtual-host": "/"},
    "management.queue-info": {"virtual-host": "/", "queue": "q"},
}


def test_services_of_the_process_alone(http_api: Http) -> None:
    """An administrator over AMQP is not the management process."""
    with connect(f"amqp://guest:guest@127.0.0.1:{http_api.amqp_port}") as connection:
        for service, arguments in INTERNAL.items():
            with pytest.raises(ServiceError) as refused:
                connection.request(service, dict(arguments))
            assert refused.value.code == 403


def test_nobody_else_asks_in_the_name_of_others(http_api: Http, vhost: str) -> None:
    """The header of the management process means nothing on other connections."""
    add(http_api, f"{vhost}-x", "", vhost, configure=".*", write=".*", read=".*")
    url = f"amqp://{vhost}-x:secret@127.0.0.1:{http_api.amqp_port}/{vhost}"
    with connect(url) as connection, pytest.raises(ServiceError) as refused:
        connection.request("user.add", {"user": "evil", "password": "x", "tags": [], "x-for-user": "guest"})
    assert refused.value.code in (403, 406)
    assert "evil" not in {row["name"] for row in http_api.get("users")}


# Sessions of browsers


def test_a_session(http_api: Http, vhost: str) -> None:
    """The cookie reads; to change something takes the token, too."""
    browser = Http(http_api.port, 0, user="")
    begun = browser("POST", "/api/session", {"username": "guest", "password": "guest"})
    cookie = begun.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    browser.headers["cookie"] = cookie.split(";")[0]
    assert browser.get("whoami")["name"] == "guest"
    assert browser("PUT", f"/api/queues/{vhost}/q").status == 403
    for wrong in ("wrong", "\xe9"):
        answer = browser("PUT", f"/api/queues/{vhost}/q", headers={"x-csrf-token": wrong})
        assert answer.status == 403
    token = {"x-csrf-token": begun.json()["csrf_token"]}
    assert browser("PUT", f"/api/queues/{vhost}/q", headers=token).status == 201
    assert browser("DELETE", "/api/session", headers=token).status == 204
    assert browser("GET", "/api/whoami").status == 401


def test_a_session_ends_with_the_password_and_not_with_permissions(http_api: Http, vhost: str) -> None:
    http_api.ok("PUT", "users/sitting", {"password": "first", "tags": "administrator"})
    browser = Http(http_api.port, 0, user="")
    begun = browser("POST", "/api/session", {"username": "sitting", "password": "first"})
    browser.headers["cookie"] = begun.headers["set-cookie"].split(";")[0]
    http_api.ok("PUT", f"permissions/{vhost}/sitting", {"configure": "", "write": "", "read": ".*"})
    http_api.ok("PUT", "users/sitting", {"tags": "monitoring"})
    assert browser("GET", "/api/session").json()["tags"] == ["monitoring"]
    http_api.ok("PUT", "users/sitting", {"password": "second", "tags": "monitoring"})
    assert browser("GET", "/api/session").status == 401
    http_api.ok("DELETE", "users/sitting")


def test_pages_of_other_sites_change_nothing(http_api: Http, vhost: str) -> None:
    """The browser holds Basic credentials and sends them along; it says whose page asks."""
    own = f"127.0.0.1:{http_api.port}"
    foreign = (
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": f"http://{own}"},
        {"origin": "http://evil.example"},
        {"origin": f"http://127.0.0.1:{http_api.port}0"},
        {"origin": "http://[evil"},
        {"origin": "null"},
        {"origin": ""},
    )
    for headers in foreign:
        for method, path in (
            ("PUT", f"/api/queues/{vhost}/q"),
            ("POST", "/api/session"),
            ("DELETE", "/api/session"),
        ):
            body = {"username": "guest", "password": "guest"} if path == "/api/session" else {}
            assert http_api(method, path, body, headers=headers).status == 403, (method, headers)
    assert http_api.get(f"queues/{vhost}") == []
    for headers in ({"sec-fetch-site": "same-origin", "origin": f"http://{own}"}, {"sec-fetch-site": "none"}):
        assert http_api("PUT", f"/api/queues/{vhost}/q", {}, headers=headers).status in (201, 204)
    assert http_api("GET", f"/api/queues/{vhost}", headers={"sec-fetch-site": "cross-site"}).status == 200


def test_a_wrong_session(http_api: Http) -> None:
    browser = Http(http_api.port, 0, user="", headers={"cookie": "flintmq_session=x"})
    assert browser("GET", "/api/whoami").status == 401


def test_headers_of_each_answer(http_api: Http) -> None:
    for path in ("/api/overview", "/api/nothing", "/metrics"):
        answer = http_api("GET", path, headers={"origin": "http://evil.example"})
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_large_body_is_refused(http_api: Http) -> None:
    answer = http_api("PUT", "/api/queues/%2F/q", b" " * 34_000_000)
    assert answer.status == 413


def test_bodies_that_are_no_objects(http_api: Http) -> None:
    for body in (b"{", b"[]", b"\xff", b'"x"', b"1"):
        assert http_api("PUT", "/api/queues/%2F/q", body).status == 400, body


def test_methods(http_api: Http) -> None:
    answer = http_api("PATCH", "/api/overview")
    assert (answer.status, answer.headers["allow"]) == (405, "OPTIONS, HEAD, GET")
    assert http_api("HEAD", "/api/overview").status == 200
    assert http_api("GET", "/api/" + "x/" * 40).status == 404
    assert http_api("GET", "/api/queues/%ff").status == 404


def test_a_user_keeps_all_or_nothing_of_a_change(http_api: Http) -> None:
    http_api.ok("PUT", "users/whole", {"password": "first", "tags": "management"})
    first, second = http_api.as_user("whole", "first"), http_api.as_user("whole", "second")
    for body in (
        {"password": "second", "tags": "nonsense"},
        {"password": "second", "tags": ["management", "management"]},
        {"password_hash": "", "tags": "management"},
        {"password": "", "tags": "management"},
        {"password_hash": "no hash", "tags": "administrator"},
        {"password": 5, "tags": "administrator"},
    ):
        answer = http_api("PUT", "/api/users/whole", body)
        assert answer.status == 400, body
        assert answer.json()["reason"], body
        assert first.get("whoami")["tags"] == ["management"], body
    assert (
        "leave it out"
        in http_api("PUT", "/api/users/whole", {"password_hash": "", "tags": ""}).json()["reason"]
    )
    http_api.ok("PUT", "users/whole", {"password": "second", "tags": "administrator"})
    # The right to change the password goes with the tag.
    second.ok("PUT", "users/whole", {"password": "third", "tags": "management"})
    assert http_api.as_user("whole", "third").get("whoami")["tags"] == ["management"]
    http_api.ok("DELETE", "users/whole")
