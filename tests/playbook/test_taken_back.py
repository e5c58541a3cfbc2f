"""Messages that are refused after an exchange has remembered them: who publishes one again is heard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playbook.branches import end, ended, prepare, prepared, rollback, rolled_back, select, start, started
from playbook.dialogue import Carried, Client, Playbook, carrying
from playbook.hourglass import TimedPlaybook, with_morgue
from playbook.paged import KEPT_MESSAGES, PagedPlaybook
from playbook.test_staging import LARGE, ask, asker, durable, got, refused, stage

from flintmq.broker.exchanges.transform_exchange import TRANSFORMS
from flintmq.broker.streams import stream_arguments
from flintmq.storage.journal.overflow import Overflow
from flintmq.wire import amqp, methods
from flintmq.wire.methods import BasicAck, BasicNack, BasicPublish
from flintmq.wire.properties import BasicProperties

FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}


@pytest.fixture
def playbook() -> Iterator[TimedPlaybook]:
    playbook = TimedPlaybook()
    yield playbook
    playbook.end()


def declare(client: Client, exchange: str, kind: str, **arguments: Any) -> None:
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    client >> methods.ExchangeDeclare(exchange=exchange, type=kind, arguments=given)
    client << methods.ExchangeDeclareOk()


def onward(client: Client, source: str, destination: str) -> None:
    client >> methods.ExchangeBind(destination=destination, source=source)
    client << methods.ExchangeBindOk()


def confirming(playbook: Playbook) -> Client:
    client = playbook.client()
    client >> methods.ConfirmSelect()
    client << methods.ConfirmSelectOk()
    return client


def send(client: Client, exchange: str = "d", body: bytes = b"m", value: str = "1", **how: Any) -> None:
    headers = {"x-deduplication-header": value, **how.pop("headers", {})}
    properties = how.pop("properties", {})
    client >> carrying(BasicPublish(exchange=exchange, **how), body, headers=headers, **properties)


def fate(client: Client) -> str:
    """What the publisher hears of its message."""
    heard = [said for _, said in client.heard()]
    client.inbox.clear()
    kinds = [type(said.method if isinstance(said, Carried) else said) for said in heard]
    names = {BasicAck: "ack", BasicNack: "nack", methods.BasicReturn: "return"}
    return " ".join(names.get(kind, kind.__name__) for kind in kinds)


def sends(client: Client, *given: Any, **how: Any) -> str:
    playbook = client.playbook
    send(client, *given, **how)
    playbook.finish_pass()
    return fate(client)


@pytest.fixture
def client(playbook: TimedPlaybook) -> Client:
    """It has the exchange "d", which drops duplicates."""
    client = confirming(playbook)
    declare(client, "d", "x-message-deduplication", x_cache_size=10)
    return client


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
@pytest.mark.parametrize("headers", [{}, {"CC": ["other"]}])
def test_a_message_that_was_nacked_is_no_duplicate(
    client: Client, headers: dict[str, Any], overflow: str
) -> None:
    client.declares("q", arguments={"x-max-length": 1, "x-overflow": overflow})
    client.binds("q", "d")
    assert sends(client, body=b"first", value="0") == "ack"
    assert sends(client, headers=headers) == "nack"
    assert client.gets_all("q") == [b"first"]
    assert sends(client, headers=headers) == "ack"
    assert sends(client, headers=headers) == "ack"
    assert client.gets_all("q") == [b"m"]


def test_a_message_that_one_of_its_queues_refuses_comes_to_it_later(client: Client) -> None:
    """The other one has it twice, as with any message that is published again."""
    client.declares("full", arguments=FULL)
    client.declares("q")
    client.declares("own", arguments={"x-message-deduplication": True})
    for queue in ("q", "full", "own"):
        client.binds(queue, "d")
    client.publishes("full", b"first")
    fate(client)
    assert sends(client) == "nack"
    assert client.gets_all("full") == [b"first"]
    assert sends(client) == "ack"
    assert (client.gets_all("full"), client.gets_all("q")) == ([b"m"], [b"m", b"m"])
    assert client.gets_all("own") == [b"m"], "a queue that knows what it has has it once"


@pytest.mark.parametrize("how", [{"mandatory": True}, {}, {"immediate": True}])
def test_a_message_that_came_to_no_queue_is_no_duplicate(client: Client, how: dict[str, bool]) -> None:
    if "immediate" in how:
        client.declares("q")
        client.binds("q", "d")
    assert sends(client, **how) == ("return ack" if how else "ack")
    client.declares("q")
    client.binds("q", "d")
    assert sends(client) == "ack"
    assert client.gets_all("q") == [b"m"]


def exchange(playbook: TimedPlaybook, name: str) -> Any:
    return playbook.broker.virtual_hosts["/"].exchanges[name]


def test_a_transaction_that_is_refused_is_not_remembered(playbook: TimedPlaybook, client: Client) -> None:
    client.declares("q")
    client.declares("full", arguments=FULL)
    client.publishes("full", b"first")
    fate(client)
    client.binds("q", "d")
    for refusal in (True, False):
        other = playbook.client()
        other >> methods.TxSelect()
        other << methods.TxSelectOk()
        send(other)
        other.publishes("full" if refusal else "q", b"second")
        other >> methods.TxCommit()
        if refusal:
            other.hears(methods.ChannelClose)
            assert dict(exchange(playbook, "d").cache.entries) == {}
        else:
            other << methods.TxCommitOk()
    assert client.gets_all("q") == [b"m", b"second"]


def test_a_transaction_that_is_rolled_back_is_not_remembered(client: Client, playbook: TimedPlaybook) -> None:
    client.declares("q")
    client.binds("q", "d")
    other = playbook.client()
    other >> methods.TxSelect()
    other << methods.TxSelectOk()
    send(other)
    other >> methods.TxRollback()
    other << methods.TxRollbackOk()
    assert sends(client) == "ack"
    assert client.gets_all("q") == [b"m"]


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_branch_that_is_not_committed_is_not_remembered(
    playbook: TimedPlaybook, client: Client, is_prepared: bool
) -> None:
    client.declares("q")
    client.binds("q", "d")
    other = playbook.client()
    select(other)
    other >> start()
    other << started()
    send(other)
    if is_prepared:
        other >> end()
        other << ended()
        other >> prepare()
        other << prepared()
        other >> rollback()
        other << rolled_back()
    else:
        other >> end(fail=True)
        other << ended(amqp.XA_RBROLLBACK)
    assert sends(client) == "ack"
    assert client.gets_all("q") == [b"m"]


def test_what_is_due_and_refused_is_no_duplicate_when_it_is_tried_again(
    client: Client, playbook: TimedPlaybook
) -> None:
    """It was let go as a duplicate of itself."""
    client.declares("q", arguments=FULL)
    client.binds("q", "d")
    declare(client, "later", "x-delayed-message", x_delayed_type="fanout")
    onward(client, "later", "d")
    client.publishes("q", b"first")
    send(client, "later", headers={"x-delay": 10})
    fate(client)
    playbook.passes(11)
    assert client.gets_all("q") == [b"first"]
    playbook.passes(2000)
    assert client.gets_all("q") == [b"m"]


@pytest.mark.parametrize("is_dead", [False, True])
def test_what_is_due_and_comes_to_no_queue_is_no_duplicate(
    client: Client, playbook: TimedPlaybook, is_dead: bool
) -> None:
    """Neither where there is no queue, nor where a full one makes a dead letter of it."""
    declare(client, "later", "x-delayed-message", x_delayed_type="fanout")
    onward(client, "later", "d")
    if is_dead:
        with_morgue(client, max_length=1, overflow="reject-publish-dlx")
        client.binds("q", "d")
        client.publishes("q", b"first")
    send(client, "later", headers={"x-delay": 10})
    fate(client)
    playbook.passes(11)
    if is_dead:
        assert (client.gets_all("q"), client.gets_all("morgue")) == ([b"first"], [b"m"])
    else:
        client.declares("q")
        client.binds("q", "d")
    assert sends(client) == "ack"
    assert client.gets_all("q") == [b"m"]


def test_a_dead_letter_that_is_delayed_behind_the_exchange_is_remembered(
    client: Client, playbook: TimedPlaybook
) -> None:
    """It came to no queue at once, and its duplicate came too when both were due."""
    declare(client, "later", "x-delayed-message", x_delayed_type="fanout")
    onward(client, "d", "later")
    client.declares("q")
    client.binds("q", "later")
    client.declares("dying", arguments={"x-dead-letter-exchange": "d", "x-message-ttl": 1})
    for _ in range(2):
        send(client, "", routing_key="dying", headers={"x-delay": 1000})
        fate(client)
        playbook.passes(10)
    assert playbook.broker.pass_work.fates.undelivered == 0
    playbook.passes(5000)
    assert client.gets_all("q") == [b"m"]


# x-recent-history


def test_what_was_handed_over_of_the_past_stays_a_duplicate(client: Client, playbook: TimedPlaybook) -> None:
    """The next letter that came to no queue had it forgotten."""
    declare(client, "past", "x-recent-history")
    client.declares("q")
    client.binds("q", "d")
    sends(client, "past")
    onward(client, "past", "d")
    assert client.gets_all("q") == [b"m"]
    client.declares("dying", arguments={"x-dead-letter-exchange": "amq.direct", "x-message-ttl": 1})
    client.publishes("dying", b"letter")
    fate(client)
    playbook.passes(10)
    assert sends(client) == "ack"
    assert client.gets_all("q") == []


@pytest.mark.parametrize("is_full", [False, True])
def test_what_is_handed_over_of_the_past_to_no_queue_is_no_duplicate(client: Client, is_full: bool) -> None:
    declare(client, "past", "x-recent-history")
    sends(client, "past")
    if is_full:
        client.declares("q", arguments=FULL)
        client.binds("q", "d")
        client.publishes("q", b"first")
        fate(client)
    onward(client, "past", "d")
    if is_full:
        assert client.gets_all("q") == [b"first"]
    else:
        client.declares("q")
        client.binds("q", "d")
    assert sends(client) == "ack"
    assert client.gets_all("q") == [b"m"]


def test_a_message_that_was_nacked_is_not_of_the_past(client: Client) -> None:
    declare(client, "past", "x-recent-history")
    client.declares("q", arguments=FULL)
    client.binds("q", "past")
    assert [sends(client, "past", b"%d" % number) for number in range(2)] == ["ack", "nack"]
    client.gets_all("q")
    assert sends(client, "past", b"1") == "ack"
    client.declares("late")
    client.binds("late", "past")
    assert client.gets_all("late") == [b"0", b"1"]


@pytest.mark.parametrize("mandatory", [False, True])
def test_what_no_queue_was_there_for_is_of_the_past(client: Client, mandatory: bool) -> None:
    declare(client, "past", "x-recent-history")
    sends(client, "past", mandatory=mandatory)
    client.declares("late")
    client.binds("late", "past")
    assert client.gets_all("late") == [b"m"]


# x-transform


def marked(properties: BasicProperties, body: bytes) -> tuple[BasicProperties, bytes]:
    return BasicProperties(headers={"x-deduplication-header": body.decode()}), body


@pytest.fixture
def transforming(client: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setitem(TRANSFORMS, "marked", marked)
    declare(client, "t", "x-transform", x_transform="marked")
    return client


def test_what_a_transform_has_made_of_a_nacked_message_is_no_duplicate(transforming: Client) -> None:
    """Neither before the transform, nor behind it, where the message has another value."""
    client = transforming
    declare(client, "behind", "x-message-deduplication", x_cache_size=10)
    onward(client, "d", "t")
    onward(client, "t", "behind")
    client.declares("q", arguments=FULL)
    client.binds("q", "behind")
    assert sends(client, body=b"first", value="0") == "ack"
    assert sends(client) == "nack"
    client.gets_all("q")
    assert sends(client) == "ack"
    assert client.gets_all("q") == [b"m"]


def test_what_a_transform_has_made_is_no_duplicate_where_another_queue_refuses(transforming: Client) -> None:
    client = transforming
    declare(client, "f", "fanout")
    onward(client, "f", "t")
    onward(client, "t", "d")
    client.declares("q")
    client.binds("q", "d")
    client.declares("full", arguments=FULL)
    client.binds("full", "f")
    client.publishes("full", b"first")
    fate(client)
    assert sends(client, "f") == "nack"
    client.gets_all("full")
    assert sends(client, "f") == "ack"
    assert (client.gets_all("full"), client.gets_all("q")) == ([b"m"], [b"m", b"m"])


def test_what_is_delayed_behind_a_transform_is_not_returned(
    transforming: Client, playbook: TimedPlaybook, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = transforming

    def delays(properties: BasicProperties, body: bytes) -> tuple[BasicProperties, bytes]:
        return BasicProperties(headers={"x-delay": 10}), body

    monkeypatch.setitem(TRANSFORMS, "delays", delays)
    declare(client, "slow", "x-transform", x_transform="delays")
    declare(client, "later", "x-delayed-message", x_delayed_type="fanout")
    onward(client, "slow", "later")
    client.declares("q")
    client.binds("q", "later")
    assert sends(client, "slow", mandatory=True) == "ack"
    playbook.passes(11)
    assert client.gets_all("q") == [b"m"]


# With a store


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path / "data", sync="never")
    yield playbook
    playbook.end()
    playbook.close()


def durably(client: Client, queue: str, **arguments: Any) -> None:
    declare(client, "d", "x-message-deduplication", x_cache_size=10)
    durable(client, queue, **arguments)
    client.binds(queue, "d")


def test_a_message_that_is_too_large_for_a_stream_is_no_duplicate(
    stored: PagedPlaybook, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = bytes(5_000_000)
    monkeypatch.setattr(stream_arguments, "MESSAGE_OCTETS_MAX", len(large) - 1)
    client = stored.client()
    durably(client, "s", **{"x-queue-type": "stream"})
    send(client, body=large)
    assert client.hears(methods.ChannelClose).reply_code == amqp.CONTENT_TOO_LARGE
    client >> methods.ChannelCloseOk()
    client = stored.client()
    client >> methods.QueueUnbind(queue="s", exchange="d")
    client << methods.QueueUnbindOk()
    client.declares("q")
    client.binds("q", "d")
    send(client, body=large)
    assert client.gets_all("q") == [large]


def test_a_staged_content_that_no_queue_has_taken_is_no_duplicate(
    stored: PagedPlaybook, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = asker(stored)
    declare(client, "d", "x-message-deduplication", x_cache_size=10)
    stage(client, "one", LARGE)
    publish = {
        "identifier": "one",
        "exchange": "d",
        "routing_key": "",
        "properties": {"headers": {"x-deduplication-header": "1"}},
    }
    first = refused(client, "staging.publish", **publish)
    assert "no queue" in first[1], first
    durable(client, "q", **FULL)
    client.binds("q", "d")
    client.publishes("q", b"first")
    second = refused(client, "staging.publish", **publish)
    assert "full" in second[1], second
    assert got(client, "q").body == b"first"
    ask(client, "staging.publish", **publish)
    assert got(client, "q").body == LARGE


def test_a_dead_letter_that_is_refused_is_no_duplicate(stored: PagedPlaybook) -> None:
    client = stored.client()
    durably(client, "full", **FULL)
    client.declares("dying", arguments={"x-dead-letter-exchange": "d"})
    client.publishes("full", b"first")
    for body in (b"1", b"2"):
        send(client, "", body, routing_key="dying")
        client >> methods.BasicGet(queue="dying")
        found = client.next(1)
        assert isinstance(found, Carried)
        assert isinstance(found.method, methods.BasicGetOk)
        client >> methods.BasicReject(delivery_tag=found.method.delivery_tag)
        stored.finish_pass()
        assert client.gets_all("full") == [b"first" if body == b"1" else b"2"]


def test_a_message_that_its_queue_could_not_take_is_no_duplicate_there(
    stored: PagedPlaybook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue went on to know a value that it did not have, and refused the message for good."""
    client = stored.client()
    client.declares("q", arguments={"x-message-deduplication": True})
    for number in range(KEPT_MESSAGES):
        client.publishes("q", b"%d" % number)

    def broken(*_: Any) -> int:
        raise RuntimeError("no room")

    with monkeypatch.context() as bug:
        bug.setattr(Overflow, "append_entry", broken)
        with pytest.raises(RuntimeError):
            send(client, "", routing_key="q")
    send(client, "", routing_key="q")
    assert client.gets_all("q")[KEPT_MESSAGES:] == [b"m"]


def test_a_duplicate_is_confirmed_with_the_message_that_it_is_like(tmp_path: Path) -> None:
    """It was confirmed at once: if the broker was killed then, what was confirmed was nowhere."""
    playbook = PagedPlaybook(tmp_path / "data", sync="always")
    first, again = confirming(playbook), confirming(playbook)
    durably(first, "q")
    with playbook.one_pass():
        send(first, properties={"delivery_mode": 2})
        send(again, properties={"delivery_mode": 2})
    heard = [(fate(first), fate(again))]
    while "" in heard[-1]:
        assert playbook.broker.store is not None
        playbook.broker.store.collect()
        playbook.finish_pass()
        heard.append((fate(first) or heard[-1][0], fate(again) or heard[-1][1]))
    assert heard[0] == ("", "")
    assert set(heard) == {("", ""), ("ack", "ack")}
    playbook.end()
    playbook.close()
