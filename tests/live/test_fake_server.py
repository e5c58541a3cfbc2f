"""The fake server of the tests: it says what its script says, and tells when a script goes wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_server import (
    Answer,
    FakeServer,
    Script,
    Served,
    acks,
    acks_before_return,
    answering,
    closes_channel,
    closes_connection,
    delivers_part,
    gets_part,
    hangs_up,
    hangs_up_at_login,
    hangs_up_at_open,
    hangs_up_at_tune,
    hangs_up_before_start,
    honest,
    nacks,
    never_answers,
    refuses_host,
    refuses_login,
    resets,
    returns_then_acks,
    returns_without_ack,
    says_nothing,
    silent_once_open,
    stops_reading_once_open,
    tunes,
)
from peer import Gone, Peer

from flintmq.client import connect
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method


def entered(server: FakeServer) -> Peer:
    peer = Peer.connect(server.port)
    peer.open(1)
    return peer


def test_an_honest_one_serves_a_client() -> None:
    with FakeServer() as server, connect(server.uri, recovery=None) as connection:
        with connection.channel(confirm=True) as channel:
            queue = channel.queue("q", durable=True).bind(channel.exchange("x"), "key")
            channel.publish_many([b"a", b"b"], "x", "key")
            assert queue.get() is None
            with channel.consume("q", timeout_s=0.05) as consumer:
                assert list(consumer) == []
        with connection.channel(transactional=True) as channel:
            channel.publish(b"c", "x", "key")
            channel.commit()
        assert server.served[0].bodies == [b"a", b"b", b"c"]
        assert "tx.commit" in server.served[0].heard


def test_each_connection_has_its_script_and_the_last_one_stays() -> None:
    with FakeServer(tunes(frame_max=8192), tunes(frame_max=4096)) as server:
        seen = []
        for _ in range(3):
            with Peer.connect(server.port) as peer:
                seen.append(peer.frame_bytes_max)
        assert seen == [8192, 4096, 4096]
        assert server.connections == 3


@pytest.mark.parametrize(
    ("script", "steps"),
    [
        (hangs_up_before_start, 0),
        (hangs_up_at_login, 1),
        (hangs_up_at_tune, 2),
        (hangs_up_at_open, 2),
    ],
)
def test_it_hangs_up_at_each_step_of_the_login(script: Script, steps: int) -> None:
    with FakeServer(script, honest) as server:
        with Peer.greeted(server.port) as peer:
            if steps == 2:
                peer.log_in()
            elif steps == 1:
                peer.expect(0, methods.ConnectionStart)
                peer.send(0, methods.ConnectionStartOk(mechanism="PLAIN", locale="en_US"))
            if script is hangs_up_at_open:
                peer.send(0, methods.ConnectionOpen(virtual_host="/"))
            peer.expect_end()
        Peer.connect(server.port).close()


@pytest.mark.parametrize("refusal", [refuses_login, refuses_host])
def test_it_refuses(refusal: Callable[[int, str], Script]) -> None:
    server = FakeServer(refusal(320, "CONNECTION_FORCED - it stops"))
    with server, Peer.greeted(server.port) as peer:
        if refusal is refuses_host:
            peer.log_in()
            peer.send(0, methods.ConnectionOpen(virtual_host="/"))
        else:
            peer.expect(0, methods.ConnectionStart)
            peer.send(0, methods.ConnectionStartOk(mechanism="PLAIN", locale="en_US"))
        assert peer.expect_connection_close(320).reply_text == "CONNECTION_FORCED - it stops"


@pytest.mark.parametrize("script", [never_answers, silent_once_open, stops_reading_once_open])
def test_it_is_silent_and_ends_with_its_server(script: Script) -> None:
    server = FakeServer(script)
    with Peer.greeted(server.port) if script is never_answers else Peer.connect(server.port) as peer:
        peer.send(1, methods.ChannelOpen())
        peer.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            peer.input.read(1)
        server.close()


@pytest.mark.parametrize(
    ("answer", "tags"),
    [
        (acks(), [1, 2]),
        (acks(shift=5), [6, 7]),
        (acks(times=2), [1, 1, 2, 2]),
        (acks(shift=-1), [0, 1]),
        (says_nothing, []),
    ],
)
def test_wrong_confirms(answer: Answer, tags: list[int]) -> None:
    with FakeServer(answering({methods.BasicPublish: answer})) as server, entered(server) as peer:
        peer.call(1, methods.ConfirmSelect())
        peer.publish(1, b"a", key="q")
        peer.publish(1, b"b", key="q")
        assert [peer.expect(1, methods.BasicAck).delivery_tag for _ in tags] == tags
        assert peer.is_quiet(1)
        assert server.served[0].bodies == [b"a", b"b"]


@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        (nacks, [methods.BasicNack]),
        (returns_without_ack, [methods.BasicReturn]),
        (acks_before_return, [methods.BasicAck, methods.BasicReturn]),
        (returns_then_acks, [methods.BasicReturn, methods.BasicAck]),
    ],
)
def test_returns_and_refusals(answer: Answer, kinds: list[type[Method]]) -> None:
    with FakeServer(answering({methods.BasicPublish: answer})) as server, entered(server) as peer:
        peer.call(1, methods.ConfirmSelect())
        peer.publish(1, b"a", key="q", message_id="m")
        for kind in kinds:
            peer.expect(1, kind)
            if kind is methods.BasicReturn:
                content = peer.content(1)
                assert (content.body, content.properties.message_id) == (b"a", "m")
        assert peer.is_quiet(1)


def delivery_after_consume(peer: Peer) -> None:
    """A reset may take the answer along."""
    peer.expect(1, methods.BasicConsumeOk)
    peer.delivery(1)


@pytest.mark.parametrize("ending", [hangs_up, resets])
def test_a_body_that_ends_in_the_middle(ending: Answer) -> None:
    lies: dict[type[Method], Answer] = {
        methods.BasicGet: gets_part(10, b"four", ending),
        methods.BasicConsume: delivers_part(10, b"", ending),
    }
    with FakeServer(answering(lies)) as server:
        with entered(server) as peer, pytest.raises(Gone):
            peer.get(1, "q")
        with entered(server) as peer:
            peer.send(1, methods.BasicConsume(queue="q", consumer_tag="t"))
            with pytest.raises(Gone):
                delivery_after_consume(peer)


def test_closes() -> None:
    lies: dict[type[Method], Answer] = {
        methods.QueueDeclare: closes_channel(406, "PRECONDITION_FAILED - no"),
        methods.BasicGet: gets_part(10, b"four", closes_channel(404, "NOT_FOUND - gone")),
        methods.ExchangeDeclare: closes_connection(541, "INTERNAL_ERROR - oh"),
    }
    with FakeServer(answering(lies)) as server, entered(server) as peer:
        peer.send(1, methods.QueueDeclare(queue="q"))
        peer.expect_channel_close(1, 406)
        peer.open(1)
        peer.send(1, methods.BasicGet(queue="q"))
        peer.expect(1, methods.BasicGetOk)
        assert peer.frame_of(1).kind == amqp.FRAME_HEADER
        assert peer.frame_of(1).payload == b"four"
        peer.expect_channel_close(1, 404)
        peer.open(1)
        peer.send(1, methods.ExchangeDeclare(exchange="x", type="direct"))
        peer.expect_connection_close(541)


def test_a_script_that_goes_wrong_fails_the_test() -> None:
    def wrong(served: Served) -> None:
        served.welcome()
        served.expect(1, methods.BasicGet)

    server = FakeServer(wrong)
    with Peer.connect(server.port) as peer:
        peer.send(1, methods.ChannelOpen())
        peer.expect_end()
    with pytest.raises(AssertionError, match=r"expected basic\.get"):
        server.close()
