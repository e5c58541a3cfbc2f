"""The lives of a connection: what ends one, what brings it back, and what it brings back with it."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from client.either import Either
from fake_server import (
    FakeServer,
    Script,
    Served,
    answering,
    hangs_up_at_login,
    hangs_up_at_open,
    hangs_up_at_tune,
    honest,
    refuses_host,
    refuses_login,
    returns_then_acks,
)
from live.certificates import Authority
from live.serving import serving
from network_proxy import Cut, NetworkProxy
from peer import encode_frame

from flintmq import client
from flintmq.client import (
    ClientError,
    ConnectFailed,
    Connection,
    ConnectionLost,
    ForkedConnection,
    LoginRefused,
    Message,
    NotFound,
    PublishFailed,
    Recovery,
    aio,
    connect,
)
from flintmq.wire import amqp, methods
from flintmq.wire.methods import encode_method

QUICK = Recovery(attempts_max=60, delay_s_min=0.01, delay_s_max=0.1)


def once_open(served: Served) -> None:
    """A life that ends right after it began."""
    served.welcome()
    served.expect(1, methods.ChannelOpen)
    served.hang_up()


# What ends a recovery, and what does not


@pytest.mark.parametrize(
    "script",
    [
        hangs_up_at_login,
        hangs_up_at_tune,
        hangs_up_at_open,
        refuses_login(320, "CONNECTION_FORCED - shutting down"),
        refuses_host(320, "CONNECTION_FORCED - shutting down"),
        refuses_host(541, "INTERNAL_ERROR"),
    ],
)
def test_a_broker_that_is_not_ready_at_the_login_is_tried_again(either: Either, script: Script) -> None:
    async def test() -> None:
        with FakeServer(once_open, script, script, honest) as server:
            connection = await either.connect(server.uri, recovery=QUICK)
            channel = await connection.channel()
            assert (await channel.queue("q")).name == "q"
            assert server.connections == 4
            await connection.close()

    either.run(test)


def test_a_login_that_is_refused_ends_the_recovery(either: Either) -> None:
    async def test() -> None:
        with FakeServer(once_open, refuses_login(403, "ACCESS_REFUSED"), honest) as server:
            connection = await either.connect(server.uri, recovery=QUICK)
            with pytest.raises(ConnectionLost, match="check user and password") as lost:
                await connection.channel()
            assert isinstance(lost.value.__cause__, LoginRefused)
            assert lost.value.__cause__.code == 403
            assert server.connections == 2
            await connection.close()
        with (
            FakeServer(refuses_login(403, "ACCESS_REFUSED")) as server,
            pytest.raises(LoginRefused, match="403") as refused,
        ):
            await either.connect(server.uri)
        assert (refused.value.code, refused.value.text) == (403, "ACCESS_REFUSED")
        with (
            FakeServer(refuses_host(530, "NOT_ALLOWED")) as server,
            pytest.raises(LoginRefused) as refused,
        ):
            await either.connect(server.uri)
        assert (refused.value.code, refused.value.text) == (530, "NOT_ALLOWED")
        with (
            FakeServer(refuses_login(320, "CONNECTION_FORCED")) as server,
            pytest.raises(ConnectFailed, match="320") as failed,
        ):
            await either.connect(server.uri)
        assert not isinstance(failed.value, LoginRefused)
        assert (failed.value.code, failed.value.text) == (320, "CONNECTION_FORCED")

    either.run(test)


def test_what_the_broker_still_holds_for_the_lost_connection_is_waited_for(
    either: Either, proxy: NetworkProxy
) -> None:
    """Half open: the client has lost the connection, and the broker has not noticed."""

    async def test() -> None:
        connection = await either.connect(proxy.uri, recovery=QUICK)
        channel = await connection.channel(confirm=True)
        mine = await channel.queue("held-queue", exclusive=True)
        await channel.queue("held-consumer")
        alone = await channel.consume("held-consumer", exclusive=True)
        link = proxy.link
        proxy.cut(keep="broker")
        ending = threading.Timer(1.0, lambda: proxy._do(link.close))
        ending.start()
        await channel.publish(b"x", routing_key="held-queue", mandatory=True)
        await channel.publish(b"y", routing_key="held-consumer", mandatory=True)
        assert (await mine.get()).body == b"x"
        [message] = await alone.take(1, timeout_s=10)
        assert message.body == b"y"
        message.ack()
        ending.join()
        await (await channel.queue("held-consumer")).delete()
        await connection.close()

    either.run(test)


def test_a_connection_that_dies_at_once_is_not_opened_again_at_once(either: Either) -> None:
    """With delays of 0.1 to 0.8 seconds, there are few in three."""

    async def test() -> None:
        def short(served: Served) -> None:
            served.welcome()
            served.until(methods.QueueDeclare)
            served.hang_up()

        with FakeServer(short) as server:
            recovery = Recovery(attempts_max=1000, delay_s_min=0.1, delay_s_max=0.8)
            connection = await either.connect(server.uri, recovery=recovery, timeout_s=3)
            channel = await connection.channel()
            begun_s = time.monotonic()
            while time.monotonic() - begun_s < 3:
                with pytest.raises(ClientError):
                    await channel.queue("q")
            assert server.connections <= 12
            await connection.close()

    either.run(test)


def test_hooks_tell_of_losses_and_recoveries(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, recovery=QUICK)
        told: list[str] = []
        connection.on_lost(lambda error: told.append(type(error).__name__))
        connection.on_recovered(lambda: told.append("recovered"))
        channel = await connection.channel()
        for _ in range(2):
            proxy.cut()
            await channel.queue("hooked", exclusive=True)
        assert told == ["ConnectionLost", "recovered"] * 2
        await connection.close()

    either.run(test)


# What comes back


def test_a_recovery_is_told_although_nothing_comes_after_it(either: Either) -> None:
    """All that the server has to say came with the answer that ended the recovery."""

    def delivers(served: Served, channel: int, method: methods.BasicConsume, content: object) -> None:
        told = (
            methods.BasicConsumeOk(consumer_tag=method.consumer_tag),
            methods.BasicDeliver(consumer_tag=method.consumer_tag, delivery_tag=1, routing_key="q"),
        )
        octets = [
            encode_frame(amqp.FRAME_METHOD, channel, encode_method(served.version, each)) for each in told
        ]
        header = (60).to_bytes(2, "big") + bytes(12)
        served.raw(b"".join((*octets, encode_frame(amqp.FRAME_HEADER, channel, header))))

    async def test() -> None:
        told: list[str] = []
        with FakeServer(honest, answering({methods.BasicConsume: delivers})) as server:
            connection = await either.connect(server.uri, recovery=QUICK)
            connection.on_recovered(lambda: told.append(f"open: {connection.is_open}"))
            consumer = await (await connection.channel()).consume("q")
            server.served[0].socket.shutdown(socket.SHUT_RDWR)
            [message] = await consumer.take(1, timeout_s=10)
            await asyncio.sleep(0)
            assert told == ["open: True"]
            assert message.ack()
            await connection.close()

    either.run(test)


def test_each_consumer_comes_back_with_its_own_prefetch(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, recovery=QUICK)
        channel = await connection.channel(confirm=True)
        consumers = []
        for prefetch in (2, 5):
            await channel.qos(prefetch)
            queue = await channel.queue(f"prefetch-{prefetch}", exclusive=True)
            consumers.append((prefetch, await queue.consume()))
        proxy.cut()
        for prefetch, _ in consumers:
            await channel.publish_many([b"x"] * 20, routing_key=f"prefetch-{prefetch}")
        for prefetch, consumer in consumers:
            await channel.queue(f"prefetch-{prefetch}", exclusive=True)
            taken = await consumer.take(100, timeout_s=5)
            while more := await consumer.take(100, timeout_s=0.3):
                taken += more
            assert len(taken) == prefetch
        await connection.close()

    either.run(test)


def test_an_auto_delete_queue_that_has_ended_stays_away(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, recovery=QUICK)
        channel = await connection.channel()
        queue = await channel.queue("ended", auto_delete=True)
        consumer = await queue.consume()
        await consumer.cancel()
        deleted = await channel.queue("deleted-by-others")
        watching = await deleted.consume()
        other = await either.connect(f"amqp://guest:guest@127.0.0.1:{proxy.target}")
        await (await (await other.channel()).queue("deleted-by-others", passive=True)).delete()
        with pytest.raises(client.ConsumerCancelled):
            await watching.take(1, timeout_s=10)
        proxy.cut()
        await channel.qos(1)
        for name in ("ended", "deleted-by-others"):
            with pytest.raises(NotFound):
                await (await other.channel()).queue(name, passive=True)
        await other.close()
        await connection.close()

    either.run(test)


def test_the_newest_arguments_are_declared_again(either: Either) -> None:
    async def test() -> None:
        declared: list[Any] = []

        def note(served: Served, channel: int, method: Any, content: Any) -> None:
            declared.append(method.arguments)
            served.honest_answer(channel, method)

        script = answering({methods.QueueDeclare: note})
        with FakeServer(script) as server:
            connection = await either.connect(server.uri, recovery=QUICK)
            channel = await connection.channel()
            await channel.queue("q", arguments={"x-max-length": 1})
            await channel.queue("q", arguments={"x-max-length": 2})
            server.served[0].socket.shutdown(2)
            await channel.qos(1)
            assert declared[2:] == [{"x-max-length": 2}]
            await connection.close()

    either.run(test)


def test_a_consumer_that_is_left_during_a_loss_is_no_ghost(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, recovery=QUICK)
        channel = await connection.channel(confirm=True)
        await channel.queue("ghost")
        async with await channel.consume("ghost"):
            proxy.cut()
        assert (await channel.queue("ghost")).consumer_count == 0
        await channel.publish(b"x", routing_key="ghost")
        assert (await channel.get("ghost", no_ack=True)).body == b"x"
        await connection.close()

    either.run(test)


# What the application does in between


def test_leaving_a_consumer_keeps_the_exception_of_the_application(
    either: Either, proxy: NetworkProxy
) -> None:
    async def test() -> None:
        few = Recovery(attempts_max=1, delay_s_min=0.01, delay_s_max=0.02)
        connection = await either.connect(proxy.uri, recovery=few, timeout_s=2)
        channel = await connection.channel()
        queue = await channel.queue(exclusive=True)
        consumer = await queue.consume()
        proxy.refuse()
        proxy.cut()
        with pytest.raises(ZeroDivisionError) as failed:
            async with consumer:
                raise ZeroDivisionError("the application's own")
        assert any("cancelling the consumer failed" in note for note in failed.value.__notes__)
        await connection.close()

    either.run(test)


def test_a_failing_on_return_harms_nobody(either: Either, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        with FakeServer(answering({methods.BasicPublish: returns_then_acks})) as server:
            connection = await either.connect(server.uri, recovery=None)
            channel = await connection.channel(confirm=True)
            bodies: list[bytes] = []

            def told(message: Message, code: int, text: str) -> None:
                bodies.append(message.body)
                raise ZeroDivisionError("in on_return")

            channel.on_return(told)
            await channel.publish_many([b"1", b"2", b"3"], routing_key="q", mandatory=True)
            assert bodies == [b"1", b"2", b"3"]
            assert await channel.publish(b"4", routing_key="q", mandatory=True) == 4
            await connection.close()

    either.run(test)
    assert "in on_return" in caplog.text


def test_on_return_may_publish(uri: str) -> None:
    with connect(uri) as connection, connection.channel(confirm=True) as channel:
        parked = channel.queue(exclusive=True)
        channel.on_return(lambda message, code, text: channel.publish(message.body, "", parked.name))
        channel.publish_many([b"1", b"2", b"3"], routing_key="nowhere", mandatory=True)
        assert [message.body for message in parked.consume(timeout_s=0.5)] == [b"1", b"2", b"3"]


def test_on_return_may_publish_by_a_task(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection, connection.channel(confirm=True) as channel:
            parked = await channel.queue(exclusive=True)
            tasks: list[asyncio.Task[int]] = []

            def told(message: Message, code: int, text: str) -> None:
                tasks.append(asyncio.create_task(channel.publish(message.body, "", parked.name)))

            channel.on_return(told)
            await channel.publish_many([b"1", b"2", b"3"], routing_key="nowhere", mandatory=True)
            await asyncio.gather(*tasks)
            consumer = await parked.consume(timeout_s=0.5)
            assert [message.body async for message in consumer] == [b"1", b"2", b"3"]

    Either("aio").run(test)


class Struck(BaseException):
    """What a signal handler raises."""


def test_an_interrupt_at_any_moment_leaves_nothing_torn(uri: str) -> None:
    """A hundred strikes into publishing and reading; what was said to be safe is there."""
    chance = random.Random(7)

    def strike(number: int, frame: object) -> None:
        raise Struck

    before = signal.signal(signal.SIGALRM, strike)
    try:
        with connect(uri, recovery=QUICK, timeout_s=20) as connection:
            channel = connection.channel(confirm=True)
            queue = channel.queue("struck")
            queue.purge()
            safe: set[bytes] = set()
            struck = 0
            number = 0
            while struck < 100:
                bodies = [b"%d" % each for each in range(number, number + 300)]
                number += 300
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, 0.01))
                    channel.publish_many([body.ljust(2000) for body in bodies], routing_key="struck")
                    channel.queue("struck", passive=True)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    safe.update(bodies)
                except Struck:
                    struck += 1
            channel.wait_for_confirms()
            found = set()
            consumer = channel.consume("struck")
            while batch := consumer.take(2000, timeout_s=1):
                found.update(message.body.strip() for message in batch)
                batch[-1].ack(multiple=True)
            assert safe <= found
            queue.delete()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Who may use it


def test_errors_pickle(uri: str) -> None:
    with connect(uri) as connection, connection.channel(confirm=True) as channel:
        with pytest.raises(PublishFailed) as failed:
            channel.publish(b"back", routing_key="nowhere", headers={"a": 1}, mandatory=True)
        again: PublishFailed = pickle.loads(pickle.dumps(failed.value))
        assert str(again) == str(failed.value)
        assert (again.returned_numbers, again.first, again.rows()) == ([1], 1, [0])
        [message] = again.returned
        assert (message.body, message.routing_key, message.headers) == (b"back", "nowhere", {"a": 1})
        with pytest.raises(ClientError, match="in another process"):
            message.ack()
    kinds = [
        client.ConnectionClosed("x", 320, "y"),
        client.CommitUnknown("x"),
        client.NotFound("x", 404, "y"),
        client.TransactionFailed("x", 3),
        client.ServiceError("s", 404, "t"),
        client.RequestUnknown("s", "r"),
        client.LoginRefused("x", 403, "y"),
        client.CallTimeout("x"),
    ]
    for error in kinds:
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_the_async_client_refuses_another_process(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection, connection.channel(confirm=True) as channel:
            queue = await channel.queue(exclusive=True)
            await channel.publish(b"x", routing_key=queue.name)
            message = await queue.get()
            assert message is not None
            child = os.fork()
            if child == 0:
                refused = 0
                try:
                    message.ack()
                except ForkedConnection:
                    refused += 1
                try:
                    channel.publish(b"y").send(None)
                except ForkedConnection:
                    refused += 1
                os._exit(refused)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 2
            assert message.ack()
            assert await queue.get() is None

    Either("aio").run(test)


def test_two_threads_at_once_are_told_apart(uri: str) -> None:
    with connect(uri) as connection, connection.channel() as channel:
        queue = channel.queue(exclusive=True)
        consumer = queue.consume()
        waiting = threading.Thread(target=lambda: consumer.take(1, timeout_s=3))
        waiting.start()
        while not at_work(connection):
            time.sleep(0.01)
        with pytest.raises(ClientError, match="in another thread; open a connection for each thread"):
            channel.queue(queue.name, passive=True)
        waiting.join()
        channel.queue(queue.name, passive=True)


def at_work(connection: Connection) -> bool:
    """Whether another thread holds the socket."""
    if connection._busy.acquire(blocking=False):
        connection._busy.release()
        return False
    return True


def test_another_event_loop_is_refused(uri: str) -> None:
    kept: list[aio.Connection] = []

    async def opened() -> None:
        kept.append(await aio.connect(uri))

    async def used() -> None:
        with pytest.raises(ClientError, match="belongs to another event loop"):
            await kept[0].channel()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(opened())
        asyncio.run(used())
        loop.run_until_complete(kept[0].close())
    finally:
        loop.close()


def test_tls_that_fails_says_why(either: Either, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    server = authority.sign("server")
    config = tmp_path / "flintmq.toml"
    config.write_text(f'[tls]\nport = 0\ncertificate = "{server.certificate}"\nkey = "{server.key}"\n')
    with serving("--config", str(config), schemes=("amqp", "amqps")) as broker:

        async def test() -> None:
            with pytest.raises(ConnectFailed, match=r"does not speak TLS with us: .*takes amqp://"):
                await either.connect(f"amqps://127.0.0.1:{broker.ports['amqp']}?verify=verify_none")
            with pytest.raises(ConnectFailed, match="is not trusted"):
                await either.connect(f"amqps://127.0.0.1:{broker.ports['amqps']}")
            with pytest.raises(ConnectFailed, match=r"hung up .*takes amqps://"):
                await either.connect(f"amqp://127.0.0.1:{broker.ports['amqps']}")

        either.run(test)


def test_a_cut_is_a_cut(either: Either, proxy: NetworkProxy) -> None:
    """RST and FIN in the middle of nothing: the next call goes on."""

    async def test() -> None:
        connection = await either.connect(proxy.uri, recovery=QUICK)
        channel = await connection.channel()
        for how in ("rst", "fin"):
            proxy.cut(Cut(how).how)
            await channel.queue("cut", exclusive=True)
        await connection.close()

    either.run(test)
