"""What AMQP 0-8 and 0-9 say and 0-9-1 does not: frames, tables, openings, locales, durable wiring, faults."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Client, Playbook, carrying, frame

from flintmq.wire import amqp
from flintmq.wire.methods import (
    BasicConsume,
    BasicGet,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueueUnbind,
)

EARLY = [amqp.VERSION_0_8, amqp.VERSION_0_9]


# Trace frames


@pytest.mark.parametrize("version", EARLY)
@pytest.mark.parametrize(("number", "payload"), [(0, b""), (1, b"route: here"), (9, bytes(4000))])
def test_a_trace_frame_is_discarded(playbook: Playbook, version: int, number: int, payload: bytes) -> None:
    client = playbook.client(version)
    client.declares("q")
    client >> frame(amqp.FRAME_TRACE, number, payload)
    client.hears_nothing()
    client.publishes("q", b"the connection lives")
    assert client.gets("q") == b"the connection lives"


@pytest.mark.parametrize("version", EARLY)
def test_a_trace_frame_may_come_in_the_middle_of_a_content(playbook: Playbook, version: int) -> None:
    client = playbook.client(version)
    client.declares("q")
    octets = client.frames(1, carrying(BasicPublish(routing_key="q"), b"body"))
    client >> octets[:-12] + frame(amqp.FRAME_TRACE, 1, b"seen") + octets[-12:]
    assert client.gets("q") == b"body"


def test_0_9_1_knows_no_trace_frame(client: Client) -> None:
    client >> frame(amqp.FRAME_TRACE, 0, b"")
    assert client.hears(ConnectionClose).reply_code == 501


def test_a_trace_frame_has_the_size_of_other_frames_at_most(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9, frame_max=4096)
    client >> frame(amqp.FRAME_TRACE, 0, bytes(5000))
    assert client.hears(ConnectionClose).reply_code == 501


# The same field twice


TWICE = b"\x01aI\x00\x00\x00\x01" + b"\x01aI\x00\x00\x00\x02"


@pytest.mark.parametrize("version", [*EARLY, amqp.VERSION_0_9_1])
def test_of_a_field_that_stands_twice_the_first_counts(playbook: Playbook, version: int) -> None:
    client = playbook.client(version)
    for queue, value in (("first", 1), ("second", 2)):
        client.declares(queue)
        client.binds(queue, "amq.headers", a=value)
    header = b"\x00\x3c" + bytes(10) + b"\x20\x00" + len(TWICE).to_bytes(4, "big") + TWICE
    client >> (
        frame(amqp.FRAME_METHOD, 1, b"\x00\x3c\x00\x28\x00\x00\x0bamq.headers\x00\x00")
        + frame(amqp.FRAME_HEADER, 1, header)
    )
    assert client.gets_all("second") == []
    client >> BasicGet(queue="first", no_ack=True)
    found: Any = client.next(1)
    assert found.properties.headers == {"a": 1}


@pytest.mark.parametrize("version", [*EARLY, amqp.VERSION_0_9_1])
def test_of_an_argument_that_stands_twice_the_first_counts(playbook: Playbook, version: int) -> None:
    client = playbook.client(version)
    table = b"\x0cx-max-lengthI\x00\x00\x00\x01" + b"\x0cx-max-lengthI\x00\x00\x00\x09"
    declare = b"\x00\x32\x00\x0a\x00\x00\x01q\x00" + len(table).to_bytes(4, "big") + table
    client >> frame(amqp.FRAME_METHOD, 1, declare)
    client.next(1)
    client.publishes("q", b"one", b"two")
    assert client.gets_all("q") == [b"two"]


# Openings and locales


def test_the_header_of_the_text_opens_0_9_with_numbers_for_types(playbook: Playbook) -> None:
    client = playbook.stranger(amqp.VERSION_0_9)
    client >> b"AMQP\x01\x01\x00\x0b"
    client.output.fill_from_streams()
    sent = bytes(client.output.buffer[client.output.start : client.output.fill])
    assert sent[:13] == b"\x01\x00\x00" + sent[3:7] + b"\x00\x0a\x00\x0a\x00\x09"
    assert b"\x07product\xa5\x00\x00\x00\x07FlintMQ" in sent  # 0xA5: text in UTF-8
    assert b"\x0ccapabilities\xa8" in sent  # 0xA8: a table
    assert b"\x12publisher_confirms\x08\x01" in sent  # 0x08: true
    client.next(1)
    client.log_in()
    client.hears(ConnectionTune)


def test_headers_reach_such_a_peer_with_numbers_and_others_with_letters(playbook: Playbook) -> None:
    numeric = playbook.stranger(amqp.VERSION_0_9)
    numeric >> b"AMQP\x01\x01\x00\x0b"
    numeric.next(1)
    numeric.log_in()
    numeric.hears(ConnectionTune)
    finish_opening(numeric)
    lettered = playbook.client()
    lettered.declares("q")
    lettered.declares("back")
    lettered.publishes("q", b"1", headers={"a": "text", "n": [1, {"deep": True}]})
    numeric >> BasicConsume(queue="q", no_ack=True)
    sent = raw(numeric)
    assert b"\x01a\xa5\x00\x00\x00\x04text\x01n\xa9\x00\x00\x00\x11\x21\x00\x00\x00\x01\xa8" in sent
    assert b"\x04deep\x08\x01" in sent
    table = b"\x01a\xa5\x00\x00\x00\x04text"
    header = b"\x00\x3c" + bytes(10) + b"\x20\x00" + len(table).to_bytes(4, "big") + table
    numeric >> (
        frame(amqp.FRAME_METHOD, 1, b"\x00\x3c\x00\x28\x00\x00\x00\x04back\x00") + frame(2, 1, header)
    )
    lettered >> BasicGet(queue="back", no_ack=True)
    assert b"\x01aS\x00\x00\x00\x04text" in raw(lettered)


def finish_opening(client: Client) -> None:
    client >> ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
    client >> ConnectionOpen(virtual_host="/")
    client.hears(ConnectionOpenOk)
    client >> ChannelOpen()
    client.hears(ChannelOpenOk)


def raw(client: Client) -> bytes:
    """The octets that were sent to the client and that it has not taken yet; it takes them."""
    output = client.output
    sent = bytes(output.buffer[output.start : output.fill])
    client.heard().clear()
    return sent


@pytest.mark.parametrize("version", EARLY)
def test_a_locale_that_was_not_offered_is_refused(playbook: Playbook, version: int) -> None:
    client = playbook.stranger(version)
    assert client.greet().locales == b"en_US"
    client >> start_ok("de_DE")
    close = client.hears(ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (530, 10, 11)
    assert close.reply_text == "NOT_ALLOWED - locale 'de_DE' was not offered: use en_US"


@pytest.mark.parametrize(
    ("version", "locale"),
    [(amqp.VERSION_0_8, "en_US"), (amqp.VERSION_0_9, ""), (amqp.VERSION_0_9_1, "de_DE")],
)
def test_other_locales_are_taken(playbook: Playbook, version: int, locale: str) -> None:
    client = playbook.stranger(version)
    client.greet()
    client >> start_ok(locale)
    client.hears(ConnectionTune)


def start_ok(locale: str) -> ConnectionStartOk:
    return ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest", locale=locale)


# Durable wiring


def declare_wiring(client: Client) -> None:
    client >> ExchangeDeclare(exchange="lasting", type="fanout", durable=True)
    client << ExchangeDeclareOk()
    client >> ExchangeDeclare(exchange="fleeting", type="fanout")
    client << ExchangeDeclareOk()
    client.declares("kept", durable=True)
    client.declares("lost")


DURABLE_ONTO_TRANSIENT: list[tuple[Method, str]] = [
    (QueueBind(queue="kept", exchange="fleeting"), "durable queue 'kept'"),
    (ExchangeBind(destination="lasting", source="fleeting"), "durable exchange 'lasting'"),
    (
        QueueBind(queue="kept", exchange="lasting", arguments={"x-via": "fleeting"}),
        "durable queue 'kept'",
    ),
]


@pytest.mark.parametrize("version", EARLY)
@pytest.mark.parametrize(("bind", "what"), DURABLE_ONTO_TRANSIENT)
def test_nothing_durable_hangs_on_something_transient(
    playbook: Playbook, version: int, bind: Method, what: str
) -> None:
    client = playbook.client(version)
    declare_wiring(client)
    client >> bind
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id) == (530, bind.CLASS_ID)
    assert what in close.reply_text
    assert "'fleeting', which is transient" in close.reply_text
    client >> ChannelCloseOk() >> ChannelOpen()
    client.hears(ChannelOpenOk)
    client >> QueueBind(queue="lost", exchange="fleeting")
    client << QueueBindOk()
    client >> ExchangeBind(destination="fleeting", source="lasting")
    client << ExchangeBindOk()


def test_with_0_9_1_it_may(client: Client) -> None:
    declare_wiring(client)
    client.binds("kept", "fleeting")
    client >> ExchangeBind(destination="lasting", source="fleeting")
    client << ExchangeBindOk()


# The standard's own answers


@pytest.mark.parametrize("version", EARLY)
@pytest.mark.parametrize(
    ("method", "code"),
    [
        (ExchangeDeclare(exchange="new", type="nonsense"), 503),
        (ExchangeDeclare(exchange="amq.direct", type="fanout", durable=True), 530),
        (QueuePurge(queue=""), 530),
        (QueueDeclare(queue="", passive=True), 530),
        (QueueDeclare(queue="amq.mine"), 530),
        (BasicGet(queue=""), 530),
    ],
)
def test_faults_that_end_the_connection(playbook: Playbook, version: int, method: Method, code: int) -> None:
    client = playbook.client(version)
    client >> method
    close = client.hears(ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (code, method.CLASS_ID, method.METHOD_ID)


@pytest.mark.parametrize("version", EARLY)
def test_a_missing_queue_is_not_deleted(playbook: Playbook, version: int) -> None:
    client = playbook.client(version)
    client >> QueueDelete(queue="none")
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.reply_text) == (404, "NOT_FOUND - no queue 'none' in vhost '/'")


@pytest.mark.parametrize("version", EARLY)
@pytest.mark.parametrize(
    ("method", "text"),
    [
        (ExchangeDelete(exchange="none"), "NOT_FOUND - no exchange 'none' in vhost '/'"),
        (QueueUnbind(queue="q", exchange="none"), "NOT_FOUND - no exchange 'none' in vhost '/'"),
        (QueueUnbind(queue="none", exchange="amq.direct"), "NOT_FOUND - no queue 'none' in vhost '/'"),
    ],
)
def test_what_is_missing_is_neither_deleted_nor_unbound(
    playbook: Playbook, version: int, method: Method, text: str
) -> None:
    client = playbook.client(version)
    client.declares("q")
    client >> method
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.reply_text) == (404, text)


@pytest.mark.parametrize("version", EARLY)
def test_declared_again_the_flags_stay_as_they_are(playbook: Playbook, version: int) -> None:
    client = playbook.client(version)
    client >> ExchangeDeclare(exchange="amq.direct", type="direct")  # which is durable
    client << ExchangeDeclareOk()
    client >> ExchangeDeclare(exchange="e", type="direct", auto_delete=True)
    client << ExchangeDeclareOk()
    client >> ExchangeDeclare(exchange="e", type="direct", durable=True)
    client << ExchangeDeclareOk()
    client >> QueueDeclare(queue="q")
    client << QueueDeclareOk(queue="q")
    client >> QueueDeclare(queue="q", durable=True, auto_delete=True)
    client << QueueDeclareOk(queue="q")
    later = playbook.client()
    later >> ExchangeDeclare(exchange="e", type="direct", auto_delete=True)
    later << ExchangeDeclareOk()
    later >> QueueDeclare(queue="q")
    later << QueueDeclareOk(queue="q")


@pytest.mark.parametrize("version", EARLY)
def test_the_binding_to_the_nameless_exchange_may_be_made_once_more(playbook: Playbook, version: int) -> None:
    client = playbook.client(version)
    client.declares("q")
    client >> QueueBind(queue="q", exchange="", routing_key="q")
    client << QueueBindOk()
    client >> QueueBind(queue="", exchange="")
    client << QueueBindOk()
    client.publishes("q", b"once")
    assert (client.gets("q"), client.gets("q")) == (b"once", None)
    client >> QueueBind(queue="q", exchange="", routing_key="other")
    assert client.hears(ChannelClose).reply_code == 403


def test_with_0_9_1_it_may_not(client: Client) -> None:
    client.declares("q")
    client >> QueueBind(queue="q", exchange="", routing_key="q")
    assert client.hears(ChannelClose).reply_code == 403


@pytest.mark.parametrize("version", EARLY)
def test_a_private_queue_is_declared_again_by_its_connection_alone(playbook: Playbook, version: int) -> None:
    client = playbook.client(version)
    client >> QueueDeclare(queue="mine", exclusive=True)
    client << QueueDeclareOk(queue="mine")
    client.publishes("mine", b"one")
    client >> QueueDeclare(queue="mine")
    client << QueueDeclareOk(queue="mine", message_count=1)
    other = playbook.client(version)
    other >> QueueDeclare(queue="mine")
    assert other.hears(ChannelClose).reply_code == 405
    other >> ChannelCloseOk() >> ChannelOpen()
    other.hears(ChannelOpenOk)
    client.declares("shared")
    client >> QueueDeclare(queue="shared", exclusive=True)  # it cannot be given to one of them
    assert client.hears(ChannelClose).reply_code == 405


def test_0_9_1_has_the_answers_of_rabbitmq(client: Client) -> None:
    has_the_answers_of_rabbitmq(client)


def test_aioamqp_has_the_answers_of_rabbitmq_though_it_opens_with_0_9(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_9, product="aioamqp")
    has_the_answers_of_rabbitmq(client)
    declare_wiring(client)
    client >> QueueBind(queue="kept", exchange="fleeting")
    client << QueueBindOk()


def has_the_answers_of_rabbitmq(client: Client) -> None:
    client >> QueueDelete(queue="none")
    client << QueueDeleteOk()
    client >> ExchangeDelete(exchange="none")
    client << ExchangeDeleteOk()
    client.declares("again")
    for method, code in (
        (QueueDeclare(queue="again", durable=True), 406),
        (ExchangeDeclare(exchange="amq.direct", type="direct"), 406),
        (QueueDeclare(queue="amq.mine"), 403),
        (ExchangeDeclare(exchange="new", type="nonsense"), 406),
        (ExchangeDeclare(exchange="amq.direct", type="fanout", durable=True), 406),
        (QueuePurge(queue=""), 404),
    ):
        client >> method
        assert client.hears(ChannelClose).reply_code == code
        client >> ChannelCloseOk() >> ChannelOpen()
        client.hears(ChannelOpenOk)
