"""Our client of AMQP/Fast and our client of 0-9-1 on one broker, over real sockets."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from live.serving import Serving, serving

from flintmq import client as amqp_client
from flintmq.client import AccessRefused, CallTimeout, LoginRefused, NotFound
from flintmq.client.fast import connect
from flintmq.client.fast.aio.connection import connect as connect_async
from flintmq.wire.fast.message_head import MessageHead


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    serving = Serving("--data", str(tmp_path_factory.mktemp("data")))
    try:
        yield serving.port
    finally:
        serving.stop()


def url(port: int) -> str:
    return f"amqp://guest:guest@127.0.0.1:{port}/"


def test_messages_cross_to_0_9_1_and_back(port: int) -> None:
    with amqp_client.connect(url(port)) as other, other.channel() as basic:
        basic.queue("crossing", durable=True)
        with connect("127.0.0.1", port) as connection, connection.channel() as channel:
            handle = channel.queue("cross")
            handle.send(
                b"two apples",
                "ing",
                persistent=True,
                priority=7,
                mime_type="text/plain",
                encoding="utf-8",
                identifier="m-1",
                headers={"Fruit": "apple", "Count": 2, "Price": Decimal("1.50"), "$REPLY_TO": "answers"},
                confirm=True,
            )
            got = basic.get("crossing")
            assert got is not None
            assert got.body == b"two apples"
            assert got.properties.delivery_mode == 2
            assert got.properties.priority == 7
            assert got.properties.content_type == "text/plain"
            assert got.properties.content_encoding == "utf-8"
            assert got.properties.message_id == "m-1"
            assert got.properties.reply_to == "answers"
            assert got.properties.headers == {"Fruit": "apple", "Count": 2, "Price": Decimal("1.50")}
            got.ack()

            handle.consume("ing", prefetch=1)
            basic.publish(
                b"back",
                routing_key="crossing",
                properties=amqp_client.Properties(correlation_id="c", headers={"big": 2**40, "ok": True}),
            )
            message = handle.receive()
            assert (message.body, message.name) == (b"back", "crossing")
            assert message.headers == {"$CORRELATION_ID": "c", "big": str(2**40), "ok": 1}
            channel.ack(message, confirm=True)
        basic.delete_queue("crossing")


def test_an_expiration_is_the_same_at_the_other_end(port: int) -> None:
    until = int(time.time()) + 3600
    with connect("127.0.0.1", port) as connection, connection.channel() as channel:
        handle = channel.queue(temporary=True)
        handle.send(b"late", expiration=until)
        handle.send(b"too late", expiration=1)
        handle.consume()
        message = handle.receive()
        assert (message.body, message.head.expiration) == (b"late", until)
        assert message.headers == {}
        with pytest.raises(CallTimeout):
            handle.receive(0.2)


def test_a_large_message_goes_in_fragments_both_ways(port: int) -> None:
    body = bytes(range(256)) * 40_000  # 10 MiB: it goes through a file
    with connect("127.0.0.1", port) as connection, connection.channel() as channel:
        handle = channel.queue("large")
        handle.consume(dynamic=True, prefetch=2)
        handle.send(body, persistent=True, headers={"When": datetime(2005, 4, 16, tzinfo=UTC)}, confirm=True)
        message = handle.receive()
        assert message.body == body
        assert message.headers == {"When": datetime(2005, 4, 16, tzinfo=UTC)}
        channel.ack(message, confirm=True)


def test_a_queue_that_is_not_there_closes_the_handle_alone(port: int) -> None:
    with connect("127.0.0.1", port) as connection, connection.channel() as channel:
        handle = channel.queue("no such ")
        with pytest.raises(NotFound, match="no such queue"):
            handle.send(b"x", "queue", confirm=True)
        with pytest.raises(NotFound):
            handle.send(b"x", "queue")
        other = channel.queue(temporary=True)
        other.send(b"y", confirm=True)


def test_topics_reach_all_who_are_interested(port: int) -> None:
    with connect("127.0.0.1", port) as connection, connection.channel() as channel:
        exact, all_pets, everything = channel.topic("pets.cats"), channel.topic("pets."), channel.topic()
        exact.consume(no_ack=True)
        all_pets.consume(no_ack=True)
        everything.consume(no_ack=True)
        channel.topic("pets.").send(b"meow", "cats")
        channel.topic("pets.").send(b"woof", "dogs")
        assert exact.receive().body == b"meow"
        assert [all_pets.receive().body for _ in range(2)] == [b"meow", b"woof"]
        assert [everything.receive().name for _ in range(2)] == ["pets.cats", "pets.dogs"]
        with pytest.raises(CallTimeout):
            exact.receive(0.2)


def test_a_wrong_password_is_refused(port: int) -> None:
    with pytest.raises(LoginRefused, match="PLAIN"):
        connect("127.0.0.1", port, password="wrong")


def test_a_client_name_is_connected_once(port: int) -> None:
    with connect("127.0.0.1", port, client_name="till-1"), pytest.raises(LoginRefused, match="till-1"):
        connect("127.0.0.1", port, client_name="till-1")
    connect("127.0.0.1", port, client_name="till-1").close()


def test_a_name_of_the_broker_is_refused(port: int) -> None:
    with (
        connect("127.0.0.1", port) as connection,
        connection.channel() as channel,
        pytest.raises(AccessRefused),
    ):
        channel.queue("amq.mine", temporary=True)


def test_the_async_client(port: int) -> None:
    asyncio.run(use_the_async_client(port))


async def use_the_async_client(port: int) -> None:
    async with await connect_async("127.0.0.1", port) as connection:
        async with await connection.channel(transacted=True) as channel:
            handle = await channel.queue(temporary=True)
            await handle.consume()
            await handle.send(b"forgotten")
            await channel.rollback()
            await handle.send(b"kept")
            await channel.commit()
            message = await handle.receive()
            assert message.body == b"kept"
            await channel.rollback()
            again = await handle.receive()
            assert (again.body, again.is_redelivered) == (b"kept", True)
            await channel.commit()
            with pytest.raises(CallTimeout):
                await handle.receive(0.2)
        await connection.ping()


def test_the_example_of_the_page(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "fast.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)
    exec(example.replace('"localhost",', f'"127.0.0.1", {port},'), {})
    assert capsys.readouterr().out == "b'two apples' text/plain\n"


def test_messages_are_listed_and_looked_at(port: int) -> None:
    with connect("127.0.0.1", port) as connection, connection.channel() as channel:
        handle = channel.queue(temporary=True)
        for number in range(5):
            handle.send(b"%d" % number, headers={"n": number})
        assert handle.query() == ([0, 1, 2, 3, 4], False)
        assert handle.query(selector="n > 2") == ([0, 1], False)
        found = handle.browse(1)
        assert found is not None
        assert (found.body, found.is_delivered) == (b"4", False)
        assert handle.browse(7) is None


def test_an_upload_goes_on_where_it_broke_off(port: int) -> None:
    body = bytes(range(256)) * 24_000  # 6 MiB: what has come lies in a file
    first = connect("127.0.0.1", port)
    channel = first.channel(restartable=True)
    handle = channel.queue("uploads")
    handle.consume(dynamic=True)
    handle.pause()
    core, place = first.core, handle.place
    core.prepare(place, MessageHead(persistent=True, identifier="u-1"), body)
    first.wait(lambda: bool(place.ready), "preparing")
    for start in list(core.rest(body, place.ready.popleft()))[:20]:
        core.recover(place, body, start, "", 0)
    first.transport.flush()
    first.ping()
    channel.close()  # all before it has been read
    first.transport.shut()
    with connect("127.0.0.1", port) as second, second.channel(restartable=True) as channel:
        handle = channel.queue("uploads")
        there = handle.upload(body, persistent=True, identifier="u-1")
        assert there > 2_000_000
        handle.consume()
        message = handle.receive()
        assert (message.body, message.head.identifier) == (body, "u-1")
        channel.ack(message, confirm=True)


def test_persistent_messages_survive_the_end_of_the_broker(tmp_path: Path) -> None:
    server = Serving("--data", str(tmp_path))
    try:
        channel = connect("127.0.0.1", server.port).channel(transacted=True)
        handle = channel.queue("kept")
        handle.consume(dynamic=True)
        handle.pause()
        handle.send(b"kept", persistent=True)
        channel.commit()
    finally:
        server.kill()
    with serving("--data", str(tmp_path)) as again, connect("127.0.0.1", again.port) as connection:
        handle = connection.channel().queue("kept")
        handle.consume()
        assert handle.receive().body == b"kept"


def test_a_hostile_stranger_is_shown_the_door(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 30) as peer:
        peer.sendall(b"\x80\x01" + b"\xff" * 64)
        peer.settimeout(30)
        while peer.recv(65_536):
            pass
    connect("127.0.0.1", port).close()
