"""Constraints of queues: consumers, messages in memory, forced persistence, and a pause at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Client, Playbook
from playbook.hourglass import TimedPlaybook
from playbook.paged import PagedPlaybook

from flintmq.broker.messages.composing import composed
from flintmq.broker.queues.queue import Queue
from flintmq.config import Config, QueueTemplate
from flintmq.wire import methods
from flintmq.wire.methods import BasicCancel, BasicCancelOk, BasicConsume, ChannelClose, QueueDeclare
from flintmq.wire.properties import BasicProperties


@pytest.fixture
def paged(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path)
    yield playbook
    playbook.close()


def refused(client: Client, method: Any, code: int) -> str:
    client >> method
    close = client.hears(ChannelClose)
    assert close.reply_code == code, close
    client >> methods.ChannelCloseOk()
    client >> methods.ChannelOpen()
    client << methods.ChannelOpenOk()
    return close.reply_text


def test_a_queue_has_so_many_consumers_and_no_more() -> None:
    playbook = Playbook()
    one, other = playbook.client(), playbook.client()
    one.declares("q", arguments={"x-max-consumers": 2})
    one.consumes("q", "a")
    one.consumes("q", "b")
    assert "2 consumers" in refused(other, BasicConsume(queue="q"), 403)
    one >> BasicCancel(consumer_tag="a")
    one << BasicCancelOk(consumer_tag="a")
    other.consumes("q", "c")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"x-max-consumers": 0}, "x-max-consumers"),
        ({"x-max-in-memory-length": -1}, "x-max-in-memory-length"),
        ({"x-force-persistent": "yes"}, "x-force-persistent"),
        ({"x-force-persistent": True}, "not durable"),
    ],
)
def test_wrong_constraints_are_refused(arguments: Any, name: str) -> None:
    client = Playbook().client()
    assert name in refused(client, QueueDeclare(queue="q", arguments=arguments), 406)


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}])
@pytest.mark.parametrize("memory_max", [0, 2])
def test_messages_overflow_to_disk(paged: PagedPlaybook, arguments: Any, memory_max: int) -> None:
    store = paged.broker.store
    assert store is not None
    store.kept_messages = 1000
    client = paged.client()
    client.declares("q", arguments={**arguments, "x-max-in-memory-length": memory_max})
    for number in range(10):
        client.publishes("q", b"%d" % number, priority=number % 2)
    queue = paged.queue("q")
    assert sum(part.ready.count for part in queue.parts()) == memory_max
    assert queue.message_count() == 10
    first = [b"%d" % number for number in (1, 3, 5, 7, 9, 0, 2, 4, 6, 8)]
    in_order = [b"%d" % number for number in range(10)]
    assert client.gets_all("q") == (first if arguments else in_order)
    client.publishes("q", b"again")
    assert client.gets_all("q") == [b"again"]


def test_a_consumer_that_waits_gets_a_message_before_it_overflows(paged: PagedPlaybook) -> None:
    client, reader = paged.client(), paged.client()
    client.declares("q", arguments={"x-max-in-memory-length": 0})
    reader.consumes("q", no_ack=True)
    assert paged.broker.store is not None
    overflow = paged.broker.store.overflow.journal
    written = overflow.next_sequence
    client.publishes("q", b"1", b"2")
    assert reader.bodies() == [b"1", b"2"]
    assert overflow.next_sequence == written, "nothing went to disk"


def test_transient_messages_survive_where_they_are_forced_to(paged: PagedPlaybook) -> None:
    client = paged.client()
    client.declares("forced", durable=True, arguments={"x-force-persistent": True})
    client.declares("also", durable=True, arguments={"x-force-persistent": True})
    client.declares("ordinary", durable=True)
    client.declares("ruled", durable=True, arguments={"x-max-length": 5})
    for queue in ("forced", "also", "ordinary", "ruled"):
        client.binds(queue, "amq.fanout")
    client.publishes("", b"one", exchange="amq.fanout")
    client.publishes("", b"two", exchange="amq.fanout", delivery_mode=2)
    client.publishes("forced", b"three", delivery_mode=1)
    assert client.gets("also") == b"one"
    paged.restart()
    client = paged.client()
    assert client.gets_all("forced") == [b"one", b"two", b"three"]
    assert client.gets_all("also") == [b"two"]
    assert client.gets_all("ordinary") == client.gets_all("ruled") == [b"two"]


def test_all_queues_have_what_is_forced_to_last_in_one_of_them(paged: PagedPlaybook) -> None:
    client = paged.client()
    client.declares("forced", durable=True, arguments={"x-force-persistent": True})
    for queue in ("ordinary", "passing"):
        client.declares(queue, durable=queue == "ordinary")
    for queue in ("forced", "ordinary", "passing"):
        client.binds(queue, "amq.fanout")
    client.publishes("", b"one", b"two", exchange="amq.fanout")
    for queue in ("ordinary", "passing", "forced"):
        assert client.gets_all(queue) == [b"one", b"two"]


class ComparedQueue(Queue):
    """Counts how often it is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        ComparedQueue.compared += 1
        return self is other

    __hash__ = Queue.__hash__


def test_queues_of_both_kinds_are_told_apart_in_one_go(paged: PagedPlaybook) -> None:
    """Of ten thousand queues each was compared with the half of them, for each message."""
    broker = paged.broker
    queues: list[Queue] = [
        ComparedQueue(f"q{number}", broker.pass_work, False, False, False, {}, 0, broker.store)
        for number in range(8)
    ]
    for number, queue in enumerate(queues):
        queue.need_rules().persists = number % 2 == 1
    ComparedQueue.compared = 0
    router = broker.virtual_hosts["/"].router
    router.enqueue(composed("", "q", BasicProperties(), b"one"), queues, None, True)
    assert [queue.message_count() for queue in queues] == [1] * 8
    assert ComparedQueue.compared == 0


def test_what_is_forced_to_last_is_confirmed_when_it_does(paged: PagedPlaybook) -> None:
    client = paged.client()
    client.declares("forced", durable=True, arguments={"x-force-persistent": True})
    client.declares("ordinary", durable=True)
    for queue in ("forced", "ordinary"):
        client.binds(queue, "amq.fanout")
    client >> methods.ConfirmSelect()
    client << methods.ConfirmSelectOk()
    client.publishes("", b"one", exchange="amq.fanout")
    client.hears_nothing()
    store = paged.broker.store
    assert store is not None
    store.journal.commit_now()
    paged.finish_pass()
    client << methods.BasicAck(delivery_tag=1)


def test_a_client_cannot_loosen_a_template() -> None:
    strict = {"x-max-consumers": 2, "x-max-in-memory-length": 10, "x-force-persistent": True}
    template = QueueTemplate(durable=True, arguments=strict)
    playbook = Playbook(Config()._replace(queue_templates={"strict": template}))
    client = playbook.client()
    looser = {
        "x-template": "strict",
        "x-max-consumers": 5,
        "x-max-in-memory-length": 4,
        "x-force-persistent": False,
    }
    client.declares("q", arguments=looser)
    found = playbook.broker.virtual_hosts["/"].queues["q"].arguments
    assert found == {"x-template": "strict", **strict, "x-max-in-memory-length": 4}
    client.declares("q", arguments=looser)
    refused(client, QueueDeclare(queue="q", arguments={"x-template": "strict", "x-max-consumers": 1}), 406)


def test_an_auto_delete_queue_waits_for_another_consumer() -> None:
    playbook = TimedPlaybook()
    client, first, second = (playbook.client() for _ in range(3))
    client.declares("q", auto_delete=True, arguments={"x-auto-delete-pause": 5000})
    playbook.passes(60_000)  # before there was a consumer there is nothing to wait for
    first.consumes("q")
    first.session.release()
    playbook.passes(4999)
    client.publishes("q", b"meanwhile")
    second.consumes("q", no_ack=True)
    assert second.bodies() == [b"meanwhile"]
    playbook.passes(60_000)
    second >> BasicCancel(consumer_tag="c")
    second << BasicCancelOk(consumer_tag="c")
    playbook.passes(4999)
    client >> QueueDeclare(queue="q", passive=True)
    client.hears(methods.QueueDeclareOk)
    playbook.passes(1)
    refused(client, QueueDeclare(queue="q", passive=True), 404)


def test_a_queue_that_is_deleted_in_its_pause_stays_deleted() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    for _ in range(2):
        client.declares("q", auto_delete=True, arguments={"x-auto-delete-pause": 100})
        client.consumes("q")
        client >> BasicCancel(consumer_tag="c")
        client << BasicCancelOk(consumer_tag="c")
        client >> methods.QueueDelete(queue="q")
        client.hears(methods.QueueDeleteOk)
        playbook.passes(50)
    client.declares("q", auto_delete=True)
    playbook.passes(1000)
    assert playbook.depth("q") == 0


def in_its_pause(playbook: PagedPlaybook, milliseconds: int) -> set[str]:
    """The queues that are there so much later."""
    playbook.passes(milliseconds)
    playbook.broker.timetable.run()
    playbook.finish_pass()
    return set(playbook.broker.virtual_hosts["/"].queues)


def test_a_pause_before_deletion_begins_again_when_the_broker_is_restarted(paged: PagedPlaybook) -> None:
    client = paged.client()
    for name in ("paused", "consumed", "new", "plain"):
        pause = {} if name == "plain" else {"x-auto-delete-pause": 5000}
        client.declares(name, durable=True, auto_delete=True, arguments=pause)
    client.consumes("paused", "a")
    client >> BasicCancel(consumer_tag="a")
    client << BasicCancelOk(consumer_tag="a")
    client.consumes("consumed", "b")
    assert in_its_pause(paged, 4000) == {"paused", "consumed", "new", "plain"}
    paged.restart()
    assert in_its_pause(paged, 4000) == {"paused", "consumed", "new", "plain"}
    reader = paged.client()
    reader.consumes("consumed", "b")
    assert in_its_pause(paged, 1000) == {"consumed", "new", "plain"}
    paged.restart()
    assert in_its_pause(paged, 4999) == {"consumed", "new", "plain"}
    assert in_its_pause(paged, 1) == {"new", "plain"}
    paged.restart()
    assert in_its_pause(paged, 60_000) == {"new", "plain"}
