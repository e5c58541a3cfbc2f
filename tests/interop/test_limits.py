"""Limits of the settings as pika meets them."""

from __future__ import annotations

import re
from pathlib import Path

import pika
import pytest
from broker_process import BrokerProcess

SETTINGS = """
[limits]
queues_per_virtual_host_max = 1
consumers_per_channel_max = 1
"""


def test_one_too_many_is_refused_and_the_others_stay(tmp_path: Path) -> None:
    (tmp_path / "flintmq.toml").write_text(SETTINGS)
    with BrokerProcess("--config", str(tmp_path / "flintmq.toml")) as broker:
        parameters = pika.ConnectionParameters("127.0.0.1", broker.port)
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.queue_declare("one")
        channel.basic_publish("", "one", b"stays")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel.queue_declare("two")
        assert refused.value.reply_code == 406
        assert "queue limit in vhost '/' (1) is reached" in refused.value.reply_text

        channel = connection.channel()
        assert channel.queue_declare("one").method.message_count == 1
        channel.basic_consume("one", lambda *_: None)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            channel.basic_consume("one", lambda *_: None)
        assert closed.value.reply_code == 530
        assert "limits.consumers_per_channel_max" in closed.value.reply_text

        connection = pika.BlockingConnection(parameters)
        assert connection.channel().basic_get("one", auto_ack=True)[2] == b"stays"
        connection.close()


def test_names_reach_the_log_in_one_line(tmp_path: Path) -> None:
    with BrokerProcess("--data", str(tmp_path)) as broker:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            connection.channel().queue_declare("no\v2026-01-01 ERROR such\x1b[2J", passive=True)
        connection.close()
        line = broker.wait_for(re.compile(r".*no queue 'no.*")).group()
    assert line.count("\n") == 0
    assert r"no queue 'no\x0b2026-01-01 ERROR such\x1b[2J'" in line
