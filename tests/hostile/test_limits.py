"""What one client may cost: memory and time are bounded whatever it asks for."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from conversation import GREETINGS, House, Peer, frame, header_payload, method_frame, publish, start_ok

from flintmq.protocol import phases
from flintmq.wire import amqp, methods

MIB = 1_048_576
# As in protocol/outbox.py, where it is a C constant.
OUTPUT_BYTES_STOP = 16 * MIB


def peak_bytes(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def peer(house: House) -> Peer:
    peer = Peer(house).login(1)
    peer.ask(1, methods.QueueDeclare(queue="q"))
    return peer


def get_and_put_back(count: int) -> bytes:
    get = method_frame(91, 1, methods.BasicGet(queue="q"))
    return b"".join(
        get + method_frame(91, 1, methods.BasicReject(delivery_tag=tag, requeue=True))
        for tag in range(1, count + 1)
    )


def recover(count: int) -> bytes:
    again = method_frame(91, 1, methods.BasicRecover(requeue=False))
    return method_frame(91, 1, methods.BasicConsume(queue="q")) + again * count


@pytest.mark.parametrize("asking", [get_and_put_back, recover])
def test_a_peer_that_does_not_read_is_not_served_on(peer: Peer, asking: Callable[[int], bytes]) -> None:
    """A thousand small requests for a message of a megabyte would be a gigabyte of output."""
    peer.send(publish(1, "", "q", bytes(MIB)))
    peer.wire.takes = False
    if asking is recover:
        peer.send(method_frame(91, 1, methods.BasicConsume(queue="q")))
    peer.send(asking(1000))
    # What is recovered goes back to its queue where the output has no room for it.
    assert peer.wire.session.connection.paused or asking is recover
    assert peer.wire.output.pending() <= OUTPUT_BYTES_STOP + 2 * MIB


@pytest.mark.parametrize("asking", [get_and_put_back])
def test_a_peer_that_reads_late_gets_all_it_asked_for(peer: Peer, asking: Callable[[int], bytes]) -> None:
    peer.send(publish(1, "", "q", bytes(MIB)))
    peer.wire.takes = False
    peer.send(asking(50))
    peer.wire.takes = True
    peer.wire.flush()
    peer.house.finish_pass()
    got = [each for each in peer.replies() if isinstance(each.method, methods.BasicGetOk)]
    assert len(got) == 50


def test_returned_messages_stop_a_publisher_that_does_not_read(peer: Peer) -> None:
    peer.wire.takes = False
    octets = publish(1, "", "nowhere", bytes(100_000), mandatory=True)
    for _ in range(400):
        peer.send(octets)
    assert peer.wire.session.connection.paused
    assert peer.wire.output.pending() <= OUTPUT_BYTES_STOP + MIB


@pytest.mark.parametrize("piece", [1, 2, 7])
def test_a_body_in_tiny_pieces_takes_little_more_than_its_size(peer: Peer, piece: int) -> None:
    size = 70_000
    start = method_frame(91, 1, methods.BasicPublish(routing_key="q"))
    start += frame(amqp.FRAME_HEADER, 1, header_payload(size + 1))
    pieces = frame(amqp.FRAME_BODY, 1, b"x" * piece) * (size // piece)
    peer.send(start)

    def send() -> None:
        for at in range(0, len(pieces), 10_000):
            peer.wire.feed(pieces[at : at + 10_000])

    assert peak_bytes(send) < 4 * size
    peer.send(frame(amqp.FRAME_BODY, 1, b"." * (size + 1 - size // piece * piece)))
    got = peer.say((1, methods.BasicGet(queue="q")))
    body = b"".join(each.payload for each in got if each.kind == amqp.FRAME_BODY)
    assert body == b"x" * (size // piece * piece) + b"." * (size + 1 - size // piece * piece)


def test_empty_body_frames_are_free(peer: Peer) -> None:
    peer.send(method_frame(91, 1, methods.BasicPublish(routing_key="q")))
    peer.send(frame(amqp.FRAME_HEADER, 1, header_payload(3)))
    empty = frame(amqp.FRAME_BODY, 1, b"") * 1000

    def send() -> None:
        for _ in range(50):
            peer.wire.feed(empty)

    assert peak_bytes(send) < 100_000
    peer.send(frame(amqp.FRAME_BODY, 1, b"abc"))
    got = peer.say((1, methods.BasicGet(queue="q")))
    assert got[-1].payload == b"abc"


@pytest.mark.parametrize("announced", [2**63 - 1, 2**63, 2**64 - 1, 512 * MIB + 1])
def test_a_body_size_out_of_bounds_costs_the_channel_and_no_memory(peer: Peer, announced: int) -> None:
    octets = method_frame(91, 1, methods.BasicPublish(routing_key="q"))
    octets += frame(amqp.FRAME_HEADER, 1, header_payload(announced))
    octets += frame(amqp.FRAME_BODY, 1, bytes(1000))
    assert peak_bytes(lambda: peer.send(octets)) < 200_000
    answer = peer.replies()[-1].method
    assert isinstance(answer, methods.ChannelClose)
    assert (answer.reply_code, answer.class_id, answer.method_id) == (406, 60, 40)


def test_unfinished_contents_make_a_publisher(peer: Peer) -> None:
    """The memory alarm must be able to stop it."""
    assert not peer.wire.session.is_publisher()
    peer.send(method_frame(91, 1, methods.BasicPublish(routing_key="q")))
    peer.send(frame(amqp.FRAME_HEADER, 1, header_payload(MIB)))
    assert peer.wire.session.is_publisher()


@pytest.mark.parametrize("version", [8, 9, 91])
def test_blocking_is_told_only_where_the_version_has_a_word_for_it(house: House, version: int) -> None:
    peer = Peer(house, version)
    peer.send(GREETINGS[version])
    peer.say((0, start_ok(**{"connection.blocked": True})))
    peer.say((0, methods.ConnectionTuneOk()), (0, methods.ConnectionOpen(virtual_host="/")))
    peer.wire.session.tell_blocked("low on memory")
    peer.wire.session.tell_unblocked()
    house.finish_pass()
    told = [each.method.NAME for each in peer.replies() if each.method is not None]
    assert told == (["connection.blocked", "connection.unblocked"] if version != 8 else [])


def test_consumers_that_come_and_go_leave_nothing_behind(peer: Peer) -> None:
    peer.say((1, methods.BasicQos(prefetch_count=1)))
    for _ in range(3):
        peer.send(publish(1, "", "q", b"x"))
    for takes in (True, False):
        peer.wire.takes = takes
        if not takes:
            peer.send(publish(1, "", "nowhere", bytes(300_000), mandatory=True))
        for _ in range(20):
            consume = methods.BasicConsume(queue="q", consumer_tag="c", no_wait=True)
            peer.send(method_frame(91, 1, consume))
            cancel = methods.BasicCancel(consumer_tag="c", no_wait=True)
            peer.send(method_frame(91, 1, cancel))
    channel = peer.wire.session.connection.channels[1]
    assert channel is not None
    assert not channel.owner.parked
    assert not peer.wire.output.wanted


def test_a_second_login_in_the_same_read_is_not_even_looked_at(house: House) -> None:
    """Each would be 40 ms of work before anyone else's password is checked."""
    peer = Peer(house)
    asked: list[object] = []

    def verify(verification: object) -> None:
        asked.append(verification)
        peer.wire.session.connection.paused = True

    peer.wire.verify = verify  # type: ignore[method-assign]
    peer.wire.feed(GREETINGS[91] + method_frame(91, 0, start_ok(b"wrong")) * 100)
    assert len(asked) == 1
    assert peer.wire.session.connection.state == phases.CONNECTION_HEADER + 1


def test_a_long_chain_of_auto_delete_exchanges_goes_in_one_go(peer: Peer) -> None:
    count = 3000
    octets = bytearray()
    for number in range(count):
        declare = methods.ExchangeDeclare(
            exchange=f"e{number}", type="fanout", auto_delete=True, no_wait=True
        )
        octets += method_frame(91, 1, declare)
        if number:
            bind = methods.ExchangeBind(source=f"e{number - 1}", destination=f"e{number}", no_wait=True)
            octets += method_frame(91, 1, bind)
    peer.send(bytes(octets))
    host = peer.house.broker.virtual_hosts["/"]
    before = len(host.exchanges)
    answer = peer.ask(1, methods.ExchangeDelete(exchange=f"e{count - 1}"))
    assert isinstance(answer, methods.ExchangeDeleteOk)
    assert len(host.exchanges) == before - count


# The message class of 0-9


def asking(number: int, method: methods.Method) -> bytes:
    head = number.to_bytes(8, "big") + bytes(12)
    return frame(amqp.FRAME_REQUEST, 1, head + methods.encode_method(9, method))


@pytest.fixture
def early(house: House) -> Peer:
    early = Peer(house, 9).login(1)
    early.ask(1, methods.QueueDeclare(queue="q"))
    return early


def test_a_peer_that_answers_no_transfer_is_sent_some_thousands(early: Peer) -> None:
    early.send(asking(1, methods.MessageConsume(queue="q", destination="d", no_ack=True)))
    for _ in range(10):
        early.send(publish(1, "", "q", b"m", version=9) * 1000)
        early.replies()
    [channel] = early.wire.session.connection.all_channels()
    assert channel.requests is not None
    assert len(channel.requests.awaited) == 8192
    assert early.ask(1, methods.QueueDeclare(queue="q", passive=True)).message_count == 10_000 - 8192  # type: ignore[attr-defined]


def test_references_that_are_never_closed_take_so_much_memory(early: Peer) -> None:
    """A reference that lies in memory has the size of a message at the most."""
    early.wire.session.connection.message_bytes_max = 100_000
    octets = bytes(90_000)
    number = 0

    def fill() -> None:
        nonlocal number
        for reference in range(40):
            name = b"%d" % reference
            for method in (
                methods.MessageOpen(reference=name),
                methods.MessageAppend(reference=name, octets=octets),
                methods.MessageAppend(reference=name, octets=octets),
            ):
                number += 1
                early.send(asking(number, method))

    assert peak_bytes(fill) < 16 * 2 * 100_000 + MIB
    assert early.wire.session.connection.state == phases.CONNECTION_OPEN, "the channel alone is closed"


def test_gets_of_a_large_message_do_not_pile_up(early: Peer) -> None:
    early.send(publish(1, "", "q", bytes(MIB), version=9))
    early.wire.takes = False
    number = 0

    def get_and_recover() -> None:
        nonlocal number
        for _ in range(500):
            for method in (methods.MessageGet(queue="q"), methods.MessageRecover(requeue=True)):
                number += 1
                early.send(asking(number, method))

    assert peak_bytes(get_and_recover) < 8 * MIB
    assert early.wire.output.pending() <= OUTPUT_BYTES_STOP + 2 * MIB
