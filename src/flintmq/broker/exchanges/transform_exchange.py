"""x-transform: what is published to it is changed by a plug-in, and then routed.

    published -> transform(properties, body) -> bindings, by x-routing-type, of the message as it is now
                                             -> None: refused, as if no binding fitted

Transforms are functions that entry points in the group `flintmq.transforms` name; docs/exchanges.md tells how
to write one. One that cannot be loaded is a line in the log. A message for which one fails goes the way of a
message without a route: it is never passed on unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq import checks
from flintmq.broker.exchanges import arguments
from flintmq.broker.exchanges.exchange import REFUSED, ROUTED, TAKEN
from flintmq.broker.exchanges.route import RoutingContext
from flintmq.broker.exchanges.wrapping_exchange import WrappingExchange
from flintmq.broker.messages import cc_bcc, entry_number
from flintmq.broker.messages.composing import composed
from flintmq.broker.messages.message import Message
from flintmq.broker.messages.published import lifetime_ms_of
from flintmq.broker.queues import put_flags
from flintmq.errors import ChannelFault
from flintmq.wire import amqp, traits
from flintmq.wire.properties import BasicProperties, decode_basic_properties

if TYPE_CHECKING:
    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.store.publisher import Publisher

log = logging.getLogger("flintmq.plugins")

Transform = Callable[[BasicProperties, bytes], "tuple[BasicProperties, bytes] | None"]

# By the names of their entry points; transform_plugins.py loads them.
TRANSFORMS: dict[str, Transform] = {}
# Of a header and a body as they come from a transform: the one travels in a frame, the other is in memory.
HEADER_BYTES_MAX = 65_536
BODY_BYTES_MAX = 16_777_216


class TransformExchange(WrappingExchange):
    """Changes each message by the transform that the argument x-transform names."""

    __slots__ = ("transform",)
    type = "x-transform"
    needs_headers = True

    def prepare(self) -> None:
        super().prepare()
        if not TRANSFORMS:
            raise arguments.wrong("x-transform", "the name of a transform, and none is installed")
        name = arguments.checked(self.arguments, "x-transform", checks.one_of(*sorted(TRANSFORMS)))
        self.transform = TRANSFORMS[name]

    def check_message(self, message: Message, channel: Publisher) -> None:
        if message.traits & traits.SPOOLED:
            raise self.too_large()

    def receive(self, context: RoutingContext) -> int:
        if context.past is self:
            return ROUTED
        message = context.message
        if message.traits & traits.SPOOLED:
            if context.channel is None or context.channel.transaction is not None:
                log.error("exchange %r: a large message cannot be transformed: it is refused", self.name)
                return REFUSED
            raise self.too_large()
        changed = self.changed(message)
        if changed is None:
            return REFUSED
        onward = RoutingContext(changed, context.channel, context.key)
        onward.past = self
        context.onward.append(onward)
        keys = [context.key]
        if changed.traits & traits.HAS_COPIES:
            keys += cc_bcc.keys_of(changed)
        router: Router = self.router
        queues, _ = router.resolve(self, keys, onward)
        if queues:
            shown = cc_bcc.without_blind(changed) if len(keys) > 1 else changed
            onward.refused = self.enqueue(shown, queues, context.channel) or onward.refused
        context.refused = onward.refused or context.refused
        return TAKEN if queues or onward.taken else REFUSED

    def changed(self, message: Message) -> Message | None:
        """The message as the transform makes it; None if it is refused, or the transform has failed."""
        try:
            properties = decode_basic_properties(message.content, 12, message.header_size)
            answer = self.transform(properties, message.content[message.header_size :])
            if answer is None:
                return None
            changed = composed("", "", answer[0], bytes(answer[1]))
            if changed.traits < 0:
                raise ValueError("a delivery mode is 1 or 2")
            if changed.header_size > HEADER_BYTES_MAX or changed.body_size() > BODY_BYTES_MAX:
                raise ValueError(f"a header has {HEADER_BYTES_MAX} octets at most, a body {BODY_BYTES_MAX}")
            found = changed.traits | message.traits & (traits.CONTENT_CLASSES | traits.BLIND)
            changed = message.variant(message.route, changed.content, changed.header_size, found)
            changed.arrived_ms = message.arrived_ms
            if found & traits.HAS_EXPIRATION:
                changed.lifetime_ms = lifetime_ms_of(changed.content)
        except Exception:
            log.exception("exchange %r: its transform failed on a message, which is refused", self.name)
            return None
        return changed

    def enqueue(self, message: Message, queues: list[Queue], channel: Publisher | None) -> bool:
        """Into the queues; the publisher hears of it as if it had published this message.

        Whether any of them has refused it.
        """
        router: Router = self.router
        with router.dead_letters.after():
            happened = router.enqueue(message, queues, None, True)
        is_refused = bool(happened & put_flags.REFUSED)
        if channel is None:
            return is_refused
        confirms = channel.confirms
        if entry_number.is_in_journal(message.entry):
            confirms.note_kept(entry_number.sequence_of(message.entry))
        if is_refused and confirms.active:
            confirms.lose(confirms.published)
        if happened & put_flags.IN_STREAM and router.streams is not None:
            router.streams.note(confirms)
        return is_refused

    def too_large(self) -> ChannelFault:
        return ChannelFault(
            amqp.CONTENT_TOO_LARGE, f"exchange '{self.name}' transforms messages that fit in memory"
        )
