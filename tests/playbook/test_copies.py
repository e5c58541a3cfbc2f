"""CC and BCC: further routing keys in the headers of a message."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Carried, Client, carrying

from flintmq.wire import methods
from flintmq.wire.methods import BasicPublish, ChannelClose


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
