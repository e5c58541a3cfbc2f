"""A virtual host: the exchanges, queues and bindings of one name space. Its router has the routes.

Everything here speaks of names, raises ChannelFaults with RabbitMQ's wording, and keeps the topology
consistent: a queue or exchange that is deleted leaves no binding, no consumer and no cached route behind.
Callers check permissions before they call. Beside this file: declare_checks.py refuses a declare,
policy_enforcement.py puts the rules of queues into force, topology_journal.py writes the topology down,
topology_teardown.py takes apart what a deleted queue or exchange leaves behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq import checks
from flintmq.broker import declare_checks, policy_enforcement, topology_teardown
from flintmq.broker.channels import direct_reply, undelivered
from flintmq.broker.channels.host_tally import HostTally
from flintmq.broker.exchanges import arguments as arguments_of
from flintmq.broker.exchanges import chains
from flintmq.broker.exchanges.binding import VIA, Binding
from flintmq.broker.exchanges.exchange import Exchange
from flintmq.broker.exchanges.exchange_types import EXCHANGE_TYPES, known_type
from flintmq.broker.exchanges.router import Router
from flintmq.broker.exchanges.system_exchange import FormerSystemExchange
from flintmq.broker.queues.consumer import Consumer
from flintmq.broker.queues.deduplication import DEDUPLICATED
from flintmq.broker.queues.priority_queue import kind_of_queue
from flintmq.broker.queues.queue import Queue
from flintmq.broker.queues.queue_rules import STREAM, Given, check_arguments, check_properties
from flintmq.broker.scheduling.pass_work import PassWork
from flintmq.broker.topology_journal import TopologyJournal
from flintmq.broker.topology_teardown import HostTeardown
from flintmq.config import Config
from flintmq.errors import ChannelFault
from flintmq.ordered_names import OrderedNames
from flintmq.wire import amqp

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.broker import Broker
    from flintmq.broker.messages.message import Message
    from flintmq.broker.policies import Policies
    from flintmq.broker.store.store import Store
    from flintmq.broker.streams.streams import Streams
    from flintmq.broker.transactions.dtx_branches import Branches
    from flintmq.wire.tables import FieldTable

# The exchange that tells of events: see administration/events.py.
EVENTS = "amq.rabbitmq.event"

PREDECLARED = (
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.topic", "topic", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
    (EVENTS, "topic", True),
    ("amq.system", "system", False),
)
PREDECLARED_NAMES = frozenset(["", *[name for name, _, _ in PREDECLARED]])
# What amq.system was called before. Data directories of that time have it yet, until an application declares
# an exchange of that name.
FORMER_SYSTEM = "system"


class VirtualHost:
    """One name space of the broker."""

    __slots__ = (
        "_branches",
        "binding_count",
        "broker",
        "config",
        "exchange_names",
        "exchanges",
        "exclusive",
        "falling",
        "name",
        "pass_work",
        "policies",
        "queue_names",
        "queues",
        "reply_queues",
        "router",
        "static_topology",
        "store",
        "streams",
        "tally",
        "topology",
    )

    def __init__(self, name: str, pass_work: PassWork, store: Store | None = None) -> None:
        self.name = name
        self.pass_work = pass_work
        self.broker: Broker | None = None  # whoever made it; None in tests of this class alone
        self.store = store
        self.topology = None if store is None else TopologyJournal(store, name)
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        self.exchange_names: OrderedNames[str] = OrderedNames()
        self.queue_names: OrderedNames[str] = OrderedNames()
        self.router = Router(name, self.exchanges, self.queues, pass_work, store)
        self.falling = HostTeardown(self)  # what was deleted and is being taken apart
        self.router.departures = self.falling
        self.config = Config()  # until the broker gives its own
        self._branches: Branches | None = None
        self.streams: Streams | None = None
        self.binding_count = 0  # of all exchanges together
        self.tally = HostTally()
        self.reply_queues = 0  # queues of direct reply-to, which nobody has declared
        self.static_topology: set[tuple[str, ...]] = (
            set()
        )  # what the settings declare, see static_topology.py
        self.exclusive: dict[int, dict[Queue, None]] = {}  # by the connection they belong to
        self.policies: Policies | None = None  # the broker's, who makes them after its virtual hosts
        for exchange_name, kind, internal in PREDECLARED:
            exchange = EXCHANGE_TYPES[kind](exchange_name, durable=True, internal=internal)
            self.add_exchange(exchange)

    @property
    def branches(self) -> Branches:
        """Those of distributed transactions."""
        if self._branches is None:
            # For the first transaction: six modules take two milliseconds to load, and most hosts have none.
            from flintmq.broker.transactions.dtx_branches import Branches

            self._branches = Branches(self.router, self.config)
        return self._branches

    def configure_branches(self, config: Config) -> None:
        """From now on the limits of these settings hold."""
        self.config = config
        if self._branches is not None:
            self._branches.configure(config)

    def bury(self, queue: Queue, messages: list[Message], reason: str) -> None:
        """The queue has given these up: dead letters, or messages for their publishers."""
        if queue.rules is None or queue.rules.settings.dead_letter_exchange is not None:
            self.router.dead_letters.bury(queue, messages, reason)
            return
        if self.broker is not None:
            undelivered.died(self.broker.clients.find, self, messages, reason)
        queue.let_go_all(messages)

    def letters_room(self) -> int:
        """How many messages that become dead letters a queue may drop now; it drops the others later."""
        return self.router.dead_letters.room()

    def when_letters_room(self, callback: Callable[[], None]) -> None:
        """Calls back once queues may drop many."""
        self.router.dead_letters.when_room(callback)

    # Exchanges

    def hears_events(self) -> bool:
        """Whether anything is bound to the exchange that tells of events."""
        exchange = self.exchanges.get(EVENTS)  # a virtual host that is being deleted may have lost it
        return exchange is not None and len(exchange.bindings) > 0

    def find_exchange(self, name: str, class_id: int = 0, method_id: int = 0) -> Exchange:
        return self.router.find_exchange(name, class_id, method_id)

    def declare_exchange(
        self, name: str, kind: str, durable: bool, auto_delete: bool, internal: bool, arguments: FieldTable
    ) -> Exchange:
        kind, arguments = known_type(kind, arguments)
        existing = self.exchanges.get(name)
        if isinstance(existing, FormerSystemExchange) and kind != existing.type:
            self.remove_exchange(existing)
            existing = None
        if existing is not None:
            what = f"exchange '{name}' in vhost '{self.name}'"
            declare_checks.compare_exchange(existing, what, kind, durable, auto_delete, internal, arguments)
            return existing
        if name.startswith("amq."):
            raise declare_checks.reserved_name("exchange", name, 40, 10)
        make = EXCHANGE_TYPES.get(kind)
        if make is None:
            known = ", ".join(sorted(EXCHANGE_TYPES))
            raise ChannelFault(
                amqp.PRECONDITION_FAILED,
                f"unknown exchange type '{kind}': known are {known}",
                40,
                10,
            )
        exchange = make(
            name, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments
        )
        if durable and exchange.holds_messages and self.store is not None:
            exchange.number = self.store.next_number()
        exchange.life = self.falling.next_life(False, name)
        self.add_exchange(exchange)
        if durable and self.topology is not None:
            self.topology.put_exchange(exchange)
        self.router.rewired()  # it may be the alternate that another one has named
        if self.broker is not None:
            self.broker.events.exchange_changed("exchange.created", self, exchange)
        return exchange

    def answer_as_before(self) -> None:
        """The exchange of requests has its former name too, for clients of that time."""
        self.add_exchange(FormerSystemExchange(FORMER_SYSTEM, durable=True))

    def add_exchange(self, exchange: Exchange) -> None:
        self.exchanges[exchange.name] = exchange
        self.exchange_names.add(exchange.name)
        exchange.enter(self.router)

    def delete_exchange(self, name: str, if_unused: bool) -> None:
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if name.startswith("amq."):
            raise declare_checks.reserved_name("exchange", name, 40, 20)
        if isinstance(exchange, FormerSystemExchange):
            raise ChannelFault(amqp.ACCESS_REFUSED, f"exchange '{name}' is the broker's own", 40, 20)
        if if_unused and not exchange.is_unused():
            raise ChannelFault(
                amqp.PRECONDITION_FAILED,
                f"exchange '{name}' in vhost '{self.name}' in use",
                40,
                20,
            )
        chains.refuse_deletion(self.router.chains, exchange, self.name)
        self.remove_exchange(exchange)

    def remove_exchange(self, exchange: Exchange) -> None:
        """The exchange is gone at once. Its bindings, and what depends on them, go in portions."""
        del self.exchanges[exchange.name]
        self.exchange_names.discard(exchange.name)
        exchange.deleted = True
        self.router.passed.pop(exchange.name, None)
        exchange.leave()
        if exchange.durable and self.topology is not None:
            self.topology.delete_exchange(exchange)
        self.router.rewired()
        work = topology_teardown.of_exchange(self, exchange)
        self.pass_work.chores.begin(self.falling.taken_apart(exchange, work))
        if self.broker is not None:
            self.broker.events.exchange_changed("exchange.deleted", self, exchange)

    def drop_unused(self, exchange: Exchange) -> None:
        """An auto-delete exchange goes with its last binding."""
        if exchange.auto_delete and not exchange.deleted and exchange.is_unused():
            self.remove_exchange(exchange)

    # Bindings

    def bind(self, source: Exchange, destination: Queue | Exchange, key: str, arguments: FieldTable) -> None:
        source.validate_binding(key, arguments)
        if VIA in arguments:
            chains.check(source, destination, self.exchanges, arguments)
        if self.rebind(source, destination, key, arguments):
            binding = source.find_binding(destination, key, arguments)
            if binding is not None and self.topology is not None and is_durable(binding):
                self.topology.put_binding(binding, isinstance(destination, Queue))
            if self.broker is not None:
                self.broker.events.binding_changed(
                    "binding.created", self, source, destination, key, arguments
                )

    def rebind(
        self, source: Exchange, destination: Queue | Exchange, key: str, arguments: FieldTable
    ) -> bool:
        """The binding in memory alone: what the journal holds of it is right already."""
        if not source.bind(destination, key, arguments):
            return False
        self.binding_count += 1
        destination.sources[source] = None
        if VIA in arguments:
            binding = source.find_binding(destination, key, arguments)
            if binding is not None:
                self.router.chains.attach(binding)
        self.router.rewired()
        return True

    def forget_binding(self, binding: Binding) -> None:
        """Takes it out of the journal, and out of its chain."""
        self.binding_count -= 1
        if binding.is_chained():
            self.router.chains.detach(binding)
        if self.topology is not None and is_durable(binding):
            self.topology.delete_binding(binding, isinstance(binding.destination, Queue))

    def unbind(
        self, source: Exchange, destination: Queue | Exchange, key: str, arguments: FieldTable
    ) -> None:
        binding = source.find_binding(destination, key, arguments)
        if binding is not None:
            self.forget_binding(binding)
            source.unbind(destination, key, arguments)
            if not source.leads_to(destination):
                destination.sources.pop(source, None)
            self.drop_unused(source)
            self.router.rewired()
            if self.broker is not None:
                self.broker.events.binding_changed(
                    "binding.deleted", self, source, destination, key, arguments
                )

    # Queues

    def find_queue(self, name: str, origin: int, class_id: int = 0, method_id: int = 0) -> Queue:
        """The queue, unless it is another connection's."""
        queue = self.lookup_queue(name)
        if queue is None:
            raise ChannelFault(
                amqp.NOT_FOUND, f"no queue '{name}' in vhost '{self.name}'", class_id, method_id
            )
        if queue.exclusive and queue.owner != origin:
            raise ChannelFault(
                amqp.RESOURCE_LOCKED,
                f"cannot obtain exclusive access to locked queue '{name}' "
                f"in vhost '{self.name}'. It was declared by another connection",
                class_id,
                method_id,
            )
        return queue

    def lookup_queue(self, name: str) -> Queue | None:
        """The queue of this name, if there is one; those of a connection that is gone are gone."""
        queue: Queue | None = self.queues.get(name)
        if queue is not None and self.router.is_gone(queue):
            self.delete_queue(queue)
            return None
        return queue

    def declare_queue(
        self, name: str, durable: bool, exclusive: bool, auto_delete: bool, arguments: FieldTable, origin: int
    ) -> Queue:
        if self.lookup_queue(name) is not None:
            queue = self.find_queue(name, origin, 50, 10)
            what = f"queue '{name}' in vhost '{self.name}'"
            check_arguments(arguments, what)
            lasts = durable and not exclusive
            declare_checks.compare_queue(queue, what, lasts, exclusive, auto_delete, arguments)
            if queue.rules is not None:
                queue.rules.touch()
            return queue
        if name.startswith("amq."):
            raise declare_checks.reserved_name("queue", name, 50, 10)
        return self.add_queue(name, durable, exclusive, auto_delete, arguments, origin)

    def add_queue(
        self, name: str, durable: bool, exclusive: bool, auto_delete: bool, arguments: FieldTable, origin: int
    ) -> Queue:
        """An exclusive queue ends with its connection: it is never durable, whatever the client asks for."""
        durable = durable and not exclusive
        what = f"queue '{name}' in vhost '{self.name}'"
        is_stream = arguments.get("x-queue-type") == STREAM
        given: Given = {} if is_stream else check_arguments(arguments, what)
        check_properties(arguments, durable, exclusive, auto_delete, what)
        arguments_of.checked(arguments, DEDUPLICATED, checks.switch, False)
        number = 0
        if self.store is not None and durable:
            number = self.store.next_number()
        if is_stream:
            queue: Queue = self.need_streams().declare(
                self.name, name, durable, exclusive, auto_delete, arguments, number
            )
        else:
            make = kind_of_queue(given)
            queue = make(
                name, self.pass_work, durable, exclusive, auto_delete, arguments, origin, self.store, number
            )
        queue.life = self.falling.next_life(True, name)
        self.tally.queues_created += 1
        client = None if self.broker is None else self.broker.clients.find(origin)
        queue.user = "" if client is None else client.user.name
        self.queues[name] = queue
        self.queue_names.add(name)
        self.count_queue(queue, 1)
        policy_enforcement.enforce(self, queue, given)
        if number and self.topology is not None:
            self.topology.put_queue(queue)
        if exclusive:
            self.exclusive.setdefault(origin, {})[queue] = None
        self.router.queue_came_or_went(name)
        self.tell_of_queue("queue.created", queue)
        return queue

    def tell_of_queue(self, event: str, queue: Queue) -> None:
        """Whoever hears of events; nobody may know the names of direct reply-to."""
        if self.broker is not None and not queue.name.startswith(direct_reply.NAME):
            self.broker.events.queue_changed(event, self, queue)

    def count_queue(self, queue: Queue, more: int) -> None:
        """A queue has come, or gone."""
        if queue.name.startswith(direct_reply.NAME):
            self.reply_queues += more
        elif queue.user and self.broker is not None:
            self.broker.administration.limits.count_queue(queue.user, more)

    def restore_queue(self, name: str, number: int, auto_delete: bool, arguments: FieldTable) -> Queue:
        """A durable queue as recovery found it."""
        if arguments.get("x-queue-type") == STREAM:
            queue: Queue = self.need_streams().restore(self.name, name, number, arguments)
            given: Given = {}
        else:
            given = policy_enforcement.given_by_arguments(self, name, arguments)
            queue = kind_of_queue(given)(
                name, self.pass_work, True, False, auto_delete, arguments, 0, self.store, number
            )
        self.queues[name] = queue
        self.queue_names.add(name)
        policy_enforcement.enforce(self, queue, given)
        self.router.queue_came_or_went(name)
        return queue

    def need_streams(self) -> Streams:
        if self.streams is None:
            raise ChannelFault(amqp.PRECONDITION_FAILED, "this broker has no room for streams", 50, 10)
        return self.streams

    def delete_queue(self, queue: Queue) -> int:
        """Deletes the queue with its messages; tells its consumers. The number of messages ready."""
        count = queue.message_count()
        queue.deleted = True
        self.tally.queues_deleted += 1
        del self.queues[queue.name]
        self.queue_names.discard(queue.name)
        self.tally.queue_marks.forget(queue.name, self.pass_work.passes)
        self.count_queue(queue, -1)
        owned = self.exclusive.get(queue.owner)
        if owned is not None:
            owned.pop(queue, None)
            if not owned:
                del self.exclusive[queue.owner]
        queue.active.clear()
        if queue.rules is not None and queue.rules.settings.return_undelivered and self.broker is not None:
            self.pass_work.chores.begin(undelivered.of_deleted(self.broker.clients.find, self, queue))
        else:
            queue.purge()
        if queue.rules is not None:
            queue.rules.close()
        if queue.number and self.topology is not None:
            self.topology.delete_queue(queue)
        if queue.sources:
            self.router.rewired()
        self.router.queue_came_or_went(queue.name)
        if queue.sources or queue.consumers or queue.leases:
            work = topology_teardown.of_queue(self, queue)
            self.pass_work.chores.begin(self.falling.taken_apart(queue, work))
        self.tell_of_queue("queue.deleted", queue)
        return count

    def disown_exclusive(self, origin: int) -> None:
        """The connection is gone, and so are its exclusive queues: for everybody, though they exist yet."""
        if origin in self.exclusive:
            self.falling.depart(origin)
            self.router.rewired()

    # Consumers

    def consume(self, consumer: Consumer) -> None:
        queue = consumer.queue
        declare_checks.check_exclusive_use(queue, consumer, self.name)
        consumer.channel.consumers[consumer.tag] = consumer
        queue.subscribe(consumer)
        if queue.auto_delete:
            self.note_consumed(queue)

    def note_consumed(self, queue: Queue) -> None:
        """After a restart a queue that pauses before it goes has to know whether it has had a consumer."""
        if (
            self.topology is not None
            and queue.number
            and queue.rules is not None
            and queue.rules.begins_consuming()
        ):
            self.topology.put_queue(queue)

    def cancel(self, consumer: Consumer) -> None:
        """The client wants no more of it; an auto-delete queue goes with its last consumer."""
        queue = consumer.queue
        queue.unsubscribe(consumer)
        consumer.channel.consumers.pop(consumer.tag, None)
        self.drop_unconsumed(queue)

    def drop_unconsumed(self, queue: Queue) -> None:
        if queue.auto_delete and not queue.consumers and not queue.deleted:
            if queue.rules is not None and queue.rules.pause_deletion():
                self.note_consumed(queue)  # where a policy has brought the pause since its consumer came
                queue.watch()
            else:
                self.delete_queue(queue)


def is_durable(binding: Binding) -> bool:
    """A binding lasts when both of its ends do."""
    destination = binding.destination
    if isinstance(destination, Queue):
        return binding.source.durable and destination.number != 0
    return binding.source.durable and isinstance(destination, Exchange) and destination.durable
