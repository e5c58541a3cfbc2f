"""Names, frames and channels as clients of RabbitMQ write them, and what a second declare may say."""

from __future__ import annotations

import pytest
from playbook.dialogue import Carried, Client, carrying, frame

from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, encode_method

WRONG = "\udcff\udcfe"  # two octets that are not UTF-8


@pytest.mark.parametrize(
    "method",
    [
        methods.QueueDeclare(queue=WRONG),
        methods.QueueDeclare(queue=f"caf{WRONG}", passive=True),
        methods.ExchangeDeclare(exchange=WRONG, type="direct"),
        methods.ExchangeDeclare(exchange="x", type=WRONG),
        methods.QueueBind(queue="q", exchange="amq.direct", routing_key=WRONG),
        methods.ExchangeBind(source="amq.direct", destination="amq.topic", routing_key=WRONG),
        methods.BasicConsume(queue="q", consumer_tag=WRONG),
        methods.BasicGet(queue=WRONG),
        methods.QueueDelete(queue=WRONG),
    ],
    ids=lambda method: method.NAME,
)
def test_names_that_are_not_utf_8_are_refused(client: Client, method: Method) -> None:
    client.declares("q")
    client >> method
    closed = client.hears(methods.ConnectionClose)
    assert closed.reply_code == amqp.FRAME_ERROR
    assert (closed.class_id, closed.method_id) == (method.CLASS_ID, method.METHOD_ID)
    assert closed.reply_text.startswith(f"FRAME_ERROR - {method.NAME}: malformed UTF-8 in ")


def test_names_in_any_script_are_fine(client: Client) -> None:
    for name in ("café", "очередь", "\U0001f407"):
        client.declares(name)
        client.binds(name, "amq.direct", name)
        client.publishes(name, b"m", exchange="amq.direct")
        assert client.gets(name) == b"m"


def test_the_key_of_a_publish_and_headers_need_not_be_utf_8(client: Client) -> None:
    """RabbitMQ looks at neither."""
    client.declares("q")
    client.binds("q", "amq.fanout")
    client.publishes(WRONG, b"m", exchange="amq.fanout", headers={WRONG: b"\xff"}, content_type=WRONG)
    client >> methods.BasicGet(queue="q", no_ack=True)
    found = client.next(1)
    assert isinstance(found, Carried)
    assert isinstance(found.method, methods.BasicGetOk)
    assert (found.method.routing_key, found.properties.content_type) == (WRONG, WRONG)


def test_an_exchange_that_is_not_utf_8_is_not_found(client: Client) -> None:
    client.publishes("k", b"m", exchange=WRONG)
    assert client.hears(methods.ChannelClose).reply_code == amqp.NOT_FOUND


def test_line_ends_are_taken_out_of_names(client: Client) -> None:
    client >> methods.QueueDeclare(queue="\r\na\nb\r\n")
    client << methods.QueueDeclareOk(queue="ab", message_count=0, consumer_count=0)
    client >> methods.QueueDeclare(queue="\nab", passive=True)
    client << methods.QueueDeclareOk(queue="ab", message_count=0, consumer_count=0)
    client >> methods.ExchangeDeclare(exchange="x\n", type="direct")
    client << methods.ExchangeDeclareOk()
    client >> methods.ExchangeDeclare(exchange="x", passive=True)
    client << methods.ExchangeDeclareOk()
    client >> methods.QueueBind(queue="ab\r\n", exchange="\rx", routing_key="k")
    client << methods.QueueBindOk()
    client >> methods.ExchangeBind(source="amq.direct\n", destination="x\n", routing_key="k")
    client << methods.ExchangeBindOk()
    client.publishes("k", b"m", exchange="amq.direct")
    assert client.gets("ab") == b"m"
    client >> methods.ExchangeUnbind(source="amq.direct\n", destination="\nx", routing_key="k")
    client << methods.ExchangeUnbindOk()
    client >> methods.QueueUnbind(queue="ab\n", exchange="x\n", routing_key="k")
    client << methods.QueueUnbindOk()
    client.publishes("k", b"m", exchange="amq.direct")
    client.publishes("k", b"m", exchange="x")
    assert client.gets("ab") is None
    client >> methods.QueueDelete(queue="ab\n")
    client << methods.QueueDeleteOk(message_count=0)
    client >> methods.ExchangeDelete(exchange="x\n")
    client << methods.ExchangeDeleteOk()
    client >> methods.ExchangeDeclare(exchange="x", passive=True)
    assert client.hears(methods.ChannelClose).reply_code == amqp.NOT_FOUND


def test_a_name_of_line_ends_is_no_name(client: Client) -> None:
    client >> methods.QueueDeclare(queue="\r\n")
    assert client.hears(methods.QueueDeclareOk).queue.startswith("amq.gen-")


def test_the_reserved_prefix_is_not_hidden_by_a_line_end(client: Client) -> None:
    client >> methods.ExchangeDeclare(exchange="\namq.mine", type="direct")
    assert client.hears(methods.ChannelClose).reply_code == amqp.ACCESS_REFUSED


@pytest.mark.parametrize("method", [methods.BasicConsume, methods.BasicGet, methods.QueuePurge])
def test_other_methods_take_names_as_they_come(client: Client, method: type[Method]) -> None:
    client.declares("q")
    client >> method(queue="q\n")  # type: ignore[call-arg]
    closed = client.hears(methods.ChannelClose)
    assert (closed.reply_code, closed.reply_text) == (
        amqp.NOT_FOUND,
        "NOT_FOUND - no queue 'q\n' in vhost '/'",
    )


@pytest.mark.parametrize(
    ("payload", "code", "name"),
    [
        (b"\0\x3c\0\xc8", amqp.NOT_IMPLEMENTED, "NOT_IMPLEMENTED"),
        (b"\0\xc8\0\xc8", amqp.COMMAND_INVALID, "COMMAND_INVALID"),
        (b"\0\x32\0\x0a\0\0\x09ab", amqp.SYNTAX_ERROR, "SYNTAX_ERROR"),
        (b"\0\x3c\0\x0a\0\0\0\0\0\0\0extra", amqp.FRAME_ERROR, "FRAME_ERROR"),
        (b"\0\x32\0\x0a\0\0\x01q\0\0\0\0\x03\x01aZ", amqp.SYNTAX_ERROR, "SYNTAX_ERROR"),
    ],
)
def test_reply_texts_start_with_the_name_of_their_code(
    client: Client, payload: bytes, code: int, name: str
) -> None:
    client >> frame(amqp.FRAME_METHOD, 1, payload)
    closed = client.hears(methods.ConnectionClose)
    assert closed.reply_code == code
    assert closed.reply_text.startswith(f"{name} - ")


# A second declare


def test_arguments_without_a_meaning_need_not_be_the_same(client: Client) -> None:
    client.declares("q", arguments={"x-mine": 1, "x-max-length": 5})
    client.declares("q", arguments={"x-mine": 2, "x-max-length": 5})
    client.declares("q", arguments={"x-max-length": 5, "other": "text"})
    for arguments in ({"mine": 1}, {"mine": 2}, {}):
        client >> methods.ExchangeDeclare(exchange="x", type="direct", arguments=arguments)
        client << methods.ExchangeDeclareOk()


@pytest.mark.parametrize(
    ("arguments", "again"),
    [
        ({"x-max-length": 5}, {}),
        ({}, {"x-max-length": 5}),
        ({"x-message-ttl": 5}, {"x-message-ttl": 6}),
        ({"x-queue-mode": "lazy"}, {"x-queue-mode": "default"}),
        ({}, {"x-message-deduplication": True}),
        ({"x-single-active-consumer": True}, {"x-single-active-consumer": False}),
    ],
)
def test_arguments_with_a_meaning_are_compared(
    client: Client, arguments: dict[str, object], again: dict[str, object]
) -> None:
    client.declares("q", arguments=arguments)
    client >> methods.QueueDeclare(queue="q", arguments=again)  # type: ignore[arg-type]
    closed = client.hears(methods.ChannelClose)
    assert closed.reply_code == amqp.PRECONDITION_FAILED
    assert closed.reply_text.startswith(f"PRECONDITION_FAILED - inequivalent arg '{[*arguments, *again][0]}'")


def test_arguments_of_exchanges_with_a_meaning_are_compared(client: Client) -> None:
    hashed = methods.ExchangeDeclare(exchange="x", type="x-consistent-hash", arguments={"hash-header": "a"})
    client >> hashed
    client << methods.ExchangeDeclareOk()
    hashed.arguments = {"hash-header": "b"}
    client >> hashed
    assert client.hears(methods.ChannelClose).reply_code == amqp.PRECONDITION_FAILED


@pytest.mark.parametrize("name", ["x-message-ttl", "x-expires"])
def test_timers_go_up_to_ten_years(client: Client, name: str) -> None:
    for ms in (4_294_967_296, 134_217_728_000, 315_360_000_000):
        client.declares(f"q{ms}", arguments={name: ms})
    client >> methods.QueueDeclare(queue="q", arguments={name: 315_360_000_001})
    closed = client.hears(methods.ChannelClose)
    assert closed.reply_code == amqp.PRECONDITION_FAILED
    assert "to 315360000000" in closed.reply_text


# Frames and channels


def test_frames_of_eight_octets_over_are_taken_and_none_is_sent(client: Client) -> None:
    """Some clients count the payload alone."""
    client = client.playbook.client(frame_max=4096)
    client.declares("q")
    publish = frame(
        amqp.FRAME_METHOD, 1, encode_method(client.version, methods.BasicPublish(routing_key="q"))
    )

    def header(size: int) -> bytes:
        return frame(amqp.FRAME_HEADER, 1, b"\0\x3c\0\0" + size.to_bytes(8, "big") + b"\0\0")

    whole = frame(amqp.FRAME_BODY, 1, b"x" * 4096)
    client >> publish + header(4096) + whole
    client >> publish
    client >> header(8192)
    client >> whole
    client >> whole
    table = b"\x01aS" + (4096 - 20).to_bytes(4, "big") + bytes(4096 - 20)
    declare = b"\0\x32\0\x0a\0\0\x01q\0" + len(table).to_bytes(4, "big") + table
    client >> frame(amqp.FRAME_METHOD, 1, declare)
    assert len(declare) == 4096
    client << methods.QueueDeclareOk(queue="q", message_count=2, consumer_count=0)
    for size in (4096, 8192):
        client >> methods.BasicGet(queue="q", no_ack=True)
        sent = bytes(client.output.buffer[client.output.start : client.output.fill])
        assert b"\x03\0\1\0\0\x0f\xf8x" in sent
        found = client.next(1)
        assert isinstance(found, Carried)
        assert len(found.body) == size
        at = 0
        while at < len(sent):
            length = int.from_bytes(sent[at + 3 : at + 7], "big")
            assert length + 8 <= 4096
            at += length + 8


@pytest.mark.parametrize("kind", [amqp.FRAME_METHOD, amqp.FRAME_BODY])
def test_frames_of_more_are_refused(client: Client, kind: int) -> None:
    client = client.playbook.client(frame_max=4096)
    client >> bytes((kind, 0, 1)) + (4097).to_bytes(4, "big") + b"x"
    assert client.hears(methods.ConnectionClose).reply_code == amqp.FRAME_ERROR


def test_a_header_is_passed_on_in_one_frame_so_it_has_to_fit(client: Client) -> None:
    client = client.playbook.client(frame_max=4096)
    client.declares("q")
    for size in (4088, 4089):
        text = b"y" * (size - 25)
        client >> carrying(methods.BasicPublish(routing_key="q"), b"", headers={"a": text.decode()})
    assert client.hears(methods.ConnectionClose).reply_code == amqp.FRAME_ERROR
    other = client.playbook.client()
    other >> methods.QueueDeclare(queue="q", passive=True)
    other << methods.QueueDeclareOk(queue="q", message_count=1, consumer_count=0)


def test_channel_max_limits_how_many_channels_there_are(client: Client) -> None:
    client = client.playbook.stranger()
    client.greet()
    client.log_in()
    client.hears(methods.ConnectionTune)
    client >> methods.ConnectionTuneOk(channel_max=2, frame_max=0, heartbeat=0)
    client >> methods.ConnectionOpen(virtual_host="/")
    client.hears(methods.ConnectionOpenOk)
    for number in (1, 65535):
        client[number] >> methods.ChannelOpen()
        client[number] << methods.ChannelOpenOk()
    client[65535] >> methods.QueueDeclare(queue="q")
    client[65535] << methods.QueueDeclareOk(queue="q", message_count=0, consumer_count=0)
    client[65535] >> carrying(methods.BasicPublish(routing_key="q"), b"m")
    client[1] >> methods.ChannelClose(reply_code=200)
    client[1] << methods.ChannelCloseOk()
    client[500] >> methods.ChannelOpen()
    client[500] << methods.ChannelOpenOk()
    client[500] >> methods.BasicConsume(queue="q", consumer_tag="c")
    client[500] << methods.BasicConsumeOk(consumer_tag="c")
    deliver = methods.BasicDeliver(consumer_tag="c", delivery_tag=1, routing_key="q")
    client[500] << carrying(deliver, b"m")
    client[2] >> methods.ChannelOpen()
    closed = client.hears(methods.ConnectionClose)
    assert closed.reply_code == amqp.NOT_ALLOWED
    assert closed.reply_text.endswith(
        "number of channels opened (2) has reached the negotiated channel_max (2)"
    )
    other = client.playbook.client()
    other >> methods.QueueDeclare(queue="q", passive=True)
    other << methods.QueueDeclareOk(queue="q", message_count=1, consumer_count=0)


@pytest.mark.parametrize(("size", "is_taken"), [(4200, True), (8192, True), (8193, False)])
def test_start_ok_may_have_8192_octets(client: Client, size: int, is_taken: bool) -> None:
    """More than the 4096 of the standard, as tokens and client properties need them."""
    client = client.playbook.stranger()
    client.greet()
    start_ok = methods.ConnectionStartOk(
        client_properties={"token": ""}, mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US"
    )
    start_ok.client_properties["token"] = "t" * (size - len(encode_method(client.version, start_ok)))
    client >> frame(amqp.FRAME_METHOD, 0, encode_method(client.version, start_ok))
    if is_taken:
        client.hears(methods.ConnectionTune)
    else:
        assert client.hears(methods.ConnectionClose).reply_code == amqp.FRAME_ERROR
