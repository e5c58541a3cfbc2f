"""Differences from RabbitMQ that are meant, each with its reason; docs/rabbitmq.md tells users of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from differential.operation import Operation


@dataclass(frozen=True)
class Known:
    """A difference that is no fault."""

    name: str
    reason: str
    explains: Callable[[Any], bool]


def is_close_in_one_read(found: Any) -> bool:
    """Whether operations came in one piece, and one of them closed the channel or the connection."""
    rest = [where for where in found.where if not is_confirmed_more(found, where)]
    return closes_both(found) and all(not where.endswith(("answers", "confirms")) for where in rest)


def is_confirm_before_close(found: Any) -> bool:
    """Whether all that differs is that more was confirmed before a close."""
    return closes_both(found) and all(is_confirmed_more(found, where) for where in found.where)


def is_confirmed_more(found: Any, where: str) -> bool:
    """Whether these are confirms, and all of RabbitMQ's are among them."""
    if not where.endswith("confirms"):
        return False
    return set(found.theirs.get(where, ())) <= set(found.ours.get(where, ()))


def closes_both(found: Any) -> bool:
    closes = [
        name
        for told in (found.ours, found.theirs)
        for where, events in told.items()
        if where.endswith("answers")
        for name, _ in events
        if name in ("channel.close", "connection.close")
    ]
    return found.operations[-1].name == "together" and len(closes) == 2


def is_return_over_limit(found: Any) -> bool:
    """Whether messages came back to a queue with a limit, and all was answered in the same way."""
    if any(where.endswith("answers") for where in found.where):
        return False
    return is_return(found.operations[-1]) and has_argument(found, "x-max-length", "x-max-length-bytes")


def is_return(operation: Operation) -> bool:
    if operation.name == "together":
        return any(
            given.get("requeue") or name == "recover" for name, given in operation.arguments["operations"]
        )
    ends = operation.name in ("abort", "close channel", "recover", "roll back", "commit")
    return ends or bool(operation.arguments.get("requeue"))


def has_argument(found: Any, *names: str) -> bool:
    """Whether any queue is declared with one of these."""
    declared = [
        each.arguments.get("arguments", {}) for each in found.operations if each.name == "declare queue"
    ]
    return any(name in arguments for arguments in declared for name in names)


def is_their_fault(found: Any) -> bool:
    """Whether RabbitMQ has met with an error of its own."""
    answers = [each for where, each in found.theirs.items() if where.endswith("answers")]
    return any(fields.get("reply_code") == 541 for events in answers for _, fields in events)


def is_expiry_by_priority(found: Any) -> bool:
    return is_timed(found) and has_argument(found, "x-max-priority")


def is_timed(found: Any) -> bool:
    return any(
        word in each.as_json() for each in found.operations for word in ("expiration", "x-message-ttl")
    )


def is_binding_of_strangers(found: Any) -> bool:
    """Whether the queue is another connection's."""
    answers = [each for where, each in found.ours.items() if where.endswith("answers")]
    is_locked = any(fields.get("reply_code") == 405 for events in answers for _, fields in events)
    return found.operations[-1].name in ("bind", "unbind") and is_locked


def is_end_with_consumer(found: Any) -> bool:
    """Whether a connection has ended that had a consumer without acks, and only counts of queues differ."""
    last = found.operations[-1]
    ended = all(
        any(
            name == "connection.close"
            for where, events in told.items()
            if where.endswith("answers")
            for name, _ in events
        )
        for told in (found.ours, found.theirs)
    )
    takes_all = any(
        each.name == "consume" and each.connection == last.connection and each.arguments.get("no_ack")
        for each in found.operations
    )
    return ended and takes_all and all(" " not in where for where in found.where)


def is_fetched_before_limit(found: Any) -> bool:
    """Whether a channel fetched a message, set a limit for all its consumers, and only deliveries differ."""
    fetched: set[tuple[int, int]] = set()
    for each in (part for operation in found.operations for part in operation.parts()):
        at = at_of(each)
        if each.name == "get" and not each.arguments.get("no_ack"):
            fetched.add(at)
        elif at in fetched and is_global_limit(each):
            return not any(where.endswith("answers") for where in found.where)
    return False


def is_global_limit(operation: Operation) -> bool:
    given = operation.arguments
    return operation.name == "qos" and bool(given.get("global")) and bool(given.get("count"))


def is_fetched_beside_delivery(found: Any) -> bool:
    """Whether a consume and a get came in one piece under a limit for the channel, and what they brought
    differs in delivery tags alone.
    """
    last = found.operations[-1]
    names = [part.name for part in last.parts()]
    if last.name != "together" or not {"consume", "get"} <= set(names):
        return False
    here = [each for each in found.operations if at_of(each) == at_of(last)]
    if not any(is_global_limit(part) for each in here for part in each.parts()):
        return False
    return all(without_tags(found.ours, where) == without_tags(found.theirs, where) for where in found.where)


def is_fetched_beside_return(found: Any) -> bool:
    """Whether a return and a get came in one piece under a limit for the channel, and nothing else differs
    than which messages they brought.
    """
    last = found.operations[-1]
    if last.name != "together" or not is_return(last) or all(each.name != "get" for each in last.parts()):
        return False
    here = [each for each in found.operations if at_of(each) == at_of(last)]
    if not any(is_global_limit(part) for each in here for part in each.parts()):
        return False
    return names_of(found.ours, found.where) == names_of(found.theirs, found.where)


def names_of(told: Any, places: Any) -> list[list[str]]:
    """What kinds of answers and deliveries there were."""
    return [
        [name for name, _ in told.get(where, ())]
        for where in places
        if where.endswith(("answers", "deliveries"))
    ]


def is_return_of_several(found: Any) -> bool:
    """Whether a channel with several consumers gave messages back together, and only deliveries differ."""
    last = found.operations[-1]
    returns = [each for each in last.parts() if each.name == "nack"]
    if not any(each.arguments.get("requeue") and each.arguments.get("multiple") for each in returns):
        return False
    here = [part for each in found.operations if at_of(each) == at_of(last) for part in each.parts()]
    consumers = {part.arguments.get("consumer_tag") for part in here if part.name == "consume"}
    return len(consumers) > 1 and all(where.endswith("deliveries") for where in found.where)


def is_cancel_answered_late(found: Any) -> bool:
    """Whether all that differs is the place of cancel-ok among the answers to one piece."""
    return found.operations[-1].name == "together" and all(
        where.endswith("answers") and by_cancels(found.ours, where) == by_cancels(found.theirs, where)
        for where in found.where
    )


def by_cancels(told: Any, where: str) -> tuple[list[Any], list[Any]]:
    """Other answers, and those to cancel."""
    answers = told.get(where, [])
    is_cancel = [name == "basic.cancel-ok" for name, _ in answers]
    cancels = [each for each, is_one in zip(answers, is_cancel, strict=True) if is_one]
    return [each for each, is_one in zip(answers, is_cancel, strict=True) if not is_one], cancels


def is_story_turned_round(found: Any) -> bool:
    """Whether a message has died in three ways or more, and no answers or confirms differ."""
    if any(where.endswith(("answers", "confirms")) for where in found.where):
        return False
    return any(
        len(fields["properties"].get("headers", {}).get("x-death", ())) > 2
        for told in (found.ours, found.theirs)
        for where, events in told.items()
        if where.endswith(("answers", "deliveries"))
        for _, fields in events
        if fields.get("properties")
    )


def at_of(operation: Operation) -> tuple[int, int]:
    return operation.connection, operation.channel


def without_tags(told: Any, where: str) -> list[Any]:
    events = told.get(where)
    if not isinstance(events, list):
        return [events]
    return [
        (name, {key: value for key, value in fields.items() if key != "delivery_tag"})
        for name, fields in events
    ]


KNOWN: list[Known] = [
    Known(
        "fetched before a limit",
        "A message fetched by `basic.get` counts against no limit of `basic.qos`; RabbitMQ counts those that "
        "are unacked when a channel first gets a limit with `global`.",
        is_fetched_before_limit,
    ),
    Known(
        "fetched beside a delivery",
        "When a channel with a limit for all its consumers sends a consume and a get in one piece, delivery "
        "tags follow the order of the requests; RabbitMQ may number the fetched message first.",
        is_fetched_beside_delivery,
    ),
    Known(
        "fetched beside a return",
        "When a channel with a limit for all its consumers gives messages back and fetches one in one piece, "
        "its waiting consumer comes first; with RabbitMQ the fetch may.",
        is_fetched_beside_return,
    ),
    Known(
        "return of several",
        "A `basic.nack` with `multiple` gives all its messages back to a queue in their order; RabbitMQ does "
        "so consumer by consumer, in the order of their tags.",
        is_return_of_several,
    ),
    Known(
        "cancel answered late",
        "Requests of one channel are answered in their order; RabbitMQ may answer a `basic.cancel` after "
        "requests that came behind it in one piece.",
        is_cancel_answered_late,
    ),
    Known(
        "story turned round",
        "The header `x-death` tells the latest death first, and whether a message goes in a cycle is known "
        "by that. RabbitMQ 3.10 turns the older deaths round with each new one, and may take a rejection "
        "for a later one than it was.",
        is_story_turned_round,
    ),
    Known(
        "end of a connection",
        "When a connection ends, none of its consumers gets what another of its channels gives back; with "
        "RabbitMQ a consumer without acks may take such a message with it.",
        is_end_with_consumer,
    ),
    Known(
        "confirms before a close",
        "What was published with confirms before an error is confirmed before the close: all of it, and "
        "persistent messages when they are on disk. RabbitMQ confirms what it has come to by then.",
        is_confirm_before_close,
    ),
    Known(
        "binding of strangers",
        "To bind or unbind another connection's exclusive queue is refused with 405 whether or not the "
        "exchange or the binding is there.",
        is_binding_of_strangers,
    ),
    Known(
        "their fault",
        "Some requests in one read, such as a consume, its cancel and a mistake, end a connection to "
        "RabbitMQ with 541; here each has its answer.",
        is_their_fault,
    ),
    Known(
        "expiry by priority",
        "In a queue with priorities a message that has expired is gone as soon as it is the next to be "
        "handed out; RabbitMQ may count it until the queue is used.",
        is_expiry_by_priority,
    ),
    Known(
        "returns over a limit",
        "Messages that come back to a queue go to consumers that wait for them before its length is limited.",
        is_return_over_limit,
    ),
    Known(
        "close in one read",
        "What is read together with a request that closes the channel is not handed to the consumers of that "
        "channel any more: it stays in its queue.",
        is_close_in_one_read,
    ),
]
