"""Our client of AMQP/Fast 0.9 beside pika on one broker, over real sockets."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pika
import pytest
from fast09.conversation import framed, octets
from live.serving import Serving, serving, write

from flintmq.client import AccessRefused, CallTimeout, LoginRefused, NotFound
from flintmq.client.core.errors import ResourceLocked
from flintmq.client.fast09 import connect
from flintmq.client.fast09.aio.connection import connect as connect_async
from flintmq.wire.fast09.content_header import ContentHeader
from flintmq.wire.fast09.methods import CLASS_FILE, method

SCHEMES = ("amqp", "amqp-fast")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    server = Serving("--data", str(tmp_path_factory.mktemp("data")), "--fast09-port", "0", schemes=SCHEMES)
    try:
        yield server
        assert not [line for line in server.errors if "Traceback" in line or " bug " in line], server.errors
    finally:
        server.stop()


@pytest.fixture
def port(server: Serving) -> int:
    return server.ports["amqp-fast"]


@pytest.fixture
def basic(server: Serving) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.port))
    yield connection.channel()
    connection.close()


def test_messages_cross_to_pika_and_back(
    port: int, basic: pika.adapters.blocking_connection.BlockingChannel
) -> None:
    with connect("127.0.0.1", port) as connection, connection.channel() as channel:
        channel.queue("crossing", durable=True)
        channel.publish(
            b"two apples",
            "crossing",
            synch=True,
            delivery_mode=2,
            priority=7,
            content_type="text/plain",
            content_encoding="utf-8",
            message_id="m-1",
            correlation_id="c-1",
            reply_to="answers",
            type="fruit",
            timestamp="1112313600",
            app_id="till",
            headers={
                "Fruit": "apple",
                "Count": 2,
                "Price": Decimal("1.50"),
                "When": datetime(2005, 4, 16, tzinfo=UTC),
                "More": {"n": 1},
            },
        )
        got, properties, body = basic.basic_get("crossing", auto_ack=True)
        assert (got.routing_key, body) == ("crossing", b"two apples")
        assert (properties.delivery_mode, properties.priority) == (2, 7)
        assert (properties.content_type, properties.content_encoding) == ("text/plain", "utf-8")
        assert (properties.message_id, properties.correlation_id) == ("m-1", "c-1")
        assert (properties.reply_to, properties.type, properties.app_id) == ("answers", "fruit", "till")
        assert properties.timestamp == 1112313600
        assert properties.headers["Fruit"] == "apple"
        assert properties.headers["Count"] == 2
        assert properties.headers["Price"] == Decimal("1.50")
        assert properties.headers["More"] == {"n": 1}

        consumer = channel.consume("crossing", prefetch=1)
        back = pika.BasicProperties(correlation_id="c", timestamp=5, headers={"big": 2**40, "ok": True})
        basic.basic_publish("", "crossing", b"back", back)
        message = consumer.receive()
        assert (message.body, message.destination, message.queue) == (b"back", "crossing", "crossing")
        assert message.properties["correlation_id"] == "c"
        assert message.properties["timestamp"] == "5"
        assert message.headers == {"big": str(2**40), "ok": 1}
        channel.ack(message, synch=True)
        channel.delete_queue("crossing")


def test_types_answer_to_the_names_of_proxies(
    port: int, basic: pika.adapters.blocking_connection.BlockingChannel
) -> None:
    basic.exchange_declare("wild", "dest-wild")
    basic.exchange_declare("wild", "topic")
    with connect("127.0.0.1", port) as connection, connection.channel() as channel:
        channel.proxy("wild", "dest-wild")
        channel.queue("stocks")
        channel.register("stocks", "wild", {"destination": "stock.*"})
        basic.basic_publish("wild", "stock.ibm", b"101")
        message = channel.consume("stocks", auto_ack=True).receive()
        assert (message.body, message.destination, message.proxy) == (b"101", "stock.ibm", "wild")
        assert channel.queue("stocks").proxy == "wild"
        channel.delete_queue("stocks")
        channel.delete_proxy("wild")


def test_large_messages_go_through_files_both_ways(port: int) -> None:
    body = bytes(range(256)) * 40_000  # 10 MiB
    with connect("127.0.0.1", port) as connection, connection.channel() as channel:
        channel.queue("large")
        channel.publish(body, "large", synch=True, delivery_mode=2)
        message = channel.browse("large")
        assert message is not None
        assert message.body == body
        channel.ack(message)
        consumer = channel.consume("large")
        channel.publish(body, "large", synch=True)
        assert consumer.receive().body == body
        with connection.channel() as other:
            assert other.queue("large").queue == "large"  # the connection is not held up
        channel.delete_queue("large")


def test_a_file_is_staged_published_and_staged_at_its_consumer(
    port: int, basic: pika.adapters.blocking_connection.BlockingChannel
) -> None:
    body = bytes(range(256)) * 24_000  # 6 MiB
    with connect("127.0.0.1", port) as connection, connection.channel() as channel:
        channel.queue("files", durable=True)
        options = {"file_name": "photo.png", "content_type": "image/png", "revised_time": 1112313600}
        assert channel.send_file(body, "f-1", "files", **options) == 0
        consumer = channel.consume("files", "file")
        message = consumer.receive()
        assert (message.body, message.queue) == (body, "files")
        assert message.properties == {"destination": "files", **options}
        channel.ack(message, synch=True)
        consumer.cancel()
        channel.send_file(b"small", "f-2", "files", file_name="note.txt")
        _, properties, found = basic.basic_get("files", auto_ack=True)
        assert (found, properties.headers["x-filename"], properties.delivery_mode) == (
            b"small",
            "note.txt",
            2,
        )
        channel.delete_queue("files")


def test_a_file_goes_on_where_it_broke_off(port: int) -> None:
    body = bytes(range(256)) * 24_000
    first = connect("127.0.0.1", port)
    channel = first.channel()
    channel.queue("resumed", durable=True)
    core, place = first.core, channel.place
    core.write(place.number, method("file.open", identifier="f-3", content_size=len(body)))
    first.wait(lambda: bool(place.staged), "opening")
    core.publish(place, method("file.stage"), ContentHeader(CLASS_FILE, 0, {"destination": "x"}), body, 0, 0)
    del core.output[4 * 2**20 :]
    first.transport.flush()
    core.write(0, method("connection.close", reply_code=200))  # lies in the middle of a frame: never heard
    first.transport.shut()
    with connect("127.0.0.1", port) as second, second.channel() as other:
        for _ in range(100):  # what came by a connection that is gone is taken in portions
            there = other.stage_file(body, "f-3", "resumed")
            if there:
                break
        other.tell(method("file.publish", identifier="f-3"), "publishing", True)
        assert there >= 2**20
        assert other.consume("resumed", "file").receive().body == body
        other.delete_queue("resumed")


def test_what_a_client_has_of_a_file_is_not_sent_again(port: int) -> None:
    with connect("127.0.0.1", port) as connection, connection.channel() as channel:
        channel.queue("again", durable=True)
        channel.send_file(b"0123456789", "f-5", "again")
    files: dict[str, bytearray] = {}
    connection = connect("127.0.0.1", port, files=files)
    channel = connection.channel()
    message = channel.consume("again", "file").receive()
    files[message.identifier] = bytearray(message.body[:4])
    connection.transport.shut()  # before it was acked
    with connect("127.0.0.1", port, files=files) as second, second.channel() as channel:
        again = channel.consume("again", "file").receive()
        assert (again.body, again.is_redelivered, again.header.body_size) == (b"0123456789", True, 6)
        channel.ack(again, synch=True)
        channel.delete_queue("again")


class RawPeer:
    """A socket on which octets are said and heard, with a channel 1 that is open."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.unheard = b""
        self.socket.sendall(
            octets("'AMQP' 01 01 00 09")
            + framed(
                "01 00 | 01 02 00 0001 | 05 'PLAIN' 05 'en_US'\n"
                "01 00 | 01 04 00 0002 | 000c 00 'guest' 00 'guest'\n"
                "01 00 | 01 06 00 0003 | 00010000 0010 0000 0000 07 00000000\n"
                "01 00 | 01 07 00 0004 | 01 '/' 02 'rw'\n"
                "01 01 | 02 01 00 0005 | 00000000 00 00"
            )
        )
        self.hears_up_to(framed("01 01 | 02 02 00 0005"))

    def hears_up_to(self, last: bytes) -> bytes:
        """All that comes before these octets."""
        while last not in self.unheard:
            came = self.socket.recv(65_536)
            assert came, self.unheard
            self.unheard += came
        heard, _, self.unheard = self.unheard.partition(last)
        return heard

    def __rshift__(self, said: str) -> None:
        self.socket.sendall(framed(said))

    def __lshift__(self, expected: str) -> None:
        assert self.hears_up_to(framed(expected)) == b""


def test_a_file_octet_by_octet(port: int) -> None:
    """Sections 3.17.9 and 3.20: open, stage and publish; and the mirror of it towards the consumer."""
    peer = RawPeer(port)
    with peer.socket:
        peer >> "01 01 | 05 01 00 0001 | 0000 00 05 'rolls' 00 0a"  # durable, auto_delete
        peer << "01 01 | 05 02 00 0001 | 05 'rolls' 00 00000000 00000000"
        peer >> "01 01 | 07 05 00 0002 | 02 'id' 0000000000000006"  # Open
        peer << "01 01 | 07 06 00 0002 | 0000000000000000"  # Open-Ok: nothing of it is here
        peer >> (
            "01 01 | 07 07 00 0003\n"  # Stage
            "02 01 | 07 00 0000000000000006 9f00 01 't' 01 'r' 05 'rolls' 01 'm' 01 'f' 0000000000000007\n"
            "03 01 | 'abc'\n03 01 | 'def'"
        )
        peer >> "01 01 | 07 08 80 0004 | 0000 00 00 02 'id'"  # Publish, with a synchpoint
        peer << "01 01 | 02 06 00 0004"
        peer >> "01 01 | 07 01 00 0005 | 0000 00 05 'rolls' 0000 0000 00"  # Consume
        peer << "01 01 | 07 02 00 0005 | 0001"
        assert peer.hears_up_to(octets("07 05 00 0000"))[:2] == octets("01 01")  # Open, of the server
        while len(peer.unheard) < 1 or len(peer.unheard) < 9 + peer.unheard[0]:
            peer.unheard += peer.socket.recv(65_536)
        size = peer.unheard[0]
        identifier = peer.unheard[1 : 1 + size].decode()
        assert peer.unheard[1 + size :] == octets("0000000000000006")
        peer.unheard = b""
        peer >> "01 01 | 07 06 00 0006 | 0000000000000004"  # Open-Ok: four octets are here already
        peer << (
            "01 01 | 07 07 00 0006\n"
            "02 01 | 07 00 0000000000000002 9f00 01 't' 01 'r' 05 'rolls' 01 'm' 01 'f' 0000000000000007\n"
            "03 01 | 'ef'\n"
            f"01 01 | 07 09 00 0000 | 0000000000000001 00 00 00 05 'rolls' {size:02x} '{identifier}'"
        )
        peer >> "01 01 | 07 0a 80 0007 | 0000000000000001 00"  # Ack
        peer << "01 01 | 02 06 00 0007"
        peer >> "01 01 | 07 08 00 0008 | 0000 00 00 02 'no'"  # nothing was staged so
        assert peer.hears_up_to(octets("07 08 0008"))[4:11] == octets("02 04 00 0000 | 0194")


def test_streams_have_one_consumer_and_no_acks(port: int) -> None:
    with connect("127.0.0.1", port) as connection, connection.channel() as channel:
        channel.proxy("video", "fanout")
        channel.queue("screen")
        channel.register("screen", "video")
        consumer = channel.consume("screen", "stream", consume_rate=1_000_000)
        channel.publish_stream(b"frame 1", "news", "video", priority=3, timestamp="77", headers={"n": 1})
        message = consumer.receive()
        assert (message.body, message.destination, message.proxy) == (b"frame 1", "news", "video")
        assert message.properties["priority"] == 3
        assert message.properties["timestamp"] == "77"
        assert message.headers == {"n": 1}
        with connection.channel() as other, pytest.raises(ResourceLocked, match="already"):
            other.consume("screen", "stream")
        consumer.cancel()
        channel.delete_queue("screen")
        channel.delete_proxy("video")


def test_a_proxy_that_is_not_there_closes_the_channel_alone(port: int) -> None:
    with connect("127.0.0.1", port) as connection:
        channel = connection.channel()
        with pytest.raises(NotFound, match="no-proxy"):
            channel.publish(b"x", "a", "no-proxy", synch=True)
        with pytest.raises(NotFound):
            channel.publish(b"x", "a", "no-proxy")
        with connection.channel() as other:
            other.queue(private=True)


def test_a_wrong_password_is_refused(port: int) -> None:
    with pytest.raises(LoginRefused, match="PLAIN"):
        connect("127.0.0.1", port, password="wrong")


def test_a_name_of_the_broker_is_refused(port: int) -> None:
    with connect("127.0.0.1", port) as connection:
        channel = connection.channel()
        with pytest.raises(AccessRefused):
            channel.queue("amq.mine")


def test_permissions_hold(tmp_path: Path) -> None:
    settings = write(
        tmp_path / "flintmq.toml",
        '[listen]\nfast09_port = 0\n[users.shop]\npassword = "secret"\n'
        'permissions."/" = { configure = "^shop", write = "^shop", read = "^shop" }\n',
    )
    with (
        serving("--config", str(settings), schemes=SCHEMES) as server,
        connect("127.0.0.1", server.ports["amqp-fast"], user="shop", password="secret") as connection,
    ):
        channel = connection.channel()
        channel.queue("shop.orders")
        channel.proxy("shop.proxy", "dest-name")
        channel.register("shop.orders", "shop.proxy")
        channel.publish(b"1", "shop.orders", "shop.proxy", synch=True)
        with pytest.raises(AccessRefused):
            channel.publish(b"1", "shop.orders", "amq.direct", synch=True)
        channel = connection.channel()
        with pytest.raises(AccessRefused):
            channel.queue("other")


def test_the_server_is_asked_what_it_has(port: int) -> None:
    with connect("127.0.0.1", port) as connection, connection.channel() as channel:
        assert channel.supports("queue.assert")
        assert channel.supports("jms.publish")
        assert channel.supports("jms.browse")
        assert not channel.supports("jms.deliver")
        assert channel.test_content(b"\x01\x02") == 3


def test_many_channels_on_one_connection(port: int) -> None:
    with connect("127.0.0.1", port) as connection:
        channels = [connection.channel() for _ in range(300)]
        channels[-1].queue("far", private=True)
        channels[-1].publish(b"x", "far", synch=True)
        message = channels[-1].browse("far", auto_ack=True)
        assert message is not None
        assert message.body == b"x"


def test_the_async_client(port: int) -> None:
    asyncio.run(use_the_async_client(port))


async def use_the_async_client(port: int) -> None:
    async with (
        await connect_async("127.0.0.1", port, heartbeat_s=1) as connection,
        await connection.channel(tx_mode=1) as channel,
    ):
        await channel.queue("pairs", private=True)
        consumer = await channel.consume("pairs")
        await channel.publish(b"forgotten", "pairs")
        await channel.abort()
        await channel.publish(b"kept", "pairs")
        await channel.commit()
        message = await consumer.receive()
        assert message.body == b"kept"
        await channel.ack(message)
        await channel.commit()
        with pytest.raises(CallTimeout):
            await consumer.receive(0.2)


def test_persistent_messages_survive_the_end_of_the_broker(tmp_path: Path) -> None:
    options = ("--data", str(tmp_path), "--fast09-port", "0")
    server = Serving(*options, schemes=SCHEMES)
    try:
        channel = connect("127.0.0.1", server.ports["amqp-fast"]).channel()
        channel.proxy("names", "dest-name", durable=True)
        channel.proxy("tests", "prop-test", durable=True)
        channel.queue("kept", durable=True)
        channel.register("kept", "names", {"destination": "X"})
        channel.register("kept", "tests", {"n": 1})
        channel.publish(b"kept", "X", "names", delivery_mode=2, synch=True, trace=True, headers={"n": 1})
    finally:
        server.kill()
    with (
        serving(*options, schemes=SCHEMES) as again,
        connect("127.0.0.1", again.ports["amqp-fast"]) as connection,
    ):
        channel = connection.channel()
        assert channel.queue("kept", durable=True).proxy == "names"
        message = channel.browse("kept", auto_ack=True)
        assert message is not None
        assert (message.body, message.is_traced, message.headers) == (b"kept", True, {"n": 1})
        channel.publish(b"narrowed", "X", "names", synch=True)
        assert channel.browse("kept") is None


def test_the_listener_is_off_unless_it_is_asked_for() -> None:
    with serving() as server, pytest.raises(Exception, match=r"hung up|broke the protocol|cannot be reached"):
        connect("127.0.0.1", server.port)


def test_a_stranger_is_shown_the_door(port: int) -> None:
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"\x80\x01", b"AMQP\x01\x01\x00\x09" + b"\xff" * 64):
        with socket.create_connection(("127.0.0.1", port), 30) as peer:
            peer.sendall(said)
            peer.settimeout(60)
            while peer.recv(65_536):
                pass
    connect("127.0.0.1", port).close()


def test_another_version_is_closed_at_once(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 30) as peer:
        peer.sendall(b"AMQP\x01\x01\x00\x0a")
        peer.settimeout(30)
        assert peer.recv(100) == b""


def test_the_example_of_the_page(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "fast09.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)
    exec(example.replace('"localhost", 5674', f'"127.0.0.1", {port}'), {})
    assert capsys.readouterr().out == "b'101' stock.ibm text/plain\n"
