"""Exchanges, queues and bindings of a definitions file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq import checks
from flintmq.broker import declare_checks, quotas
from flintmq.broker.definitions.entry import Entry, host_named, host_of, quoted
from flintmq.broker.exchanges import arguments as arguments_of
from flintmq.broker.exchanges.exchange_types import EXCHANGE_TYPES, known_type
from flintmq.broker.queues.deduplication import DEDUPLICATED
from flintmq.broker.queues.queue_rules import CLASSIC, QUORUM, STREAM, check_arguments, check_properties
from flintmq.broker.streams.stream_arguments import check_properties as check_stream_properties
from flintmq.broker.streams.stream_arguments import stream_options
from flintmq.checks import Unfit

if TYPE_CHECKING:
    from flintmq.broker.broker import Broker
    from flintmq.broker.definitions.draft import Draft
    from flintmq.broker.definitions.fields import Fields
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.virtual_host import VirtualHost

DESTINATIONS = ("queue", "exchange")


class ExchangeEntry(Entry):
    section = "exchanges"
    rank = 6

    def read(self, fields: Fields, within: str) -> None:
        self.host, self.name = host_of(fields, within), fields.key("name")
        self.label = quoted("exchange", self.name, self.host)
        kind = fields.name("type")
        self.durable, self.auto_delete = fields.flag("durable"), fields.flag("auto_delete")
        self.internal = fields.flag("internal")
        self.kind, self.arguments = known_type(kind, fields.table("arguments"))

    def check(self, draft: Draft) -> None:
        draft.require_host(self.host)
        existing = draft.exchange((self.host, self.name))
        if existing is not None:
            what = f"exchange '{self.name}' in vhost '{self.host}'"
            declare_checks.compare_exchange(
                existing, what, self.kind, self.durable, self.auto_delete, self.internal, self.arguments
            )
        elif not self.name or self.name.startswith("amq."):
            raise declare_checks.reserved_name("exchange", self.name, 40, 10)
        else:
            draft.add_exchange((self.host, self.name), self.made())

    def made(self) -> Exchange:
        """One of its type, for checks; raises if there can be none."""
        make = EXCHANGE_TYPES.get(self.kind)
        if make is None:
            raise Unfit(f"no exchange type '{self.kind}' here; known are {', '.join(sorted(EXCHANGE_TYPES))}")
        return make(
            self.name,
            durable=self.durable,
            auto_delete=self.auto_delete,
            internal=self.internal,
            arguments=self.arguments,
        )

    def apply(self, broker: Broker) -> bool:
        host = host_named(broker, self.host)
        is_new = self.name not in host.exchanges
        quotas.check_exchange(broker.config.limits, host, self.name)
        host.declare_exchange(
            self.name, self.kind, self.durable, self.auto_delete, self.internal, self.arguments
        )
        return is_new


class QueueEntry(Entry):
    section = "queues"
    rank = 7

    def read(self, fields: Fields, within: str) -> None:
        self.host, self.name = host_of(fields, within), fields.name("name")
        self.label = quoted("queue", self.name, self.host)
        self.durable, self.auto_delete = fields.flag("durable"), fields.flag("auto_delete")
        self.arguments = fields.table("arguments")
        if fields.flag("exclusive"):
            raise Unfit("an exclusive queue belongs to the connection that has declared it")
        kind = fields.text("type", "").removeprefix("rabbit_").removesuffix("_queue")
        if kind not in ("", CLASSIC):
            self.arguments.setdefault("x-queue-type", kind)
        if self.arguments.get("x-queue-type") == QUORUM:
            self.notes.append("is a quorum queue of one node: as safe as the disk of this broker")
        self.what = f"queue '{self.name}' in vhost '{self.host}'"

    def check(self, draft: Draft) -> None:
        draft.require_host(self.host)
        host = draft.host(self.host)
        existing = None if host is None else host.lookup_queue(self.name)
        if existing is not None:
            declare_checks.compare_queue(
                existing, self.what, self.durable, False, self.auto_delete, self.arguments
            )
        elif self.arguments.get("x-queue-type") == STREAM:
            check_stream_properties(self.what, self.durable, False, self.auto_delete)
            stream_options(self.arguments, False)
        else:
            check_arguments(self.arguments, self.what)
            check_properties(self.arguments, self.durable, False, self.auto_delete, self.what)
            arguments_of.checked(self.arguments, DEDUPLICATED, checks.switch, False)
        draft.add_queue((self.host, self.name))

    def apply(self, broker: Broker) -> bool:
        host = host_named(broker, self.host)
        existing = host.lookup_queue(self.name)
        if existing is not None:
            declare_checks.compare_queue(
                existing, self.what, self.durable, False, self.auto_delete, self.arguments
            )
            return False
        quotas.check_queue(broker.config.limits, host, self.name, "")
        # Not `declare_queue`: the broker that the file is from may have made up the name.
        host.add_queue(self.name, self.durable, False, self.auto_delete, self.arguments, 0)
        return True


class BindingEntry(Entry):
    section = "bindings"
    rank = 8

    def read(self, fields: Fields, within: str) -> None:
        self.host = host_of(fields, within)
        self.source, self.destination = fields.key("source"), fields.name("destination")
        self.kind = fields.take("destination_type", checks.one_of(*DESTINATIONS))
        self.key = fields.key("routing_key", "")
        self.arguments = fields.table("arguments")
        fields.text("properties_key", "")  # made of the routing key and the arguments
        self.label = (
            f"binding from exchange '{self.source}' to {self.kind} '{self.destination}' "
            f"by '{self.key}' in virtual host '{self.host}'"
        )

    def check(self, draft: Draft) -> None:
        draft.require_host(self.host)
        source = draft.exchange((self.host, self.source))
        if source is None:
            raise Unfit(f"no exchange '{self.source}', here or in the definitions")
        place = (self.host, self.destination)
        is_there = draft.has_queue(place) if self.kind == "queue" else draft.exchange(place) is not None
        if not is_there:
            raise Unfit(f"no {self.kind} '{self.destination}', here or in the definitions")
        source.validate_binding(self.key, self.arguments)
        if not self.is_there(draft.host(self.host)):
            draft.add_binding(
                self.host, self.source, self.kind, self.destination, self.key, repr(self.arguments)
            )

    def is_there(self, host: VirtualHost | None) -> bool:
        """Whether there is the same one already."""
        if host is None or self.source not in host.exchanges:
            return False
        those = host.queues if self.kind == "queue" else host.exchanges
        destination = those.get(self.destination)
        if destination is None:
            return False
        return host.exchanges[self.source].find_binding(destination, self.key, self.arguments) is not None

    def apply(self, broker: Broker) -> bool:
        host = host_named(broker, self.host)
        source = host.find_exchange(self.source)
        destination: Queue | Exchange
        if self.kind == "queue":
            destination = host.find_queue(self.destination, 0)
        else:
            destination = host.find_exchange(self.destination)
        if source.find_binding(destination, self.key, self.arguments) is not None:
            return False
        quotas.check_binding(broker.config.limits, host, source, destination, self.key, self.arguments)
        host.bind(source, destination, self.key, self.arguments)
        return True
