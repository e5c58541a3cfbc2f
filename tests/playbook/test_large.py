"""Messages too large for memory: one file each while they are anybody's, and none afterwards."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying, frame

from flintmq.broker.services.browsing import PIECE_BYTES
from flintmq.broker.store.spooling import HELD_BYTES_MAX
from flintmq.clock import Clock
from flintmq.config import Access, Config, RealmSettings, Storage
from flintmq.server.data_directory import open_broker
from flintmq.storage.disk import Disk
from flintmq.wire import amqp, methods
from flintmq.wire.columns import Columns
from flintmq.wire.methods import encode_method
from flintmq.wire.properties import TunnelProperties

LARGE = bytes(range(256)) * 20_000  # 5 MB


@pytest.fixture
def playbook(tmp_path: Path) -> Iterator[Playbook]:
    playbook = Playbook()
    playbook.broker = restarted(tmp_path)
    yield playbook
    playbook.end()
    assert playbook.broker.store is not None
    playbook.broker.store.close()


def restarted(directory: Path, **settings: Any):  # type: ignore[no-untyped-def]
    config = Config()._replace(storage=Storage(directory=directory), **settings)
    return open_broker(config, Clock(), lambda: None)


def synced(playbook: Playbook) -> None:
    assert playbook.broker.store is not None
    playbook.broker.store.end_pass()
    playbook.broker.store.journal.commit_now()


def spools(directory: Path) -> int:
    return len(list(directory.rglob("*.spool")))


def begin_body(client: Client, key: str, octets: int, exchange: str = "", channel: int = 1) -> None:
    """basic.publish, its header, and the first frame of the body."""
    publish = methods.BasicPublish(exchange=exchange, routing_key=key)
    header = amqp.CLASS_BASIC.to_bytes(2, "big") + b"\0\0" + octets.to_bytes(8, "big") + b"\0\0"
    client >> frame(amqp.FRAME_METHOD, channel, encode_method(client.version, publish))
    client >> frame(amqp.FRAME_HEADER, channel, header)


def test_others_have_their_turn_after_each_file(client: Client, tmp_path: Path) -> None:
    """However many bodies get so far in one read: to make a file may take a millisecond."""
    pass_work, connection = client.session.broker.pass_work, client.session.connection
    publish = encode_method(client.version, methods.BasicPublish(routing_key="q"))
    header = amqp.CLASS_BASIC.to_bytes(2, "big") + b"\0\0" + len(LARGE).to_bytes(8, "big") + b"\0\0"
    begun = b""
    for channel in range(2, 8):
        client >> frame(amqp.FRAME_METHOD, channel, encode_method(client.version, methods.ChannelOpen()))
        begun += frame(amqp.FRAME_METHOD, channel, publish) + frame(amqp.FRAME_HEADER, channel, header)
        begun += frame(amqp.FRAME_BODY, channel, LARGE[:HELD_BYTES_MAX])
    assert len(client.heard()) == 6
    client.inbox.clear()
    pass_work.keep_waiting(False)
    pass_work.share(1)
    pass_work.copies = 0
    used = connection.receive(bytearray(begun), len(begun))
    assert used == len(begun) // 6
    assert connection.paused
    assert spools(tmp_path) == 1
    connection.paused = False
    client >> begun[used:]
    assert spools(tmp_path) == 6


def test_a_body_that_is_announced_and_does_not_come_has_no_file(client: Client, tmp_path: Path) -> None:
    """Thousands of them are easily announced. What has come so far is counted as memory."""
    client.declares("q")
    begin_body(client, "q", len(LARGE))
    client >> frame(amqp.FRAME_BODY, 1, LARGE[: HELD_BYTES_MAX - 1])
    assert spools(tmp_path) == 0
    assert client.session.content_bytes() == HELD_BYTES_MAX - 1
    client >> frame(amqp.FRAME_BODY, 1, LARGE[HELD_BYTES_MAX - 1 : HELD_BYTES_MAX])
    assert spools(tmp_path) == 1
    assert client.session.content_bytes() == 0
    for at in range(HELD_BYTES_MAX, len(LARGE), 100_000):
        client >> frame(amqp.FRAME_BODY, 1, LARGE[at : at + 100_000])
    client >> methods.BasicGet(queue="q", no_ack=True)
    assert isinstance(heard := client.next(1), Carried)
    assert heard.body == LARGE


def test_others_have_their_turn_after_some_bodies_that_begin(client: Client) -> None:
    pass_work, connection = client.session.broker.pass_work, client.session.connection
    begun = encode_begun(client, range(2, 42))
    pass_work.keep_waiting(True)
    pass_work.share(1)
    pass_work.copies = 0
    used = connection.receive(bytearray(begun), len(begun))
    assert connection.paused
    assert 4 < used * 40 // len(begun) < 16


def encode_begun(client: Client, channels: range) -> bytes:
    """Publishes of large messages up to their headers, on channels that are opened for them."""
    begun = b""
    for channel in channels:
        client >> frame(amqp.FRAME_METHOD, channel, encode_method(client.version, methods.ChannelOpen()))
        publish = encode_method(client.version, methods.BasicPublish(routing_key="q"))
        header = amqp.CLASS_BASIC.to_bytes(2, "big") + b"\0\0" + len(LARGE).to_bytes(8, "big") + b"\0\0"
        begun += frame(amqp.FRAME_METHOD, channel, publish) + frame(amqp.FRAME_HEADER, channel, header)
    assert len(client.heard()) == len(channels)
    client.inbox.clear()
    return begun


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("mode", [1, 2])
def test_a_full_queue_makes_a_dead_letter_of_a_large_message_and_takes_no_share_of_others(
    playbook: Playbook, client: Client, tmp_path: Path, mode: int, alone: bool
) -> None:
    full = {
        "x-max-length": 0,
        "x-overflow": "reject-publish-dlx",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "morgue",
    }
    client.declares("morgue")
    client.declares("full", durable=True, arguments=full)
    client.binds("full", "amq.fanout")
    others = [] if alone else ["a", "b"]
    for queue in others:
        client.declares(queue, durable=queue == "b")
        client.binds(queue, "amq.fanout")
    client.publishes("", LARGE, exchange="amq.fanout", delivery_mode=mode)
    assert [client.gets(each) for each in ("morgue", *others)] == [LARGE] * (1 + len(others))
    synced(playbook)
    assert playbook.broker.store is not None
    assert not playbook.broker.store.held
    assert spools(tmp_path) == 0


@pytest.mark.parametrize("mode", [1, 2])
def test_three_queues_share_one_file(playbook: Playbook, client: Client, tmp_path: Path, mode: int) -> None:
    for queue in ("a", "b", "c"):
        client.declares(queue, durable=True)
        client.binds(queue, "amq.fanout")
    client.publishes("", LARGE, exchange="amq.fanout", delivery_mode=mode)
    assert spools(tmp_path) == 1
    assert [client.gets(queue) for queue in ("a", "b")] == [LARGE, LARGE]
    synced(playbook)
    assert spools(tmp_path) == 1
    assert client.gets("c") == LARGE
    synced(playbook)
    assert spools(tmp_path) == 0


def test_durable_and_other_queues_let_go_in_either_order(
    playbook: Playbook, client: Client, tmp_path: Path
) -> None:
    client.declares("durable", durable=True)
    client.declares("other")
    for order in (("durable", "other"), ("other", "durable")):
        for queue in order:
            client.binds(queue, "amq.fanout")
        client.publishes("", LARGE, exchange="amq.fanout", delivery_mode=2)
        for queue in order:
            synced(playbook)
            assert spools(tmp_path) == 1
            assert client.gets(queue) == LARGE
        synced(playbook)
        assert spools(tmp_path) == 0


def test_a_delivery_that_goes_unacked_comes_again(playbook: Playbook, client: Client, tmp_path: Path) -> None:
    client.declares("q")
    client.publishes("q", LARGE, b"small")
    client.consumes("q")
    assert client.deliveries() == [("c", 1, LARGE), ("c", 2, b"small")]
    client >> methods.BasicNack(delivery_tag=1, requeue=True)
    first = methods.BasicDeliver(consumer_tag="c", delivery_tag=3, redelivered=True, routing_key="q")
    client << carrying(first, LARGE)
    client >> methods.BasicAck(delivery_tag=0, multiple=True)
    assert spools(tmp_path) == 0


def test_a_message_is_there_after_a_restart(tmp_path: Path) -> None:
    playbook = Playbook()
    playbook.broker = restarted(tmp_path)
    client = playbook.client()
    client.declares("q", durable=True)
    client.publishes("q", b"before", LARGE, b"after", delivery_mode=2, correlation_id="x")
    client.publishes("q", LARGE, delivery_mode=1)
    synced(playbook)
    playbook.broker.store.close()  # type: ignore[union-attr]
    playbook.broker = restarted(tmp_path)
    again = playbook.client()
    assert again.gets_all("q") == [b"before", LARGE, b"after"]
    synced(playbook)
    assert spools(tmp_path) == 0
    playbook.broker.store.close()  # type: ignore[union-attr]


def test_a_purge_and_a_delete_remove_files(playbook: Playbook, client: Client, tmp_path: Path) -> None:
    client.declares("q", durable=True)
    for end in (methods.QueuePurge(queue="q"), methods.QueueDelete(queue="q")):
        client.publishes("q", LARGE, delivery_mode=2)
        client.publishes("q", LARGE)
        assert spools(tmp_path) == 2
        client >> end
        client.next(1)
        synced(playbook)
        assert spools(tmp_path) == 0


def test_what_nobody_takes_leaves_no_file(playbook: Playbook, client: Client, tmp_path: Path) -> None:
    client.publishes("nowhere", LARGE)
    assert spools(tmp_path) == 0
    client >> carrying(methods.BasicPublish(routing_key="nowhere", mandatory=True), LARGE)
    client << carrying(
        methods.BasicReturn(reply_code=312, reply_text="NO_ROUTE", routing_key="nowhere"), LARGE
    )
    assert spools(tmp_path) == 0


def test_a_publish_that_is_refused_is_refused_at_once(
    playbook: Playbook, client: Client, tmp_path: Path
) -> None:
    begin_body(client, "q", 10 * len(LARGE), exchange="missing")
    assert client.hears(methods.ChannelClose).reply_code == 404
    assert spools(tmp_path) == 0
    client >> frame(amqp.FRAME_BODY, 1, b"x" * 1000)


def test_a_body_that_stops_coming_leaves_no_file(playbook: Playbook, client: Client, tmp_path: Path) -> None:
    client.declares("q")
    begin_body(client, "q", len(LARGE))
    client >> frame(amqp.FRAME_BODY, 1, LARGE[:HELD_BYTES_MAX])
    assert spools(tmp_path) == 1
    client >> methods.ConnectionClose(reply_code=200)
    client << methods.ConnectionCloseOk()
    assert spools(tmp_path) == 0


class FullDisk(Disk):
    def write(self, handle: int, at: int, octets: bytes | bytearray | memoryview) -> None:
        if at:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(handle, at, octets)


def test_a_full_disk_costs_the_channel_and_nothing_else(
    playbook: Playbook, client: Client, tmp_path: Path
) -> None:
    client.declares("q", durable=True)
    client.publishes("q", LARGE, delivery_mode=2)
    assert playbook.broker.store is not None
    playbook.broker.store.journal.spools._disk = FullDisk()
    client.publishes("q", LARGE, delivery_mode=2)
    closed = client.hears(methods.ChannelClose)
    assert (closed.reply_code, closed.class_id, closed.method_id) == (506, 60, 40)
    assert "No space left on device" in closed.reply_text
    assert spools(tmp_path) == 1
    other = playbook.client()
    assert other.gets_all("q") == [LARGE]


def test_transactions_hold_files_and_let_them_go(playbook: Playbook, client: Client, tmp_path: Path) -> None:
    client.declares("q", durable=True)
    client >> methods.TxSelect()
    client << methods.TxSelectOk()
    for end, answer, kept in (
        (methods.TxRollback(), methods.TxRollbackOk(), 0),
        (methods.TxCommit(), methods.TxCommitOk(), 2),
    ):
        client.publishes("q", LARGE, LARGE, delivery_mode=2)
        client.publishes("nowhere", LARGE, delivery_mode=2)
        assert spools(tmp_path) == 3
        client >> end
        client << answer
        synced(playbook)
        assert spools(tmp_path) == kept
    assert playbook.client().gets_all("q") == [LARGE, LARGE]


def test_a_reply_of_the_channel_comes_after_the_body(playbook: Playbook, client: Client) -> None:
    client.declares("q")
    client.publishes("q", LARGE)
    with playbook.one_pass():
        client >> methods.BasicGet(queue="q", no_ack=True)
        client >> methods.QueueDeclare(queue="q", passive=True)
    client << carrying(methods.BasicGetOk(delivery_tag=1, routing_key="q"), LARGE)
    client << methods.QueueDeclareOk(queue="q")


def test_without_a_store_large_messages_live_in_memory() -> None:
    playbook = Playbook()
    client = playbook.client()
    client.declares("q")
    client.publishes("q", LARGE)
    assert client.gets("q") == LARGE
    playbook.end()


class LosingDisk(Disk):
    """A sync fails, and what it should have made safe is no longer what was written."""

    def sync(self, handle: int) -> None:
        super().write(handle, 0, b"damaged")
        raise OSError(errno.EIO, "Input/output error")


def test_a_body_that_the_disk_loses_is_refused_and_not_confirmed(playbook: Playbook, client: Client) -> None:
    client.declares("q", durable=True)
    client >> methods.ConfirmSelect()
    client << methods.ConfirmSelectOk()
    assert playbook.broker.store is not None
    playbook.broker.store.journal.spools._disk = LosingDisk()
    with playbook.one_pass():
        client.publishes("q", b"before", LARGE, b"after", b"last", delivery_mode=2)
    synced(playbook)
    client << methods.BasicAck(delivery_tag=1)
    client << methods.BasicNack(delivery_tag=2, requeue=False)
    client << methods.BasicAck(delivery_tag=4, multiple=True)
    assert playbook.client().gets_all("q") == [b"before", b"after", b"last"]


# Deliveries that are called off

EMPTY = frame(amqp.FRAME_BODY, 1, b"")


def sent_part(client: Client) -> bytes:
    """What goes to the client's socket in one turn."""
    output = client.output
    output.fill_from_streams()
    sent = bytes(output.buffer[output.start : output.fill])
    output.sent(output.pending())
    return sent


def sent_rest(client: Client) -> list[bytes]:
    """All that is still to come, as frames."""
    sent = b""
    while client.output.pending() or client.output.streaming:
        sent += sent_part(client)
    frames = []
    while sent:
        size = int.from_bytes(sent[3:7], "big") + 8
        frames.append(sent[:size])
        sent = sent[size:]
    return frames


def begin_delivery(playbook: Playbook, **properties: object) -> Client:
    """A client that has got the beginning of a large message, with the delivery tag 1."""
    client = playbook.client(**properties)
    client.declares("q")
    client.publishes("q", LARGE, b"small")
    client >> methods.BasicConsume(queue="q", consumer_tag="c", no_wait=True)
    part = sent_part(client)
    assert 100_000 < len(part) < 1_000_000
    return client


@pytest.mark.parametrize("requeue", [False, True])
@pytest.mark.parametrize("method", [methods.BasicReject, methods.BasicNack])
def test_the_rest_of_a_rejected_delivery_is_called_off(
    playbook: Playbook, tmp_path: Path, requeue: bool, method: type[methods.BasicReject]
) -> None:
    client = begin_delivery(playbook)
    client >> method(delivery_tag=1, requeue=requeue)
    assert sent_rest(client) == [EMPTY]
    playbook.finish_pass()
    if requeue:
        again = methods.BasicDeliver(consumer_tag="c", delivery_tag=2, redelivered=True, routing_key="q")
        client << carrying(again, LARGE)
    tag = 3 if requeue else 2
    client << carrying(methods.BasicDeliver(consumer_tag="c", delivery_tag=tag, routing_key="q"), b"small")
    client >> methods.BasicAck(delivery_tag=0, multiple=True)
    assert spools(tmp_path) == 0


def test_the_rest_of_what_was_got_is_called_off(playbook: Playbook, client: Client) -> None:
    client.declares("q")
    client.publishes("q", LARGE, LARGE)
    with playbook.one_pass():
        client >> methods.BasicGet(queue="q")
        client >> methods.BasicGet(queue="q")
    sent_part(client)
    with playbook.one_pass():
        client >> methods.BasicReject(delivery_tag=2, requeue=False)
        client >> methods.BasicReject(delivery_tag=1, requeue=False)
    kinds = [(each[0], len(each) - 8) for each in sent_rest(client)]
    assert [kind for kind, _ in kinds] == [3, 1, 2, 3]
    assert (kinds[0][1], kinds[3][1]) == (0, 0)


def test_what_several_are_refused_with_is_not_cut(playbook: Playbook) -> None:
    """The client may not have heard of the delivery."""
    client = begin_delivery(playbook)
    client >> methods.BasicNack(delivery_tag=0, multiple=True, requeue=False)
    frames = sent_rest(client)
    assert EMPTY not in frames
    assert sum(len(each) - 8 for each in frames if each[0] == amqp.FRAME_BODY) > len(LARGE) - 1_000_000


def test_a_transaction_does_not_call_anything_off(playbook: Playbook) -> None:
    client = playbook.client()
    client.declares("q")
    client >> methods.TxSelect()
    client << methods.TxSelectOk()
    client.publishes("q", LARGE)
    client >> methods.TxCommit()
    client << methods.TxCommitOk()
    client >> methods.BasicConsume(queue="q", consumer_tag="c", no_wait=True)
    client >> methods.BasicReject(delivery_tag=1, requeue=False)
    client << carrying(methods.BasicDeliver(consumer_tag="c", delivery_tag=1, routing_key="q"), LARGE)


def test_a_cancel_lets_the_delivery_come_to_its_end(playbook: Playbook) -> None:
    client = begin_delivery(playbook)
    client >> methods.BasicCancel(consumer_tag="c")
    frames = sent_rest(client)
    assert sum(len(each) - 8 for each in frames if each[0] == amqp.FRAME_BODY) > len(LARGE) - 1_000_000
    assert [each[0] for each in frames[-2:]] == [amqp.FRAME_BODY, amqp.FRAME_METHOD]


def test_a_cancel_of_who_knows_interrupts_calls_the_delivery_off(playbook: Playbook) -> None:
    client = begin_delivery(playbook, capabilities={"content.interrupt": True})
    client >> methods.BasicCancel(consumer_tag="c")
    frames = sent_rest(client)
    assert frames[0] == EMPTY
    assert [each[0] for each in frames] == [amqp.FRAME_BODY, amqp.FRAME_METHOD]
    other = playbook.client()
    assert other.gets_all("q") == [LARGE, b"small"]


@pytest.mark.parametrize("product", ["something", ["no", "text"], None])
def test_a_channel_that_is_closed_gets_nothing_more(
    playbook: Playbook, tmp_path: Path, product: object
) -> None:
    client = begin_delivery(playbook, product=product)
    client >> methods.ChannelClose(reply_code=200)
    assert client.output.streaming == 0
    client << methods.ChannelCloseOk()
    client >> methods.ChannelOpen()
    client << methods.ChannelOpenOk()
    assert client.gets_all("q") == [LARGE, b"small"]
    assert spools(tmp_path) == 0


def test_a_client_that_wants_contents_whole_has_them_before_close_ok(playbook: Playbook) -> None:
    client = begin_delivery(playbook, product="py-amqp")
    client >> methods.ChannelClose(reply_code=200)
    frames = sent_rest(client)
    assert sum(len(each) - 8 for each in frames if each[0] == amqp.FRAME_BODY) > len(LARGE) - 1_000_000
    assert frames[-1][0] == amqp.FRAME_METHOD


# Other methods than a plain basic.publish


def test_a_tunnelled_message_goes_to_a_file_too(playbook: Playbook, tmp_path: Path) -> None:
    client = playbook.client(amqp.VERSION_0_9)
    client.declares("q", durable=True)
    tunnel = TunnelProperties(headers={"h": 1}, proxy_name="", data_name="q", durable=1)
    client >> Carried(methods.TunnelRequest(meta_data={"m": 2}), LARGE, tunnel)
    assert spools(tmp_path) == 1
    client >> methods.BasicGet(queue="q", no_ack=True)
    found = client.next(1)
    assert isinstance(found, Carried)
    assert found.body == LARGE
    assert found.properties.headers == {"h": 1, "m": 2}
    client >> Carried(methods.TunnelRequest(), LARGE, TunnelProperties(proxy_name="none"))
    assert client.hears(methods.ChannelClose).reply_code == 404


def test_a_message_that_shows_its_ticket_goes_to_a_file_too(playbook: Playbook, tmp_path: Path) -> None:
    realms = {"/data": RealmSettings(configure="^data", write=".*", read="^data")}
    assert playbook.broker.store is not None
    playbook.broker.store.close()
    playbook.broker = restarted(tmp_path, access=Access(enforced=True, realms=realms))
    client = playbook.client(amqp.VERSION_0_9)
    client >> methods.AccessRequest(realm="/data", active=True, read=True, write=True)
    ticket = client.hears(methods.AccessRequestOk).ticket
    client >> methods.QueueDeclare(ticket=ticket, queue="data", durable=True)
    client.hears(methods.QueueDeclareOk)
    client >> carrying(methods.BasicPublish(ticket=ticket, routing_key="data"), LARGE, delivery_mode=2)
    assert spools(tmp_path) == 1
    client >> methods.BasicGet(ticket=ticket, queue="data", no_ack=True)
    found = client.next(1)
    assert isinstance(found, Carried)
    assert found.body == LARGE
    client >> carrying(methods.BasicPublish(routing_key="data"), LARGE)
    assert client.hears(methods.ChannelClose).reply_code == 403
    synced(playbook)
    assert spools(tmp_path) == 0


# Looked at without being taken


def peeked(client: Client, **arguments: Any) -> list[bytes]:
    """The bodies that queue.peek finds in `q`."""
    asked = methods.BasicPublish(exchange="amq.system", routing_key="queue.peek")
    given = {"queue": "q", **{name.replace("_", "-"): value for name, value in arguments.items()}}
    client >> carrying(asked, headers=given, reply_to="replies")
    client >> methods.BasicGet(queue="replies", no_ack=True)
    found = client.next(1)
    assert isinstance(found, Carried), found
    assert found.properties.headers is not None
    assert "error-code" not in found.properties.headers, found.properties.headers
    return Columns(found.body).values("value")


def test_a_look_at_large_bodies_goes_in_portions(playbook: Playbook, client: Client) -> None:
    """Also where one of them is acked while it is read."""
    client.declares("q", durable=True)
    client.declares("replies")
    client.publishes("q", b"small", LARGE, b"s" * 7, LARGE, delivery_mode=2)
    synced(playbook)
    assert peeked(client, max_bytes=20_000_000) == [b"small", LARGE, b"s" * 7, LARGE]
    assert peeked(client) == [b"small", LARGE, b"s" * 7], "as much as the reply may hold"
    other = playbook.client()
    pass_work = playbook.broker.pass_work
    asked = methods.BasicPublish(exchange="amq.system", routing_key="queue.peek")
    with playbook.one_pass():
        chores = pass_work.chores
        chores.pass_number, chores.credit, chores.credit_s = pass_work.passes, 3, 60.0
        client >> carrying(asked, headers={"queue": "q", "max-bytes": 20_000_000}, reply_to="replies")
        assert client.session.number in pass_work.asking, "it is not done in one go"
        for _ in range(2):
            other >> methods.BasicGet(queue="q", no_ack=True)
            other.next(1)
    client >> methods.BasicGet(queue="replies", no_ack=True)
    found = client.next(1)
    assert isinstance(found, Carried)
    assert Columns(found.body).values("value") == [b"small", LARGE, b"s" * 7, LARGE]


@pytest.mark.parametrize("at", [0, PIECE_BYTES - 3, 3 * PIECE_BYTES - 1, 5_000_000])
def test_a_text_is_found_wherever_it_is_in_a_large_body(client: Client, at: int) -> None:
    body = bytearray(5_100_000)
    body[at : at + 6] = b"needle"
    client.declares("q", durable=True)
    client.declares("replies")
    client.publishes("q", bytes(body), b"hay")
    assert peeked(client, contains="needle") == [bytes(body)]
    assert peeked(client, contains="needles") == []


# Bodies that the disk does not give


def removed(path: Path) -> None:
    path.unlink()


def cut_short(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(100_000)


@pytest.mark.parametrize("harm", [removed, cut_short])
def test_a_body_whose_file_is_not_whole_is_lost_and_the_queue_goes_on(
    playbook: Playbook, tmp_path: Path, harm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = playbook.client()
    client.declares("q", durable=True)
    client.publishes("q", LARGE, b"behind", delivery_mode=2)
    synced(playbook)
    (path,) = tmp_path.glob("*.spool")
    harm(path)
    assert client.gets_all("q") == [b"behind"]
    assert caplog.text.count("octets is lost") == 1
    assert "queue 'q' goes on without" in caplog.text
    client.publishes("q", LARGE, delivery_mode=2)
    assert client.gets_all("q") == [LARGE]


def test_a_body_waits_while_its_directory_is_away(playbook: Playbook, tmp_path: Path) -> None:
    client = playbook.client()
    client.declares("q", durable=True)
    client.publishes("q", LARGE, delivery_mode=2)
    synced(playbook)
    away = tmp_path.with_name("away")
    tmp_path.rename(away)
    client >> methods.BasicGet(queue="q", no_ack=True)
    heard = client.next(1)
    assert isinstance(heard, methods.ChannelClose)
    assert "wait until they can be" in heard.reply_text
    away.rename(tmp_path)
    assert playbook.client().gets_all("q") == [LARGE]
