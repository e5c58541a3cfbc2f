"""What may stand in a content header, by whichever road it comes: tables, modes, weights, expirations."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from playbook import branches
from playbook.dialogue import Carried, Client, Playbook, frame

from flintmq.clock import Clock
from flintmq.config import Config, Storage, UserSettings
from flintmq.server.data_directory import open_broker
from flintmq.wire import amqp, methods, traits
from flintmq.wire.methods import encode_method
from flintmq.wire.tables import DEPTH_MAX, NUMBERED_MAX, encode_table

HEADERS = 0x2000
LARGE = 5_000_000


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Playbook]:
    """A broker with a store: large bodies go to spools."""
    playbook = Playbook()
    config = Config()._replace(storage=Storage(directory=tmp_path))
    playbook.broker = open_broker(config, Clock(), lambda: None)
    yield playbook
    playbook.end()
    assert playbook.broker.store is not None
    playbook.broker.store.close()


def published(
    properties: bytes, body: bytes = b"m", version: int = amqp.VERSION_0_9_1, weight: int = 0
) -> list[bytes]:
    """The frames of a publish to the queue q: method, header, body."""
    publish = encode_method(version, methods.BasicPublish(routing_key="q"))
    header = struct.pack(">HHQ", amqp.CLASS_BASIC, weight, len(body)) + properties
    frames = [frame(amqp.FRAME_METHOD, 1, publish), frame(amqp.FRAME_HEADER, 1, header)]
    if body:
        frames.append(frame(amqp.FRAME_BODY, 1, body))
    return frames


def with_headers(entries: bytes) -> bytes:
    return struct.pack(">HI", HEADERS, len(entries)) + entries


def text(octets: bytes) -> bytes:
    return b"S" + len(octets).to_bytes(4, "big") + octets


def array(*values: bytes) -> bytes:
    return b"A" + len(b"".join(values)).to_bytes(4, "big") + b"".join(values)


def nested(levels: int) -> bytes:
    """Entries with so many levels of tables below them."""
    entries = b"\x01aI\0\0\0\1"
    for _ in range(levels):
        entries = b"\x01aF" + len(entries).to_bytes(4, "big") + entries
    return entries


MALFORMED = {
    "unknown type": b"\x01aZ\0\0\0\1",
    "truncated value": b"\x01aI\0\0",
    "truncated text": b"\x01aS\0\0\0\x09abc",
    "text without its length": b"\x01aS\0\0",
    "name past the end": b"\x09a",
    "no type": b"\x01a",
    "second entry cut short": b"\x01at\1\x01a",
    "unknown type in a table": b"\x01aF\0\0\0\x07\x01aZ\0\0\0\1",
    "table longer than what is left": b"\x01aF\0\0\0\x09\x01aI\0\0\0\1",
    "unknown type in an array": b"\x01aA\0\0\0\x05Z\0\0\0\1",
    "truncated value in an array": b"\x01aA\0\0\0\x03I\0\0",
    "array longer than what is left": b"\x01aA\0\0\0\x09I\0\0\0\1",
    "too deep": nested(DEPTH_MAX),
    "too many with a number for a type": b"\x01a" + array(b"\xf0" * NUMBERED_MAX),
    "uniform array of too many": b"\x01a\xaa\0\0\0\x05\xf0\xff\xff\xff\xff",
    "unknown number": b"\x01a\x7f\0\0\0\1",
}


def expect_refusal(client: Client, code: int) -> str:
    closed = client.hears(methods.ConnectionClose)
    assert (closed.reply_code, closed.class_id, closed.method_id) == (code, 60, 40), closed
    return closed.reply_text


@pytest.mark.parametrize("body", [b"m", b"m" * LARGE], ids=["small", "spooled"])
def test_a_message_with_too_many_headers_closes_its_channel_alone(stored: Playbook, body: bytes) -> None:
    client = stored.client()
    client.declares("q")
    frames = published(with_headers(b"\x00V" * (traits.HEADERS_MAX + 1)), body)
    client >> b"".join(frames if body == b"m" else frames[:2])
    closed = client.hears(methods.ChannelClose)
    assert (closed.reply_code, closed.class_id, closed.method_id) == (amqp.PRECONDITION_FAILED, 60, 40)
    assert closed.reply_text == (
        "PRECONDITION_FAILED - invalid message: more than 2048 headers, those in tables and arrays included; "
        "put them into the body"
    )


def test_what_is_matched_by_headers_counts_as_work_of_the_pass(client: Client) -> None:
    """Others have their turn after a fraction of a millisecond of it, see COPIES_MAX of pass_work.py."""
    client.declares("q")
    client.binds("q", "amq.headers", "", x=1)
    pass_work = client.session.broker.pass_work
    pass_work.copies = 0
    table = encode_table({f"h{number}": True for number in range(500)})
    publish = methods.BasicPublish(exchange="amq.headers")
    header = struct.pack(">HHQH", amqp.CLASS_BASIC, 0, 1, HEADERS) + table
    client >> frame(amqp.FRAME_METHOD, 1, encode_method(amqp.VERSION_0_9_1, publish))
    client >> frame(amqp.FRAME_HEADER, 1, header) + frame(amqp.FRAME_BODY, 1, b"m")
    assert pass_work.copies >= len(header) // 2


@pytest.mark.parametrize("entries", MALFORMED.values(), ids=MALFORMED.keys())
@pytest.mark.parametrize("road", ["one go", "frame by frame", "tx", "dtx", "0-9", "0-8"])
def test_a_malformed_table_is_a_syntax_error(playbook: Playbook, road: str, entries: bytes) -> None:
    version = {"0-8": amqp.VERSION_0_8, "0-9": amqp.VERSION_0_9}.get(road, amqp.VERSION_0_9_1)
    client, other = playbook.client(version), playbook.client()
    client.declares("q")
    if road == "tx":
        client >> methods.TxSelect()
        client << methods.TxSelectOk()
    elif road == "dtx":
        client >> methods.DtxDemarcationSelect()
        client << methods.DtxDemarcationSelectOk()
        client >> branches.start()
        client << branches.started()
    properties = with_headers(entries)
    frames = published(properties, version=version)
    for each in frames if road == "frame by frame" else [b"".join(frames)]:
        client >> each
    assert expect_refusal(client, amqp.SYNTAX_ERROR).startswith("SYNTAX_ERROR - basic headers ")
    other >> methods.QueueDeclare(queue="q", passive=True)
    other << methods.QueueDeclareOk(queue="q", message_count=0, consumer_count=0)


@pytest.mark.parametrize("fault", ["unknown type", "truncated value", "too deep"])
def test_a_malformed_table_of_a_large_message(stored: Playbook, fault: str) -> None:
    """Refused with its header, before the body comes."""
    client = stored.client()
    client.declares("q")
    client >> b"".join(published(with_headers(MALFORMED[fault]), bytes(LARGE))[:2])
    assert expect_refusal(client, amqp.SYNTAX_ERROR).startswith("SYNTAX_ERROR - basic headers ")


@pytest.mark.parametrize(
    "entries",
    [
        b"",
        b"\x00I\0\0\0\1",  # a name may be empty
        b"\x01at\x05",
        b"\x01ab\1\x01bB\1\x01cs\0\1\x01du\0\1\x01eU\0\1",
        b"\x01aI\0\0\0\1\x01bi\0\0\0\1\x01cf\0\0\0\0",
        b"\x01al" + bytes(8) + b"\x01bL" + bytes(8) + b"\x01cd" + bytes(8) + b"\x01dT" + bytes(8),
        b"\x01aD\0\0\0\0\1\x01bV",
        b"\x01a" + text(b"\xff\xfe") + b"\x01bx\0\0\0\1\xff",
        b"\x02\xff\xfeV",  # nor need it be UTF-8, as in RabbitMQ
        b"\x01aF\0\0\0\0\x01bA\0\0\0\0",
        nested(DEPTH_MAX - 1),
        b"\x01a" + array(b"V" * (traits.HEADERS_MAX - 1)),
        b"\x01a" + text(b"x" * 100_000),
        b"\x01aI\0\0\0\1\x01aI\0\0\0\2",
    ],
)
def test_a_sound_table_stays_octet_for_octet(playbook: Playbook, client: Client, entries: bytes) -> None:
    client.declares("q")
    client >> b"".join(published(with_headers(entries)))
    client >> methods.BasicGet(queue="q", no_ack=True)
    client.playbook.finish_pass()
    sent = bytes(client.output.buffer[client.output.start : client.output.fill])
    assert struct.pack(">HI", HEADERS, len(entries)) + entries + b"\xce" in sent
    assert isinstance(client.next(1), Carried)


def test_numbers_of_0_9_become_letters_that_all_can_read(playbook: Playbook) -> None:
    publisher = playbook.client(amqp.VERSION_0_9)
    publisher.declares("q")
    many = b"\x01h\xaa\0\0\0\x09\x21\0\0\0\1\0\0\0\7"
    entries = (
        b"\x01a\x21\xff\xff\xff\xff"
        + b"\x01b\x32"
        + (2**63).to_bytes(8, "big")
        + b"\x01c\x85\x02hi"
        + b"\x01d\xa8\0\0\0\x05\x01a\x12\0\x05"  # a table by its number, with a number inside
        + b"\x01tA\0\0\0\x04\x02\x09t\1"
        + b"\x01z\x80\x01\xff"
        + b"\x01ss\0\x07"  # a letter among them
        + b"\x01e\xd8\x02"
        + (10**15).to_bytes(8, "big")
        + b"\x01f\x38"
        + (86_400).to_bytes(8, "big")
        + many
    )
    publisher >> b"".join(published(with_headers(entries), version=amqp.VERSION_0_9))
    for version in (amqp.VERSION_0_9_1, amqp.VERSION_0_9, amqp.VERSION_0_8):
        client = playbook.client(version)
        client >> methods.BasicGet(queue="q")
        sent = bytes(client.output.buffer[client.output.start : client.output.fill])
        for number in (b"\x21", b"\x32", b"\x85", b"\xa8", b"\x12", b"\x80", b"\xd8", b"\xaa"):
            assert b"\x01a" + number not in sent
        found = client.next(1)
        assert isinstance(found, Carried)
        assert found.properties.headers == {
            "a": -1,
            "b": "9223372036854775808",
            "c": "hi",
            "d": {"a": 5},
            "t": [9, True],
            "z": b"\xff",
            "s": 7,
            "e": "10000000000000.00",
            "f": datetime(1970, 1, 2, tzinfo=UTC),
            "h": [7],
        }
        assert b"\x01aI\xff\xff\xff\xff" in sent
        client >> methods.BasicReject(delivery_tag=1, requeue=True)


def test_numbers_of_a_large_message_become_letters(stored: Playbook) -> None:
    publisher = stored.client(amqp.VERSION_0_9)
    publisher.declares("q")
    method, header, _ = published(with_headers(b"\x01a\x21\0\0\0\1"), bytes(LARGE), amqp.VERSION_0_9)
    publisher >> method + header
    for at in range(0, LARGE, 100_000):
        publisher >> frame(amqp.FRAME_BODY, 1, bytes(min(100_000, LARGE - at)))
    client = stored.client()
    client >> methods.BasicGet(queue="q", no_ack=True)
    sent = bytes(client.output.buffer[client.output.start : client.output.fill])
    assert b"\x01aI\0\0\0\1" in sent
    found = client.next(1)
    assert isinstance(found, Carried)
    assert (found.properties.headers, len(found.body)) == ({"a": 1}, LARGE)


def test_keys_in_numbers_are_routed_by(playbook: Playbook) -> None:
    """CC as an array by its number, of text by its number."""
    publisher = playbook.client(amqp.VERSION_0_9)
    publisher.declares("r")
    entries = b"\x02CC\xa9\0\0\0\x03\x85\x01r"
    publisher >> b"".join(published(with_headers(entries), version=amqp.VERSION_0_9))
    assert publisher.gets("r") == b"m"


def test_letters_that_do_not_fit_into_a_frame_are_refused(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9, frame_max=4096)
    client.declares("q")
    entries = b"\x01a" + array(*[b"\x80\x06xxxxxx"] * 400)
    client >> b"".join(published(with_headers(entries), version=amqp.VERSION_0_9))
    assert client.hears(methods.ChannelClose).reply_code == amqp.PRECONDITION_FAILED


@pytest.mark.parametrize("mode", [0, 3, 255])
@pytest.mark.parametrize("flags", [0x1000, 0x9000])
def test_a_delivery_mode_is_one_or_two(client: Client, mode: int, flags: int) -> None:
    client.declares("q")
    properties = flags.to_bytes(2, "big") + (b"\x01t" if flags & 0x8000 else b"") + bytes((mode,))
    client >> b"".join(published(properties))
    closed = client.hears(methods.ChannelClose)
    assert (closed.reply_code, closed.class_id, closed.method_id) == (amqp.PRECONDITION_FAILED, 60, 40)
    assert closed.reply_text == (
        f"PRECONDITION_FAILED - invalid message: delivery mode {mode} is neither 1 nor 2"
    )


def test_a_delivery_mode_of_a_large_message(stored: Playbook) -> None:
    client = stored.client()
    client.declares("q")
    client >> b"".join(published(b"\x10\0\3", bytes(LARGE))[:2])
    assert client.hears(methods.ChannelClose).reply_code == amqp.PRECONDITION_FAILED


@pytest.mark.parametrize("together", [True, False])
def test_the_weight_of_a_content_is_zero(client: Client, together: bool) -> None:
    client.declares("q")
    frames = published(b"\0\0", weight=1)
    for each in [b"".join(frames)] if together else frames[:2]:
        client >> each
    assert expect_refusal(client, amqp.UNEXPECTED_FRAME).startswith("UNEXPECTED_FRAME - ")


@pytest.mark.parametrize("expiration", ["+50000", "-0", "+0", "00005", "315360000000", "4294967296"])
def test_expirations_that_are_numbers(client: Client, expiration: str) -> None:
    client.declares("q")
    client.publishes("q", b"m", expiration=expiration)
    client >> methods.ChannelFlow(active=True)
    client << methods.ChannelFlowOk(active=True)


@pytest.mark.parametrize(
    "expiration", ["", "-5", " 5", "5 ", "5.0", "++5", "+", "abc", "315360000001", "9" * 99]
)
def test_expirations_that_are_none(client: Client, expiration: str) -> None:
    client.declares("q")
    client.publishes("q", b"m", expiration=expiration)
    closed = client.hears(methods.ChannelClose)
    assert closed.reply_code == amqp.PRECONDITION_FAILED
    assert "from 0 to 315360000000" in closed.reply_text


@pytest.mark.parametrize("name", [b"CC", b"BCC"])
def test_of_further_keys_those_that_are_no_text_mean_nothing(client: Client, name: bytes) -> None:
    client.declares("r")
    client.declares("s")
    keys = array(b"I\0\0\0\1", array(text(b"s")), b"x\0\0\0\1s", text(b"\xff\xfe"), text(b"r"))
    client >> b"".join(published(with_headers(bytes((len(name),)) + name + keys)))
    assert client.gets("r") == b"m"
    assert client.gets("s") is None


def test_what_no_letter_holds_is_written_as_text() -> None:
    for value in (2**63, 2**64 - 1, Decimal(10**15).scaleb(-2)):
        assert encode_table({"a": value})[4:7] == b"\x01aS"


def test_an_impersonator_sends_in_the_name_of_others() -> None:
    permissions = Config().users["guest"].permissions
    users = {
        "imp": UserSettings(password="p", tags=("impersonator",), permissions=permissions),
        "adm": UserSettings(password="p", tags=("administrator",), permissions=permissions),
    }
    playbook = Playbook(Config()._replace(users=users))
    impersonator = playbook.client(user="imp", password="p")
    impersonator.declares("q")
    impersonator.publishes("q", b"m", user_id="somebody")
    assert impersonator.gets("q") == b"m"
    administrator = playbook.client(user="adm", password="p")
    administrator.publishes("q", b"m", user_id="somebody")
    assert administrator.hears(methods.ChannelClose).reply_code == amqp.PRECONDITION_FAILED
    playbook.end()


MIB = 1 << 20


@pytest.mark.parametrize("version", [amqp.VERSION_0_8, amqp.VERSION_0_9])
def test_an_unfinished_content_of_another_class_makes_a_publisher(playbook: Playbook, version: int) -> None:
    """On a channel that has published nothing, and so has no route."""
    client = playbook.client(version)
    client >> methods.StreamPublish()
    client >> frame(amqp.FRAME_HEADER, 1, b"\x00\x50\x00\x00" + MIB.to_bytes(8, "big") + bytes(2))
    assert client.session.is_publisher()


def test_a_content_on_a_channel_of_a_high_number_counts_as_any_other(playbook: Playbook) -> None:
    """Numbers go beyond what was negotiated, which is how many channels there may be."""
    client = playbook.client()
    client[65_535] >> methods.ChannelOpen()
    client[65_535] << methods.ChannelOpenOk()
    client[65_535] >> methods.BasicPublish(routing_key="q")
    client >> frame(amqp.FRAME_HEADER, 65_535, b"\x00\x3c\x00\x00" + MIB.to_bytes(8, "big") + bytes(2))
    client >> frame(amqp.FRAME_BODY, 65_535, bytes(100_000))
    assert client.session.is_publisher()
    assert client.session.content_bytes() == 100_000


@pytest.mark.parametrize("is_asked_for", [False, True], ids=["basic.deliver", "basic.get"])
def test_a_large_body_in_memory_leaves_in_pieces(is_asked_for: bool) -> None:
    """However much room there is: to copy all of it into the output would take long."""
    playbook = Playbook()
    client, other = playbook.client(), playbook.client()
    client.declares("q")
    body = bytes(range(256)) * 40_000
    client.publishes("q", body, b"behind")
    output = other.session.output
    with playbook.one_pass():
        if is_asked_for:
            other >> methods.BasicGet(queue="q", no_ack=True)
        else:
            other >> methods.BasicConsume(queue="q", consumer_tag="c", no_ack=True)
            other << methods.BasicConsumeOk(consumer_tag="c")
            playbook.broker.finish_pass()
        assert output.streaming == 1
        assert output.pending() < 1000
    found = other.next(1)
    assert isinstance(found, Carried)
    assert found.body == body
    if not is_asked_for:
        behind = other.next(1)
        assert isinstance(behind, Carried)
        assert behind.body == b"behind"
