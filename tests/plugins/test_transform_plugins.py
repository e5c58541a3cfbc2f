"""Functions of other packages that change messages: x-transform."""

from __future__ import annotations

from pathlib import Path

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying
from playbook.hourglass import TimedPlaybook
from playbook.paged import PagedPlaybook

from flintmq.broker.exchanges import transform_plugins
from flintmq.broker.exchanges.transform_exchange import TRANSFORMS
from flintmq.wire import methods
from flintmq.wire.methods import BasicGet, BasicPublish, BasicReturn, ChannelClose, ExchangeDeclare

pytestmark = pytest.mark.usefixtures("example")


def declares(
    client: Client, name: str, transform: str, routing: str = "direct", durable: bool = False
) -> None:
    arguments = {"x-transform": transform, "x-routing-type": routing}
    client >> ExchangeDeclare(exchange=name, type="x-transform", durable=durable, arguments=arguments)
    client << methods.ExchangeDeclareOk()


def test_all_that_are_installed_and_right(caplog: pytest.LogCaptureFixture) -> None:
    assert transform_plugins.load(None) == ["grumpy", "shout"]
    assert "'number' is left out: 5 is not a function" in caplog.text
    assert "'absent' cannot be loaded" in caplog.text
    TRANSFORMS.clear()
    assert transform_plugins.load(["shout", "unheard-of"]) == ["shout"]
    assert "'unheard-of' is not installed" in caplog.text


def test_a_message_is_changed_and_then_routed() -> None:
    transform_plugins.load(None)
    playbook = Playbook()
    client = playbook.client()
    declares(client, "loud", "shout", "headers")
    client.declares("q")
    client.binds("q", "loud", loud=True)
    client.publishes("key", b"hear", exchange="loud", app_id="mine", headers={"n": 1})
    client >> BasicGet(queue="q", no_ack=True)
    found = client.next(1)
    assert isinstance(found, Carried)
    assert (found.body, found.properties.headers) == (b"HEAR", {"n": 1, "loud": True})
    assert found.properties.app_id == "mine"
    assert isinstance(found.method, methods.BasicGetOk)
    assert (found.method.exchange, found.method.routing_key) == ("loud", "key")


def test_it_goes_on_to_other_exchanges_and_copies() -> None:
    transform_plugins.load(None)
    playbook = Playbook()
    client = playbook.client()
    declares(client, "loud", "shout")
    for queue in ("near", "far", "blind"):
        client.declares(queue)
    client.binds("near", "loud", "a")
    client.binds("blind", "loud", "b")
    client >> methods.ExchangeBind(source="loud", destination="amq.topic", routing_key="a")
    client << methods.ExchangeBindOk()
    client.binds("far", "amq.topic", "#")
    client.publishes("a", b"hear", exchange="loud", headers={"BCC": ["b"]})
    for queue in ("near", "far", "blind"):
        client >> BasicGet(queue=queue, no_ack=True)
        found = client.next(1)
        assert isinstance(found, Carried)
        assert (found.body, found.properties.headers) == (b"HEAR", {"loud": True})


@pytest.mark.parametrize(
    ("transform", "body"),
    [
        ("shout", b""),
        ("grumpy", b"raise"),
        ("grumpy", b"mode"),
        ("grumpy", b"expiration"),
        ("grumpy", b"large"),
    ],
)
def test_what_is_refused_is_never_passed_on(transform: str, body: bytes) -> None:
    transform_plugins.load(None)
    playbook = Playbook()
    client = playbook.client()
    declares(client, "x", transform, "fanout")
    client.declares("q")
    client.binds("q", "x")
    client >> carrying(BasicPublish(exchange="x", routing_key="k", mandatory=True), body)
    returned = client.next(1)
    assert isinstance(returned, Carried)
    assert isinstance(returned.method, BasicReturn)
    assert (returned.method.reply_text, returned.body) == ("NO_ROUTE", body)
    assert client.gets_all("q") == []


def test_a_confirm_waits_for_the_changed_message(tmp_path: Path) -> None:
    transform_plugins.load(None)
    playbook = PagedPlaybook(tmp_path)
    client = playbook.client()
    declares(client, "loud", "shout", "fanout", durable=True)
    client.declares("q", durable=True)
    client.binds("q", "loud")
    client >> methods.ConfirmSelect()
    client << methods.ConfirmSelectOk()
    client.publishes("k", b"hear", exchange="loud", delivery_mode=2)
    client.hears_nothing()
    assert playbook.broker.store is not None
    playbook.broker.store.journal.commit_now()
    playbook.finish_pass()
    client << methods.BasicAck(delivery_tag=1)
    playbook.restart()
    client = playbook.client()
    client.publishes("k", b"again", exchange="loud")
    assert client.gets_all("q") == [b"HEAR", b"AGAIN"]
    playbook.close()


def test_a_full_queue_refuses_and_an_expiration_holds() -> None:
    transform_plugins.load(None)
    playbook = TimedPlaybook()
    client = playbook.client()
    declares(client, "loud", "shout", "fanout")
    client.declares("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.binds("q", "loud")
    client >> methods.ConfirmSelect()
    client << methods.ConfirmSelectOk()
    client.publishes("k", b"one", b"two", exchange="loud", expiration="100")
    client << methods.BasicAck(delivery_tag=1)
    client << methods.BasicNack(delivery_tag=2)
    playbook.passes(100)
    assert playbook.depth("q") == 0


def test_the_transform_must_be_named_and_known() -> None:
    client = Playbook().client()
    client >> ExchangeDeclare(exchange="x", type="x-transform", arguments={"x-transform": "shout"})
    close = client.hears(ChannelClose)
    assert close.reply_code == 406
    assert "none is installed" in close.reply_text
    transform_plugins.load(None)
    client = Playbook().client()
    client >> ExchangeDeclare(exchange="x", type="x-transform", arguments={"x-transform": "whisper"})
    close = client.hears(ChannelClose)
    assert close.reply_code == 406
    assert "grumpy, shout" in close.reply_text
