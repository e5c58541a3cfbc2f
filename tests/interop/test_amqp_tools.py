"""Debian's amqp-tools, written in C on librabbitmq: every command as a process of its own."""

import subprocess
from collections.abc import Callable
from typing import Any

import pika
import pytest
from interop_live import CLIENT_S_MAX, Broker, require_program, run_client
from interop_pika import await_depth, bodies, publish

Name = Callable[[str], str]
Tool = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def tool(broker: Broker) -> Tool:
    def run(command: str, *arguments: str, **settings: Any) -> subprocess.CompletedProcess[bytes]:
        program = require_program(command, "apt-get install amqp-tools")
        return run_client([program, "--url", broker.url.rstrip("/"), *arguments], **settings)

    return run


def test_declare_publish_get_delete(tool: Tool, channel: Any, name: Name) -> None:
    declared = tool("amqp-declare-queue", "--queue", name("queue"))
    assert declared.stdout.decode().strip() == name("queue")
    tool("amqp-publish", "--routing-key", name("queue"), "--body", "hello from C")
    await_depth(channel, name("queue"), 1)
    assert tool("amqp-get", "--queue", name("queue")).stdout == b"hello from C"
    assert tool("amqp-get", "--queue", name("queue"), status=2).stdout == b"", "2 says that it is empty"
    publish(channel, name("queue"), b"1", b"2", b"3")
    assert tool("amqp-delete-queue", "--queue", name("queue")).stdout.strip() == b"3"


def test_server_named_queue(tool: Tool) -> None:
    assert tool("amqp-declare-queue", "--queue", "").stdout.strip()


def test_publish_takes_its_body_from_stdin_and_its_properties(tool: Tool, channel: Any, name: Name) -> None:
    channel.queue_declare(name("queue"))
    body = bytes(range(256)) * 2000
    tool(
        *("amqp-publish", "--routing-key", name("queue"), "--persistent", "--content-type", "image/x"),
        *("--content-encoding", "gzip", "--reply-to", "me", "--header", "colour: red"),
        stdin=body,
    )
    _, properties, back = channel.basic_get(name("queue"), auto_ack=True)
    assert back == body
    assert (properties.content_type, properties.content_encoding) == ("image/x", "gzip")
    assert (properties.delivery_mode, properties.reply_to) == (2, "me")
    assert {key.strip(): value.strip() for key, value in properties.headers.items()} == {"colour": "red"}


def test_publish_each_line(tool: Tool, channel: Any, name: Name) -> None:
    channel.queue_declare(name("queue"))
    tool("amqp-publish", "--routing-key", name("queue"), "--line-buffered", stdin=b"one\ntwo\nthree\n")
    assert [body.strip() for body in bodies(channel, name("queue"))] == [b"one", b"two", b"three"]


def test_consume_hands_each_message_to_a_program(tool: Tool, channel: Any, name: Name) -> None:
    channel.queue_declare(name("queue"))
    publish(channel, name("queue"), b"first\n", b"second\n", b"left\n")
    done = tool("amqp-consume", "--queue", name("queue"), "--count", "2", "--prefetch-count", "1", "cat")
    assert done.stdout.endswith(b"first\nsecond\n")
    assert bodies(channel, name("queue")) == [b"left\n"]


def test_consume_binds_a_queue_of_its_own(broker: Broker, channel: Any, name: Name) -> None:
    channel.exchange_declare(name("exchange"), "topic")
    program = require_program("amqp-consume", "apt-get install amqp-tools")
    command = [program, "--url", broker.url.rstrip("/"), "--exchange", name("exchange")]
    command += ["--routing-key", "log.#", "--count", "1", "cat"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as consumer:
        returned = [True]
        channel.confirm_delivery()
        while returned:  # until its binding is there
            try:
                channel.basic_publish(name("exchange"), "log.disk", b"full\n", mandatory=True)
                returned.clear()
            except pika.exceptions.UnroutableError:
                channel.connection.process_data_events(0.05)
        out, error = consumer.communicate(timeout=CLIENT_S_MAX)
    assert consumer.returncode == 0, error.decode()
    assert out.endswith(b"full\n")


def test_get_from_nothing_fails_with_the_reason(tool: Tool, name: Name) -> None:
    failed = tool("amqp-get", "--queue", name("nothing"), status=1)
    assert b"404" in failed.stderr
    assert name("nothing").encode() in failed.stderr


def test_wrong_password_fails_with_the_reason(broker: Broker, name: Name) -> None:
    program = require_program("amqp-get", "apt-get install amqp-tools")
    url = broker.url.replace("guest:guest", "guest:wrong").rstrip("/")
    assert b"403" in run_client([program, "--url", url, "--queue", name("queue")], status=1).stderr


def test_heartbeats_while_consuming(broker: Broker, channel: Any, name: Name) -> None:
    """amqp-tools have short heartbeats with --heartbeat: an idle consumer is kept and then served."""
    program = require_program("amqp-consume", "apt-get install amqp-tools")
    channel.queue_declare(name("queue"))
    command = [program, "--url", broker.url.rstrip("/"), "--heartbeat", "1"]
    command += ["--queue", name("queue"), "--count", "1", "cat"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as consumer:
        channel.connection.process_data_events(3.5)
        publish(channel, name("queue"), b"still here")
        out, error = consumer.communicate(timeout=CLIENT_S_MAX)
    assert consumer.returncode == 0, error.decode()
    assert out.endswith(b"still here")
