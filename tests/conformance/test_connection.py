"""Rules of the connection class: greeting, tuning, virtual hosts, closing."""

from __future__ import annotations

import re

import pytest
from broker_process import BUG, BrokerProcess
from conformance.conftest import Connect
from conformance.rule import rule
from peer import HEADERS, Peer

from flintmq.wire import amqp, methods

PREFERRED = HEADERS["0-9-1"]


def start_ok(mechanism: str = "PLAIN", padding: int = 0) -> methods.ConnectionStartOk:
    return methods.ConnectionStartOk(
        client_properties={"padding": "x" * padding},
        mechanism=mechanism,
        response=b"\0guest\0guest",
        locale="en_US",
    )


@pytest.mark.parametrize(
    "opening", [b"HTTP/1.1", b"GET / HT", b"AMQX\x00\x00\x09\x01", b"amqp\x00\x00\x09\x01"]
)
@rule("0-9,0-9-1/connection.start/protocol-name")
def test_another_protocol_is_answered_by_a_header_and_the_end(broker: BrokerProcess, opening: bytes) -> None:
    with Peer(broker.port) as peer:
        peer.raw(opening)
        assert peer.octets(8) == PREFERRED
        peer.expect_end()


@pytest.mark.parametrize("version_octets", [b"\x00\x00\x0a\x00", b"\x00\x01\x00\x00", b"\x01\x01\xff\xff"])
@rule("0-9,0-9-1/connection.start/server-support")
def test_a_version_that_is_too_high_is_answered_by_a_header(
    broker: BrokerProcess, version_octets: bytes
) -> None:
    with Peer(broker.port) as peer:
        peer.raw(b"AMQP" + version_octets)
        assert peer.octets(8) == PREFERRED
        peer.expect_end()


@rule("0-9,0-9-1/connection.start/server-support")
def test_the_version_offered_is_not_above_the_one_asked_for(broker: BrokerProcess, version: str) -> None:
    with Peer.greeted(broker.port, version) as peer:
        start = peer.expect(0, methods.ConnectionStart)
        assert (start.version_major, start.version_minor) == ((8, 0) if version == "0-8" else (0, 9))


@rule("0-9,0-9-1/connection.start/server-properties/required-fields")
def test_the_broker_introduces_itself(broker: BrokerProcess, version: str) -> None:
    with Peer.greeted(broker.port, version) as peer:
        told = peer.expect(0, methods.ConnectionStart).server_properties
        assert told["product"] == "FlintMQ"
        for name in ("version", "platform", "copyright", "information"):
            assert isinstance(told[name], str)
            assert told[name]
        assert "host" not in told


@rule("0-9,0-9-1/connection.start/locales/required-support")
def test_en_us_is_offered(broker: BrokerProcess, version: str) -> None:
    with Peer.greeted(broker.port, version) as peer:
        assert b"en_US" in peer.expect(0, methods.ConnectionStart).locales.split(b" ")


@rule("0-9,0-9-1/connection.start-ok/mechanism/validity")
def test_a_mechanism_that_was_not_offered_ends_the_connection(broker: BrokerProcess, version: str) -> None:
    with Peer.greeted(broker.port, version) as peer:
        start = peer.expect(0, methods.ConnectionStart)
        assert b"KERBEROS_V4" not in start.mechanisms.split(b" ")
        peer.send(0, start_ok("KERBEROS_V4"))
        peer.expect_end()


@rule("0-9,0-9-1/connection.tune/frame-max/minimum")
def test_a_frame_of_4096_octets_is_taken_before_a_size_is_agreed(broker: BrokerProcess, version: str) -> None:
    with Peer.greeted(broker.port, version) as peer:
        peer.expect(0, methods.ConnectionStart)
        bare = len(methods.encode_method(peer.version, start_ok()))
        padded = start_ok(padding=4096 - 8 - bare)
        assert len(methods.encode_method(peer.version, padded)) + 8 == 4096
        peer.send(0, padded)
        assert peer.expect(0, methods.ConnectionTune).frame_max >= 4096


@rule(
    "0-9,0-9-1/connection.tune/frame-max/minimum",
    "0-9,0-9-1/connection.tune-ok/frame-max/minimum",
)
def test_frames_below_4096_octets_cannot_be_agreed(broker: BrokerProcess, version: str) -> None:
    with Peer.greeted(broker.port, version) as peer:
        peer.expect(0, methods.ConnectionStart)
        peer.send(0, start_ok())
        tune = peer.expect(0, methods.ConnectionTune)
        peer.send(0, methods.ConnectionTuneOk(channel_max=tune.channel_max, frame_max=4095))
        peer.expect_end()


@pytest.mark.parametrize(("more_channels", "more_octets"), [(1, 0), (0, 1)])
@rule(
    "0-9,0-9-1/connection.tune-ok/channel-max/upper-limit",
    "0-9,0-9-1/connection.tune-ok/frame-max/upper-limit",
)
def test_more_than_was_offered_ends_the_connection(
    broker: BrokerProcess, version: str, more_channels: int, more_octets: int
) -> None:
    with Peer.greeted(broker.port, version) as peer:
        peer.expect(0, methods.ConnectionStart)
        peer.send(0, start_ok())
        tune = peer.expect(0, methods.ConnectionTune)
        greedy = methods.ConnectionTuneOk(
            channel_max=tune.channel_max + more_channels, frame_max=tune.frame_max + more_octets
        )
        peer.send(0, greedy)
        peer.expect_end()


@rule("0-9,0-9-1/connection.open/virtual-host/separation")
def test_nothing_of_a_virtual_host_is_seen_from_another(peer: Peer, connect: Connect, name: str) -> None:
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="fanout"))
    peer.call(1, methods.QueueDeclare(queue=name))
    peer.call(1, methods.QueueBind(queue=name, exchange="amq.fanout"))
    stranger = connect(virtual_host="other")
    stranger.send(1, methods.QueueDeclare(queue=name, passive=True))
    stranger.expect_channel_close(1, amqp.NOT_FOUND)
    stranger.open(1)
    stranger.send(1, methods.ExchangeDeclare(exchange=name, passive=True))
    stranger.expect_channel_close(1, amqp.NOT_FOUND)
    stranger.open(1)
    # The same name is free there, and what is published there stays there.
    assert stranger.call(1, methods.QueueDeclare(queue=name, exclusive=True)).message_count == 0
    stranger.publish(1, b"in other", key=name)
    stranger.publish(1, b"in other", exchange="amq.fanout")
    assert stranger.get(1, name) is not None
    assert peer.get(1, name) is None
    peer.call(1, methods.QueueDelete(queue=name))


@rule("0-9,0-9-1/connection.open/virtual-host/security")
def test_a_user_who_is_not_let_in_stays_outside(broker: BrokerProcess, version: str) -> None:
    with Peer.greeted(broker.port, version) as peer:
        peer.log_in()
        peer.send(0, methods.ConnectionOpen(virtual_host="closed"))
        peer.expect_connection_close(amqp.NOT_ALLOWED)


@rule("0-9/connection.open/insist/behaviour")
def test_a_client_that_insists_is_let_in_here(broker: BrokerProcess, version: str) -> None:
    with Peer.greeted(broker.port, version) as peer:
        peer.log_in()
        assert isinstance(
            peer.call(0, methods.ConnectionOpen(virtual_host="/", insist=True)), methods.ConnectionOpenOk
        )


@rule("0-9,0-9-1/connection.close/stability")
def test_after_its_close_the_broker_takes_no_notice_of_anything_else(
    broker: BrokerProcess, peer: Peer, connect: Connect, name: str
) -> None:
    start = len(broker.lines)
    peer.send(1, methods.ChannelOpen())
    peer.expect(0, methods.ConnectionClose)
    with peer.together():
        peer.send(1, methods.QueueDeclare(queue=name), methods.BasicAck(delivery_tag=1))
        peer.publish(1, b"too late", key=name)
        peer.send(2, methods.ChannelOpen())
        peer.send(0, methods.ConnectionOpen(virtual_host="/"))
        peer.send(0, methods.ConnectionCloseOk())
    peer.expect_end()
    assert not [line for line in broker.lines[start:] if BUG in line]
    other = connect()
    other.send(1, methods.QueueDeclare(queue=name, passive=True))
    other.expect_channel_close(1, amqp.NOT_FOUND)


@rule("0-9-1/connection.close/stability")
def test_a_close_that_crosses_the_brokers_own_is_answered(peer: Peer) -> None:
    peer.send(1, methods.ChannelOpen())
    peer.expect(0, methods.ConnectionClose)
    peer.send(0, methods.ConnectionClose(reply_code=200))
    peer.expect(0, methods.ConnectionCloseOk)
    peer.expect_end()


@rule("0-9,0-9-1/connection.close-ok/reporting")
def test_a_socket_that_ends_where_close_ok_was_due_is_logged(broker: BrokerProcess, peer: Peer) -> None:
    peer.send(1, methods.ChannelOpen())
    peer.expect(0, methods.ConnectionClose)
    start = len(broker.lines)
    peer.abort()
    broker.wait_for(re.compile("went away without close-ok"), start=start)


@rule("0-9,0-9-1/channel.close-ok/reporting")
def test_a_socket_that_ends_where_a_channels_close_ok_was_due_is_logged(
    broker: BrokerProcess, peer: Peer
) -> None:
    peer.send(1, methods.QueueDeclare(queue="not there", passive=True))
    peer.expect(1, methods.ChannelClose)
    start = len(broker.lines)
    peer.abort()
    broker.wait_for(re.compile("went away without closing"), start=start)
