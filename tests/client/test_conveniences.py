"""What users of other clients look for: hosts, logins, callbacks, calls and their answers, other threads."""

from __future__ import annotations

import asyncio
import pickle
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from client import typed_program
from client.either import Either
from fake_server import FakeServer, Script, Served, hangs_up_at_login, honest
from live.certificates import Authority
from live.serving import serving
from network_proxy import TO_CLIENT, Cut, Fault, NetworkProxy
from peer import HEADERS

from flintmq.client import (
    BadSettings,
    ClientError,
    ConnectFailed,
    LoginRefused,
    Message,
    PublishFailed,
    Recovery,
    RequestUnknown,
    Settings,
    aio,
    connect,
)
from flintmq.scram import ScramKeys, ServerExchange, derived_keys
from flintmq.wire import methods

QUICK = Recovery(attempts_max=60, delay_s_min=0.01, delay_s_max=0.1)


# Several hosts


def test_hosts_of_a_uri() -> None:
    settings = Settings.of("amqp://me:pass,word@one,two:5673,[::1]:5674/host?timeout=5")
    assert [str(each) for each in settings.endpoints] == ["one:5672", "two:5673", "[::1]:5674"]
    assert (settings.user, settings.password.reveal(), settings.virtual_host) == ("me", "pass,word", "host")
    assert settings.address == "amqp://one:5672,two:5673,[::1]:5674/host"
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert [str(each) for each in Settings.of("amqp://a", hosts=["b", "c:1"]).endpoints] == [
        "a:5672",
        "b:5672",
        "c:1",
    ]
    for wrong in ("b:port", "b:0", "", "[]"):
        with pytest.raises(BadSettings):
            Settings.of("amqp://a", hosts=[wrong])


def refused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_the_first_host_that_lets_us_in_is_taken(either: Either) -> None:
    async def test() -> None:
        with FakeServer(hangs_up_at_login) as broken, FakeServer(honest) as works:
            hosts = [f"127.0.0.1:{broken.port}", f"127.0.0.1:{works.port}"]
            connection = await either.connect(
                f"amqp://guest:guest@127.0.0.1:{refused_port()}", hosts=hosts, recovery=None
            )
            assert works.connections == 1
            await connection.close()
        with pytest.raises(ConnectFailed) as failed:
            await either.connect("amqp://127.0.0.1:1,127.0.0.1:2")
        assert "127.0.0.1:1/" in str(failed.value)
        assert "127.0.0.1:2/" in str(failed.value)

    either.run(test)


def test_a_host_that_never_answers_has_its_share_of_the_time(either: Either) -> None:
    def never(served: Served) -> None:
        served.be_silent()

    async def test() -> None:
        with FakeServer(never) as silent, FakeServer(honest) as works:
            begun_s = time.monotonic()
            connection = await either.connect(
                f"amqp://guest:guest@127.0.0.1:{silent.port},127.0.0.1:{works.port}", connection_timeout_s=2
            )
            assert time.monotonic() - begun_s < 2
            await connection.close()

    either.run(test)


def test_a_loss_moves_on_to_another_host(either: Either) -> None:
    async def test() -> None:
        with FakeServer(honest) as second:
            with FakeServer(honest) as first:
                connection = await either.connect(
                    f"amqp://guest:guest@127.0.0.1:{first.port},127.0.0.1:{second.port}", recovery=QUICK
                )
                channel = await connection.channel()
            assert (await channel.queue("q")).name == "q"
            assert second.connections == 1
            await connection.close()

    either.run(test)


def test_shuffled_hosts_are_all_visited(either: Either) -> None:
    async def test() -> None:
        with FakeServer(honest) as one, FakeServer(honest) as two:
            for _ in range(100):
                connection = await either.connect(f"{one.uri},127.0.0.1:{two.port}", shuffle=True)
                await connection.close()
                if one.connections and two.connections:
                    return
        raise AssertionError("a hundred connections went to one host")

    either.run(test)


def test_a_name_with_several_addresses(either: Either, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first address does not answer; the name has another."""
    with FakeServer(honest) as server:
        real = socket.getaddrinfo

        def several(host: Any, port: Any, *given: Any, **named: Any) -> Any:
            if host != "broker.test":
                return real(host, port, *given, **named)
            if named.get("flags"):
                raise socket.gaierror(socket.EAI_NONAME, "not a number")
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kind, ("127.0.0.2", 1)), (*kind, ("127.0.0.1", server.port))]

        monkeypatch.setattr(socket, "getaddrinfo", several)

        async def test() -> None:
            connection = await either.connect(f"amqp://guest:guest@broker.test:{server.port}")
            assert connection.is_open
            await connection.close()

        either.run(test)


# Who we are


def start(mechanisms: bytes, heard: list[Any]) -> Script:
    """An honest server that offers these logins, and notes what it is told."""

    def script(served: Served) -> None:
        assert served.octets(8) == HEADERS["0-9-1"]
        served.send(0, methods.ConnectionStart(version_minor=9, mechanisms=mechanisms, locales=b"en_US"))
        heard.append(served.expect(0, methods.ConnectionStartOk))
        served.send(0, methods.ConnectionTune(channel_max=10, frame_max=131_072))
        served.expect(0, methods.ConnectionTuneOk)
        served.enter()

        def updated(served: Served, channel: int, method: Any, content: Any) -> None:
            heard.append(method)
            served.send(0, methods.ConnectionUpdateSecretOk())

        served.honest({methods.ConnectionUpdateSecret: updated})

    return script


def test_external(either: Either) -> None:
    async def test() -> None:
        heard: list[Any] = []
        with FakeServer(start(b"EXTERNAL", heard)) as server:
            connection = await either.connect(f"{server.uri}?auth_mechanism=external")
            await connection.close()
            assert (heard[0].mechanism, heard[0].response) == ("EXTERNAL", b"")
            with pytest.raises(LoginRefused, match="and not PLAIN"):
                await either.connect(server.uri)
        with (
            FakeServer(honest) as server,
            pytest.raises(LoginRefused, match="and not EXTERNAL; show it a certificate"),
        ):
            await either.connect(server.uri, mechanism="EXTERNAL")

        def refuses(served: Served) -> None:
            served.octets(8)
            served.send(0, methods.ConnectionStart(mechanisms=b"EXTERNAL", locales=b"en_US"))
            served.expect(0, methods.ConnectionStartOk)
            served.close_connection(403, "ACCESS_REFUSED")

        with FakeServer(refuses) as server, pytest.raises(LoginRefused) as refused:
            await either.connect(server.uri, mechanism="EXTERNAL")
        assert "refused our certificate with 403: ACCESS_REFUSED; check the certificate" in str(refused.value)
        assert "guest" not in str(refused.value)

    either.run(test)


def test_tokens_are_asked_for_at_each_login_and_renewed(either: Either) -> None:
    async def test() -> None:
        heard: list[Any] = []
        numbers = iter(range(1, 10))

        def token() -> str:
            return f"token {next(numbers)}"

        async def token_later() -> str:
            await asyncio.sleep(0)
            return token()

        with FakeServer(start(b"PLAIN", heard)) as server:
            provider = token_later if either.name == "aio" else token
            connection = await either.connect(server.uri, token_provider=provider, recovery=QUICK)
            await connection.update_secret()
            await connection.update_secret("by hand", "because")
            server.served[0].socket.shutdown(socket.SHUT_RDWR)
            await connection.channel()
            await connection.close()
        assert [each.response for each in heard if isinstance(each, methods.ConnectionStartOk)] == [
            b"\0guest\0token 1",
            b"\0guest\0token 3",
        ]
        updates = [each for each in heard if isinstance(each, methods.ConnectionUpdateSecret)]
        assert [(each.new_secret, each.reason) for each in updates] == [
            (b"token 2", "renewed"),
            (b"by hand", "because"),
        ]

    either.run(test)


def test_the_secret_of_a_live_broker_is_updated(either: Either, uri: str) -> None:
    async def test() -> None:
        connection = await either.connect(uri)
        await connection.update_secret("guest")
        with pytest.raises(ClientError, match="no token_provider"):
            await connection.update_secret()
        await connection.close()

    either.run(test)


def test_client_properties_are_told(either: Either) -> None:
    async def test() -> None:
        heard: list[Any] = []
        with FakeServer(start(b"PLAIN", heard)) as server:
            connection = await either.connect(
                server.uri, client_properties={"team": "prices", "product": "ticker"}, name="one"
            )
            await connection.close()
        told = heard[0].client_properties
        assert (told["team"], told["product"], told["connection_name"]) == ("prices", "ticker", "one")
        assert told["capabilities"]["basic.nack"] is True

    either.run(test)


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_an_ssl_context_of_the_application(either: Either, tmp_path: Path, scheme: str) -> None:
    authority = Authority(tmp_path, "ours")
    server = authority.sign("server")
    config = tmp_path / "flintmq.toml"
    config.write_text(f'[tls]\nport = 0\ncertificate = "{server.certificate}"\nkey = "{server.key}"\n')
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with serving("--config", str(config), schemes=("amqp", "amqps")) as broker:

        async def test() -> None:
            uri = f"{scheme}://guest:guest@127.0.0.1:{broker.ports['amqps']}"
            connection = await either.connect(uri, ssl_context=context)
            channel = await connection.channel(confirm=True)
            queue = await channel.queue(exclusive=True)
            await channel.publish(b"secret", routing_key=queue.name)
            assert (await queue.get()).body == b"secret"
            with pytest.raises(TypeError, match="cannot be pickled"):
                pickle.dumps(connection.settings)
            await connection.close()

        either.run(test)


# Handling messages


def test_process_settles(either: Either, uri: str) -> None:
    async def test() -> None:
        connection = await either.connect(uri)
        channel = await connection.channel(confirm=True)
        queue = await channel.queue(exclusive=True)
        await channel.publish_many([b"good", b"bad", b"settled"], routing_key=queue.name)
        message = await queue.get()
        with message.process():
            assert message.body == b"good"
        message = await queue.get()
        with pytest.raises(ZeroDivisionError):
            async with message.process(requeue=True, reject_on_redelivered=True):
                raise ZeroDivisionError
        message = await queue.get()
        assert message.redelivered
        with pytest.raises(ZeroDivisionError):
            async with message.process(requeue=True, reject_on_redelivered=True):
                raise ZeroDivisionError
        message = await queue.get()
        async with message.process():
            message.ack()
        assert await queue.get() is None
        await channel.qos(1)
        assert channel.is_open
        await connection.close()

    either.run(test)


def test_a_callback_for_each_message(either: Either, uri: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        connection = await either.connect(uri)
        channel = await connection.channel(confirm=True)
        queue = await channel.queue(exclusive=True)
        await channel.publish_many([b"1", b"0", b"2"], routing_key=queue.name)
        found: list[float] = []

        def handle(message: Message) -> None:
            found.append(10 / int(message.body))

        async def handle_later(message: Message) -> None:
            await asyncio.sleep(0)
            handle(message)

        consumer = await queue.consume(timeout_s=0.3)
        await consumer.run(handle_later if either.name == "aio" else handle)
        assert found == [10, 5]
        await consumer.cancel()
        assert (await channel.queue(queue.name, passive=True)).message_count == 0
        await channel.publish(b"5", routing_key=queue.name)
        await (await queue.consume(no_ack=True, timeout_s=0.3)).run(handle)
        assert found == [10, 5, 2]
        await connection.close()

    either.run(test)
    assert "division by zero" in caplog.text


@contextmanager
def answering_service(uri: str, queue: str) -> Iterator[None]:
    """Doubles what it is sent, in a thread of its own."""
    is_over = threading.Event()
    is_ready = threading.Event()

    def answer(message: Message) -> bytes:
        return message.body * 2

    def serve() -> None:
        with connect(uri) as connection, connection.channel() as channel:
            channel.queue(queue, exclusive=True)  # outlives a loop that ends by its timeout
            consumer = channel.consume(queue, timeout_s=0.1)
            is_ready.set()
            while not is_over.is_set():
                consumer.serve(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    assert is_ready.wait(10)
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_call_and_its_answer(either: Either, uri: str) -> None:
    async def test() -> None:
        with answering_service(uri, "doubling"):
            connection = await either.connect(uri)
            for number in range(3):
                reply = await connection.call(b"%d" % number, routing_key="doubling", headers={"a": 1})
                assert reply.body == b"%d" % number * 2
            with pytest.raises(PublishFailed, match="no queue is bound"):
                await connection.call(b"x", routing_key="nobody-there")
            await connection.close()

    either.run(test)


def test_many_calls_at_once(uri: str) -> None:
    async def test() -> None:
        with answering_service(uri, "doubling-many"):
            async with await aio.connect(uri) as connection:
                calls = [connection.call(b"%d" % number, routing_key="doubling-many") for number in range(50)]
                replies = await asyncio.gather(*calls)
                assert [reply.body for reply in replies] == [b"%d" % number * 2 for number in range(50)]

    Either("aio").run(test)


def test_a_call_whose_answer_is_lost_is_unknown(either: Either, uri: str) -> None:
    async def test() -> None:
        port = int(uri.rpartition(":")[2])
        with answering_service(uri, "doubling-lost"), NetworkProxy(port) as proxy:
            connection = await either.connect(proxy.uri, recovery=QUICK)
            assert (await connection.call(b"x", routing_key="doubling-lost")).body == b"xx"
            proxy.strike(Fault(TO_CLIENT, Cut(), method="basic.deliver"))
            with pytest.raises(RequestUnknown, match="doubling-lost"):
                await connection.call(b"y", routing_key="doubling-lost")
            assert (await connection.call(b"z", routing_key="doubling-lost")).body == b"zz"
            await connection.close()

    either.run(test)


# Other threads


def test_another_thread_has_its_acks_done(uri: str) -> None:
    with connect(uri) as connection, connection.channel(confirm=True, prefetch=1) as channel:
        queue = channel.queue(exclusive=True)
        channel.publish_many([b"1", b"2", b"3"], routing_key=queue.name)
        seen = []
        for message in queue.consume(timeout_s=5):
            seen.append(message.body)
            if len(seen) == 3:
                break
            threading.Thread(target=later(connection.run_soon, message)).start()
        assert seen == [b"1", b"2", b"3"]


def later(run_soon: Callable[[Callable[[], object]], None], message: Message) -> Callable[[], None]:
    def work() -> None:
        time.sleep(0.05)
        run_soon(message.ack)

    return work


def test_another_thread_has_its_acks_done_on_the_loop(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection, connection.channel(prefetch=1) as channel:
            queue = await channel.queue(exclusive=True)
            await channel.publish_many([b"1", b"2", b"3"], routing_key=queue.name)
            seen = []
            async for message in await queue.consume(timeout_s=5):
                seen.append(message.body)
                if len(seen) == 3:
                    break
                threading.Thread(target=later(connection.run_soon, message)).start()
            assert seen == [b"1", b"2", b"3"]

    Either("aio").run(test)


# Names


def test_queues_and_exchanges_by_name(either: Either, uri: str) -> None:
    async def test() -> None:
        connection = await either.connect(uri)
        channel = await connection.channel(confirm=True)
        exchange = await channel.exchange("named-exchange", "topic")
        await channel.exchange("named-source", "fanout")
        await channel.queue("named-queue")
        await channel.bind_queue("named-queue", "named-exchange", "a.#")
        await channel.bind_exchange("named-exchange", "named-source", "x")
        assert await exchange.publish(b"1", "a.b", headers={"h": 1}, mandatory=True) == 1
        assert await exchange.publish_many([b"2", b"3"], "a.c", mandatory=True) == 2
        await channel.publish(b"4", "named-source", "a.d")
        message = await channel.get("named-queue")
        assert (message.body, message.headers) == (b"1", {"h": 1})
        message.ack()
        await channel.unbind_exchange("named-exchange", "named-source", "x")
        await channel.unbind_queue("named-queue", "named-exchange", "a.#")
        with pytest.raises(PublishFailed):
            await exchange.publish(b"5", "a.b", mandatory=True)
        assert await channel.purge_queue("named-queue") == 3
        assert await channel.delete_queue("named-queue", if_empty=True) == 0
        await channel.delete_exchange("named-exchange")
        await channel.delete_exchange("named-source")
        await connection.close()

    either.run(test)


def test_all_names_are_there() -> None:
    from flintmq import client

    for module in (client, aio):
        for name in module.__all__:
            assert getattr(module, name) is not None
        assert list(module.__all__) == sorted(module.__all__)


def test_a_program_of_a_user_passes_mypy_strict() -> None:
    program = Path(__file__).with_name("typed_program.py")
    assert len(program.read_text().splitlines()) >= 200
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-incremental",
            "--follow-imports=silent",
            str(program),
        ],
        capture_output=True,
        text=True,
        cwd=program.parent,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_program_of_a_user_runs(uri: str) -> None:
    typed_program.main(uri)


def scram_server(keys: ScramKeys, lie: str) -> Script:
    """A server that lets in whoever proves the password, and may prove nothing itself."""

    def script(served: Served) -> None:
        assert served.octets(8) == HEADERS["0-9-1"]
        served.send(
            0, methods.ConnectionStart(version_minor=9, mechanisms=b"SCRAM-SHA-256", locales=b"en_US")
        )
        exchange = ServerExchange(served.expect(0, methods.ConnectionStartOk).response)
        if lie != "nothing":
            iterations = 1000 if lie == "iterations" else keys.iterations
            challenge = exchange.challenge(keys.salt, iterations)
            served.send(0, methods.ConnectionSecure(challenge=challenge))
            if lie == "iterations":
                return
            exchange.take(served.expect(0, methods.ConnectionSecureOk).response)
            assert exchange.is_proven(keys)
            signature = b"v=" + b"A" * 43 + b"=" if lie == "signature" else exchange.signature(keys)
            served.send(0, methods.ConnectionSecure(challenge=signature))
            if lie == "signature":
                return
            assert served.expect(0, methods.ConnectionSecureOk).response == b""
        served.send(0, methods.ConnectionTune(channel_max=10, frame_max=131_072))
        if not lie:
            served.expect(0, methods.ConnectionTuneOk)
            served.enter()
            served.honest({})

    return script


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ("", ""),
        ("signature", "the server does not prove that it knows the password"),
        ("nothing", "it has not proven the password"),
        ("iterations", "1000 iterations are not in 4096..10000000"),
    ],
)
def test_scram_proves_both_ends(either: Either, lie: str, why: str) -> None:
    keys = derived_keys(b"guest", b"0123456789abcdef", 4096)

    async def test() -> None:
        with FakeServer(scram_server(keys, lie)) as server:
            if lie:
                with pytest.raises(LoginRefused, match=f"is not trusted: {why}"):
                    await either.connect(server.uri, mechanism="SCRAM-SHA-256", recovery=None)
            else:
                connection = await either.connect(f"{server.uri}?auth_mechanism=scram-sha-256")
                await connection.close()

    either.run(test)
