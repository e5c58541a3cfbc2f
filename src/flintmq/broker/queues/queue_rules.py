"""What a queue was told to do beyond first in, first out: its arguments, read and checked once.

    x-arguments of queue.declare  \\
    policy that matches            >  QueueRules, or None for a plain queue
    operator policy that matches  /

Of a number the least that any of the three asks for counts; of anything else the argument goes before
the policy. Arguments that nobody here knows are accepted and mean nothing, as in RabbitMQ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flintmq.broker.messages.published import TIMER_MS_MAX
from flintmq.checks import NUMBER_MAX, Check, Unfit, key, one_of, switch, whole
from flintmq.errors import ChannelFault
from flintmq.field_tuple import FieldTuple
from flintmq.wire import amqp

PRIORITY_MAX = 255
# A quorum queue gives up on a message after so many returns, unless it says otherwise (RabbitMQ 4).
QUORUM_DELIVERY_LIMIT = 20
UNLIMITED = -1
# Octets in a second, of x-min-bandwidth.
BANDWIDTH_MAX = 4_294_967_295

CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"
DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX = "drop-head", "reject-publish", "reject-publish-dlx"
# Of a queue with priorities: the oldest of those of the lowest priority.
DROP_LOWEST = "drop-lowest"
AT_MOST_ONCE, AT_LEAST_ONCE = "at-most-once", "at-least-once"

Given = dict[str, Any]


class QueueRules(FieldTuple):
    """Immutable; None is what was not asked for."""

    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    length_max: int | None = None
    length_bytes_max: int | None = None
    overflow: str = DROP_HEAD
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    dead_letter_strategy: str = AT_MOST_ONCE
    priority_max: int = 0
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    retry_type: str = "disabled"
    retry_min_ms: int = 0
    retry_max_ms: int | None = None
    consumer_timeout_ms: int | None = None
    consumers_max: int | None = None
    memory_length_max: int | None = None
    force_persistent: bool = False
    delete_pause_ms: int | None = None
    return_undelivered: bool = False
    delivery_ms_max: int | None = None
    bandwidth_min: int | None = None

    def refuses_publishes(self) -> bool:
        return self.overflow in (REJECT_PUBLISH, REJECT_PUBLISH_DLX)

    def counts_returns(self) -> bool:
        return self.delivery_limit is not None or self.retry_type != "disabled"


PLAIN = QueueRules()


class Argument(FieldTuple):
    """One key: the rule it sets ("" for one that is checked and means nothing here), and what it takes."""

    rule: str
    check: Check
    # Whether a policy may set it too, under the same name without "x-".
    in_policies: bool = True

    def read(self, value: object, given: Given) -> None:
        """Adds what the value asks for to the rules; Unfit says what was expected, and what was found."""
        try:
            checked = self.check(value)
        except Unfit as unfit:
            raise Unfit(f"{unfit}, not '{str(value)[:64]}'") from None
        if self.rule:
            given[self.rule] = checked


ARGUMENTS: dict[str, Argument] = {
    "x-message-ttl": Argument("message_ttl_ms", whole(0, TIMER_MS_MAX)),
    "x-expires": Argument("expires_ms", whole(1, TIMER_MS_MAX)),
    "x-max-length": Argument("length_max", whole(0, NUMBER_MAX)),
    "x-max-length-bytes": Argument("length_bytes_max", whole(0, NUMBER_MAX)),
    "x-overflow": Argument("overflow", one_of(DROP_HEAD, DROP_LOWEST, REJECT_PUBLISH, REJECT_PUBLISH_DLX)),
    "x-dead-letter-exchange": Argument("dead_letter_exchange", key),
    "x-dead-letter-routing-key": Argument("dead_letter_routing_key", key),
    "x-dead-letter-strategy": Argument("dead_letter_strategy", one_of(AT_MOST_ONCE, AT_LEAST_ONCE)),
    "x-max-priority": Argument("priority_max", whole(0, PRIORITY_MAX), in_policies=False),
    "x-single-active-consumer": Argument("single_active_consumer", switch, in_policies=False),
    "x-delivery-limit": Argument("delivery_limit", whole(UNLIMITED, NUMBER_MAX)),
    "x-delayed-retry-type": Argument("retry_type", one_of("disabled", "all", "failed", "returned")),
    "x-delayed-retry-min": Argument("retry_min_ms", whole(0, TIMER_MS_MAX)),
    "x-delayed-retry-max": Argument("retry_max_ms", whole(0, TIMER_MS_MAX)),
    "x-consumer-timeout": Argument("consumer_timeout_ms", whole(1, TIMER_MS_MAX)),
    "x-max-consumers": Argument("consumers_max", whole(1, NUMBER_MAX)),
    "x-max-in-memory-length": Argument("memory_length_max", whole(0, NUMBER_MAX)),
    "x-force-persistent": Argument("force_persistent", switch),
    "x-auto-delete-pause": Argument("delete_pause_ms", whole(1, TIMER_MS_MAX)),
    "x-return-undelivered": Argument("return_undelivered", switch),
    "x-max-delivery-time": Argument("delivery_ms_max", whole(1, TIMER_MS_MAX)),
    "x-min-bandwidth": Argument("bandwidth_min", whole(1, BANDWIDTH_MAX)),
    "x-queue-type": Argument("", one_of(CLASSIC, QUORUM, STREAM), in_policies=False),
    "x-queue-mode": Argument("", one_of("default", "lazy")),
    "x-queue-version": Argument("", whole(1, 2)),
    "x-queue-master-locator": Argument("", key),
    "x-queue-leader-locator": Argument("", key),
}


def kind_of(arguments: Mapping[str, Any]) -> str:
    """classic, quorum or stream."""
    kind: str = arguments.get("x-queue-type", CLASSIC)
    return kind


def check_arguments(arguments: Mapping[str, Any], what: str) -> Given:
    """The rules that the arguments of a declare ask for; a ChannelFault that names a bad one."""
    given: Given = {}
    for name, value in arguments.items():
        if name in ARGUMENTS:
            try:
                ARGUMENTS[name].read(value, given)
            except Unfit as unfit:
                raise bad_argument(name, what, str(unfit)) from None
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise bad_argument("x-dead-letter-routing-key", what, "there is no x-dead-letter-exchange with it")
    if given.get("overflow") == DROP_LOWEST and not given.get("priority_max"):
        raise bad_argument("x-overflow", what, f"'{DROP_LOWEST}' is for queues with x-max-priority")
    if kind_of(arguments) == QUORUM:
        given.setdefault("delivery_limit", QUORUM_DELIVERY_LIMIT)
    return given


def check_properties(
    arguments: Mapping[str, Any], durable: bool, exclusive: bool, auto_delete: bool, what: str
) -> None:
    """A quorum queue lasts and is shared. Only a queue that lasts can have messages that do."""
    if arguments.get("x-force-persistent") is True and not durable:
        raise bad_argument("x-force-persistent", what, "the queue is not durable")
    if kind_of(arguments) == QUORUM:
        for wrong, name in ((exclusive, "exclusive"), (not durable, "non-durable")):
            if wrong:
                raise ChannelFault(
                    amqp.PRECONDITION_FAILED,
                    f"invalid property '{name}' for {what}: a quorum queue is durable and not exclusive",
                    50,
                    10,
                )


def check_definition(definition: Mapping[str, Any]) -> Given:
    """The queue rules that a policy's definition asks for; Unfit names a bad key."""
    given: Given = {}
    for name, value in definition.items():
        argument = ARGUMENTS.get("x-" + name)
        if argument is None or not argument.in_policies:
            continue
        try:
            argument.read(value, given)
        except Unfit as unfit:
            raise Unfit(f"'{name}': {unfit}") from None
    return given


def combine(*given: Given) -> QueueRules | None:
    """The rules of a queue: its arguments first, then its policy, then the operator's."""
    if not any(given):
        return None  # as for nearly every queue
    combined: Given = {}
    for each in given:
        for rule, value in each.items():
            if rule not in combined:
                combined[rule] = value
            elif type(value) is int:
                combined[rule] = least(combined[rule], value)
    if combined.get("delivery_limit") == UNLIMITED:
        del combined["delivery_limit"]
    if combined.get("priority_max") == 0:
        del combined["priority_max"]
    rules = QueueRules(**combined)
    return None if rules == PLAIN else rules


def least(one: int, other: int) -> int:
    """The stricter of two limits; one that does not limit is never that."""
    if UNLIMITED in (one, other):
        return max(one, other)
    return min(one, other)


def bad_argument(name: str, what: str, why: str) -> ChannelFault:
    return ChannelFault(amqp.PRECONDITION_FAILED, f"invalid arg '{name}' for {what}: {why}", 50, 10)
