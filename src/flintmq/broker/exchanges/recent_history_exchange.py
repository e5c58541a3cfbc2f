"""x-recent-history: a queue that is bound to the exchange gets the messages of the recent past first.

The history lives in memory, and ends with the process. Large messages, with bodies on disk, are left out.
A new binding routes at once. The past is handed over in portions, and whoever binds is answered when it has
been: what the binder publishes afterwards comes behind the past, what others publish may come between.
This module does not import queues: compiled, these import the virtual host, which needs all exchange types.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from flintmq import checks
from flintmq.broker.exchanges import arguments
from flintmq.broker.exchanges.binding import Binding
from flintmq.broker.exchanges.exchange import ROUTED, Exchange
from flintmq.broker.exchanges.route import with_passage
from flintmq.broker.exchanges.wrapping_exchange import WrappingExchange
from flintmq.broker.messages import cc_bcc
from flintmq.broker.messages.message import Message
from flintmq.broker.queues import put_flags
from flintmq.errors import PeerFault
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.exchanges.route import RoutingContext
    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.chores import Chore

log = logging.getLogger("flintmq.exchange")

LENGTH = 20
LENGTH_MAX = 10_000
# All messages of one exchange: 64 MiB. Of larger ones it remembers fewer.
HISTORY_BYTES_MAX = 67_108_864
# The same while memory is short.
HISTORY_BYTES_SHORT = 1_048_576
# What one step hands over, a third of a millisecond; copies of one message in many queues count each, and a
# message that goes to none counts as one.
STEP_COPIES = 64
STEP_BYTES = 65_536
NO_STORE = "x-recent-history-no-store"


class RecentHistoryExchange(WrappingExchange):
    """Remembers `x-recent-history-length` messages."""

    __slots__ = ("handing_over", "history", "history_bytes", "latest", "length", "remembered")
    type = "x-recent-history"

    def prepare(self) -> None:
        super().prepare()
        self.length = arguments.checked(
            self.arguments, "x-recent-history-length", checks.whole(1, LENGTH_MAX), LENGTH
        )
        self.history: deque[Message] = deque()
        self.history_bytes = 0
        self.remembered = 0  # messages so far; the last ones are the history
        self.latest: Message | None = None  # the last one as it came, which may be refused yet
        # Bindings that have not got all of the past yet, with whom to call when they have.
        self.handing_over: dict[Binding, list[Callable[[], None]]] = {}

    def receive(self, context: RoutingContext) -> int:
        message = context.message
        if not message.traits & traits.SPOOLED and context.headers().get(NO_STORE) is not True:
            if message.traits & traits.HAS_COPIES:
                message = cc_bcc.without_blind(message)
            self.history.append(message)
            self.latest = context.message
            self.remembered += 1
            self.history_bytes += len(message.content)
            is_short = self.router.pass_work.is_short
            bytes_max = HISTORY_BYTES_SHORT if is_short else HISTORY_BYTES_MAX
            while len(self.history) > self.length or self.history_bytes > bytes_max:
                self.history_bytes -= len(self.history.popleft().content)
        return ROUTED

    def take_back(self, context: RoutingContext, is_unrouted: bool) -> None:
        """What no queue was there for stays, for those that come. What was pushed out does not come back."""
        if self.latest is context.message and self.history and not is_unrouted:
            self.history_bytes -= len(self.history.pop().content)
            self.remembered -= 1
            self.latest = None

    def leave(self) -> None:
        """Routes that were found earlier may still name the exchange: the history goes now."""
        self.history.clear()
        self.history_bytes = 0
        self.latest = None

    def attach(self, binding: Binding) -> None:
        super().attach(binding)
        if self.history:
            # Noted here and not by the chore, which may begin in a later pass.
            waiting = self.handing_over[binding] = []
            self.router.pass_work.chores.begin(self.handed_over(binding, waiting, self.remembered))

    def detach(self, binding: Binding) -> None:
        super().detach(binding)
        self.handing_over.pop(binding, None)

    def when_handed_over(self, binding: Binding, callback: Callable[[], None]) -> None:
        """Calls back when the destination has got the past, or will not get more of it; at once if so."""
        if binding in self.handing_over:
            self.handing_over[binding].append(callback)
        else:
            callback()

    def handed_over(self, binding: Binding, waiting: list[Callable[[], None]], end: int) -> Chore:
        """The past up to `end` goes to the destination, then those who wait are called.

        What the exchange forgets meanwhile is the past no longer.
        """
        number = copies = octets = 0
        try:
            while self.handing_over.get(binding) is waiting:
                first = self.remembered - len(self.history)
                number = max(number, first)
                if number >= end:
                    break
                message = self.history[number - first]
                number += 1
                for queues, passage in self.queues_for(binding, message):
                    with_passage(passage, self.router.forward, message.twin(), queues)
                    copies += len(queues)
                    octets += len(message.content)
                    if copies >= STEP_COPIES or octets >= STEP_BYTES:
                        copies = octets = 0
                        yield from self.turn_of_others(binding, waiting)
                copies += 1  # one that goes nowhere has been routed too
                if copies >= STEP_COPIES:
                    copies = octets = 0
                    yield from self.turn_of_others(binding, waiting)
        finally:
            if self.handing_over.get(binding) is waiting:
                del self.handing_over[binding]
            for callback in waiting:
                callback()

    def turn_of_others(self, binding: Binding, waiting: list[Callable[[], None]]) -> Chore:
        """The end of a step. The next one waits for the disk, and for memory."""
        yield None
        pass_work = self.router.pass_work
        while self.handing_over.get(binding) is waiting and (pause_ms := pass_work.pause_ms()):
            yield partial(self.call_later, pause_ms)

    def call_later(self, wait_ms: int, callback: Callable[[], None]) -> None:
        timetable = self.router.pass_work.timetable
        timetable.at(timetable.now_ms() + wait_ms, callback)

    def queues_for(
        self, binding: Binding, message: Message
    ) -> Iterator[tuple[list[Queue], RoutingContext | None]]:
        """The queues that a message of the past goes to, some at a time, without those that are deleted.

        With them who is to hear what becomes of the message, as exchanges behind this one may remember it.
        """
        destination = binding.destination
        router: Router = self.router
        queues: list[Queue] | None
        passage: RoutingContext | None = None
        if isinstance(destination, Exchange):
            try:
                queues = router.match_keys(destination, [message.routing_key()], message.twin(), None)
            except PeerFault as fault:
                log.warning("exchange %r hands over a message to nobody: %s", self.name, fault.reply_text)
                return
            passage = router.take_passage()
        else:
            queues = [cast("Queue", destination)]
        if passage is not None and queues is not None and not queues:
            passage.end(put_flags.UNROUTED)
        for at in range(0, len(queues or ()), STEP_COPIES):
            some = [queue for queue in (queues or ())[at : at + STEP_COPIES] if not queue.deleted]
            if some:
                yield some, passage
