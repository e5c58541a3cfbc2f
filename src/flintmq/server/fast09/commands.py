"""What clients of AMQP/Fast 0.9 ask of a channel: each method as one function.

A function takes the session, the protocol's channel and the method, and asks the broker by methods of AMQP;
session.py says what the answers of these are. Faults are raised; the session closes the channel for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.auth import Operation
from flintmq.auth import may as is_allowed
from flintmq.broker import queue_namespaces
from flintmq.broker.channels.file_transfers import transfers_of
from flintmq.broker.exchanges.binding import VIA
from flintmq.broker.exchanges.chains import via_of
from flintmq.broker.queue_templates import TEMPLATE
from flintmq.broker.transactions.transaction import Transaction
from flintmq.errors import ChannelFault
from flintmq.protocol.fast09.outbox import Target
from flintmq.server.commands import channel as channel_class
from flintmq.server.commands import dtx as dtx_commands
from flintmq.server.commands import exchange as exchange_class
from flintmq.server.commands import queue as queue_class
from flintmq.server.commands.command import may
from flintmq.server.commands.file import block_due, end_staging, stream_block
from flintmq.server.commands.stream import consume_stream
from flintmq.server.fast.handle_commands import QUEUE_ARGUMENTS
from flintmq.server.fast09 import registrations
from flintmq.server.fast09.stream_terms import Fast09StreamTerms
from flintmq.wire import amqp, methods
from flintmq.wire.fast09 import crossing
from flintmq.wire.fast09.methods import CLASS_FILE, LONGSTR_OCTETS_MAX, Method, method
from flintmq.wire.fields import encode_shortstr

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel as BrokerChannel
    from flintmq.protocol.channel import Channel
    from flintmq.server.fast09.session import Fast09Session
    from flintmq.wire.tables import FieldTable

Command = Callable[["Fast09Session", "Channel", Method], None]
COMMANDS: dict[str, Command] = {}

# Of Channel.Open, which the document does not number.
NO_TRANSACTIONS, STANDARD_TRANSACTIONS, DISTRIBUTED_TRANSACTIONS = 0, 1, 2
CONSUMER_TAG_MAX = 65_535
# File.Stage answers File.Open-Ok with all that is missing: no content has more octets.
WHOLE_FILE = (1 << 64) - 1


def run(session: Fast09Session, channel: Channel, said: Method) -> None:
    found = COMMANDS.get(said.kind.name)
    if found is None:
        raise ChannelFault(amqp.COMMAND_INVALID, f"{said.kind.name} answers nothing")
    found(session, channel, said)


def command(name: str) -> Callable[[Command], Command]:
    def register(function: Command) -> Command:
        COMMANDS[name] = function
        return function

    return register


def whole_name(said: Method) -> str:
    """The name of a queue with its namespace, as the broker knows it."""
    return name_within(said.namespace, said.queue)


def name_within(namespace: str, queue: str) -> str:
    if not queue or not namespace:
        return queue
    return queue_namespaces.qualified(queue, {queue_namespaces.NAMESPACE: namespace})[0]


# channel


@command("channel.open")
def channel_open(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.open_channel(channel)
    owner = session.owner_of(channel)
    if said.out_of_band:
        text = "no other way than the connection is served: leave out_of_band empty"
        raise ChannelFault(amqp.NOT_IMPLEMENTED, text)
    if said.tx_mode == STANDARD_TRANSACTIONS:
        owner.transaction = Transaction(owner)
    elif said.tx_mode == DISTRIBUTED_TRANSACTIONS:
        dtx_commands.select(owner)
    elif said.tx_mode != NO_TRANSACTIONS:
        text = f"tx_mode {said.tx_mode} is not known: 0 is for none, 1 for tx and 2 for dtx"
        raise ChannelFault(amqp.NOT_IMPLEMENTED, text)
    sizes = [size for size in (session.prefetch_max, said.prefetch_max) if size]
    owner.global_bytes = min(sizes, default=0)
    session.send(channel.number, methods.ChannelOpenOk())


@command("channel.flow")
def channel_flow(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.owner_of(channel).flow(not said.flow_pause)


@command("channel.close")
def channel_close(session: Fast09Session, channel: Channel, said: Method) -> None:
    channel.abandon_content()
    channel_class.channel_close(session, channel, methods.ChannelClose())


@command("channel.close-ok")
def channel_close_ok(session: Fast09Session, channel: Channel, said: Method) -> None:
    channel_class.channel_close_ok(session, channel, methods.ChannelCloseOk())


# access


@command("access.grant")
def access_grant(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.ask(channel, methods.AccessRequest(**said.values))


# proxy


@command("proxy.assert")
def proxy_assert(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.ask(
        channel,
        methods.ExchangeDeclare(
            ticket=said.ticket,
            exchange=said.proxy,
            type=said.class_name,
            passive=said.if_exists,
            durable=said.durable,
            auto_delete=said.auto_delete,
        ),
    )


@command("proxy.delete")
def proxy_delete(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.ask(
        channel,
        methods.ExchangeDelete(ticket=said.ticket, exchange=said.proxy, if_unused=said.if_unused),
    )


# queue


@command("queue.assert")
def queue_assert(session: Fast09Session, channel: Channel, said: Method) -> None:
    """A queue that is made for a client of AMQP/Fast has priorities (section 3.16.6)."""
    arguments: FieldTable = {}
    if said.namespace:
        arguments[queue_namespaces.NAMESPACE] = said.namespace
    existing = session.owner_of(channel).virtual_host.lookup_queue(whole_name(said)) if said.queue else None
    if said.template:
        arguments[TEMPLATE] = said.template
    elif existing is None:
        arguments |= QUEUE_ARGUMENTS
    else:
        arguments |= {name: value for name, value in existing.arguments.items() if name in QUEUE_ARGUMENTS}
    session.namespaces[channel.number] = said.namespace
    session.ask(
        channel,
        methods.QueueDeclare(
            ticket=said.ticket,
            queue=said.queue,
            passive=said.if_exists,
            durable=said.durable,
            exclusive=said.private,
            auto_delete=said.auto_delete,
            arguments=arguments,
        ),
    )


def may_register(owner: BrokerChannel, said: Method) -> str:
    """The queue of a registration. Who may not make it need not know whether queue and proxy are there."""
    name = whole_name(said) or queue_class.last_queue(owner)
    exchange_class.not_default(said.proxy)
    may(owner, Operation.WRITE, "queue", name)
    may(owner, Operation.READ, "exchange", said.proxy)
    return name


def may_narrow(owner: BrokerChannel, queue: str, arguments: FieldTable) -> None:
    """Proxies that the queue is registered with already, which the user has not named, are not told of."""
    user, host = owner.user, owner.virtual_host.name
    entries = via_of(arguments) if VIA in arguments else []
    if not all(is_allowed(user, host, Operation.READ, each, "exchange") for each in entries):
        text = f"queue '{queue}' is registered with a proxy that user '{user.name}' may not read from"
        raise ChannelFault(amqp.ACCESS_REFUSED, text)


@command("queue.register")
def queue_register(session: Fast09Session, channel: Channel, said: Method) -> None:
    owner = session.owner_of(channel)
    host = owner.virtual_host
    name = may_register(owner, said)
    proxy, queue = host.exchanges.get(said.proxy), host.lookup_queue(name)
    key, arguments = "", dict(said.arguments)
    if proxy is not None and queue is not None:  # of others the broker says that they are not there
        key, arguments = registrations.key_and_arguments(proxy, said.queue or name, arguments)
        arguments = registrations.chained(proxy, queue, arguments)
        if VIA not in said.arguments:
            may_narrow(owner, name, arguments)
    session.ask(
        channel,
        methods.QueueBind(
            ticket=said.ticket, queue=name, exchange=said.proxy, routing_key=key, arguments=arguments
        ),
    )


@command("queue.cancel")
def queue_cancel(session: Fast09Session, channel: Channel, said: Method) -> None:
    owner = session.owner_of(channel)
    host = owner.virtual_host
    name = may_register(owner, said)
    proxy, queue = host.exchanges.get(said.proxy), host.lookup_queue(name)
    key, arguments = "", dict(said.arguments)
    if proxy is not None and queue is not None:
        key, arguments = registrations.key_and_arguments(proxy, said.queue or name, arguments)
        arguments = registrations.registered(proxy, queue, key, arguments)
    session.ask(
        channel,
        methods.QueueUnbind(
            ticket=said.ticket, queue=name, exchange=said.proxy, routing_key=key, arguments=arguments
        ),
    )


@command("queue.purge")
def queue_purge(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.ask(channel, methods.QueuePurge(ticket=said.ticket, queue=whole_name(said)))


@command("queue.delete")
def queue_delete(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.deleted[channel.number] = whole_name(said) or queue_class.last_queue(session.owner_of(channel))
    session.ask(
        channel,
        methods.QueueDelete(
            ticket=said.ticket, queue=whole_name(said), if_unused=said.if_unused, if_empty=said.if_empty
        ),
    )


# Consumers


def new_consumer(session: Fast09Session, channel: Channel, said: Method, deliver: str) -> str:
    """The tag of one, whose deliveries are such methods."""
    supported = said.kind.name.partition(".")[0]
    if supported not in session.supported:
        text = f"tune-ok has said that {supported} content is not supported"
        raise ChannelFault(amqp.NOT_ALLOWED, text)
    owner = session.owner_of(channel)
    for _ in range(CONSUMER_TAG_MAX):
        session.consumer_tag = session.consumer_tag % CONSUMER_TAG_MAX + 1
        tag = str(session.consumer_tag)
        if tag not in owner.consumers:
            break
    else:
        raise ChannelFault(amqp.RESOURCE_ERROR, f"all {CONSUMER_TAG_MAX} consumer tags are in use")
    name = said.queue or queue_class.last_queue(owner)
    target = Target(deliver, said.namespace if said.queue else "", name)
    if session.deleted.get(channel.number) == name_within(target.namespace, name):
        del session.deleted[channel.number]  # that was another queue of this name
    session.out.targets[channel.number, encode_shortstr(tag)] = target
    owner.prefetch_count, owner.prefetch_bytes = said.prefetch_count, said.prefetch_size
    return tag


def consume(
    session: Fast09Session,
    channel: Channel,
    said: Method,
    deliver: str,
    make: type[methods.BasicConsume | methods.FileConsume],
) -> None:
    session.unanswered.pop(channel.number, None)  # it has the tag that was drawn before the answer came
    tag = new_consumer(session, channel, said, deliver)
    asked = make(
        ticket=said.ticket,
        queue=whole_name(said),
        consumer_tag=tag,
        no_local=said.no_local,
        no_ack=said.auto_ack,
        exclusive=said.exclusive,
    )
    begin(session, channel, tag, lambda: session.ask(channel, asked))


def begin(session: Fast09Session, channel: Channel, tag: str, start: Callable[[], None]) -> None:
    """Starts the consumer of this tag, which is forgotten if it cannot be."""
    try:
        start()
    except Exception:
        session.out.targets.pop((channel.number, encode_shortstr(tag)), None)
        raise


def cancelled(session: Fast09Session, channel: Channel, tag: int) -> None:
    """Forgets the consumer of this tag, unless it is one of another class and goes on."""
    if str(tag) not in session.owner_of(channel).consumers:
        session.out.targets.pop((channel.number, encode_shortstr(str(tag))), None)


@command("jms.consume")
def jms_consume(session: Fast09Session, channel: Channel, said: Method) -> None:
    consume(session, channel, said, "jms.deliver", methods.BasicConsume)


@command("file.consume")
def file_consume(session: Fast09Session, channel: Channel, said: Method) -> None:
    consume(session, channel, said, "file.deliver", methods.FileConsume)


@command("stream.consume")
def stream_consume(session: Fast09Session, channel: Channel, said: Method) -> None:
    tag = new_consumer(session, channel, said, "stream.deliver")
    owner = session.owner_of(channel)
    owner.stream_qos = (said.consume_rate, said.prefetch_size, said.prefetch_count)
    asked = methods.StreamConsume(
        ticket=said.ticket,
        queue=whole_name(said),
        consumer_tag=tag,
        no_local=said.no_local,
        exclusive=said.exclusive,
    )

    def start() -> None:
        session.check_ticket(channel, asked)
        consume_stream(session, channel, asked, Fast09StreamTerms)

    begin(session, channel, tag, start)


@command("jms.cancel")
def jms_cancel(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.ask(channel, methods.BasicCancel(consumer_tag=str(said.consumer_tag)))
    cancelled(session, channel, said.consumer_tag)


@command("file.cancel")
def file_cancel(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.ask(channel, methods.FileCancel(consumer_tag=str(said.consumer_tag)))
    cancelled(session, channel, said.consumer_tag)


@command("stream.cancel")
def stream_cancel(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.ask(channel, methods.StreamCancel(consumer_tag=str(said.consumer_tag)))
    cancelled(session, channel, said.consumer_tag)


@command("jms.browse")
def jms_browse(session: Fast09Session, channel: Channel, said: Method) -> None:
    if said.no_local:
        text = "Browse takes the next message of the queue, whoever has sent it: no_local is not served"
        raise ChannelFault(amqp.NOT_IMPLEMENTED, text)
    session.ask(channel, methods.BasicGet(ticket=said.ticket, queue=whole_name(said), no_ack=said.auto_ack))


def ack(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.owner_of(channel).ack(said.delivery_tag, said.multiple)


COMMANDS["jms.ack"] = COMMANDS["file.ack"] = ack


@command("jms.reject")
def jms_reject(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.ask(channel, methods.BasicReject(delivery_tag=said.delivery_tag, requeue=said.requeue))


@command("file.reject")
def file_reject(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.ask(channel, methods.FileReject(delivery_tag=said.delivery_tag, requeue=said.requeue))


# Files


@command("file.open")
def file_open(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.ask(channel, methods.FileOpen(**said.values))


@command("file.open-ok")
def file_open_ok(session: Fast09Session, channel: Channel, said: Method) -> None:
    """The client has so much of the content: the rest follows, and then the delivery."""
    owner = session.owner_of(channel)
    block = block_due(owner, said.staged_size, WHOLE_FILE)
    if block is None:
        return
    outgoing = block.outgoing
    rest = outgoing.header[:4] + block.octets.to_bytes(8, "big") + outgoing.header[12:]
    out, number = session.out, channel.number
    header, flags = out.header_of(CLASS_FILE, rest, crossing.key_of(outgoing.route))
    out.write_carrying(number, method("file.stage"), flags, session.answering(number)[1], header, b"", 0)
    stream_block(owner, block)
    target = out.targets.get((number, encode_shortstr(outgoing.consumer.tag)))
    delivery = method(
        "file.deliver",
        delivery_tag=outgoing.tag,
        redelivered=bool(outgoing.redelivered),
        proxy=crossing.proxy_of(outgoing.route),
        namespace="" if target is None else target.namespace,
        queue=outgoing.consumer.queue.name if target is None else target.queue,
        identifier=outgoing.identifier,
    )
    out.write_said(number, delivery, flags, 0)
    end_staging(owner, outgoing)


@command("file.publish")
def file_publish(session: Fast09Session, channel: Channel, said: Method) -> None:
    """Where it goes is a property of the content: it has come with its header."""
    destination = session.destinations.get((channel.number, said.identifier))
    if destination is None:
        text = f"content '{said.identifier}' was not staged on this channel"
        raise ChannelFault(amqp.NOT_FOUND, text)
    session.ask(
        channel,
        methods.FilePublish(
            ticket=said.ticket,
            exchange=said.proxy,
            routing_key=destination,
            immediate=said.immediate,
            identifier=said.identifier,
        ),
    )
    # Not before: where a back end has to be asked, the method is run again.
    session.destinations.pop((channel.number, said.identifier), None)
    store = session.broker.store
    if store is not None:
        store.hold_back(session.output, store.last())


def staged_identifier(session: Fast09Session, channel: Channel) -> str | None:
    """Of the content that a file.stage on the channel is of."""
    opened = transfers_of(session.owner_of(channel)).opened
    return None if opened is None else opened.identifier


# tx, dtx and test


@command("tx.commit")
def tx_commit(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.ask(channel, methods.TxCommit())


@command("tx.abort")
def tx_abort(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.ask(channel, methods.TxRollback())


@command("dtx.start")
def dtx_start(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.ask(channel, methods.DtxStart(dtx_identifier=said.dtx_identifier))


@command("test.integer")
def test_integer(session: Fast09Session, channel: Channel, said: Method) -> None:
    session.ask(channel, methods.TestInteger(**said.values))


def check_result(octets: int) -> None:
    if octets > LONGSTR_OCTETS_MAX:
        text = f"a result of up to {octets} octets: a long string has {LONGSTR_OCTETS_MAX}"
        raise ChannelFault(amqp.CONTENT_TOO_LARGE, text)


@command("test.string")
def test_string(session: Fast09Session, channel: Channel, said: Method) -> None:
    check_result(len(said.string_1.encode()) + len(said.string_2))
    session.ask(channel, methods.TestString(**said.values))


@command("test.table")
def test_table(session: Fast09Session, channel: Channel, said: Method) -> None:
    texts = [value.encode() if isinstance(value, str) else value for value in said.table.values()]
    check_result(sum(len(text) for text in texts if isinstance(text, bytes)))
    session.ask(channel, methods.TestTable(**said.values))
