"""Why somebody may do something or may not: the permission that it takes, and the pattern that decides.

permission.explain    each step of the check that the operation would meet
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flintmq.auth import Operation, may
from flintmq.auth.permissions import CLIENT_ID, NAMELESS_EXCHANGE
from flintmq.broker.services.administration_services import administration
from flintmq.broker.services.request import Request, service

if TYPE_CHECKING:
    from flintmq.auth import User
    from flintmq.wire.tables import FieldTable, FieldValue

NAME, OTHER = "name", "other"


class Explained(NamedTuple):
    """What an operation takes: the permission, the kind, and which of the two names it is for."""

    needs: tuple[tuple[Operation, str, str], ...]
    is_publish: bool = False  # `other` is a routing key


CONFIGURE, WRITE, READ = Operation.CONFIGURE, Operation.WRITE, Operation.READ
OPERATIONS = {
    "declare-queue": Explained(((CONFIGURE, "queue", NAME),)),
    "declare-dlx": Explained(
        ((CONFIGURE, "queue", NAME), (READ, "queue", NAME), (WRITE, "exchange", OTHER)),
    ),
    "declare-exchange": Explained(((CONFIGURE, "exchange", NAME),)),
    "publish": Explained(((WRITE, "exchange", NAME),), is_publish=True),
    "consume": Explained(((READ, "queue", NAME),)),
    "purge": Explained(((READ, "queue", NAME),)),
    "bind": Explained(((WRITE, "queue", NAME), (READ, "exchange", OTHER))),
    "bind-exchange": Explained(((WRITE, "exchange", NAME), (READ, "exchange", OTHER))),
}


@service("permission.explain", "user text, virtual-host text, operation text, name? text, other? text")
def permission_explain(request: Request) -> None:
    """Whether `user` may do `operation` to `name`, with `other`: `allowed`, and `steps` that say why.

    About oneself anybody may ask, about others an administrator.
    """
    name = request.text("user")
    if name != request.user.name:
        administration(request)
    operation = OPERATIONS.get(request.text("operation"))
    if operation is None:
        raise request.wrong("operation", f"expected one of {', '.join(OPERATIONS)}")
    host = request.text("virtual-host")
    user = request.user if name == request.user.name else request.broker.users.get(name)
    if user is None:
        why = f"There is no user {name} here. What users of back ends may do, their back end knows."
        steps: list[FieldTable] = [{"allowed": False, "text": why}]
    elif host not in request.broker.virtual_hosts:
        steps = [{"allowed": False, "text": f"There is no virtual host {host}."}]
    else:
        names = {NAME: request.text("name", ""), OTHER: request.text("other", "")}
        steps = explained(user, host, operation, names)
    told: list[FieldValue] = list(steps)
    request.reply({"allowed": all(step["allowed"] is True for step in steps), "steps": told})


def explained(user: User, host: str, operation: Explained, names: dict[str, str]) -> list[FieldTable]:
    """Each check in its turn; without permissions in the virtual host there is but one."""
    if not user.may_enter(host):
        why = f"{user.name} has no permissions in the virtual host {host}, so cannot even connect to it."
        return [{"allowed": False, "text": why}]
    enters = f"{user.name} may enter the virtual host {host}: the user has permissions in it."
    steps: list[FieldTable] = [{"allowed": True, "text": enters}]
    for permission, kind, which in operation.needs:
        subject = names[which]
        allowed = may(user, host, permission, subject, kind)
        shown = subject or NAMELESS_EXCHANGE
        text = f"This takes {permission} on {kind} \u201c{shown}\u201d. "
        step: FieldTable = {"allowed": allowed, "permission": str(permission), "subject": shown}
        if user.backend and not user.permissions:  # the back end is asked about each thing
            text += f"The back end {user.backend} {'allows' if allowed else 'refuses'} it."
        else:
            pattern = getattr(user.permissions[host].settings, permission)
            step["pattern"] = pattern
            matches = "it matches" if allowed else "it does not match"
            text += f"The pattern for {permission} is {pattern or '(empty)'}: {matches}."
        steps.append({**step, "text": text})
    if operation.is_publish:
        steps.append(explained_key(user, host, names[NAME], names[OTHER]))
    return steps


def explained_key(user: User, host: str, exchange: str, key: str) -> FieldTable:
    """What topic permissions say of a routing key."""
    rule = user.topic_permissions.get((host, exchange))
    if rule is None:
        text = (
            f"No pattern restricts routing keys of {exchange or NAMELESS_EXCHANGE} for {user.name}, if it is "
        )
        return {"allowed": True, "text": text + "a topic exchange."}
    allowed = rule.may_write(key, None)
    text = f"Routing keys of {exchange} are restricted to {rule.write}. For \u201c{key}\u201d: "
    text += "it matches." if allowed else "it does not match."
    if CLIENT_ID in rule.write:
        text += " With {client_id} in it, that depends on the client."
    return {"allowed": allowed, "text": text, "pattern": rule.write, "subject": key}
