"""The file class of AMQP 0-8 and 0-9: staging in both directions, publish, consume, ack and reject.

How contents travel is in broker/channels/file_transfers.py, where they wait in broker/store/staging.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.auth import Operation
from flintmq.broker import queue_namespaces, quotas
from flintmq.broker.channels.file_terms import FileTerms
from flintmq.broker.channels.file_transfers import (
    BLOCK_BYTES,
    BlockOfFile,
    IncomingFile,
    OutgoingFile,
    refused,
    transfers_of,
)
from flintmq.broker.channels.staged_publish import Outcome, publish_staged
from flintmq.broker.queues.consumer import Consumer
from flintmq.errors import ChannelFault, ConnectionFault, ServiceFault
from flintmq.server.commands.basic import reject, set_prefetch
from flintmq.server.commands.command import AwaitedMethod, broker_channel, command, is_open
from flintmq.server.commands.content import beginning, content_command, route_of
from flintmq.server.commands.queue import caught_up, named_queue
from flintmq.wire import amqp, header_edits, methods, traits
from flintmq.wire.content_class import to_basic
from flintmq.wire.methods import encode_method

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel as BrokerChannel
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.store.staging import StagedContent, Staging
    from flintmq.protocol.channel import Channel
    from flintmq.server.commands.command import Session

# Of one connection at the same time: each has up to three parts in memory.
STAGES_MAX = 16
PROPERTIES_AT = 12


def staging_of(session: Session) -> Staging:
    staging = session.broker.staging
    if staging is None:
        raise ChannelFault(amqp.RESOURCE_ERROR, "the broker has no data directory: nothing can be staged")
    return staging


# From the client


@command("file.open")
def file_open(session: Session, channel: Channel, method: methods.FileOpen) -> None:
    """Answered with how much of the content is there."""
    broker_channel(channel)
    work = opened(session, channel, method, staging_of(session))
    AwaitedMethod(session, channel, method).begin(work)


def opened(session: Session, channel: Channel, method: methods.FileOpen, staging: Staging) -> Chore:
    owner = broker_channel(channel)
    host, user = owner.virtual_host.name, owner.user.name
    known = staging.find(host, user, method.identifier)
    while known is not None and known.writing:
        yield known.when_idle  # a part that came by a connection that is gone
    if not is_open(session, channel, owner):
        return
    try:
        content = staging.open(host, user, method.identifier, method.content_size)
    except ServiceFault as fault:
        raise refused(fault) from fault
    transfers = transfers_of(owner)
    transfers.opened = content
    content.writer = transfers  # whoever opened it before was told an offset that may not hold any more
    if owner.store is not None:
        owner.store.hold_back(session.output, owner.store.last())
    session.send(channel.number, methods.FileOpenOk(staged_size=content.staged))


def begun(session: Session, channel: Channel, header: bytes) -> StagedContent:
    """The content that a file.stage with this header is the next block of."""
    owner = broker_channel(channel)
    transfers = transfers_of(owner)
    content, transfers.opened = transfers.opened, None
    if content is None or content.deleted:
        raise ConnectionFault(
            amqp.COMMAND_INVALID, "no content is open on this channel: send file.open first"
        )
    if content.writer is not transfers:
        text = f"content '{content.identifier}' was opened once more: send file.open again to go on with it"
        raise ChannelFault(amqp.PRECONDITION_FAILED, text)
    block = int.from_bytes(header[4:12], "big")
    if content.staged + block > content.size:
        text = (
            f"content '{content.identifier}' has {content.staged} of {content.size} octets: "
            f"no more than {content.size - content.staged} may follow, not {block}"
        )
        raise ChannelFault(amqp.PRECONDITION_FAILED, text)
    transfers.keep_properties(content.identifier, to_basic(header)[PROPERTIES_AT:])
    return content


def incoming_of(session: Session, channel: Channel, content: StagedContent) -> IncomingFile:
    method = methods.FileStage()

    def wait(work: Chore) -> None:
        session.connection.paused = True
        AwaitedMethod(session, channel, method).begin(work)

    return IncomingFile(staging_of(session), content, wait)


@beginning("file.stage")
def stage_begins(session: Session, channel: Channel, method: methods.FileStage, header: bytes) -> None:
    """A large block goes to the disk as it comes."""
    stages = [each.sink for each in session.connection.all_channels() if isinstance(each.sink, IncomingFile)]
    if len(stages) >= STAGES_MAX:
        text = f"{STAGES_MAX} contents are being staged on this connection: wait for one of them"
        raise ChannelFault(amqp.RESOURCE_ERROR, text)
    content = begun(session, channel, header)
    incoming = incoming_of(session, channel, content)
    channel.sink = transfers_of(broker_channel(channel)).incoming = incoming


@content_command("file.stage")
def file_stage(
    session: Session, channel: Channel, method: methods.FileStage, content: bytes, header_size: int
) -> None:
    """The whole block has come; what follows on the connection waits until it is on disk."""
    owner = broker_channel(channel)
    transfers = transfers_of(owner)
    incoming, transfers.incoming = transfers.incoming, None
    if incoming is None:
        incoming = incoming_of(session, channel, begun(session, channel, content[:header_size]))
        incoming.gathered += content[header_size:]
    AwaitedMethod(session, channel, method).begin(incoming.written(True))


@command("file.publish")
def file_publish(session: Session, channel: Channel, method: methods.FilePublish) -> None:
    owner = broker_channel(channel)
    staging = staging_of(session)
    if owner.transaction is not None:
        raise ConnectionFault(amqp.NOT_IMPLEMENTED, "file.publish is not part of a transaction here")
    kept = transfers_of(owner).properties
    properties = kept.get(method.identifier)
    content = staging.find(owner.virtual_host.name, owner.user.name, method.identifier)
    if content is None or properties is None:
        text = f"content '{method.identifier}' was not staged on this channel"
        raise ChannelFault(amqp.NOT_FOUND, text)
    if content.is_published:
        del kept[method.identifier]
        return  # before a break of the connection, as the same identifier is the same content
    route = route_of(method.exchange, method.routing_key)
    try:
        outcome = publish_staged(
            owner,
            staging,
            content,
            route,
            properties,
            method.immediate,
            traits.FILE_CONTENT,
            method.mandatory,
        )
    except ServiceFault as fault:
        raise refused(fault) from fault
    del kept[method.identifier]  # not before: where a back end has to be asked, the method is run again
    if outcome is Outcome.FULL:
        text = f"content '{method.identifier}' stays staged: the queues are full and refuse it"
        raise ChannelFault(amqp.RESOURCE_ERROR, text)


# To the client


@command("file.qos")
def file_qos(session: Session, channel: Channel, method: methods.FileQos) -> None:
    set_prefetch(session, channel, method)
    session.send(channel.number, methods.FileQosOk())


@command("file.consume")
def file_consume(session: Session, channel: Channel, method: methods.FileConsume) -> None:
    owner = broker_channel(channel)
    name, arguments = method.queue, method.arguments
    if name:
        name, arguments = queue_namespaces.qualified(name, arguments)
    queue = caught_up(named_queue(owner, name, Operation.READ))
    if queue.is_stream:
        text = f"queue '{queue.name}' is of the type stream, which has no consumers of the file class"
        raise ConnectionFault(amqp.NOT_IMPLEMENTED, text)
    session.broker.tell_lost_consumers()
    tag = method.consumer_tag or session.broker.new_name("amq.ctag-")
    if tag in owner.consumers:
        raise ConnectionFault(amqp.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    quotas.check_consumer(session.broker.config.limits, session.broker, owner)
    consumer = Consumer(
        owner, queue, tag, method.no_ack, method.no_local, method.exclusive, arguments, FileTerms()
    )
    owner.virtual_host.consume(consumer)
    if not method.no_wait:
        session.send(channel.number, methods.FileConsumeOk(consumer_tag=tag))


@command("file.cancel")
def file_cancel(session: Session, channel: Channel, method: methods.FileCancel) -> None:
    owner = broker_channel(channel)
    session.broker.tell_lost_consumers()
    consumer = owner.consumers.get(method.consumer_tag)
    if consumer is not None and consumer.content_class == traits.FILE_CONTENT:
        caught_up(consumer.queue)
        owner.virtual_host.cancel(consumer)
        transfers = transfers_of(owner)
        if transfers.outgoing is not None and transfers.outgoing.consumer is consumer:
            outgoing = transfers.abandon()
            if outgoing is not None and owner.holds(outgoing.tag):
                owner.reject(outgoing.tag, False, True, method.NAME)  # a block on its way comes whole
            owner.flow(owner.flowing)
    if not method.no_wait:
        session.send(channel.number, methods.FileCancelOk(consumer_tag=method.consumer_tag))


@command("file.open-ok")
def file_open_ok(session: Session, channel: Channel, method: methods.FileOpenOk) -> None:
    """The client has so much of the content: a block follows, and the delivery if that was the last one."""
    owner = broker_channel(channel)
    block = block_due(owner, method.staged_size, BLOCK_BYTES)
    if block is None:
        return
    outgoing = block.outgoing
    header = outgoing.header[:4] + block.octets.to_bytes(8, "big") + outgoing.header[12:]
    if owner.numeric:
        header = header_edits.with_numbers(header)
    stage = encode_method(session.connection.version, methods.FileStage())
    session.output.write_method_content(channel.number, stage, header, len(header))
    stream_block(owner, block)
    if block.start + block.octets < outgoing.body.octets:
        session.output.write_method(channel.number, outgoing.open_payload())
    else:
        session.send(channel.number, delivery_of(outgoing))
        end_staging(owner, outgoing)


def delivery_of(outgoing: OutgoingFile) -> methods.FileDeliver:
    route = outgoing.route
    return methods.FileDeliver(
        consumer_tag=outgoing.consumer.tag,
        delivery_tag=outgoing.tag,
        redelivered=outgoing.redelivered,
        exchange=route[1 : 1 + route[0]].decode("utf-8", "surrogateescape"),
        routing_key=route[2 + route[0] :].decode("utf-8", "surrogateescape"),
        identifier=outgoing.identifier,
    )


def block_due(owner: BrokerChannel, staged: int, octets_max: int) -> BlockOfFile | None:
    """What is to be staged next at a client that has so much of the content.

    None if nobody sends it any more.
    """
    transfers = transfers_of(owner)
    if transfers.abandoned:
        transfers.abandoned -= 1
        return None
    outgoing = transfers.outgoing
    if outgoing is None:
        raise ConnectionFault(amqp.COMMAND_INVALID, "file.open-ok answers nothing")
    size = outgoing.body.octets
    if staged > size:
        text = f"content '{outgoing.identifier}' has {size} octets: {staged} cannot be staged of it"
        raise ChannelFault(amqp.PRECONDITION_FAILED, text)
    if not outgoing.consumer.no_ack and not owner.holds(outgoing.tag):
        end_staging(owner, outgoing)  # the message is back in its queue, for others
        return None
    return BlockOfFile(outgoing, staged, min(size - staged, octets_max))


def stream_block(owner: BrokerChannel, block: BlockOfFile) -> None:
    """The octets of the block, behind the header that was just written."""
    if block.octets:
        owner.stream(block, block.outgoing.tag)
    else:
        block.close()


def end_staging(owner: BrokerChannel, outgoing: OutgoingFile) -> None:
    """The last block of the content is on its way: the next content may begin."""
    transfers_of(owner).outgoing = None
    outgoing.release()
    owner.flow(owner.flowing)  # wakes who waited for this one


@command("file.ack")
def file_ack(session: Session, channel: Channel, method: methods.FileAck) -> None:
    broker_channel(channel).ack(method.delivery_tag, method.multiple)


@command("file.reject")
def file_reject(session: Session, channel: Channel, method: methods.FileReject) -> None:
    """The rest of a content that is on its way is called off."""
    owner = broker_channel(channel)
    transfers = transfers_of(owner)
    if transfers.outgoing is not None and transfers.outgoing.tag == method.delivery_tag:
        transfers.abandon()
    reject(owner, method.delivery_tag, method.requeue, method.NAME)
    owner.flow(owner.flowing)
