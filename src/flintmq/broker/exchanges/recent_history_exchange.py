"""x-recent-history: a queue that is bound to the exchange gets the messages of the recent past first.

The history lives in memory, and ends with the process. Large messages, with bodies on disk, are left out.
This module does not import queues: compiled, these import the virtual host, which needs all exchange types.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, cast

from flintmq import checks
from flintmq.broker.exchanges import arguments
from flintmq.broker.exchanges.binding import Binding
from flintmq.broker.exchanges.exchange import ROUTED, Exchange
from flintmq.broker.exchanges.wrapping_exchange import WrappingExchange
from flintmq.broker.messages import cc_bcc
from flintmq.broker.messages.message import Message
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.exchanges.route import RoutingContext
    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.queues.queue import Queue

LENGTH = 20
LENGTH_MAX = 10_000
# All messages of one exchange: 64 MiB. Of larger ones it remembers fewer.
HISTORY_BYTES_MAX = 67_108_864
# The same while memory is short.
HISTORY_BYTES_SHORT = 1_048_576
NO_STORE = "x-recent-history-no-store"


class RecentHistoryExchange(WrappingExchange):
    """Remembers `x-recent-history-length` messages."""

    __slots__ = ("history", "history_bytes", "length")
    type = "x-recent-history"

    def prepare(self) -> None:
        super().prepare()
        self.length = arguments.checked(
            self.arguments, "x-recent-history-length", checks.whole(1, LENGTH_MAX), LENGTH
        )
        self.history: deque[Message] = deque()
        self.history_bytes = 0

    def receive(self, context: RoutingContext) -> int:
        message = context.message
        if not message.traits & traits.SPOOLED and context.headers().get(NO_STORE) is not True:
            if message.traits & traits.HAS_COPIES:
                message = cc_bcc.without_blind(message)
            self.history.append(message)
            self.history_bytes += len(message.content)
            is_short = self.router.pass_work.is_short
            bytes_max = HISTORY_BYTES_SHORT if is_short else HISTORY_BYTES_MAX
            while len(self.history) > self.length or self.history_bytes > bytes_max:
                self.history_bytes -= len(self.history.popleft().content)
        return ROUTED

    def leave(self) -> None:
        """Routes that were found earlier may still name the exchange: the history goes now."""
        self.history.clear()
        self.history_bytes = 0

    def attach(self, binding: Binding) -> None:
        super().attach(binding)
        router: Router = self.router
        destination = binding.destination
        for message in list(self.history):
            past = message.twin()
            if isinstance(destination, Exchange):
                queues = router.match_keys(destination, [message.routing_key()], past, None)
                if queues:
                    router.forward(past, queues)
            else:
                router.forward(past, [cast("Queue", destination)])
