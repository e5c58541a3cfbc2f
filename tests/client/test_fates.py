"""What becomes of messages and requests when something fails: safe, refused or named, in both clients."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from client.either import Either
from client.restarting import Restarting
from fake_server import (
    FakeServer,
    Served,
    answering,
    closes_channel,
    honest,
    nacks,
    says_nothing,
    tunes,
)
from network_proxy import TO_BROKER, TO_CLIENT, Cut, Fault, NetworkProxy

from flintmq import client
from flintmq.client import (
    ChannelClosed,
    ClientError,
    ConnectionLost,
    PublishFailed,
    Recovery,
    TransactionLost,
)
from flintmq.wire import methods

QUICK = Recovery(attempts_max=60, delay_s_min=0.01, delay_s_max=0.1)
REPORT = Recovery(attempts_max=60, delay_s_min=0.01, delay_s_max=0.1, unconfirmed="report")


def hang_up(server: FakeServer) -> None:
    server.served[0].socket.shutdown(socket.SHUT_RDWR)


async def bodies_of(channel: Any, queue: str) -> list[bytes]:
    found = []
    while (message := await channel.get(queue, no_ack=True)) is not None:
        found.append(message.body)
    return found


# A recovery that cannot be had as it was


def test_recovery_needs_no_channel_more_than_there_are(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, channel_max=1, recovery=QUICK)
        channel = await connection.channel(confirm=True)
        queue = await channel.queue("only-channel", exclusive=True)
        consumer = await queue.consume()
        proxy.cut()
        assert await channel.publish(b"after", routing_key=queue.name, timeout_s=10) == 1
        [message] = await consumer.take(1, timeout_s=10)
        assert message.body == b"after"
        await connection.close()

    either.run(test)


def test_a_channel_that_is_refused_at_the_recovery_names_what_it_had(either: Either) -> None:
    async def test() -> None:
        lost = answering({methods.BasicPublish: says_nothing})
        refusing = answering({methods.ConfirmSelect: closes_channel(540, "no confirms today")})
        with FakeServer(lost, refusing) as server:
            connection = await either.connect(server.uri, recovery=QUICK)
            plain = await connection.channel()
            channel = await connection.channel(confirm=True)
            await channel.publish_many([b"1", b"2"], routing_key="q", wait=False)
            server.wait_for(lambda: len(server.served[0].bodies) == 2)
            hang_up(server)
            with pytest.raises(PublishFailed) as failed:
                await channel.wait_for_confirms(10)
            assert failed.value.unknown == [1, 2]
            assert (await plain.queue("q")).name == "q", "the other channel lives"
            with pytest.raises(ClientError, match="no confirms today"):
                await channel.publish(b"3", routing_key="q")
            await connection.close()

    either.run(test)


def test_a_recovery_that_is_cut_half_way_is_tried_again(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, recovery=QUICK)
        channel = await connection.channel(confirm=True)
        queue = await channel.queue("half-way")
        await queue.purge()
        for method in ("channel.open-ok", "queue.declare-ok", "confirm.select-ok"):
            proxy.plan(Fault(TO_CLIENT, Cut(), method=method, edge="within"))
        proxy.strike(Fault(TO_BROKER, Cut(), method="basic.publish", frame=3))
        count = await channel.publish_many([b"%d" % number for number in range(10)], routing_key="half-way")
        assert count == 10
        assert set(await bodies_of(channel, "half-way")) == {b"%d" % number for number in range(10)}
        assert proxy.connections == 5
        assert channel.unconfirmed == 0
        await connection.close()

    either.run(test)


def test_frames_that_became_smaller(either: Either) -> None:
    async def test() -> None:
        large = tunes(131_072, {methods.BasicPublish: says_nothing})
        with FakeServer(large, tunes(4096)) as server:
            connection = await either.connect(server.uri, recovery=QUICK)
            channel = await connection.channel(confirm=True)
            await channel.publish(bytes(50_000), routing_key="q", wait=False)
            await channel.publish(b"x", routing_key="q", headers={"long": "y" * 9000}, wait=False)
            server.wait_for(lambda: len(server.served[0].bodies) == 2)
            hang_up(server)
            with pytest.raises(PublishFailed) as failed:
                await channel.wait_for_confirms(10)
            assert failed.value.unknown == [2]
            assert [len(body) for body in server.served[1].bodies] == [50_000]
            await connection.close()

    either.run(test)


# Requests to services


def test_a_request_whose_reply_is_lost_is_done_once(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, recovery=QUICK)
        channel = await connection.channel(confirm=True)
        for name in ("moved-from", "moved-to"):
            await channel.queue(name)
        await channel.publish_many([b"x"] * 10, routing_key="moved-from")
        await connection.request("broker.info")
        for service in ("queue.move", "queue.copy"):
            proxy.strike(Fault(TO_CLIENT, Cut(), method="basic.deliver"))
            arguments = {"queue": "moved-from", "to": "moved-to", "limit": 3}
            reply = await connection.request(service, arguments)
            assert 3 in reply.results.values()
        assert (await channel.queue("moved-to", passive=True)).message_count == 6
        assert (await channel.queue("moved-from", passive=True)).message_count == 7
        for name in ("moved-from", "moved-to"):
            await (await channel.queue(name)).delete()
        await connection.close()

    either.run(test)


def test_a_request_that_a_restarted_broker_does_not_know_is_unknown(either: Either, tmp_path: Path) -> None:
    async def test() -> None:
        with Restarting(tmp_path / "data") as broker, NetworkProxy(broker.port) as proxy:
            connection = await either.connect(proxy.uri, recovery=QUICK)
            channel = await connection.channel(confirm=True)
            for name in ("from", "to"):
                await channel.queue(name, durable=True)
            await channel.publish_many([b"x"] * 5, routing_key="from", persistent=True)
            await connection.request("broker.info")
            proxy.strike(Fault(TO_CLIENT, Cut(), method="basic.deliver"))
            proxy.plan(Fault(TO_BROKER, Cut(), frame=1))
            stopping = asyncio.get_running_loop().run_in_executor(None, restart_after, proxy, broker)
            with pytest.raises(client.RequestUnknown, match=r"queue\.move"):
                await connection.request("queue.move", {"queue": "from", "to": "to", "limit": 3})
            await stopping
            counts = [(await channel.queue(name, passive=True)).message_count for name in ("from", "to")]
            assert counts in ([2, 3], [5, 0])
            await connection.close()

    either.run(test)


def restart_after(proxy: NetworkProxy, broker: Restarting) -> None:
    proxy.wait_for_fault()
    proxy.refuse()
    broker.restart()
    proxy.accept()


# Outcomes that nobody waited for


def test_a_nack_after_a_timeout_is_told_by_the_next_who_asks(either: Either) -> None:
    async def test() -> None:
        def script(served: Served) -> None:
            served.welcome()
            channel, *_ = served.until(methods.BasicPublish)
            served.until(methods.BasicQos)
            served.send(channel, methods.BasicNack(delivery_tag=1))
            served.send(channel, methods.BasicQosOk())
            served.honest()

        with FakeServer(script) as server:
            connection = await either.connect(server.uri, recovery=QUICK)
            channel = await connection.channel(confirm=True)
            with pytest.raises(TimeoutError):
                await channel.publish(b"x", routing_key="q", timeout_s=0.2)
            await channel.qos(1)
            with pytest.raises(PublishFailed) as failed:
                await channel.wait_for_confirms()
            assert failed.value.nacked == [1]
            await connection.close()

    either.run(test)


def test_a_nack_of_a_cancelled_publish_is_told_at_the_end() -> None:
    async def test() -> None:
        def late_nack(served: Served, channel: int, method: Any, content: Any) -> None:
            served.until(methods.BasicQos)
            nacks(served, channel, method, content)
            served.send(channel, methods.BasicQosOk())

        with FakeServer(answering({methods.BasicPublish: late_nack})) as server:
            connection = await either.connect(server.uri, recovery=QUICK)
            channel = await connection.channel(confirm=True)
            publishing = asyncio.ensure_future(channel.publish(b"x", routing_key="q"))
            await asyncio.sleep(0)
            publishing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await publishing
            await channel.qos(1)
            with pytest.raises(PublishFailed) as failed:
                await connection.close()
            assert failed.value.nacked == [1]

    either = Either("aio")
    either.run(test)


def test_closing_the_connection_tells_of_channels_that_died(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri)
        channel = await connection.channel(confirm=True)
        await channel.publish(b"x", "no-such-exchange", "k", wait=False)
        await (await connection.channel()).close()  # a round trip, on which the refusal comes
        assert not channel.is_open
        with pytest.raises(PublishFailed, match="no-such-exchange") as failed:
            await connection.close()
        assert failed.value.unknown == [1]
        assert connection.is_closed

    either.run(test)


def test_closing_a_connection_that_cannot_come_back_names_what_is_unknown(either: Either) -> None:
    async def test() -> None:
        few = Recovery(attempts_max=2, delay_s_min=0.01, delay_s_max=0.02)
        with FakeServer(answering({methods.BasicPublish: says_nothing})) as server:
            connection = await either.connect(server.uri, recovery=few)
            channel = await connection.channel(confirm=True)
            await channel.publish_many([b"1", b"2"], routing_key="q", wait=False)
            server.wait_for(lambda: len(server.served[0].bodies) == 2)
        with pytest.raises(PublishFailed) as failed:
            await connection.close()
        assert failed.value.unknown == [1, 2]

    either.run(test)


# Returns


def test_a_return_belongs_to_the_message_that_has_its_key(either: Either, broker: BrokerProcess) -> None:
    async def test() -> None:
        connection = await either.connect(f"amqp://guest:guest@127.0.0.1:{broker.port}")
        channel = await connection.channel(confirm=True)
        queue = await channel.queue(exclusive=True)
        with pytest.raises(PublishFailed) as failed:
            await channel.publish_many(
                [b"same"] * 4, routing_keys=[queue.name, "nowhere", queue.name, "nowhere"], mandatory=True
            )
        assert failed.value.returned_numbers == [2, 4]
        assert failed.value.rows() == [1, 3]
        assert [message.routing_key for message in failed.value.returned] == ["nowhere"] * 2
        await connection.close()

    either.run(test)


def test_of_two_publishes_with_one_body_the_lost_one_fails(broker: BrokerProcess) -> None:
    either = Either("aio")

    async def test() -> None:
        connection = await either.connect(f"amqp://guest:guest@127.0.0.1:{broker.port}")
        channel = await connection.channel(confirm=True)
        queue = await channel.queue(exclusive=True)
        routed, lost = await asyncio.gather(
            channel.publish(b"same", routing_key=queue.name, mandatory=True),
            channel.publish(b"same", routing_key="nowhere", mandatory=True),
            return_exceptions=True,
        )
        assert routed == 1
        assert isinstance(lost, PublishFailed)
        await connection.close()

    either.run(test)


def test_twenty_thousand_that_come_back_are_all_counted(either: Either, broker: BrokerProcess) -> None:
    async def test() -> None:
        connection = await either.connect(f"amqp://guest:guest@127.0.0.1:{broker.port}")
        channel = await connection.channel(confirm=True)
        with pytest.raises(PublishFailed, match="20000 messages were returned") as failed:
            await channel.publish_many([b"x"] * 20_000, routing_key="nowhere", mandatory=True)
        assert failed.value.rows() == list(range(20_000))
        await channel.publish_many([b"x"] * 15_000, routing_key="nowhere", mandatory=True, wait=False)
        with pytest.raises(PublishFailed, match="15000 messages were returned"):
            await channel.wait_for_confirms()
        await connection.close()

    either.run(test)


# Transactions


def test_a_commit_whose_answer_is_lost_is_not_told_as_rolled_back(
    either: Either, proxy: NetworkProxy
) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, recovery=QUICK)
        channel = await connection.channel(transactional=True)
        queue = await channel.queue("committed")
        await queue.purge()
        await channel.publish(b"x", routing_key="committed")
        proxy.strike(Fault(TO_CLIENT, Cut(), method="tx.commit-ok"))
        with pytest.raises(
            client.CommitUnknown, match="committed all of the transaction, or nothing"
        ) as failed:
            await channel.commit()
        assert not isinstance(failed.value, TransactionLost)
        assert await bodies_of(channel, "committed") == [b"x"]
        await channel.publish(b"y", routing_key="committed")
        await channel.commit()
        assert await bodies_of(channel, "committed") == [b"y"]
        await connection.close()

    either.run(test)


def test_a_commit_that_never_arrived_is_unknown_too(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, recovery=QUICK)
        channel = await connection.channel(transactional=True)
        await (await channel.queue("committed")).purge()
        await channel.publish(b"x", routing_key="committed")
        proxy.strike(Fault(TO_BROKER, Cut(), method="tx.commit"))
        with pytest.raises(client.CommitUnknown):
            await channel.commit()
        assert await bodies_of(channel, "committed") == []
        await connection.close()

    either.run(test)


def test_a_transaction_cannot_settle_what_comes_again(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, recovery=QUICK)
        channel = await connection.channel(transactional=True)
        queue = await channel.queue("settled")
        await queue.purge()
        await channel.publish(b"work", routing_key="settled")
        await channel.commit()
        message = await queue.get()
        proxy.cut()
        await channel.queue("settled")  # notices the loss
        await channel.publish(b"result", routing_key="settled")
        with pytest.raises(TransactionLost, match="comes again"):
            message.ack()
        with pytest.raises(TransactionLost):
            await channel.commit()
        await channel.rollback()
        again = await queue.get()
        assert again.body == b"work"
        assert again.redelivered
        again.ack()
        await channel.commit()
        assert await queue.get() is None
        await connection.close()

    either.run(test)


# Without confirms


def test_without_confirms_nothing_is_sent_twice(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, recovery=QUICK)
        channel = await connection.channel()
        await (await channel.queue("once")).purge()
        rows = [b"%d" % number for number in range(5000)]
        proxy.strike(Fault(TO_BROKER, Cut(), octet=100_000))
        await channel.publish_many(rows, routing_key="once")
        await channel.publish(b"last", routing_key="once")
        proxy.wait_for_fault()
        await channel.queue("once")
        found = await bodies_of(channel, "once")
        assert len(found) == len(set(found)), "something was published twice"
        await connection.close()

    either.run(test)


def test_without_confirms_no_chunk_is_sent_twice(either: Either, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is noticed in the middle of a chunk: some of its rows have arrived."""
    kind = either.transport
    prepare = kind.prepare_socket

    def narrow(made: socket.socket, settings: client.Settings) -> None:
        prepare(made, settings)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)

    monkeypatch.setattr(kind, "prepare_socket", narrow)
    # Several chunks, each larger than what the sockets hold.
    rows = [b"%05d" % number + bytes(2000) for number in range(400)]

    def resets_amid(served: Served) -> None:
        served.welcome()
        while len(served.bodies) < 10:
            served.answer(*served.next_method(), {})
        served.hang_up(reset=True)

    async def test() -> None:
        with FakeServer(resets_amid, honest) as server:
            server.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            connection = await either.connect(server.uri, recovery=QUICK)
            channel = await connection.channel()
            await channel.publish_many(rows, routing_key="q")
            await asyncio.to_thread(server.wait_for, lambda: server.served[0].socket.fileno() == -1)
            await channel.queue("q")
            await channel.publish(b"last", routing_key="q")
            await channel.queue("q")
            first, second = server.served
            assert first.bodies == rows[:10]
            assert second.bodies[-1] == b"last"
            assert not set(first.bodies) & set(second.bodies), "rows were published twice"
            assert len(second.bodies) == len(set(second.bodies))
            if either.name == "sync":
                assert len(second.bodies) > 100, "the chunks behind the loss are sent"
            await connection.close()

    either.run(test)


# Rows of a call


def test_publish_many_names_the_rows_of_a_channel_that_died(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri)
        channel = await connection.channel(confirm=True)
        with pytest.raises(PublishFailed, match="404") as failed:
            await channel.publish_many([b"x"] * 40_000, "no-such-exchange", "k")
        assert failed.value.rows() == list(range(40_000))
        assert isinstance(failed.value.__cause__, ChannelClosed)
        assert "the channel was closed" in str(failed.value)
        assert "connection was lost" not in str(failed.value)
        channel = await connection.channel(confirm=True)
        await channel.publish_many([b"x"] * 2, "no-such-exchange", "k", wait=False)
        with pytest.raises(PublishFailed, match=r"2 .* the channel was closed.*404") as failed:
            await channel.wait_for_confirms()
        assert isinstance(failed.value.__cause__, client.NotFound)
        await connection.close()

    either.run(test)


def test_without_recovery_a_loss_names_the_rows(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, recovery=None)
        channel = await connection.channel(confirm=True)
        queue = await channel.queue("lossy")
        proxy.strike(Fault(TO_BROKER, Cut(), method="basic.publish", frame=100))
        with pytest.raises((PublishFailed, ConnectionLost)) as failed:
            await channel.publish_many([b"x"] * 200, routing_key=queue.name)
        assert isinstance(failed.value, PublishFailed)
        assert set(range(100, 200)) <= set(failed.value.rows())
        await connection.close()

    either.run(test)


def test_an_honest_server_is_no_trouble(either: Either) -> None:
    async def test() -> None:
        with FakeServer(honest) as server:
            connection = await either.connect(server.uri)
            channel = await connection.channel(confirm=True)
            assert await channel.publish_many([b"x"] * 100, routing_key="q") == 100
            await connection.close()

    either.run(test)
