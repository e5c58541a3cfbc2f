"""The table of all methods that clients ask of a channel, and what is checked in front of each.

Each class of AMQP has a file beside this one. What several of them need is here: the broker's half of a
channel, permissions, and AwaitedMethod for work that takes more than one pass. Faults are raised; the session
turns them into a Close.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from flintmq.auth import Operation, require
from flintmq.auth import may as is_allowed
from flintmq.broker.channels.channel import Channel as BrokerChannel
from flintmq.broker.channels.tickets import NEEDED, check_ticket
from flintmq.broker.scheduling.errands import attend
from flintmq.errors import ChannelFault, ConnectionFault, PeerFault
from flintmq.protocol import phases
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method

if TYPE_CHECKING:
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.protocol.channel import Channel
    from flintmq.server.sessions.session import Session as Session  # for all commands

log = logging.getLogger("flintmq.commands")

# What a method may leave in memory, on average: a queue takes 2 KiB.
COMMAND_BYTES = 2048
# Methods after which the broker holds more than before, but for publishes.
GROWING = frozenset(
    (
        "exchange.declare",
        "exchange.bind",
        "queue.declare",
        "queue.bind",
        "basic.consume",
        "file.consume",
        "stream.consume",
        "message.consume",
        "dtx.start",
    )
)

# Classes whose methods change what is written of the topology.
DURABLE_CLASSES = frozenset((amqp.CLASS_EXCHANGE, amqp.CLASS_QUEUE))

COMMANDS: dict[str, Callable[[Session, Channel, Any], None]] = {}
# The files of classes that few clients use. The server loads them after it listens (LATE in server.py), or
# for the first client that asks before.
SELDOM = tuple(f"flintmq.server.commands.{name}" for name in ("dtx", "file", "message", "stream"))

Function = TypeVar("Function")


def run(session: Session, channel: Channel, method: Method) -> None:
    name = method.NAME
    command = COMMANDS.get(name) or seldom(COMMANDS, method)
    if name in STRIPPED:
        strip_names(method)
    if session.connection.by_ticket and name in NEEDED:
        check_ticket(broker_channel(channel), method)
    pass_work = session.broker.pass_work
    pass_work.unwatched_bytes -= COMMAND_BYTES
    if pass_work.is_critical and name in GROWING and session.is_critical():
        refuse_growth(channel, method)
    command(session, channel, method)
    if method.CLASS_ID not in DURABLE_CLASSES:
        return
    store = session.broker.store
    if store is not None:
        # The durable topology may be told of when it is safe; that goes for what others changed too.
        topology = None if session.virtual_host is None else session.virtual_host.topology
        if topology is not None:
            store.hold_back(session.output, topology.sequence)


def seldom(table: dict[str, Function], method: Method) -> Function:
    """The function of a method whose class may not be loaded yet; a fault if there is none."""
    for name in SELDOM:
        import_module(name)
    function = table.get(method.NAME)
    if function is None:
        text = f"{method.NAME} is not served here"
        raise ConnectionFault(amqp.NOT_IMPLEMENTED, text, method.CLASS_ID, method.METHOD_ID)
    return function


# The methods in which RabbitMQ takes line ends out of the names of exchanges and queues, wherever in a name
# they are. Others, basic.consume among them, take the names as they come.
STRIPPED = frozenset(
    f"{kind}.{verb}" for kind in ("exchange", "queue") for verb in ("declare", "delete", "bind", "unbind")
)
NAMES = ("exchange", "queue", "source", "destination")


def strip_names(method: Method) -> None:
    for field in NAMES:
        name = getattr(method, field, None)
        if name and ("\r" in name or "\n" in name):
            setattr(method, field, name.replace("\r", "").replace("\n", ""))


def refuse_growth(channel: Channel, method: Method) -> None:
    """Exchanges, queues and bindings cannot go to disk: no more of them while memory is critical.

    A channel may have one consumer all the same: somebody has to empty the queues.
    """
    if getattr(method, "passive", False):
        return
    if isinstance(method, methods.BasicConsume) and not broker_channel(channel).consumers:
        return
    text = f"memory is short: no {method.NAME} for now"
    raise ChannelFault(amqp.RESOURCE_ERROR, text, method.CLASS_ID, method.METHOD_ID)


def command(
    name: str,
) -> Callable[[Callable[[Session, Channel, Any], None]], Callable[[Session, Channel, Any], None]]:
    def register(
        function: Callable[[Session, Channel, Any], None],
    ) -> Callable[[Session, Channel, Any], None]:
        COMMANDS[name] = function
        return function

    return register


def broker_channel(channel: Channel) -> BrokerChannel:
    owner = channel.owner
    if not isinstance(owner, BrokerChannel):
        raise ConnectionFault(amqp.CHANNEL_ERROR, f"channel {channel.number} is not open")
    return owner


def may(owner: BrokerChannel, operation: Operation, kind: str, name: str) -> None:
    require(owner.user, owner.virtual_host.name, operation, kind, name)


def may_see(owner: BrokerChannel, kind: str, name: str) -> None:
    """A passive declare tells whether something exists: any permission on it will do."""
    user, host = owner.user, owner.virtual_host.name
    if not any(is_allowed(user, host, each, name, kind) for each in (Operation.READ, Operation.WRITE)):
        may(owner, Operation.CONFIGURE, kind, name)


def wrong_mode(why: str) -> ChannelFault:
    return ChannelFault(amqp.PRECONDITION_FAILED, f"{why}")


def is_early(session: Session, owner: BrokerChannel) -> bool:
    """Whether the rules of 0-8 and 0-9 hold for what is declared again or missing.

    AMQP/Fast has their faults (`by_standard`), and no rules of its own on these.
    """
    return owner.by_standard and session.connection.version in (amqp.VERSION_0_8, amqp.VERSION_0_9)


def is_open(session: Session, channel: Channel, owner: BrokerChannel) -> bool:
    """Whether there is still somebody to answer."""
    return (
        channel.owner is owner
        and channel.state == phases.CHANNEL_OPEN
        and session.connection.state == phases.CONNECTION_OPEN
    )


class AwaitedMethod:
    """A method whose work is more than a pass may take: an errand of its connection."""

    def __init__(self, session: Session, channel: Channel, method: Method) -> None:
        self.session = session
        self.channel = channel
        self.owner = broker_channel(channel)
        self.method = method
        self.work: Chore = iter(())

    def begin(self, work: Chore) -> None:
        self.work = work
        attend(self.session.broker.pass_work, self.session.number, self)

    def serve(self) -> Chore:
        try:
            yield from self.work
        except PeerFault as fault:
            if not fault.class_id:
                fault.class_id, fault.method_id = self.method.CLASS_ID, self.method.METHOD_ID
            if is_open(self.session, self.channel, self.owner):
                self.session.fail(self.channel, fault)
        except Exception:
            log.exception("a bug ends the connection of %s", self.session)
            self.session.close_connection(ConnectionFault(amqp.INTERNAL_ERROR, "see the log of the broker"))
