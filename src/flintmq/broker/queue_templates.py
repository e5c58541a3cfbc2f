"""Queues declared by reference: the argument `x-template` names a template of the settings.

A template gives arguments, and whether the queue is durable or goes with its last consumer. What the client
says for itself goes before the template's arguments; what the template says of durability goes before the
client. Of the constraints that an administrator sets there a client may ask for a stricter one, and gets the
template's where its own is not as strict. A queue keeps what it was made with: another template of that name
is for queues made later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flintmq import checks
from flintmq.broker.exchanges import arguments as arguments_of

if TYPE_CHECKING:
    from flintmq.broker.queues.queue import Queue
    from flintmq.config import QueueTemplate
    from flintmq.wire.tables import FieldTable, FieldValue

TEMPLATE = "x-template"
# Arguments with which a client cannot ask for more than its template allows.
MOST = ("x-max-consumers", "x-max-in-memory-length")
FORCED = ("x-force-persistent",)


def applied(
    templates: Mapping[str, QueueTemplate],
    existing: Queue | None,
    durable: bool,
    auto_delete: bool,
    arguments: FieldTable,
) -> tuple[bool, bool, FieldTable]:
    """What a declaration means with its template."""
    if TEMPLATE not in arguments:
        return durable, auto_delete, arguments
    if not templates:
        raise arguments_of.wrong(
            TEMPLATE, "the name of a template, and the settings have no [queue_templates]"
        )
    name = arguments_of.checked(arguments, TEMPLATE, checks.one_of(*sorted(templates)))
    template = templates[name]
    if existing is not None and existing.arguments.get(TEMPLATE) == name:
        # As it was made: only what the client says for itself has to agree.
        return existing.durable, existing.auto_delete, merged(existing.arguments, arguments)
    if template.durable is not None:
        durable = template.durable
    if template.auto_delete is not None:
        auto_delete = template.auto_delete
    return durable, auto_delete, merged(template.arguments, arguments)


def merged(given: Mapping[str, FieldValue], own: FieldTable) -> FieldTable:
    """The arguments of a template, or of the queue made with it, under those of the client."""
    found = {**given, **own}
    for name in MOST:
        most, asked = given.get(name), own.get(name)
        if type(most) is int and type(asked) is int and asked > most:
            found[name] = most
    for name in FORCED:
        if given.get(name) is True and own.get(name) is False:
            found[name] = True
    return found
