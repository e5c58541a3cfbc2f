"""Exceptions out of nowhere: the broker's own functions raise, at a call that chance picks.

`POINTS` are replaced once by wrappers. A history arms one of them, and watches while the broker is at work:
the call that chance has picked raises `Injected` in place of doing anything. Functions of the compiled build
cannot be replaced, so such histories are for the pure one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any

from flintmq.broker.administration.administration import Administration
from flintmq.broker.administration.permissions import AdministeredPermissions
from flintmq.broker.administration.records import Records
from flintmq.broker.administration.users import AdministeredUsers
from flintmq.broker.administration.virtual_hosts import VirtualHosts
from flintmq.broker.broker import Broker
from flintmq.broker.channels.channel import Channel
from flintmq.broker.exchanges.dead_letter import DeadLetters
from flintmq.broker.exchanges.delayed_exchange import DelayedExchange
from flintmq.broker.exchanges.router import Router
from flintmq.broker.queues.delivery import Delivery
from flintmq.broker.queues.leases import Lease
from flintmq.broker.queues.priority_queue import PriorityQueue
from flintmq.broker.queues.queue import Queue
from flintmq.broker.queues.retries import Retries
from flintmq.broker.services import browsing
from flintmq.broker.store.store import Store
from flintmq.broker.streams.stream_queue import StreamQueue
from flintmq.broker.transactions import dtx_branches, dtx_completion
from flintmq.broker.transactions.dtx_branches import Branches
from flintmq.broker.transactions.dtx_completion import BranchCompletion
from flintmq.broker.transactions.transaction import Transaction
from flintmq.broker.virtual_host import VirtualHost
from flintmq.storage.journal.appender import Appender
from flintmq.storage.streams.store import StreamStore

POINTS: tuple[tuple[type | ModuleType, tuple[str, ...]], ...] = (
    (Channel, ("publish", "forward", "hand_on", "queue_settle", "discard", "refuse", "requeue", "detach")),
    (Router, ("route_of", "match", "match_keys", "resolve", "owners_of", "enqueue", "forward", "post")),
    (Queue, ("enqueue", "append", "page_out", "settle", "let_go", "bury", "requeue", "take", "hand_out")),
    (Queue, ("enqueue_ruled", "trim", "look_ahead", "expire", "is_full", "page_in", "settle_returned")),
    (Delivery, ("page_out",)),
    (PriorityQueue, ("append",)),
    (StreamQueue, ("enqueue", "write")),
    (Retries, ("note", "forget", "returned")),
    (Store, ("keep", "settle", "spill", "stage", "staged", "load", "journal_entry", "head_of")),
    (Appender, ("append_entry", "append_settle", "put_value", "delete_value")),
    (Transaction, ("check", "carry_out", "forget_bodies")),
    (Branches, ("publish", "settle", "prepare", "lock", "lock_some", "seal", "commit_all")),
    (Branches, ("undo", "let_go", "spoil", "drop")),
    (
        BranchCompletion,
        ("commit", "carry_out", "hand_over", "send", "settle", "settle_one", "finish", "decide"),
    ),
    (dtx_branches, ("put_manifest",)),
    (dtx_completion, ("put_manifest",)),
    (Lease, ("grant", "_take", "keep", "ack", "release", "encoded")),
    (DeadLetters, ("bury_one", "bury_some", "follow", "send", "destinations", "death_of")),
    (DelayedExchange, ("receive", "keep", "send", "hand_over", "put")),
    (browsing, ("move",)),
    (StreamStore, ("commit_now",)),
    (Records, ("put", "delete")),
    (Administration, ("delete_user", "closed", "close", "user_forgotten", "host_forgotten")),
    (AdministeredUsers, ("add", "set_tags", "forget", "put")),
    (AdministeredPermissions, ("set", "clear", "forget_user", "forget_host")),
    (VirtualHosts, ("add", "delete", "emptied")),
    (Broker, ("open_virtual_host",)),
    (VirtualHost, ("delete_queue", "remove_exchange")),
)


class Injected(Exception):
    """The bug that the broker has here, for once."""


class Injector:
    """One for the process, as the functions it stands before are."""

    def __init__(self) -> None:
        self.point = ""  # the function that is to raise; none: whichever is the last that `left` counts
        self.left = 0  # calls until the one that does; 0: none does
        self.called: set[str] = set()
        self.is_watching = False
        self.fired = ""  # the function that has raised
        self.when_fired: Callable[[], None] = lambda: None
        self.counts: dict[str, int] = {}  # how often each has, in all histories

    def install(self) -> None:
        """Once; it does nothing until a history arms it."""
        if self.counts:
            return
        for owner, names in POINTS:
            for name in names:
                label = f"{owner.__name__.rpartition('.')[2]}.{name}"
                self.counts[label] = 0
                setattr(owner, name, self.before(owner.__dict__[name], label))

    def before(self, function: Any, label: str) -> Callable[..., Any]:
        if isinstance(function, staticmethod):
            raise TypeError(f"{label} is static")

        @wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            if self.left and self.is_watching and self.counts_down(label):
                self.left -= 1
                if not self.left:
                    self.fired = label
                    self.counts[label] += 1
                    self.when_fired()
                    raise Injected(label)
            return function(*arguments, **named)

        return call

    def arm(self, chance: random.Random) -> None:
        """One of the next calls of one of the functions raises, or of whichever are called."""
        self.point = chance.choice(list(self.counts)) if chance.random() < 0.5 else ""
        self.left = chance.choice((1, 1, 2, 3, 8)) if self.point else chance.randint(1, 25)
        self.called = set()
        self.fired = ""

    def counts_down(self, label: str) -> bool:
        """Whether the call counts: that of the function in question, or the first of any."""
        if self.point:
            return self.point == label
        if label in self.called:
            return False
        self.called.add(label)
        return True

    def disarm(self) -> None:
        self.left = 0
        self.fired = ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """What is called inside is the broker's doing, and may raise."""
        was, self.is_watching = self.is_watching, True
        try:
            yield
        finally:
            self.is_watching = was


INJECTOR = Injector()
