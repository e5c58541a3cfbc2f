"""Speaks AMQP 0-9 with txAMQP on Twisted: txamqp_0_9.py HOST:PORT SCENARIO PREFIX

txAMQP brings no description of the protocol with it, so the table below is written out for it:
`class id`, then `method id [content] [> answers] [| argument:type ...]`.
A scenario ends well or raises; the exit status says which.
"""

import sys
import tempfile
import traceback
from typing import Any
from xml.sax.saxutils import quoteattr

from twisted.internet import reactor
from twisted.internet.defer import inlineCallbacks
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.task import deferLater
from txamqp.client import ChannelClosed, Closed
from txamqp.content import Content
from txamqp.factory import AMQFactory

ADDRESS, SCENARIO, PREFIX = sys.argv[1:4]
SCENARIO_S_MAX = 15

FRAMES = {"frame-method": 1, "frame-header": 2, "frame-body": 3, "frame-heartbeat": 8, "frame-end": 206}
PROPERTIES = """
content-type:shortstr content-encoding:shortstr headers:table delivery-mode:octet priority:octet
correlation-id:shortstr reply-to:shortstr expiration:shortstr message-id:shortstr timestamp:timestamp
type:shortstr user-id:shortstr app-id:shortstr cluster-id:shortstr
"""
TABLE = """
connection 10
  start 10 > start-ok | version-major:octet version-minor:octet server-properties:table mechanisms:longstr locales:longstr
  start-ok 11 | client-properties:table mechanism:shortstr response:longstr locale:shortstr
  tune 30 > tune-ok | channel-max:short frame-max:long heartbeat:short
  tune-ok 31 | channel-max:short frame-max:long heartbeat:short
  open 40 > open-ok | virtual-host:shortstr capabilities:shortstr insist:bit
  open-ok 41 | known-hosts:shortstr
  close 50 > close-ok | reply-code:short reply-text:shortstr class-id:short method-id:short
  close-ok 51
channel 20
  open 10 > open-ok | out-of-band:shortstr
  open-ok 11 | channel-id:longstr
  flow 20 > flow-ok | active:bit
  flow-ok 21 | active:bit
  close 40 > close-ok | reply-code:short reply-text:shortstr class-id:short method-id:short
  close-ok 41
  ping 60 > ok
  pong 70 > ok
  ok 80
access 30
  request 10 > request-ok | realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit
  request-ok 11 | ticket:short
exchange 40
  declare 10 > declare-ok | ticket:short exchange:shortstr type:shortstr passive:bit durable:bit auto-delete:bit internal:bit nowait:bit arguments:table
  declare-ok 11
  delete 20 > delete-ok | ticket:short exchange:shortstr if-unused:bit nowait:bit
  delete-ok 21
queue 50
  declare 10 > declare-ok | ticket:short queue:shortstr passive:bit durable:bit exclusive:bit auto-delete:bit nowait:bit arguments:table
  declare-ok 11 | queue:shortstr message-count:long consumer-count:long
  bind 20 > bind-ok | ticket:short queue:shortstr exchange:shortstr routing-key:shortstr nowait:bit arguments:table
  bind-ok 21
  unbind 50 > unbind-ok | ticket:short queue:shortstr exchange:shortstr routing-key:shortstr arguments:table
  unbind-ok 51
  purge 30 > purge-ok | ticket:short queue:shortstr nowait:bit
  purge-ok 31 | message-count:long
  delete 40 > delete-ok | ticket:short queue:shortstr if-unused:bit if-empty:bit nowait:bit
  delete-ok 41 | message-count:long
basic 60
  qos 10 > qos-ok | prefetch-size:long prefetch-count:short global:bit
  qos-ok 11
  consume 20 > consume-ok | ticket:short queue:shortstr consumer-tag:shortstr no-local:bit no-ack:bit exclusive:bit nowait:bit filter:table
  consume-ok 21 | consumer-tag:shortstr
  cancel 30 > cancel-ok | consumer-tag:shortstr nowait:bit
  cancel-ok 31 | consumer-tag:shortstr
  publish 40 content | ticket:short exchange:shortstr routing-key:shortstr mandatory:bit immediate:bit
  return 50 content | reply-code:short reply-text:shortstr exchange:shortstr routing-key:shortstr
  deliver 60 content | consumer-tag:shortstr delivery-tag:longlong redelivered:bit exchange:shortstr routing-key:shortstr
  get 70 > get-ok get-empty | ticket:short queue:shortstr no-ack:bit
  get-ok 71 content | delivery-tag:longlong redelivered:bit exchange:shortstr routing-key:shortstr message-count:long
  get-empty 72 | cluster-id:shortstr
  ack 80 | delivery-tag:longlong multiple:bit
  reject 90 | delivery-tag:longlong requeue:bit
  recover 100 | requeue:bit
tx 90
  select 10 > select-ok
  select-ok 11
  commit 20 > commit-ok
  commit-ok 21
  rollback 30 > rollback-ok
  rollback-ok 31
"""  # noqa: E501 one method to a line


def fields(text: str) -> str:
    pairs = [field.split(":") for field in text.split()]
    return "".join(f"<field name={quoteattr(name)} type={quoteattr(kind)}/>" for name, kind in pairs)


def method(line: str) -> str:
    head, _, arguments = line.partition("|")
    head, _, answers = head.partition(">")
    name, index, *content = head.split()
    inner = "".join(f"<response name={quoteattr(answer)}/>" for answer in answers.split())
    flags = ' content="1"' if content else ""
    return f'<method name="{name}" index="{index}"{flags}>\n{inner}{fields(arguments)}</method>'


def description() -> str:
    """The table as the XML that txAMQP reads."""
    parts = ['<amqp major="0" minor="9">']
    parts += [f'<constant name="{name}" value="{value}"/>' for name, value in FRAMES.items()]
    opened = False
    for line in TABLE.strip().splitlines():
        if line.startswith(" "):
            parts.append(method(line))
            continue
        parts.append("</class>" if opened else "")
        name, index = line.split()
        parts.append(f'<class name="{name}" index="{index}" handler="channel">')
        parts.append(fields(PROPERTIES) if name == "basic" else "")
        opened = True
    return "".join([*parts, "</class></amqp>"])


def name(noun: str) -> str:
    return f"{PREFIX}.{noun}"


@inlineCallbacks
def connect(password: str = "guest", mechanism: str = "AMQPLAIN", heartbeat: int = 0) -> Any:
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(description())
        file.flush()
        factory = AMQFactory(spec=file.name)
    factory.set_heartbeat(heartbeat)
    host, port = ADDRESS.split(":")
    client = yield TCP4ClientEndpoint(reactor, host, int(port)).connect(factory)
    yield client.authenticate("guest", password, mechanism=mechanism)
    return client


@inlineCallbacks
def opened(client: Any, number: int = 1) -> Any:
    channel = yield client.channel(number)
    yield channel.channel_open()
    return channel


@inlineCallbacks
def private_queue(channel: Any) -> Any:
    answer = yield channel.queue_declare(exclusive=True)
    return answer.queue


@inlineCallbacks
def fetch(channel: Any, queue: str) -> Any:
    """The next message's body, or None."""
    answer = yield channel.basic_get(queue=queue, no_ack=True)
    return answer.content.body if answer.method.name == "get-ok" else None


@inlineCallbacks
def login(client: Any) -> Any:
    plain = yield connect(mechanism="PLAIN")
    yield opened(plain)
    yield plain.close(within=5)
    try:
        yield connect(password="wrong")
    except Closed:
        return
    raise AssertionError("a wrong password was let in")


@inlineCallbacks
def declare_bind_publish_get(client: Any) -> Any:
    channel = yield opened(client)
    ticket = (yield channel.access_request(realm="/data", active=True, read=True, write=True)).ticket
    yield channel.exchange_declare(ticket=ticket, exchange=name("exchange"), type="topic")
    declared = yield channel.queue_declare(ticket=ticket, queue=name("queue"))
    assert (declared.queue, declared.message_count) == (name("queue"), 0)
    yield channel.queue_bind(ticket=ticket, queue=name("queue"), exchange=name("exchange"), routing_key="a.*")
    properties = {"content-type": "text/plain", "delivery-mode": 2, "headers": {"n": 7, "s": "text"}}
    for key in ("a.b", "b.a"):
        content = Content(key, properties=properties)
        channel.basic_publish(ticket=ticket, exchange=name("exchange"), routing_key=key, content=content)
    got = yield channel.basic_get(queue=name("queue"))
    assert (got.content.body, got.routing_key, got.message_count) == ("a.b", "a.b", 0), got
    assert got.content.properties == properties, got.content.properties
    channel.basic_ack(delivery_tag=got.delivery_tag)
    empty = yield channel.basic_get(queue=name("queue"))
    assert empty.method.name == "get-empty"
    yield channel.queue_unbind(queue=name("queue"), exchange=name("exchange"), routing_key="a.*")
    channel.basic_publish(exchange=name("exchange"), routing_key="a.b", content=Content("unbound"))
    assert (yield channel.queue_delete(queue=name("queue"))).message_count == 0
    yield channel.exchange_delete(exchange=name("exchange"))


@inlineCallbacks
def consume_with_qos(client: Any) -> Any:
    channel = yield opened(client)
    queue = yield private_queue(channel)
    for number in range(6):
        channel.basic_publish(routing_key=queue, content=Content(str(number)))
    yield channel.basic_qos(prefetch_count=2)
    yield channel.basic_consume(queue=queue, consumer_tag="me")
    inbox = yield client.queue("me")
    got = []
    while len(got) < 6:
        for _ in range(2):
            got.append((yield inbox.get(timeout=5)))
        yield channel.queue_declare(queue=queue, passive=True)
        assert not inbox.pending, "prefetch holds the rest back"
        channel.basic_ack(delivery_tag=got[-1].delivery_tag, multiple=True)
    assert [str(message.content.body) for message in got] == [str(n) for n in range(6)]
    assert [message.redelivered for message in got] == [False] * 6
    yield channel.basic_cancel(consumer_tag="me")
    assert (yield channel.queue_declare(queue=queue, passive=True)).consumer_count == 0


@inlineCallbacks
def reject_and_recover(client: Any) -> Any:
    channel = yield opened(client)
    queue = yield private_queue(channel)
    channel.basic_publish(routing_key=queue, content=Content("again"))
    yield channel.basic_consume(queue=queue, consumer_tag="me")
    inbox = yield client.queue("me")
    first = yield inbox.get(timeout=5)
    channel.basic_reject(delivery_tag=first.delivery_tag, requeue=True)
    second = yield inbox.get(timeout=5)
    channel.basic_recover(requeue=True)
    third = yield inbox.get(timeout=5)
    assert [message.redelivered for message in (first, second, third)] == [False, True, True]
    channel.basic_ack(delivery_tag=third.delivery_tag)
    yield channel.basic_cancel(consumer_tag="me")
    assert (yield fetch(channel, queue)) is None


@inlineCallbacks
def transactions(client: Any) -> Any:
    channel = yield opened(client)
    queue = yield private_queue(channel)
    yield channel.tx_select()
    channel.basic_publish(routing_key=queue, content=Content("undone"))
    yield channel.tx_rollback()
    channel.basic_publish(routing_key=queue, content=Content("done"))
    assert (yield fetch(channel, queue)) is None
    yield channel.tx_commit()
    assert (yield fetch(channel, queue)) == "done"
    assert (yield fetch(channel, queue)) is None


@inlineCallbacks
def returned(client: Any) -> Any:
    channel = yield opened(client)
    channel.basic_publish(routing_key=name("nowhere"), mandatory=True, content=Content("back"))
    message = yield client.basic_return_queue.get(timeout=5)
    assert (message.reply_code, message.routing_key) == (312, name("nowhere"))
    assert message.content.body == "back"


@inlineCallbacks
def channel_error(client: Any) -> Any:
    channel = yield opened(client)
    code = 0
    try:
        yield channel.queue_declare(queue=name("nothing"), passive=True)
    except ChannelClosed as closed:
        code = closed.args[0].reply_code
    assert code == 404, code
    another = yield opened(client, 2)
    assert (yield private_queue(another))


@inlineCallbacks
def purge_and_counts(client: Any) -> Any:
    channel = yield opened(client)
    queue = yield private_queue(channel)
    for body in ("1", "2", "3"):
        channel.basic_publish(routing_key=queue, content=Content(body))
    assert (yield channel.queue_purge(queue=queue)).message_count == 3
    channel.basic_publish(routing_key=queue, content=Content("4"))
    assert (yield channel.queue_delete(queue=queue)).message_count == 1


@inlineCallbacks
def large_message(client: Any) -> Any:
    channel = yield opened(client)
    queue = yield private_queue(channel)
    body = "0123456789" * 50_000
    channel.basic_publish(routing_key=queue, content=Content(body))
    channel.basic_publish(routing_key=queue, content=Content(""))
    assert (yield fetch(channel, queue)) == body
    assert (yield fetch(channel, queue)) == ""


@inlineCallbacks
def heartbeat(client: Any) -> Any:
    """Idle for longer than the broker would wait for a silent client."""
    beating = yield connect(heartbeat=1)
    yield deferLater(reactor, 3.5)
    assert beating.last_heartbeat_received > 0
    yield opened(beating)
    yield beating.close(within=5)


@inlineCallbacks
def ping(client: Any) -> Any:
    """channel.ping of 0-9 is answered with channel.ok; a pong is a request of its own, which we answer."""
    client.delegate.channel_pong = lambda channel, _: channel.channel_ok()
    channel = yield opened(client)
    answer = yield channel.channel_ping()
    assert answer.method.name == "ok"
    assert (yield private_queue(channel)), "the channel goes on"


@inlineCallbacks
def run() -> Any:
    reactor.callLater(SCENARIO_S_MAX, give_up)
    try:
        client = yield connect()
        yield globals()[SCENARIO](client)
        yield client.close(within=5)
        status.append(0)
    except BaseException:
        traceback.print_exc()
    finally:
        reactor.stop()


def give_up() -> None:
    print(f"{SCENARIO} did not end within {SCENARIO_S_MAX} s", file=sys.stderr)  # noqa: T201
    reactor.stop()


status: list[int] = []
reactor.callWhenRunning(run)
reactor.run()
sys.exit(0 if status else 1)
