"""Services for definitions: definitions.export, definitions.import. For administrators alone.

An import is sent in parts, each of them a definitions file by itself: `part` counts them from 0 on, `more`
says that others follow. The last part has the whole checked and, unless `dry-run` or a refusal is in the way,
put into force; the body of its answer is a report. An export is asked for part by part: `next` of an answer
is `after` of the next request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.definitions.definitions import definitions_of
from flintmq.broker.services.administration_services import administration, done
from flintmq.broker.services.request import Request, service
from flintmq.checks import Unfit
from flintmq.errors import ServiceFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.wire.tables import FieldTable

PARTS_MAX = 1_000_000


@service("definitions.export", "virtual-host? text, after? text", administers=True)
def definitions_export(request: Request) -> Chore:
    """Users, policies, queues and the rest as RabbitMQ's JSON; `virtual-host`, `after` for the next part."""
    administration(request)
    export = definitions_of(request.broker).export(request.text("virtual-host", ""))
    yield from export.part(request.text("after", ""))
    request.reply({"next": export.next} if export.next else {}, export.encoded())


@service(
    "definitions.import",
    "part? number, more? flag, virtual-host? text, dry-run? flag, partial? flag",
    changes=True,
    administers=True,
)
def definitions_import(request: Request) -> Chore:
    """Takes `part` of RabbitMQ's JSON, `more` to come; `virtual-host`, `dry-run`, `partial`."""
    administration(request)
    definitions, origin = definitions_of(request.broker), request.channel.origin
    within, part = request.text("virtual-host", ""), request.number("part", 0, 0, PARTS_MAX)
    is_dry, is_partial = request.flag("dry-run", False), request.flag("partial", False)
    has_more = request.flag("more", False)
    gathered = definitions.import_for(origin, within, part)
    definitions.check_room(len(request.body), gathered)
    try:
        yield from gathered.add_part(request.body)
    except Unfit as unfit:
        raise ServiceFault(amqp.PRECONDITION_FAILED, f"{request.name}: part {part}: {unfit}") from None
    administration(request)
    if has_more:
        definitions.gather(origin, gathered)
        request.reply({"parts": gathered.parts})
        return
    yield from gathered.run(is_dry, is_partial)
    report = gathered.report
    results: FieldTable = {
        "applied": report.is_applied,
        "changed": sum(report.changed.values()),
        "unchanged": sum(report.unchanged.values()),
        "refused": report.refused_count,
        "noted": report.noted_count,
    }
    done(request, results, report.as_json())
