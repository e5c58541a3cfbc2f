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


class Round:
    """One walk over the queues of a virtual host, from a place all the way around to it again."""

    def __init__(self, start: str | None) -> None:
        self.start = start
        self.last = start  # the queue that was looked at last
        self.is_past_end = start is None  # the walk began at the first name, or has come to it

    def portion(self, host: VirtualHost, most: int) -> list[str]:
        """The names that come next, none at the end."""
        names = list(islice(host.queue_names.after(self.last), most))
        if not names and not self.is_past_end:
            self.is_past_end = True
            self.last = None
            names = list(islice(host.queue_names.after(None), most))
        if self.is_past_end and self.start is not None:
            names = [name for name in names if name <= self.start]
        return names


def enforce_all(host: VirtualHost) -> Iterator[None]:
    """Enforces the policies of now on every queue, in portions.

    A round that begins meanwhile goes on from where this round is, and ends this one: however often policies
    change, every queue has its turn.
    """
    policies = host.policies
    if policies is None:
        yield from enforced(host, Round(None))
        return
    before = policies.rounds.get(host)
    mine = policies.rounds[host] = Round(None if before is None else before.last)
    try:
        yield from enforced(host, mine)
    finally:
        if policies.rounds.get(host) is mine:
            del policies.rounds[host]


def enforced(host: VirtualHost, mine: Round) -> Iterator[None]:
    policies = host.policies
    many = 0 if policies is None else policies.count(host.name) // POLICIES_FEW
    while names := mine.portion(host, max(1, QUEUES // (1 + many))):
        for name in names:
            queue = host.queues.get(name)
            while queue is not None and policies is not None:
                decision = policies.decision(host.name, name, kind_of(queue.arguments))
                if decision is None:
                    break
                yield from decision.make()  # once more where policies of another virtual host have changed
                if policies.rounds.get(host) is not mine:
                    return
            if queue is not None and host.queues.get(name) is queue:
                enforce(host, queue, given_by_arguments(host, name, queue.arguments))
            mine.last = name
        host.router.rewired()  # a route knows whether its queues have rules
        yield
        if policies is not None and policies.rounds.get(host) is not mine:
            return
