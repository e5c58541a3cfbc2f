"""Memory is short: messages go to disk once, however many queues hold them, and come back as they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playbook.dialogue import Client
from playbook.paged import PagedPlaybook

from flintmq.broker.memory_shedding import MemoryShedding
from flintmq.wire import amqp
from flintmq.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicNack,
    ChannelClose,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    TxSelect,
    TxSelectOk,
)

BODIES = [b"%d" % number * 1000 for number in range(10)]
QUEUES = ("a", "b", "c")


@pytest.fixture
def playbook(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path)
    assert playbook.broker.store is not None
    playbook.broker.store.kept_messages = 1000
    playbook.broker.store.kept_messages_lean = 0
    yield playbook
    playbook.end()
    playbook.close()


@pytest.fixture
def client(playbook: PagedPlaybook) -> Client:
    return playbook.client()


def spilled(playbook: PagedPlaybook) -> int:
    """Entries of the overflow."""
    assert playbook.broker.store is not None
    found: int = playbook.broker.store.overflow.journal.index.entries
    return found


def shed(playbook: PagedPlaybook) -> None:
    shedding = MemoryShedding(playbook.broker)
    while shedding.step():
        playbook.finish_pass()


def fan(client: Client, mode: int = 1, durable: tuple[str, ...] = ()) -> None:
    for queue in QUEUES:
        client.declares(queue, durable=queue in durable)
        client.binds(queue, "amq.fanout")
    client.publishes("", *BODIES, exchange="amq.fanout", delivery_mode=mode)


def test_a_message_is_spilled_once_for_all_its_queues(playbook: PagedPlaybook, client: Client) -> None:
    fan(client)
    shed(playbook)
    assert [playbook.queue(queue).tail.count for queue in QUEUES] == [10, 10, 10]
    assert spilled(playbook) == 10
    for queue in QUEUES:
        assert client.gets_all(queue) == BODIES
    assert spilled(playbook) == 0
    assert playbook.broker.store is not None
    assert not playbook.broker.store.shared


def test_queues_that_have_let_go_have_no_share(playbook: PagedPlaybook, client: Client) -> None:
    fan(client)
    assert client.gets_all("a") == BODIES
    assert client.gets("b") == BODIES[0]
    shed(playbook)
    client >> QueuePurge(queue="b")
    client << QueuePurgeOk(message_count=9)
    assert spilled(playbook) == 10
    client >> QueueDelete(queue="c")
    client << QueueDeleteOk(message_count=10)
    assert spilled(playbook) == 0


def test_those_handed_out_keep_their_share(playbook: PagedPlaybook, client: Client) -> None:
    fan(client)
    other = playbook.client()
    other >> BasicConsume(queue="a", consumer_tag="c")
    other << BasicConsumeOk(consumer_tag="c")
    assert other.bodies() == BODIES
    shed(playbook)
    for queue in ("b", "c"):
        assert client.gets_all(queue) == BODIES
    assert spilled(playbook) == 10
    other >> BasicNack(delivery_tag=3, multiple=True, requeue=True)
    assert other.bodies() == BODIES[:3]
    other >> BasicAck(delivery_tag=0, multiple=True)
    assert spilled(playbook) == 0


def test_durable_queues_have_it_in_the_journal_and_others_share_it(
    playbook: PagedPlaybook, client: Client
) -> None:
    fan(client, 2, durable=("a",))
    shed(playbook)
    assert [playbook.queue(queue).tail.count for queue in QUEUES] == [10, 10, 10]
    assert spilled(playbook) == 10
    assert client.gets_all("a") == BODIES
    assert client.gets_all("b") == BODIES
    assert spilled(playbook) == 10
    assert client.gets_all("c") == BODIES
    assert spilled(playbook) == 0
    assert playbook.broker.store is not None
    assert not playbook.broker.store.beside
    assert not playbook.broker.store.beside_of


def test_a_stream_among_them_takes_no_share(playbook: PagedPlaybook, client: Client) -> None:
    assert playbook.broker.store is not None
    playbook.broker.store.kept_messages = 0  # spilled as they come, before the stream has them
    client.declares("a")
    client.declares("log", durable=True, arguments={"x-queue-type": "stream"})
    client.binds("a", "amq.fanout")
    client.binds("log", "amq.fanout")
    client.publishes("", *BODIES, exchange="amq.fanout")
    assert spilled(playbook) == 10
    assert client.gets_all("a") == BODIES
    assert spilled(playbook) == 0


def test_a_step_moves_a_portion(playbook: PagedPlaybook, client: Client) -> None:
    client.declares("q")
    client.publishes("q", *[bytes(300_000)] * 20)
    shedding = MemoryShedding(playbook.broker)
    assert shedding.step()
    assert playbook.queue("q").tail.count == 4, "a MiB and what was begun"
    shed(playbook)
    assert playbook.queue("q").tail.count == 20
    assert len(client.gets_all("q")) == 20


def test_holes_go_along(playbook: PagedPlaybook, client: Client) -> None:
    """What a selective consumer has taken from the middle."""
    client.declares("q")
    for number, body in enumerate(BODIES):
        client.publishes("q", body, headers={"n": number})
    other = playbook.client()
    other >> BasicConsume(queue="q", consumer_tag="c", arguments={"x-selector": "n IN (3, 4, 9)"})
    other << BasicConsumeOk(consumer_tag="c")
    assert len(other.bodies()) == 3
    assert playbook.queue("q").holes == 3
    shed(playbook)
    assert (playbook.queue("q").ready.count, playbook.queue("q").tail.count) == (0, 7)
    other.session.release()
    assert client.gets_all("q") == BODIES


def test_a_consumer_with_much_unacked_waits(playbook: PagedPlaybook, client: Client) -> None:
    pass_work = playbook.broker.pass_work
    pass_work.is_short = True
    pass_work.hoard_bytes_max = 4000
    client.declares("q")
    client.publishes("q", *BODIES)
    other = playbook.client()
    other >> BasicConsume(queue="q", consumer_tag="c")
    other << BasicConsumeOk(consumer_tag="c")
    assert other.bodies() == BODIES[:3]
    other >> BasicAck(delivery_tag=1)
    assert other.bodies() == BODIES[3:4]
    pass_work.is_short = False
    assert not pass_work.wake_hoarders(10)
    playbook.finish_pass()
    assert other.bodies() == BODIES[4:]
    other >> BasicAck(delivery_tag=0, multiple=True)


def test_what_cannot_go_to_disk_is_refused_where_memory_is_critical(
    playbook: PagedPlaybook, client: Client
) -> None:
    client.declares("q")
    playbook.broker.pass_work.is_critical = True
    client >> QueueDeclare(queue="q", passive=True)
    client << QueueDeclareOk(queue="q")
    client >> QueueDeclare(queue="another")
    closed = client.hears(ChannelClose)
    assert (closed.reply_code, closed.class_id, closed.method_id) == (amqp.RESOURCE_ERROR, 50, 10)
    assert closed.reply_text == "RESOURCE_ERROR - memory is short: no queue.declare for now"


def test_a_connection_opens_few_channels_where_memory_is_critical(
    playbook: PagedPlaybook, client: Client
) -> None:
    playbook.broker.pass_work.is_critical = True
    for number in range(2, 9):
        client[number] >> ChannelOpen()
        client[number] << ChannelOpenOk()
    client[9] >> ChannelOpen()
    closed = client.hears(ConnectionClose, 0)
    assert closed.reply_code == amqp.RESOURCE_ERROR


def test_a_transaction_is_small_while_memory_is_short(playbook: PagedPlaybook, client: Client) -> None:
    playbook.broker.pass_work.is_short = True
    client >> TxSelect()
    client << TxSelectOk()
    client.publishes("q", *[bytes(60_000)] * 20)
    assert client.hears(ChannelClose).reply_code == amqp.RESOURCE_ERROR
