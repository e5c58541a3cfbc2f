"""CC and BCC: further routing keys in the headers of a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playbook.branches import commit, end, ended, prepare, prepared, select, start, started
from playbook.dialogue import Carried, Client, Playbook, carrying
from playbook.hourglass import TimedPlaybook

from flintmq.broker.exchanges import router
from flintmq.broker.exchanges.transform_exchange import TRANSFORMS
from flintmq.wire import methods
from flintmq.wire.methods import BasicPublish, ChannelClose
from flintmq.wire.properties import BasicProperties


def send(client: Client, key: str, exchange: str = "", mandatory: bool = False, **headers: Any) -> None:
    method = BasicPublish(exchange=exchange, routing_key=key, mandatory=mandatory)
    client >> carrying(method, b"body", headers=headers, content_type="text/x", message_id="m")


def got(client: Client, queue: str) -> Carried:
    client >> methods.BasicGet(queue=queue, no_ack=True)
    found = client.next(1)
    assert isinstance(found, Carried), found
    return found


def test_each_key_is_followed(client: Client) -> None:
    for queue in ("to", "cc", "bcc"):
        client.declares(queue)
    send(client, "to", CC=["cc", "nowhere"], BCC=["bcc"], kept=1)
    for queue in ("to", "cc", "bcc"):
        found = got(client, queue)
        assert isinstance(found.method, methods.BasicGetOk)
        assert found.method.routing_key == "to"
        assert found.properties.headers == {"CC": ["cc", "nowhere"], "kept": 1}
        assert (found.properties.content_type, found.properties.message_id, found.body) == (
            "text/x",
            "m",
            b"body",
        )


def test_a_queue_gets_it_once(client: Client) -> None:
    client.declares("q")
    client.binds("q", "amq.topic", "a.*")
    client.binds("q", "amq.topic", "b.*")
    send(client, "a.1", "amq.topic", CC=["b.1"], BCC=["a.2"])
    assert client.gets_all("q") == [b"body"]


def test_one_key_of_several_is_enough_for_mandatory(client: Client) -> None:
    client.declares("cc")
    send(client, "nowhere", mandatory=True, CC=["cc"])
    assert client.gets_all("cc") == [b"body"]
    send(client, "nowhere", mandatory=True, BCC=["nowhere either"])
    returned = client.next(1)
    assert isinstance(returned, Carried)
    assert isinstance(returned.method, methods.BasicReturn)


def test_in_a_transaction(client: Client) -> None:
    client.declares("cc")
    client >> methods.TxSelect()
    client << methods.TxSelectOk()
    send(client, "nowhere", BCC=["cc"])
    assert client.gets_all("cc") == []
    client >> methods.TxCommit()
    client << methods.TxCommitOk()
    assert client.gets_all("cc") == [b"body"]


def test_with_confirms(client: Client) -> None:
    client.declares("cc")
    client >> methods.ConfirmSelect()
    client << methods.ConfirmSelectOk()
    send(client, "nowhere", CC=["cc"])
    client << methods.BasicAck(delivery_tag=1)


@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize("value", ["text", 1, None, {"a": "table"}, ["x"] * 1001])
def test_wrong_types_are_refused(client: Client, name: str, value: Any) -> None:
    send(client, "q", **{name: value})
    refused = client.hears(ChannelClose)
    assert (refused.reply_code, refused.class_id, refused.method_id) == (406, 60, 40)
    assert name in refused.reply_text


def test_octets_that_only_look_like_it(client: Client) -> None:
    client.declares("q")
    headers = {"x-note": "\x02CC \x03BCC", "ACC": "CC", "CCB": 1}
    send(client, "q", **headers)
    assert got(client, "q").properties.headers == headers


MANY_KEYS = [f"k{number}" for number in range(50)]


def refusal(client: Client) -> str:
    closed = client.hears(ChannelClose)
    assert (closed.reply_code, closed.class_id) == (506, 60)
    return closed.reply_text


def declare(client: Client, exchange: str, kind: str, **arguments: Any) -> None:
    client >> methods.ExchangeDeclare(exchange=exchange, type=kind, arguments=arguments)
    client << methods.ExchangeDeclareOk()


def many_exchanges(client: Client) -> None:
    """From "x0" through each of the others to "q"."""
    client.declares("q")
    declare(client, "x0", "fanout")
    client.binds("q", "x0", "")
    for number in range(1, 50):
        declare(client, f"x{number}", "fanout")
        client >> methods.ExchangeBind(destination=f"x{number}", source="x0")
        client << methods.ExchangeBindOk()
        client.binds("q", f"x{number}", "")


@pytest.fixture
def timed() -> Iterator[TimedPlaybook]:
    playbook = TimedPlaybook()
    yield playbook
    playbook.end()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A router that gives up early."""
    be_hasty(monkeypatch)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("kind", ["direct", "topic", "x-consistent-hash", "x-selector"])
def test_many_keys_that_take_too_long_are_refused(playbook: Playbook, kind: str) -> None:
    """A thousand keys of a hundred thousand queues each kept everybody waiting for seconds."""
    client = playbook.client()
    client.declares("q")
    client >> methods.ExchangeDeclare(exchange="x", type=kind)
    client << methods.ExchangeDeclareOk()
    arguments = {"x-selector": "TRUE"} if kind == "x-selector" else {}
    client >> methods.QueueBind(queue="q", exchange="x", routing_key="1", arguments=arguments)
    client << methods.QueueBindOk()
    send(client, "1", "x", CC=MANY_KEYS)
    text = refusal(client)
    assert "a message with 51 routing keys takes too long: given up at exchange 'x'" in text
    client = playbook.client()
    assert client.gets_all("q") == []
    send(client, "1", "x", CC=MANY_KEYS[:5])
    assert client.gets_all("q") == [b"body"]


@pytest.mark.usefixtures("hasty")
def test_many_exchanges_that_take_too_long_are_refused(playbook: Playbook) -> None:
    client = playbook.client()
    many_exchanges(client)
    send(client, "", "x0")
    assert "given up at exchange 'x" in refusal(client)
    client = playbook.client()
    send(client, "", "x9")
    assert client.gets_all("q") == [b"body"]


@pytest.mark.usefixtures("hasty")
def test_many_filters_that_take_too_long_are_refused(playbook: Playbook) -> None:
    client = playbook.client()
    client.declares("q")
    client.binds("q", "amq.fanout", "")
    for number in range(2):
        client >> methods.ExchangeDeclare(exchange=f"x{number}", type="topic")
        client << methods.ExchangeDeclareOk()
        via = {"x-via": "amq.fanout"}
        client >> methods.QueueBind(queue="q", exchange=f"x{number}", routing_key="#", arguments=via)
        client << methods.QueueBindOk()
    send(client, "a", "amq.fanout", CC=MANY_KEYS)
    assert "given up at exchange 'x" in refusal(client)
    client = playbook.client()
    send(client, "a", "amq.fanout", CC=["b"])
    assert client.gets_all("q") == [b"body"]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("messages", [3, 2000])
def test_a_transaction_that_takes_too_long_is_refused_as_a_whole(playbook: Playbook, messages: int) -> None:
    client = playbook.client()
    client.declares("q")
    client.binds("q", "amq.topic", "#")
    client >> methods.TxSelect()
    client << methods.TxSelectOk()
    for _ in range(messages):
        send(client, "1", "amq.topic")
    send(client, "1", "amq.topic", CC=MANY_KEYS)
    client >> methods.TxCommit()
    assert "51 routing keys takes too long" in refusal(client)
    assert playbook.client().gets_all("q") == []


def be_hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "ROUTING_COPIES_MAX", 10 * router.EXCHANGE_COPIES)


def rejects(client: Client, queue: str) -> None:
    """The next message becomes a dead letter."""
    client >> methods.BasicGet(queue=queue)
    found = client.next(1)
    assert isinstance(found, Carried)
    assert isinstance(found.method, methods.BasicGetOk)
    client >> methods.BasicReject(delivery_tag=found.method.delivery_tag, requeue=False)


def test_a_dead_letter_that_takes_too_long_goes_to_what_was_found(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for queue, key in (("morgue", "#"), ("late", MANY_KEYS[-1])):
        client.declares(queue)
        client.binds(queue, "amq.topic", key)
    client.declares("q", arguments={"x-dead-letter-exchange": "amq.topic"})
    send(client, "q", CC=MANY_KEYS)
    be_hasty(monkeypatch)
    rejects(client, "q")
    assert (client.gets_all("morgue"), client.gets_all("late")) == ([b"body"], [])
    assert "was accepted, and goes to those of its queues that were found" in caplog.text
    assert "51 routing keys takes too long" in caplog.text


def test_a_delayed_message_that_takes_too_long_goes_to_what_was_found(
    timed: TimedPlaybook, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = timed.client()
    client.declares("q")
    declare(client, "later", "x-delayed-message", **{"x-delayed-type": "topic"})
    client.binds("q", "later", "#")
    send(client, "a", "later", CC=MANY_KEYS, **{"x-delay": 1000})
    be_hasty(monkeypatch)
    timed.passes(1001)
    timed.finish_pass()
    assert client.gets_all("q") == [b"body"]


def test_a_dead_letter_goes_to_no_queue_that_a_chain_may_keep_it_from(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chain is given up as well."""
    client.declares("open")
    client.declares("kept")
    declare(client, "first", "fanout")
    client.binds("open", "first", "")
    client >> methods.ExchangeBind(destination="amq.fanout", source="first")
    client << methods.ExchangeBindOk()
    client.binds("kept", "amq.fanout", "")
    client.binds("kept", "amq.topic", "never", **{"x-via": "amq.fanout"})
    client.declares("q", arguments={"x-dead-letter-exchange": "first"})
    send(client, "q", CC=MANY_KEYS)
    be_hasty(monkeypatch)
    rejects(client, "q")
    assert (client.gets_all("open"), client.gets_all("kept")) == ([b"body"], [])


def test_a_dead_letter_that_passes_many_exchanges_goes_to_what_was_found(
    playbook: Playbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its one key leads to them, so that no message of it is needed to find the way."""
    client = playbook.client()
    many_exchanges(client)
    client.declares("dying", arguments={"x-dead-letter-exchange": "x0"})
    send(client, "dying")
    be_hasty(monkeypatch)
    rejects(client, "dying")
    assert client.gets_all("q") == [b"body"]
    for _ in range(2):  # the way is kept after the first one
        send(client, "", "x0")
        assert "given up at exchange 'x" in refusal(client)
        client = playbook.client()
    assert client.gets_all("q") == []


def test_a_branch_that_is_prepared_goes_to_what_was_found(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exchanges came after the branch was prepared: the commit was refused again and again."""
    client.declares("q")
    declare(client, "x0", "fanout")
    select(client)
    client >> start()
    client << started()
    send(client, "q")
    send(client, "", "x0")
    client >> end()
    client << ended()
    client >> prepare()
    client << prepared()
    many_exchanges(client)
    be_hasty(monkeypatch)
    client >> commit()
    client.hears(methods.DtxCoordinationCommitOk)
    assert client.gets_all("q") == [b"body", b"body"]


@pytest.mark.usefixtures("hasty")
def test_a_transaction_is_done_as_a_whole_whatever_transforms_its_messages(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a transform makes of a message is known when others are in their queues."""

    def with_keys(properties: BasicProperties, body: bytes) -> tuple[BasicProperties, bytes]:
        return BasicProperties(headers={"CC": list(MANY_KEYS)}), body

    monkeypatch.setitem(TRANSFORMS, "with_keys", with_keys)
    client.declares("q")
    declare(client, "x", "x-transform", **{"x-transform": "with_keys", "x-routing-type": "topic"})
    client.binds("q", "x", "#")
    client >> methods.TxSelect()
    client << methods.TxSelectOk()
    client.publishes("q", b"first")
    client.publishes("a", b"second", exchange="x")
    client.publishes("q", b"third")
    client >> methods.TxCommit()
    client << methods.TxCommitOk()
    assert client.gets_all("q") == [b"first", b"second", b"third"]


@pytest.mark.usefixtures("hasty")
def test_an_exchange_does_not_remember_what_is_refused(playbook: Playbook) -> None:
    """Published again it was a duplicate: confirmed, and nowhere."""
    client = playbook.client()
    client.declares("q")
    settings = {"x-cache-size": 10, "x-routing-type": "topic"}
    declare(client, "d", "x-message-deduplication", **settings)
    client.binds("q", "d", "#")
    send(client, "a", "d", CC=MANY_KEYS, **{"x-deduplication-header": "1"})
    refusal(client)
    client = playbook.client()
    for _ in range(2):
        send(client, "a", "d", CC=MANY_KEYS[:2], **{"x-deduplication-header": "1"})
    assert client.gets_all("q") == [b"body"]


def test_a_transaction_with_many_keys_that_lead_nowhere_is_done_in_portions(timed: TimedPlaybook) -> None:
    """Reading the keys takes its time."""
    client = timed.client()
    declare(client, "x", "fanout")
    client >> methods.TxSelect()
    client << methods.TxSelectOk()
    keys = [f"k{number}" for number in range(1000)]
    for _ in range(40):
        send(client, "a", "x", CC=keys)
    client >> methods.TxCommit()
    client.hears_nothing()
    timed.passes(1)
    client << methods.TxCommitOk()


@pytest.mark.usefixtures("hasty")
def test_a_branch_does_not_take_a_message_that_takes_too_long(client: Client) -> None:
    client.declares("q")
    client.binds("q", "amq.topic", "#")
    select(client)
    client >> start()
    client << started()
    send(client, "1", "amq.topic", CC=MANY_KEYS)
    assert "51 routing keys takes too long" in refusal(client)


@pytest.mark.usefixtures("hasty")
def test_what_takes_too_long_is_refused_outside_of_a_branch_too(playbook: Playbook) -> None:
    client = playbook.client()
    client.declares("q")
    client.binds("q", "amq.topic", "#")
    select(client)
    send(client, "1", "amq.topic", CC=MANY_KEYS)
    assert "51 routing keys takes too long" in refusal(client)
    assert playbook.client().gets_all("q") == []
