"""Who clients are, against a real process: certificates, SCRAM, tokens, a web server that knows users."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pika
import pytest
from identity_provider import ISSUER, Provider
from live.certificates import Authority, Signed
from live.serving import Serving, serving, write
from permission_server import PermissionServer, Question, permission_server
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAuthenticationError,
)
from scramp import ScramClient

import flintmq.client
import flintmq.client.aio
from flintmq.auth.backend import Login
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, decode_method, encode_method

NODE = Path(__file__).parent.parent / "interop" / "node"
TIMEOUT_S = 1.0


@dataclass
class Place:
    """A broker, and who it asks."""

    broker: Serving
    authority: Authority
    provider: Provider
    web: PermissionServer

    def parameters(self, user: str, password: str) -> pika.ConnectionParameters:
        credentials = pika.PlainCredentials(user, password)
        return pika.ConnectionParameters("127.0.0.1", self.broker.port, credentials=credentials)

    def connect(self, user: str, password: str) -> pika.BlockingConnection:
        return pika.BlockingConnection(self.parameters(user, password))

    def log_has(self, text: str) -> None:
        deadline_s = time.monotonic() + 20
        while not any(text in line for line in self.broker.errors):
            assert time.monotonic() < deadline_s, f"{text!r} is not in {self.broker.errors}"
            time.sleep(0.01)


def settings(authority: Authority, jwks: Path, web: str) -> str:
    signed = authority.sign("broker")
    return f"""
[tls]
certificate = "{signed.certificate}"
key = "{signed.key}"
authority = "{authority.certificate}"
verify = "optional"
port = 0
[auth]
mechanisms = ["PLAIN", "EXTERNAL", "SCRAM-SHA-256", "ANONYMOUS"]
anonymous_user = "visitor"
backends = ["internal", "oauth", "http"]
[auth.passwords]
scram_iterations = 4096
[auth.oauth]
resource_server_id = "flintmq"
issuer = "{ISSUER}"
jwks_file = "{jwks}"
leeway_s = 0
[auth.http]
user_path = "{web}/auth/user"
vhost_path = "{web}/auth/vhost"
resource_path = "{web}/auth/resource"
topic_path = "{web}/auth/topic"
timeout_s = {TIMEOUT_S}
cache_s = 1.5
[users.alice]
password = "secret"
[users.alice.permissions."/"]
configure = ".*"
write = ".*"
read = ".*"
[users.visitor]
password = "unguessable"
[users.visitor.permissions."/"]
read = "^public"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("identities")
    authority, provider = Authority(directory, "authority"), Provider()
    jwks = write(directory / "jwks.json", json.dumps(provider.jwks()))
    with permission_server() as web:
        file = write(directory / "broker.toml", settings(authority, jwks, web.url))
        with serving(
            "--config", str(file), "--data", str(directory / "data"), schemes=("amqp", "amqps")
        ) as broker:
            yield Place(broker, authority, provider, web)


def works(connection: pika.BlockingConnection, queue: str = "") -> None:
    """Publishes a message and gets it back."""
    channel = connection.channel()
    channel.confirm_delivery()
    queue = channel.queue_declare(queue, exclusive=True).method.queue
    channel.basic_publish("", queue, b"hello", mandatory=True)
    assert channel.basic_get(queue, auto_ack=True)[2] == b"hello"
    channel.close()


# Certificates


def external(place: Place, shown: Signed | None) -> pika.BlockingConnection:
    context = ssl.create_default_context(cafile=str(place.authority.certificate))
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1",
            place.broker.ports["amqps"],
            ssl_options=pika.SSLOptions(context, "127.0.0.1"),
            credentials=pika.credentials.ExternalCredentials(),
        )
    )


def test_a_certificate_logs_pika_in(place: Place) -> None:
    with external(place, place.authority.sign("alice")) as connection:
        works(connection)


def test_a_certificate_logs_both_our_clients_in(place: Place) -> None:
    alice = place.authority.sign("alice")
    base = f"amqps://127.0.0.1:{place.broker.ports['amqps']}?cacertfile={place.authority.certificate}"
    shown = f"{base}&certfile={alice.certificate}&keyfile={alice.key}&auth_mechanism=external"
    with flintmq.client.connect(shown) as connection, connection.channel(confirm=True) as channel:
        channel.publish(b"hello", routing_key=channel.queue("certified").name, mandatory=True)

    async def same() -> None:
        async with await flintmq.client.aio.connect(shown) as connection, connection.channel() as channel:
            queue = await channel.queue("certified")
            message = await queue.get(no_ack=True)
            assert message is not None
            assert message.body == b"hello"
            await queue.delete()
        with pytest.raises(flintmq.client.LoginRefused, match="has shown no certificate"):
            await flintmq.client.aio.connect(f"{base}&auth_mechanism=external", recovery=None)

    asyncio.run(same())
    with pytest.raises(flintmq.client.LoginRefused, match="has shown no certificate"):
        flintmq.client.connect(f"{base}&auth_mechanism=external", recovery=None)


def amqplib(place: Place, *files: Path) -> subprocess.CompletedProcess[str]:
    node = shutil.which("node")
    assert node is not None, "apt-get install nodejs npm"
    arguments = (place.broker.ports["amqps"], place.authority.certificate, *files)
    command = [node, str(NODE / "external.js"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_certificate_logs_amqplib_in(place: Place) -> None:
    alice = place.authority.sign("alice")
    ended = amqplib(place, alice.certificate, alice.key)
    assert (ended.returncode, ended.stdout) == (0, "done"), ended.stderr


def test_a_certificate_of_nobody_is_refused(place: Place) -> None:
    with pytest.raises(AMQPConnectionError):
        external(place, place.authority.sign("mallory"))
    place.log_has("login refused for 127.0.0.1: internal: no user 'mallory'")


def test_without_a_certificate_external_is_refused_in_clear_words(place: Place) -> None:
    with pytest.raises(ProbableAuthenticationError, match="EXTERNAL: the client has shown no certificate"):
        external(place, None)
    ended = amqplib(place)
    assert ended.returncode != 0
    assert "EXTERNAL: the client has shown no certificate" in ended.stderr, ended.stderr


# SCRAM


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_scram_by_another_implementation(place: Place, user: str) -> None:
    client = ScramClient(["SCRAM-SHA-256"], user, "secret")
    with socket.create_connection(("127.0.0.1", place.broker.port), timeout=30) as peer:
        peer.sendall(b"AMQP\x00\x00\x09\x01")
        assert b"SCRAM-SHA-256" in read_frame(peer)
        peer.sendall(start_ok("SCRAM-SHA-256", client.get_client_first().encode()))
        client.set_server_first(challenge(peer))
        peer.sendall(framed(methods.ConnectionSecureOk(response=client.get_client_final().encode())))
        if user == "nobody":
            assert ends(peer)
            return
        client.set_server_final(challenge(peer))
        peer.sendall(framed(methods.ConnectionSecureOk(response=b"")))
        tune = decode_method(amqp.VERSION_0_9_1, read_frame(peer)[7:-1])
        assert isinstance(tune, methods.ConnectionTune)


def challenge(peer: socket.socket) -> str:
    found = decode_method(amqp.VERSION_0_9_1, read_frame(peer)[7:-1])
    assert isinstance(found, methods.ConnectionSecure)
    return found.challenge.decode()


def test_scram_and_anonymous_by_our_client(place: Place) -> None:
    uri = f"amqp://alice:secret@127.0.0.1:{place.broker.port}"
    with flintmq.client.connect(uri, mechanism="SCRAM-SHA-256") as connection:
        connection.channel().queue("scram", exclusive=True)
    with (
        flintmq.client.connect(uri, mechanism="ANONYMOUS") as connection,
        pytest.raises(flintmq.client.ChannelClosed, match="user 'visitor' may not configure"),
    ):
        connection.channel().queue("scram")
    with pytest.raises(flintmq.client.LoginRefused, match="403"):
        flintmq.client.connect(uri.replace("secret", "wrong"), mechanism="SCRAM-SHA-256", recovery=None)


def test_keys_made_at_a_login_are_there_after_a_restart(tmp_path: Path) -> None:
    """A user from before SCRAM was offered has no keys; a login by PLAIN makes them, for good."""

    @contextlib.contextmanager
    def broker(*mechanisms: str) -> Iterator[str]:
        text = f"[auth]\nmechanisms = {json.dumps(mechanisms)}\n[auth.passwords]\nscram_iterations = 4096\n"
        file = write(tmp_path / "broker.toml", text)
        with serving("--config", str(file), "--data", str(tmp_path / "data")) as found:
            yield f"@127.0.0.1:{found.port}"

    with broker("PLAIN") as address, flintmq.client.connect(f"amqp://guest:guest{address}") as boss:
        boss.request("user.add", {"user": "old", "password": "secret"})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        boss.request("permission.set", {"user": "old", "virtual-host": "/", **everything})
    scram = {"mechanism": "SCRAM-SHA-256", "recovery": None}
    with broker("PLAIN", "SCRAM-SHA-256") as address:
        with pytest.raises(flintmq.client.LoginRefused):
            flintmq.client.connect(f"amqp://old:secret{address}", **scram)
        flintmq.client.connect(f"amqp://old:secret{address}").close()
    with broker("SCRAM-SHA-256") as address:
        flintmq.client.connect(f"amqp://old:secret{address}", **scram).close()
        with pytest.raises(flintmq.client.LoginRefused):
            flintmq.client.connect(f"amqp://old:wrong{address}", **scram)


# Tokens


def test_a_token_is_a_password(place: Place) -> None:
    token = place.provider.token(
        "flintmq.configure:*/t.*", "flintmq.write:*/t.*", "flintmq.write:*/amq.default", "flintmq.read:*/t.*"
    )
    with place.connect("", token) as connection:
        works(connection, "t.mine")
        channel = connection.channel()
        with pytest.raises(ChannelClosedByBroker) as refused:
            channel.queue_declare("other")
        assert refused.value.reply_code == 403
        assert "user 'service-account-orders' may not configure queue 'other'" in refused.value.reply_text


@pytest.mark.parametrize("changed", [{"aud": "other"}, {"iss": "other"}, {"exp": 1}], ids=str)
def test_a_token_for_others_is_refused(place: Place, changed: dict[str, object]) -> None:
    with pytest.raises(ProbableAuthenticationError):
        place.connect("orders", place.provider.token("flintmq.read:*/*", **changed))


def test_update_secret_renews_and_the_end_of_a_token_closes(place: Place) -> None:
    scopes = ["flintmq.configure:*/*", "flintmq.write:*/*", "flintmq.read:*/*"]
    began_s = time.monotonic()
    connection = place.connect("orders", place.provider.token(*scopes, seconds=2))
    works(connection)
    connection.update_secret(place.provider.token(*scopes[1:], seconds=4), "renewed")
    channel = connection.channel()
    with pytest.raises(ChannelClosedByBroker, match="may not configure queue 'x'"):
        channel.queue_declare("x")
    with pytest.raises(ConnectionClosedByBroker) as closed:
        connection.sleep(30)
    assert closed.value.reply_code == 403
    assert closed.value.reply_text == "ACCESS_REFUSED - the token of the connection has expired"
    assert time.monotonic() - began_s > 3, "it was renewed"


@pytest.mark.parametrize("changed", [{"sub": "somebody else"}, {"exp": 1}, {"scope": ""}], ids=str)
def test_a_wrong_new_secret_closes_the_connection(place: Place, changed: dict[str, object]) -> None:
    with (
        pytest.raises(ConnectionClosedByBroker) as closed,
        place.connect("orders", place.provider.token("flintmq.read:*/*")) as connection,
    ):
        connection.update_secret(place.provider.token("flintmq.read:*/*", **changed), "renewed")
    assert closed.value.reply_code == 530
    assert "New secret was refused" in closed.value.reply_text


# A web server that knows users


def bob(path: str, question: Question) -> str:
    """Bob may do anything with what begins with b, and publish reports."""
    if path == "/auth/user":
        is_right = (question["username"], question.get("password")) == ("bob", "builder")
        return "allow management" if is_right else "deny"
    if question["username"] != "bob":
        return "deny"
    if path == "/auth/topic":
        return "allow" if question["routing_key"].startswith("report.") else "deny"
    if path == "/auth/resource":
        return "allow" if question["name"].startswith(("b", "amq.default", "amq.topic")) else "deny"
    return "allow" if question["vhost"] == "/" else "deny"


@pytest.fixture
def web(place: Place) -> Iterator[PermissionServer]:
    server = place.web
    server.asked.clear()
    server.mode, server.decide = "", bob
    server.released.clear()
    yield server
    server.released.set()
    server.mode = ""


def test_a_web_server_says_who_may_do_what(place: Place, web: PermissionServer) -> None:
    with place.connect("bob", "builder") as connection:
        works(connection, "b1")
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(50):
            channel.basic_publish("", "b1", b"x")
        assert web.count("/auth/resource", name="amq.default", permission="write") <= 2, "it is kept"
        asked = {
            "username": "bob",
            "vhost": "/",
            "resource": "queue",
            "name": "b1",
            "permission": "configure",
            "tags": "management",
        }
        assert ("/auth/resource", asked) in web.asked
        host = {"username": "bob", "vhost": "/", "ip": "127.0.0.1", "tags": "management"}
        assert ("/auth/vhost", host) in web.asked
        channel.basic_publish("amq.topic", "report.daily", b"x")
        with pytest.raises(ChannelClosedByBroker, match=r"403.*may not write to topic 'secret'"):
            channel.basic_publish("amq.topic", "secret", b"x")
        with pytest.raises(ChannelClosedByBroker, match=r"403.*may not configure queue 'other'"):
            connection.channel().queue_declare("other")
        large = connection.channel()
        large.confirm_delivery()
        large.basic_publish("", "b1", bytes(3_000_000))
        with pytest.raises(ChannelClosedByBroker, match=r"403.*may not write to exchange 'amq.direct'"):
            large.basic_publish("amq.direct", "b1", bytes(3_000_000))


def test_a_right_that_is_taken_away_ends_soon(place: Place, web: PermissionServer) -> None:
    with place.connect("bob", "builder") as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("b2", exclusive=True)
        channel.basic_publish("", "b2", b"x")
        web.decide = lambda path, question: "deny"
        with pytest.raises(ChannelClosedByBroker, match="403"):
            publishes_for_long(connection, channel)


def publishes_for_long(connection: pika.BlockingConnection, channel: BlockingChannel) -> None:
    for _ in range(2000):
        channel.basic_publish("", "b2", b"x")
        connection.sleep(0.005)


@pytest.mark.parametrize("mode", ["slow", "trickle", "redirect", "huge", "garbage", "maybe"])
def test_a_back_end_that_fails_is_a_refusal_and_keeps_nobody_waiting(
    place: Place, web: PermissionServer, mode: str
) -> None:
    web.mode = mode
    with (
        place.connect("alice", "secret") as bystander,
        socket.create_connection(("127.0.0.1", place.broker.port), timeout=30) as stranger,
    ):
        channel = bystander.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        start_login(stranger, "bob", f"wrong {mode}")
        waits: list[float] = []
        while not place.web.asked or len(waits) < 50:
            began_s = time.monotonic()
            channel.queue_declare(queue, passive=True)
            waits.append(time.monotonic() - began_s)
        assert ends(stranger)
        assert sorted(waits)[len(waits) // 2] < 0.05
    place.log_has(
        "login refused for 127.0.0.1: internal: no user 'bob'; oauth: back end oauth refuses user 'bob'; http"
    )
    assert web.asked


def start_login(stranger: socket.socket, user: str, password: str) -> None:
    stranger.sendall(b"AMQP\x00\x00\x09\x01")
    read_frame(stranger)
    stranger.sendall(start_ok("PLAIN", f"\0{user}\0{password}".encode()))


def start_ok(mechanism: str, response: bytes) -> bytes:
    said = methods.ConnectionStartOk(mechanism=mechanism, response=response, locale="en_US")
    return framed(said)


def framed(method: Method) -> bytes:
    payload = encode_method(amqp.VERSION_0_9_1, method)
    return b"\x01\x00\x00" + len(payload).to_bytes(4, "big") + payload + b"\xce"


def read_frame(stranger: socket.socket) -> bytes:
    octets = b""
    while len(octets) < 7 or len(octets) < 8 + int.from_bytes(octets[3:7], "big"):
        found = stranger.recv(65536)
        assert found, "the broker has closed"
        octets += found
    return octets


def ends(stranger: socket.socket) -> bool:
    """Whether the broker hangs up, as it does with clients that know no connection.close at the login."""
    return stranger.recv(100) == b""


def test_a_back_end_that_is_away_is_a_refusal(tmp_path: Path) -> None:
    with permission_server() as gone:
        url = gone.url
    text = '[auth]\nbackends = ["http"]\n[auth.http]\n' + "".join(
        f'{name}_path = "{url}/{name}"\n' for name in ("user", "vhost", "resource")
    )
    with serving("--config", str(write(tmp_path / "broker.toml", text))) as broker:
        credentials = pika.PlainCredentials("guest", "guest")
        with pytest.raises(ProbableAuthenticationError):
            pika.BlockingConnection(
                pika.ConnectionParameters("127.0.0.1", broker.port, credentials=credentials)
            )
    said = [line for line in broker.errors if "login refused" in line]
    assert "user 'guest': back end http: 127.0.0.1: ConnectionRefusedError" in said[0]


# Back ends of others, and what is wrong with settings

PLUGIN = """
from flintmq.auth import Permissions
from flintmq.auth.backend import Identity
from flintmq.config import PermissionSettings


class Back:
    timeout_s, cache_s, can_renew = 5.0, 60.0, False

    def __init__(self, settings):
        self.word = settings["word"].encode()

    def authenticate(self, login):
        if login.name == "bug":
            raise RuntimeError("no such luck")
        allowed = {"/": Permissions(PermissionSettings(configure="^p", write=".*", read="^p"))}
        return Identity(login.name, permissions=allowed) if login.password == self.word else None
"""


def test_a_plug_in_is_a_back_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution = tmp_path / "site" / "back-1.0.dist-info"
    distribution.mkdir(parents=True)
    write(distribution / "METADATA", "Metadata-Version: 2.1\nName: back\nVersion: 1.0\n")
    write(distribution / "entry_points.txt", "[flintmq.auth_backends]\nback = backend_of_ours:Back\n")
    write(tmp_path / "site" / "backend_of_ours.py", PLUGIN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    file = write(tmp_path / "broker.toml", '[auth]\nbackends = ["back"]\n[auth.back]\nword = "sesame"\n')
    with serving("--config", str(file)) as broker:

        def connect(user: str, password: str) -> pika.BlockingConnection:
            credentials = pika.PlainCredentials(user, password)
            return pika.BlockingConnection(
                pika.ConnectionParameters("127.0.0.1", broker.port, credentials=credentials)
            )

        with connect("ali", "sesame") as connection:
            works(connection, "p1")
            with pytest.raises(ChannelClosedByBroker, match="403"):
                connection.channel().queue_declare("q1")
        for user in ("ali", "bug"):
            with pytest.raises(ProbableAuthenticationError):
                connect(user, "poppy")
    assert any("user 'bug': back end back: RuntimeError: no such luck" in line for line in broker.errors)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('backends = ["mine"]', "auth.backends: there is no back end 'mine'; installed are internal, http,"),
        ('backends = ["ldap"]', "auth.backends: ldap has no settings; add [auth.ldap]"),
        ('backends = ["a/b/c"]', 'auth.backends: "a/b/c": expected a name, or two as in "ldap/internal"'),
        (
            'backends = ["internal/ldap"]',
            'auth.backends: "internal/ldap": ldap knows nobody without a password',
        ),
        ('mechanisms = ["ANONYMOUS"]', "auth.anonymous_user is missing"),
        (
            'mechanisms = ["SCRAM-SHA-256"]\nbackends = ["mine/internal"]',
            'auth.mechanisms: "SCRAM-SHA-256" needs the back end "internal"',
        ),
        ('mechanisms = ["GSSAPI"]', 'auth.mechanisms[0] = "GSSAPI": expected one of "PLAIN", "AMQPLAIN"'),
        ("backend = 1", "unknown setting 'backend' in [auth], did you mean 'backends'?"),
    ],
)
def test_wrong_settings_are_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = write(tmp_path / "broker.toml", f"[auth]\n{text}\n")
    command = [sys.executable, "-m", "flintmq", "serve", "--port", "0", "--config", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr
    assert said in ended.stderr


# What docs/security.md shows

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)


def run_shown(text: str, **names: object) -> dict[str, object]:
    """Runs the one snippet of the page that has the text in it; what it has defined."""
    (code,) = [each for each in SHOWN if text in each]
    for old, new in names.pop("here", {}).items():  # type: ignore[attr-defined]
        assert old in code
        code = code.replace(old, new)
    exec(code, names)
    return names


def test_the_page_on_security_has_four_snippets() -> None:
    assert len(SHOWN) == 4


def test_the_page_shows_certificates(place: Place) -> None:
    alice = place.authority.sign("alice")
    here = {
        "broker-ca.pem": str(place.authority.certificate),
        "alice.pem": str(alice.certificate),
        "alice.key": str(alice.key),
        "broker.example": "127.0.0.1",
        "5671": str(place.broker.ports["amqps"]),
    }
    parameters = run_shown("ExternalCredentials", here=here)["parameters"]
    with pika.BlockingConnection(parameters) as connection:
        works(connection)


def test_the_page_shows_scram(place: Place) -> None:
    shown = run_shown("SCRAM-SHA-256", here={"broker.example": f"127.0.0.1:{place.broker.port}"})
    assert isinstance(shown["connection"], flintmq.client.Connection)


def test_the_page_shows_tokens(place: Place) -> None:
    scopes = ("flintmq.configure:*/*", "flintmq.write:*/*", "flintmq.read:*/*")
    shown = run_shown(
        "update_secret",
        here={'"broker.example"': f'"127.0.0.1", {place.broker.port}'},
        access_token=place.provider.token(*scopes),
        next_access_token=place.provider.token(*scopes, seconds=600),
    )
    connection = shown["connection"]
    assert isinstance(connection, pika.BlockingConnection)
    with connection:
        works(connection)


def test_the_page_shows_a_back_end() -> None:
    sesame = run_shown("class Sesame")["Sesame"]({"word": "open"})  # type: ignore[operator]
    known = sesame.authenticate(Login("ali", b"open", "127.0.0.1"))
    assert known.permissions["/"].may_read("mine.cave")
    assert sesame.authenticate(Login("thief", b"close", "127.0.0.1")) is None
