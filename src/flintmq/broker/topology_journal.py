"""Exchanges, queues, bindings and policies of a virtual host, as they go to the journal.

store/topology_records.py has the octets; recovery.py reads them back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flintmq.broker.store.topology_records import (
    BINDING,
    DESTINATION_LIFE,
    EXCHANGE,
    POLICY,
    QUEUE,
    SOURCE_LIFE,
    handed_out_key,
    note_given,
)
from flintmq.wire.tables import FieldTable, encode_table

if TYPE_CHECKING:
    from flintmq.broker.exchanges.binding import Binding
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.policies import Policy
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.store.store import Store
    from flintmq.broker.virtual_host import VirtualHost


class TopologyJournal:
    """Writes the durable topology of one virtual host."""

    def __init__(self, store: Store, virtual_host: str) -> None:
        self.store = store
        self.journal = store.journal
        self.virtual_host = virtual_host
        self.sequence = 0  # of its newest record: until that is synced, nobody is told of the change

    def put_exchange(self, exchange: Exchange) -> None:
        fields: FieldTable = {
            "type": exchange.type,
            "auto-delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": exchange.arguments,
        }
        if exchange.number:
            fields["number"] = exchange.number
        if exchange.life:
            fields["life"] = exchange.life
        value = encode_table(fields)
        self.sequence = self.journal.put_value(self.named(EXCHANGE, exchange.name), value)

    def delete_exchange(self, exchange: Exchange) -> None:
        if exchange.number:
            note_given(self.journal, exchange.number)
        self.sequence = self.journal.delete_value(self.named(EXCHANGE, exchange.name))

    def put_queue(self, queue: Queue) -> None:
        fields: FieldTable = {
            "number": queue.number,
            "auto-delete": queue.auto_delete,
            "arguments": queue.arguments,
        }
        if queue.creation_id is not None:
            fields["creation-id"] = queue.creation_id
        if queue.life:
            fields["life"] = queue.life
        if queue.user:
            fields["user"] = queue.user
        if queue.rules is not None and queue.rules.is_consumed:
            fields["consumed"] = True
        value = encode_table(fields)
        self.sequence = self.journal.put_value(self.named(QUEUE, queue.name), value)

    def delete_queue(self, queue: Queue) -> None:
        note_given(self.journal, queue.number)
        self.sequence = self.journal.delete_value(self.named(QUEUE, queue.name))
        self.sequence = self.journal.delete_value(handed_out_key(queue.number))
        self.store.when_synced(self.sequence, partial(self.store.delivered_marks.forget, queue.number))

    def put_binding(self, binding: Binding, to_queue: bool) -> None:
        self.sequence = self.journal.put_value(self.binding_key(binding, to_queue), b"")

    def delete_binding(self, binding: Binding, to_queue: bool) -> None:
        self.sequence = self.journal.delete_value(self.binding_key(binding, to_queue))

    def put_policy(self, policy: Policy) -> None:
        value: FieldTable = {
            "pattern": policy.pattern,
            "priority": policy.priority,
            "apply-to": policy.apply_to,
            "definition": dict(policy.definition),
        }
        self.sequence = self.journal.put_value(self.policy_key(policy), encode_table(value))

    def delete_policy(self, policy: Policy) -> None:
        self.sequence = self.journal.delete_value(self.policy_key(policy))

    def policy_key(self, policy: Policy) -> bytes:
        return POLICY + encode_table(
            {"virtual-host": self.virtual_host, "name": policy.name, "operator": policy.is_operator}
        )

    def named(self, kind: bytes, name: str) -> bytes:
        return kind + encode_table({"virtual-host": self.virtual_host, "name": name})

    def binding_key(self, binding: Binding, to_queue: bool) -> bytes:
        identity: FieldTable = {
            "virtual-host": self.virtual_host,
            "source": binding.source.name,
            "destination": binding.destination.name,
            "to-queue": to_queue,
            "routing-key": binding.routing_key,
            "arguments": binding.arguments,
        }
        for name, end in ((SOURCE_LIFE, binding.source), (DESTINATION_LIFE, binding.destination)):
            life: int = end.life  # type: ignore[attr-defined]
            if life:
                identity[name] = life
        return BINDING + encode_table(identity)


def is_of_another_life(host: VirtualHost, binding: FieldTable) -> bool:
    """Whether an end of the binding is gone, though there is something of its name."""
    source = host.exchanges.get(str(binding["source"]))
    names: dict[str, Queue] | dict[str, Exchange] = host.queues if binding["to-queue"] else host.exchanges
    destination = names.get(str(binding["destination"]))
    return any(
        end is not None and end.life != binding.get(life, 0)
        for end, life in ((source, SOURCE_LIFE), (destination, DESTINATION_LIFE))
    )
