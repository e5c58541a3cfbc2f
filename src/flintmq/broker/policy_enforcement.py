"""Puts rules into force on the queues of a virtual host: those of their arguments and of policies.

    arguments of the queue  \\
    policies.given           >  queue_rules.combine  ->  Queue.apply

A queue gets its rules when it is declared or recovered. A change of policies reaches existing queues in
portions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from flintmq.broker.queues.queue_rules import PLAIN, Given, check_arguments, combine, kind_of
from flintmq.errors import ChannelFault

if TYPE_CHECKING:
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.virtual_host")

# Queues that policies are put into force for in one step, some 10 microseconds each, while there are at most
# POLICIES_FEW policies; fewer queues where there are more policies.
QUEUES = 16
POLICIES_FEW = 32


def enforce(host: VirtualHost, queue: Queue, given: Given) -> None:
    """Gives the queue the rules that hold for it; `given` are those of its arguments.

    A stream keeps to its own arguments.
    """
    policies = host.policies
    by_policies = [] if policies is None else policies.given(host.name, queue.name, kind_of(queue.arguments))
    rules = None if queue.is_stream else combine(given, *by_policies)
    if rules is not None:
        queue.apply(rules, host)
    elif queue.rules is not None:
        queue.apply(PLAIN, host)


def given_by_arguments(host: VirtualHost, name: str, arguments: FieldTable) -> Given:
    """The rules that the arguments of an existing queue ask for."""
    try:
        return check_arguments(arguments, f"queue '{name}' in vhost '{host.name}'")
    except ChannelFault as fault:
        # A version that did not know the argument has declared the queue. The queue is worth more than it.
        log.error("arguments of a queue mean nothing here: %s", fault.reply_text)
        return {}


def reapply(host: VirtualHost) -> None:
    """Policies have changed: they hold for what is declared from now on, and soon for what is there."""
    host.router.rewired()
    host.pass_work.chores.begin(enforce_all(host))


def enforce_all(host: VirtualHost) -> Iterator[None]:
    """Enforces the policies of now on every queue, in portions."""
    last: str | None = None
    policies = host.policies
    many = 0 if policies is None else policies.count(host.name) // POLICIES_FEW
    while names := list(islice(host.queue_names.after(last), max(1, QUEUES // (1 + many)))):
        for name in names:
            queue = host.queues.get(name)
            if queue is not None and policies is not None:
                decision = policies.decision(host.name, name, kind_of(queue.arguments))
                if decision is not None:
                    changes = policies.changes
                    yield from decision.make()
                    if changes != policies.changes:
                        return  # the change has begun another round over all queues
            if queue is not None and host.queues.get(name) is queue:
                enforce(host, queue, given_by_arguments(host, name, queue.arguments))
        last = names[-1]
        host.router.rewired()  # a route knows whether its queues have rules
        yield
