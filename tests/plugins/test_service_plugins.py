"""Services of other packages: found by their entry points, and harmless when they are broken."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying

from flintmq.broker.services import service_plugins
from flintmq.config import parse
from flintmq.wire.methods import BasicPublish

pytestmark = pytest.mark.usefixtures("example")
ADDED = ["example.count", "example.fail", "example.greet"]


def ask(client: Client, name: str, body: bytes = b"", /, **arguments: Any) -> Any:
    asked = BasicPublish(exchange="amq.system", routing_key=name)
    client >> carrying(asked, body, headers=arguments, reply_to="amq.rabbitmq.reply-to")
    heard = client.next(1)
    assert isinstance(heard, Carried), heard
    assert heard.properties.headers is not None
    return heard


def test_all_that_are_installed_and_right(caplog: pytest.LogCaptureFixture) -> None:
    assert service_plugins.load(None) == ADDED
    told = {record.args[1]: record.getMessage() for record in caplog.records if record.levelname == "ERROR"}  # type: ignore[index]
    assert told.keys() == {"example.wrong", "example.number", "example.absent", "broker.info", "nodots"}
    assert "no signature" in told["example.wrong"]
    assert "5 is not a function" in told["example.number"]
    assert "no_such_function" in told["example.absent"]
    assert "'broker.info' already" in told["broker.info"]
    assert "dots" in told["nodots"]
    assert service_plugins.load(None) == ADDED, "again, as a second broker in a process would"


def test_only_those_that_are_wanted(caplog: pytest.LogCaptureFixture) -> None:
    settings = parse('[plugins]\nservices = ["example.greet", "example.unheard-of"]\n')
    assert service_plugins.load(settings.plugins.services) == ["example.greet"]
    assert "'example.unheard-of' is not installed" in caplog.text
    assert service_plugins.load([]) == []


def test_they_are_asked_like_others() -> None:
    service_plugins.load(None)
    playbook = Playbook()
    client = playbook.client()
    client.consumes("amq.rabbitmq.reply-to", "replies", no_ack=True)
    greeted = ask(client, "example.greet", b"bulk", name="ann")
    assert (greeted.properties.headers, greeted.body) == ({"greeting": "hello ann, says guest"}, b"bulk")
    assert ask(client, "example.greet", name="ann", loud=True).properties.headers == {
        "greeting": "HELLO ANN, SAYS GUEST"
    }
    assert ask(client, "example.greet", name="").properties.headers["error-code"] == 406
    assert "did you mean 'name'?" in ask(client, "example.greet", nam="x").properties.headers["error-text"]
    for queue in ("a", "b"):
        client.declares(queue)
    assert ask(client, "example.count").properties.headers == {"queues": 3}, "and that of the answers"
    assert ask(client, "example.fail").properties.headers["error-code"] == 541
    listed = ask(client, "broker.services", after="example.f").properties.headers["rows"]
    assert listed[0]["name"] == "example.fail"
