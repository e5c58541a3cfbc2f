"""Methods that carry content, but for a plain basic.publish: tunnel.request, test.content, and others.

A function takes the session, the protocol's channel, the method, and its content: the header, which has so
many octets, and the body behind it. The test class has its other methods here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flintmq.broker.channels.tickets import check_ticket
from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.server.commands.command import broker_channel, command, seldom
from flintmq.wire import amqp, methods
from flintmq.wire.fields import encode_shortstr
from flintmq.wire.methods import Method, encode_method
from flintmq.wire.properties import (
    BasicProperties,
    TunnelProperties,
    decode_properties,
    encode_properties,
)

if TYPE_CHECKING:
    from flintmq.protocol.channel import Channel
    from flintmq.server.commands.command import Session
    from flintmq.wire.tables import FieldTable

ContentCommand = Callable[["Session", "Channel", Any, bytes, int], None]
CONTENT_COMMANDS: dict[str, ContentCommand] = {}

# What is done where a large body is about to come: a message need not lie in memory.
ContentBeginning = Callable[["Session", "Channel", Any, bytes], None]
CONTENT_BEGINNINGS: dict[str, ContentBeginning] = {}

PERSISTENT = 2
# The header of a tunnelled message that says that it was to be broadcast.
BROADCAST = "x-broadcast"
# Of the body of a test.content: to sum it up takes 13 nanoseconds for an octet, so 3 milliseconds.
TEST_BYTES_MAX = 262_144


def run(session: Session, channel: Channel, method: Method, content: bytes, header_size: int) -> None:
    found = CONTENT_COMMANDS.get(method.NAME) or seldom(CONTENT_COMMANDS, method)
    found(session, channel, method, content, header_size)


def begin(session: Session, channel: Channel, method: Method, header: bytes) -> None:
    """The header of a large content has come."""
    found = CONTENT_BEGINNINGS.get(method.NAME) or seldom(CONTENT_BEGINNINGS, method)
    found(session, channel, method, header)


def beginning(name: str) -> Callable[[ContentBeginning], ContentBeginning]:
    def register(function: ContentBeginning) -> ContentBeginning:
        CONTENT_BEGINNINGS[name] = function
        return function

    return register


def content_command(name: str) -> Callable[[ContentCommand], ContentCommand]:
    def register(function: ContentCommand) -> ContentCommand:
        CONTENT_COMMANDS[name] = function
        return function

    return register


@content_command("basic.publish")
def basic_publish(
    session: Session, channel: Channel, method: methods.BasicPublish, content: bytes, header_size: int
) -> None:
    """One that shows its ticket, see Connection.by_ticket."""
    check_ticket(broker_channel(channel), method)
    route, flags = way_of(method)
    session.connection.events.publish(channel, route, flags, content, header_size)


@beginning("basic.publish")
def publish_begins(session: Session, channel: Channel, method: methods.BasicPublish, header: bytes) -> None:
    check_ticket(broker_channel(channel), method)
    channel.becomes_publish(*way_of(method), header)


def way_of(method: methods.BasicPublish | methods.StreamPublish) -> tuple[bytes, int]:
    """The route and the flags of a publish, as Events.publish has them."""
    return route_of(method.exchange, method.routing_key), method.mandatory | method.immediate << 1


def route_of(exchange: str, key: str) -> bytes:
    return encode_shortstr(exchange) + encode_shortstr(key)


@content_command("tunnel.request")
def tunnel_request(
    session: Session, channel: Channel, method: methods.TunnelRequest, content: bytes, header_size: int
) -> None:
    """Goes to the exchange that proxy-name names, with data-name for its key, and is not answered."""
    route, header = tunnelled(session, channel, method, content[:header_size])
    # Limits on the rate of publishing hold, see RatedPublishes.
    session.connection.events.publish(channel, route, 0, header + content[header_size:], len(header))


@beginning("tunnel.request")
def tunnel_begins(session: Session, channel: Channel, method: methods.TunnelRequest, header: bytes) -> None:
    route, header = tunnelled(session, channel, method, header)
    channel.becomes_publish(route, 0, header)


def tunnelled(
    session: Session, channel: Channel, method: methods.TunnelRequest, header: bytes
) -> tuple[bytes, bytes]:
    """The route and the header of the message that a tunnel.request with this header is."""
    broker_channel(channel)
    properties = decode_properties(amqp.CLASS_TUNNEL, header, 12, len(header))
    if not isinstance(properties, TunnelProperties):
        raise ConnectionFault(amqp.SYNTAX_ERROR, "the content header is not that of a tunnel")
    headers: FieldTable = {**method.meta_data, **(properties.headers or {})}
    if properties.broadcast:
        headers[BROADCAST] = True
    basic = BasicProperties(headers=headers or None, delivery_mode=PERSISTENT if properties.durable else None)
    found = amqp.CLASS_BASIC.to_bytes(2, "big") + header[2:12] + encode_properties(basic)
    if len(found) > session.connection.frame_bytes_max - 8:
        text = f"meta-data and headers together take {len(found)} octets, more than a frame holds"
        raise ChannelFault(amqp.CONTENT_TOO_LARGE, text)
    return route_of(properties.proxy_name or "", properties.data_name or ""), found


# test: what comes is worked on and goes back, so that a client can see whether both sides agree on octets.

ADD, MIN, MAX = 1, 2, 3  # in the order in which 0-8 names the operations, which it does not number


def worked_out(operation: int, values: list[int]) -> int:
    if operation == ADD:
        return sum(values) % (1 << 64)
    result: int = chosen(operation, values, key=int)
    return result


def strung_together(operation: int, values: list[bytes]) -> bytes:
    """All of them one behind the other, or the shortest, or the longest."""
    return b"".join(values) if operation == ADD else chosen(operation, values, key=len)


def chosen(operation: int, values: list[Any], key: Callable[[Any], int]) -> Any:
    if operation == MIN:
        return min(values, key=key)
    if operation == MAX:
        return max(values, key=key)
    text = f"operation {operation} is not known: use {ADD} to add, {MIN} for the least or {MAX} for the most"
    raise ConnectionFault(amqp.SYNTAX_ERROR, text)


def fitting(session: Session, result: bytes) -> bytes:
    """A result is told in one frame: with its ids, a number, its own length and the frame around it."""
    if len(result) > session.connection.frame_bytes_max - 24:
        raise ChannelFault(
            amqp.CONTENT_TOO_LARGE, f"a result of {len(result)} octets does not fit in a frame"
        )
    return result


@command("test.integer")
def test_integer(session: Session, channel: Channel, method: methods.TestInteger) -> None:
    values = [method.integer_1, method.integer_2, method.integer_3, method.integer_4]
    session.send(channel.number, methods.TestIntegerOk(result=worked_out(method.operation, values)))


@command("test.string")
def test_string(session: Session, channel: Channel, method: methods.TestString) -> None:
    values = [method.string_1.encode(), method.string_2]
    result = fitting(session, strung_together(method.operation, values))
    session.send(channel.number, methods.TestStringOk(result=result))


@command("test.table")
def test_table(session: Session, channel: Channel, method: methods.TestTable) -> None:
    """Over the numbers of the table, and over its texts; 0 and nothing where it has none."""
    found = method.table.values()
    numbers = [value for value in found if type(value) is int] or [0]
    texts = [octets_of(value) for value in found if isinstance(value, str | bytes)] or [b""]
    answer = methods.TestTableOk(
        integer_result=worked_out(method.integer_op, numbers) % (1 << 64),
        string_result=fitting(session, strung_together(method.string_op, texts)),
    )
    session.send(channel.number, answer)


def octets_of(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


@content_command("test.content")
def test_content(
    session: Session, channel: Channel, method: methods.TestContent, content: bytes, header_size: int
) -> None:
    """The content goes back with the sum of the octets of its body."""
    broker_channel(channel)
    check_test_size(len(content) - header_size)
    decode_properties(amqp.CLASS_TEST, content, 12, header_size)
    checksum = sum(memoryview(content)[header_size:]) % (1 << 32)
    payload = encode_method(session.connection.version, methods.TestContentOk(content_checksum=checksum))
    session.output.write_method_content(channel.number, payload, content, header_size)


@beginning("test.content")
def test_content_begins(
    session: Session, channel: Channel, method: methods.TestContent, header: bytes
) -> None:
    check_test_size(int.from_bytes(header[4:12], "big"))


def check_test_size(size: int) -> None:
    if size > TEST_BYTES_MAX:
        raise ChannelFault(
            amqp.CONTENT_TOO_LARGE, f"a body of {size} octets, where a test has {TEST_BYTES_MAX} at the most"
        )
