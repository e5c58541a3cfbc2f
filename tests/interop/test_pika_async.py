"""pika's callback adapters, on asyncio and on select: the same conversation, one event after another."""

import asyncio
from collections.abc import Callable
from typing import Any

import pika
import pytest
from interop_live import Broker
from interop_pika import Name, parameters
from pika.adapters.asyncio_connection import AsyncioConnection

CONVERSATION_S_MAX = 15.0


class Conversation:
    """A connection whose loop runs until the test says done, or until its time is over."""

    def __init__(
        self, adapter: str, broker: Broker, talk: Callable[["Conversation"], None], **login: Any
    ) -> None:
        self.talk = talk
        self.events: list[Any] = []
        self.finished = False
        self.error: object = None
        self.loop = asyncio.new_event_loop() if adapter == "asyncio" else None
        settings = {"on_open_callback": self._opened, "on_open_error_callback": self._failed}
        settings["on_close_callback"] = self._closed
        if self.loop:
            self.connection: Any = AsyncioConnection(
                parameters(broker, **login), custom_ioloop=self.loop, **settings
            )
        else:
            self.connection = pika.SelectConnection(parameters(broker, **login), **settings)

    def _opened(self, connection: Any) -> None:
        connection._adapter_call_later(CONVERSATION_S_MAX, self._expired)
        self.talk(self)

    def _failed(self, _connection: Any, error: object) -> None:
        self.error = error
        self._stop()

    def _closed(self, _connection: Any, reason: object) -> None:
        if not self.finished:
            self.error = reason
        self._stop()

    def _expired(self) -> None:
        self.error = TimeoutError(f"still waiting after {self.events}")
        self._stop()

    def _stop(self) -> None:
        if self.loop:
            self.loop.stop()
        else:
            self.connection.ioloop.stop()

    def done(self) -> None:
        self.finished = True
        self.connection.close()

    def serve(self) -> None:
        if self.loop:
            self.loop.run_forever()
            self.loop.close()
        else:
            self.connection.ioloop.start()

    def run(self) -> list[Any]:
        self.serve()
        assert self.error is None, self.error
        assert self.finished
        return self.events


@pytest.fixture(params=["asyncio", "select"])
def adapter(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_publish_with_confirms_and_consume(adapter: str, broker: Broker, name: Name) -> None:
    confirms: list[int] = []

    def talk(it: Conversation) -> None:
        it.connection.channel(on_open_callback=lambda channel: opened(it, channel))

    def opened(it: Conversation, channel: Any) -> None:
        channel.confirm_delivery(lambda frame: confirms.append(frame.method.delivery_tag))
        channel.exchange_declare(name("exchange"), "topic")
        channel.queue_declare(name("queue"), callback=lambda _: bind(it, channel))

    def bind(it: Conversation, channel: Any) -> None:
        channel.queue_bind(name("queue"), name("exchange"), "a.#", callback=lambda _: consume(it, channel))

    def consume(it: Conversation, channel: Any) -> None:
        channel.basic_qos(prefetch_count=2, callback=lambda _: start(it, channel))

    def start(it: Conversation, channel: Any) -> None:
        channel.basic_consume(name("queue"), lambda *parts: deliver(it, *parts))
        for number in range(10):
            channel.basic_publish(name("exchange"), f"a.{number}", b"%d" % number)

    def deliver(it: Conversation, channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        it.events.append((method.routing_key, body))
        channel.basic_ack(method.delivery_tag)
        finish_when_ready(it)

    def finish_when_ready(it: Conversation) -> None:
        if len(it.events) < 10:
            return
        if max(confirms, default=0) == 10:
            it.done()
        else:
            it.connection._adapter_call_later(0.02, lambda: finish_when_ready(it))

    events = Conversation(adapter, broker, talk).run()
    assert events == [(f"a.{number}", b"%d" % number) for number in range(10)]


def test_returned_message(adapter: str, broker: Broker, name: Name) -> None:
    def talk(it: Conversation) -> None:
        it.connection.channel(on_open_callback=lambda channel: opened(it, channel))

    def opened(it: Conversation, channel: Any) -> None:
        channel.add_on_return_callback(lambda *parts: returned(it, *parts))
        channel.basic_publish("", name("nowhere"), b"back", mandatory=True)

    def returned(it: Conversation, _channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        it.events.append((method.reply_code, body))
        it.done()

    assert Conversation(adapter, broker, talk).run() == [(312, b"back")]


def test_channel_error_and_a_new_channel(adapter: str, broker: Broker, name: Name) -> None:
    def talk(it: Conversation) -> None:
        it.connection.channel(on_open_callback=lambda channel: opened(it, channel))

    def opened(it: Conversation, channel: Any) -> None:
        channel.add_on_close_callback(lambda _, reason: closed(it, reason))
        channel.queue_declare(name("nothing"), passive=True)

    def closed(it: Conversation, reason: Any) -> None:
        it.events.append(reason.reply_code)
        it.connection.channel(on_open_callback=lambda channel: again(it, channel))

    def again(it: Conversation, channel: Any) -> None:
        channel.queue_declare("", exclusive=True, callback=lambda frame: declared(it, frame))

    def declared(it: Conversation, frame: Any) -> None:
        it.events.append(bool(frame.method.queue))
        it.done()

    assert Conversation(adapter, broker, talk).run() == [404, True]


def test_consumer_is_told_when_its_queue_is_deleted(adapter: str, broker: Broker, name: Name) -> None:
    def talk(it: Conversation) -> None:
        it.connection.channel(on_open_callback=lambda channel: opened(it, channel))

    def opened(it: Conversation, channel: Any) -> None:
        channel.add_on_cancel_callback(lambda frame: cancelled(it, frame))
        channel.queue_declare(name("queue"), callback=lambda _: consume(it, channel))

    def consume(it: Conversation, channel: Any) -> None:
        channel.basic_consume(
            name("queue"), lambda *_: None, consumer_tag="me", callback=lambda _: delete(it)
        )

    def delete(it: Conversation) -> None:
        it.connection.channel(on_open_callback=lambda other: other.queue_delete(name("queue")))

    def cancelled(it: Conversation, frame: Any) -> None:
        it.events.append(frame.method.consumer_tag)
        it.done()

    assert Conversation(adapter, broker, talk).run() == ["me"]


def test_channels_opened_all_at_once(adapter: str, broker: Broker, name: Name) -> None:
    def talk(it: Conversation) -> None:
        for number in range(20):
            it.connection.channel(on_open_callback=lambda channel, n=number: opened(it, channel, n))

    def opened(it: Conversation, channel: Any, number: int) -> None:
        channel.queue_declare(
            name(str(number)), exclusive=True, callback=lambda frame: declared(it, frame.method.queue)
        )

    def declared(it: Conversation, queue: str) -> None:
        it.events.append(queue)
        if len(it.events) == 20:
            it.done()

    events = Conversation(adapter, broker, talk).run()
    assert sorted(events) == sorted(name(str(number)) for number in range(20))


def test_wrong_password(adapter: str, broker: Broker) -> None:
    wrong = pika.PlainCredentials("guest", "wrong")
    it = Conversation(adapter, broker, Conversation.done, credentials=wrong)
    it.serve()
    assert not it.finished
    assert "403" in repr(it.error)
