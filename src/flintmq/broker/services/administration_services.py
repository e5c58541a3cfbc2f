"""Services for administrators: users, virtual hosts, permissions, policies, parameters.

    user.add, user.set-password, user.set-tags, user.delete, user.list
    vhost.add, vhost.delete, vhost.list
    permission.set, permission.clear, permission.list
    topic-permission.set, topic-permission.clear, topic-permission.list
    policy.set, policy.clear, policy.list, and the same of operator-policy
    limit.set, limit.clear, limit.list
    parameter.set, parameter.clear, parameter.list

The model is the broker's `Administration`; here arguments are read, and it is checked who asks. The answer
leaves when the change is on disk. Passwords and their hashes are in no answer and in no line of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from flintmq.auth import Permissions, Tag, User
from flintmq.auth.passwords import PasswordHash, parse_hash
from flintmq.auth.permissions import TopicPermissions
from flintmq.broker.services.request import Request, service
from flintmq.checks import Unfit
from flintmq.config import PASSWORD_OCTETS_MAX, USER_TAGS, PermissionSettings
from flintmq.errors import ServiceFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from collections.abc import Generator

    from flintmq.broker.administration.administration import Administration
    from flintmq.broker.administration.policies import Policy
    from flintmq.broker.queues.chores import Chore, Wait
    from flintmq.broker.services.request import Row
    from flintmq.wire.tables import FieldTable, FieldValue

# Between the parts of a place in a list: no name of a user or virtual host is told apart by it.
APART = "\n"


def administration(request: Request, tag: Tag = Tag.ADMINISTRATOR) -> Administration:
    """The model, for whoever has the tag."""
    if not request.channel.user.has_tag(tag):
        raise ServiceFault(
            amqp.ACCESS_REFUSED,
            f"{request.name}: user '{request.channel.user.name}' has not the tag {tag}",
        )
    store = request.channel.store
    if store is not None and store.journal.in_group():
        raise ServiceFault(
            amqp.PRECONDITION_FAILED,
            f"{request.name}: cannot be asked from inside a transaction",
        )
    return request.broker.administration


def done(request: Request, results: FieldTable | None = None) -> None:
    """The answer, which leaves when what was done is on disk."""
    store = request.channel.store
    if store is not None:
        store.hold_back(request.channel.output, store.last())
    request.reply(results or {})


# Users


@service("user.add", changes=True)
def user_add(request: Request) -> Chore:
    """Adds a user: `user`, `password` or `password-hash`, `tags`; it has no permissions yet."""
    name, tags = request.text("user"), tags_of(request, [])
    administration(request).accounts.check_new(name)
    password_hash = yield from password_of(request)
    administration(request).accounts.add(name, password_hash, tags)
    done(request)


@service("user.set-password", changes=True)
def user_set_password(request: Request) -> Chore:
    """Changes the password of `user` to `password`, or to what has the hash `password-hash`."""
    name = request.text("user")
    accounts = administration(request).accounts
    accounts.changeable(name)
    life = accounts.life_of(name)
    password_hash = yield from password_of(request)
    if accounts.life_of(name) != life:
        raise ServiceFault(amqp.NOT_FOUND, f"{request.name}: user '{name}' was deleted meanwhile")
    accounts.set_password(name, password_hash)
    done(request)


@service("user.set-tags", changes=True)
def user_set_tags(request: Request) -> None:
    """Gives `user` these `tags`, an array, in place of those there were."""
    administration(request).accounts.set_tags(request.text("user"), tags_of(request))
    done(request)


@service("user.delete", changes=True)
def user_delete(request: Request) -> None:
    """Deletes `user`, and closes the connections of that user."""
    administration(request).delete_user(request.text("user"), request.channel.origin)
    done(request)


@service("user.list")
def user_list(request: Request) -> Iterator[None]:
    """The users, in the order of their names: `user`, `tags`, `fixed` for those of the settings."""
    accounts = administration(request).accounts

    def row(user: User) -> FieldTable:
        tags: list[FieldValue] = [str(tag) for tag in sorted(user.tags)]
        return {"user": user.name, "tags": tags, "fixed": accounts.is_fixed(user.name)}

    return request.listing(lambda after: ((user.name, partial(row, user)) for user in accounts.after(after)))


def tags_of(request: Request, default: list[FieldValue] | None = None) -> list[Tag]:
    given = request.arguments.get("tags", default)
    known = [each for each in given if isinstance(each, str)] if isinstance(given, list) else []
    if not isinstance(given, list) or len(known) < len(given) or not set(known) <= set(USER_TAGS):
        raise request.wrong("tags", f"expected an array of {', '.join(USER_TAGS)}")
    return [Tag(each) for each in known]


def password_of(request: Request) -> Generator[Wait | None, None, PasswordHash]:
    """The hash of the password that is given, or the hash that is; no fault repeats either."""
    password, written = request.arguments.get("password"), request.arguments.get("password-hash")
    if (password is None) == (written is None):
        raise request.wrong("password", "give either password or password-hash, and only one of them")
    if written is not None:
        try:
            return parse_hash(request.text("password-hash"))
        except ValueError as error:
            raise request.wrong("password-hash", str(error)) from None
    octets = password.encode() if isinstance(password, str) else password
    if not isinstance(octets, bytes) or not 0 < len(octets) <= PASSWORD_OCTETS_MAX:
        raise request.wrong("password", f"expected text of 1 to {PASSWORD_OCTETS_MAX} octets")
    return (yield from request.broker.administration.hashed(octets))


# Virtual hosts


@service("vhost.add", changes=True)
def vhost_add(request: Request) -> None:
    """Adds the virtual host `virtual-host`, which nobody may use yet."""
    administration(request).virtual_hosts.add(request.text("virtual-host"))
    done(request)


@service("vhost.delete", changes=True)
def vhost_delete(request: Request) -> None:
    """Deletes `virtual-host` with all that is in it, and closes its connections."""
    administration(request).virtual_hosts.delete(request.text("virtual-host"), request.channel.origin)
    done(request)


@service("vhost.list")
def vhost_list(request: Request) -> Iterator[None]:
    """The virtual hosts, in the order of their names: `fixed`, `state`, `queues`, `connections`."""
    hosts = administration(request, Tag.MONITORING).virtual_hosts
    broker = request.broker

    def row(name: str) -> FieldTable:
        running = broker.virtual_hosts.get(name)
        host = running or hosts.ending.get(name)
        found: FieldTable = {
            "virtual-host": name,
            "fixed": hosts.is_fixed(name),
            "state": "deleting" if running is None else "running",
        }
        if host is not None:
            found["queues"] = len(host.queues)
            found["connections"] = len(broker.clients.by_host.get(host, ()))
        return found

    return request.listing(lambda after: ((name, partial(row, name)) for name in hosts.names_after(after)))


# Permissions


@service("permission.set", changes=True)
def permission_set(request: Request) -> None:
    """Sets what `user` may `configure`, `write` and `read` in `virtual-host`: patterns of names."""
    patterns = [request.text(each) for each in ("configure", "write", "read")]
    settings = PermissionSettings(*patterns)
    administration(request).grants.set(request.text("user"), host_of(request), settings)
    done(request)


@service("permission.clear", changes=True)
def permission_clear(request: Request) -> None:
    """Takes away all that `user` may do in `virtual-host`."""
    administration(request).grants.clear(request.text("user"), host_of(request))
    done(request)


@service("permission.list")
def permission_list(request: Request) -> Iterator[None]:
    """Permissions by user and virtual host; `user` and `virtual-host` narrow it down."""
    model = administration(request)
    only, within = request.text("user", ""), request.text("virtual-host", "")

    def rows(after: str) -> Iterator[Row]:
        """By user; each user has a place of its own, in front of the permissions."""
        name, _, host = after.partition(APART)
        known = model.accounts.users.get(name)
        if known is not None:
            yield from of_user(known, host)
        for user in model.accounts.after(name):
            yield user.name, None
            yield from of_user(user, "")

    def of_user(user: User, after: str) -> Iterator[Row]:
        if only and user.name != only:
            return
        for host, granted in model.grants.of_user(user):
            if host > after:
                is_meant = not within or host == within
                row = partial(permission_row, model, user.name, host, granted)
                yield user.name + APART + host, row if is_meant else None

    return request.listing(rows)


def permission_row(model: Administration, user: str, host: str, granted: Permissions) -> FieldTable:
    settings = granted.settings
    return {
        "user": user,
        "virtual-host": host,
        "configure": settings.configure,
        "write": settings.write,
        "read": settings.read,
        "fixed": model.grants.is_fixed(user, host),
    }


def host_of(request: Request) -> str:
    """The virtual host that is meant: that of the connection, unless another one is named."""
    return request.text("virtual-host", request.channel.virtual_host.name)


# Topic permissions


@service("topic-permission.set", changes=True)
def topic_permission_set(request: Request) -> None:
    """Sets the routing keys of `exchange` that `user` may `write` and `read` in `virtual-host`: patterns."""
    administration(request).topic_grants.set(
        request.text("user"),
        host_of(request),
        request.text("exchange"),
        request.text("write"),
        request.text("read"),
    )
    done(request)


@service("topic-permission.clear", changes=True)
def topic_permission_clear(request: Request) -> None:
    """`user` may use all routing keys of `exchange` in `virtual-host` again."""
    model = administration(request).topic_grants
    model.clear(request.text("user"), host_of(request), request.text("exchange"))
    done(request)


@service("topic-permission.list")
def topic_permission_list(request: Request) -> Iterator[None]:
    """Topic permissions by user, virtual host and exchange; `user` and `virtual-host` narrow it down."""
    model = administration(request)
    only, within = request.text("user", ""), request.text("virtual-host", "")

    def rows(after: str) -> Iterator[Row]:
        name = after.partition(APART)[0]
        known = model.accounts.users.get(name)
        if known is not None:
            yield from of_user(known, after)
        for user in model.accounts.after(name):
            yield user.name, None
            yield from of_user(user, "")

    def of_user(user: User, after: str) -> Iterator[Row]:
        if only and user.name != only:
            return
        for (host, exchange), allowed in model.topic_grants.of_user(user):
            place = APART.join((user.name, host, exchange))
            if place > after:
                row = partial(topic_permission_row, user.name, host, exchange, allowed)
                yield place, row if not within or host == within else None

    return request.listing(rows)


def topic_permission_row(user: str, host: str, exchange: str, allowed: TopicPermissions) -> FieldTable:
    return {
        "user": user,
        "virtual-host": host,
        "exchange": exchange,
        "write": allowed.write,
        "read": allowed.read,
    }


def host_for(request: Request, tag: Tag) -> str:
    """The virtual host that is meant, if there is one; only administrators need no permissions there."""
    model = administration(request, tag)
    name, user = host_of(request), request.channel.user
    if not user.has_tag(Tag.ADMINISTRATOR) and not user.may_enter(name):
        raise ServiceFault(
            amqp.ACCESS_REFUSED, f"{request.name}: user '{user.name}' may not use virtual host '{name}'"
        )
    model.virtual_hosts.require(name)
    return name


# Policies


def policy_set(request: Request, is_operator: bool, tag: Tag) -> None:
    host = host_for(request, tag)
    definition = request.arguments.get("definition")
    if not isinstance(definition, dict):
        raise request.wrong("definition", "expected a table")
    try:
        administration(request, tag).policies.put(
            host,
            request.text("name"),
            request.text("pattern"),
            definition,
            request.number("priority", 0, -(2**31), 2**31 - 1),
            request.text("apply-to", "queues" if is_operator else "all"),
            is_operator,
        )
    except Unfit as unfit:
        raise ServiceFault(amqp.PRECONDITION_FAILED, f"{request.name}: {unfit}") from None
    done(request)


def policy_clear(request: Request, is_operator: bool, tag: Tag) -> None:
    host, name = host_for(request, tag), request.text("name")
    try:
        is_there = administration(request, tag).policies.delete(host, name, is_operator)
    except Unfit as unfit:
        raise ServiceFault(amqp.PRECONDITION_FAILED, f"{request.name}: {unfit}") from None
    if not is_there:
        raise ServiceFault(amqp.NOT_FOUND, f"{request.name}: no policy '{name}' in virtual host '{host}'")
    done(request)


def policy_list(request: Request, is_operator: bool, tag: Tag) -> Iterator[None]:
    host = host_for(request, tag)
    found = administration(request, tag).policies.of(host, is_operator)
    return request.page((policy.name, partial(policy_row, policy)) for policy in found)


def policy_row(policy: Policy) -> FieldTable:
    return {
        "name": policy.name,
        "virtual-host": policy.virtual_host,
        "pattern": policy.pattern,
        "definition": dict(policy.definition),
        "priority": policy.priority,
        "apply-to": policy.apply_to,
        "fixed": policy.is_configured,
    }


@service("policy.set", changes=True)
def ordinary_policy_set(request: Request) -> None:
    """Sets a policy: `name`, `pattern`, `definition`, `priority`, `apply-to`, `virtual-host`."""
    policy_set(request, False, Tag.POLICYMAKER)


@service("policy.clear", changes=True)
def ordinary_policy_clear(request: Request) -> None:
    """Takes the policy `name` of `virtual-host` out of force."""
    policy_clear(request, False, Tag.POLICYMAKER)


@service("policy.list")
def ordinary_policy_list(request: Request) -> Iterator[None]:
    """The policies of `virtual-host`, in the order of their names."""
    return policy_list(request, False, Tag.POLICYMAKER)


@service("operator-policy.set", changes=True)
def operator_policy_set(request: Request) -> None:
    """Sets an operator policy, with the arguments of policy.set; it caps what queues may have."""
    policy_set(request, True, Tag.ADMINISTRATOR)


@service("operator-policy.clear", changes=True)
def operator_policy_clear(request: Request) -> None:
    """Takes the operator policy `name` of `virtual-host` out of force."""
    policy_clear(request, True, Tag.ADMINISTRATOR)


@service("operator-policy.list")
def operator_policy_list(request: Request) -> Iterator[None]:
    """The operator policies of `virtual-host`, in the order of their names."""
    return policy_list(request, True, Tag.ADMINISTRATOR)


# Limits


def limited(request: Request) -> tuple[str, str]:
    """Whose limits are meant: those of `user`, else those of `virtual-host`."""
    user = request.text("user", "")
    return ("user", user) if user else ("virtual-host", host_of(request))


@service("limit.set", changes=True)
def limit_set(request: Request) -> None:
    """Sets the limit `name` (max-connections, ...) of `user`, or else of `virtual-host`, to `value`."""
    limits = administration(request).limits
    limits.set(limited(request), request.text("name"), request.number("value"))
    done(request)


@service("limit.clear", changes=True)
def limit_clear(request: Request) -> None:
    """Takes the limit `name` of `user`, or else of `virtual-host`, away."""
    administration(request).limits.clear(limited(request), request.text("name"))
    done(request)


@service("limit.list")
def limit_list(request: Request) -> Iterator[None]:
    """All limits of users and virtual hosts: `user` or `virtual-host`, `name`, `value`."""

    def row(kind: str, owner: str, name: str, value: int) -> FieldTable:
        return {kind: owner, "name": name, "value": value}

    return request.page(
        (APART.join((kind, owner, name)), partial(row, kind, owner, name, value))
        for (kind, owner), limits in administration(request).limits.of.items()
        for name, value in limits.items()
    )


# Parameters


def parameter_host(request: Request) -> str:
    """Those of the whole broker, whose virtual host is an empty text, are for administrators alone."""
    if request.arguments.get("virtual-host") == "":
        administration(request)
        return ""
    return host_for(request, Tag.POLICYMAKER)


@service("parameter.set", changes=True)
def parameter_set(request: Request) -> None:
    """Sets the parameter `name` of `component` in `virtual-host` (empty: the whole broker) to `value`."""
    host = parameter_host(request)
    if "value" not in request.arguments:
        raise request.wrong("value", "is missing")
    component, name, value = request.text("component"), request.text("name"), request.arguments["value"]
    administration(request, Tag.POLICYMAKER).parameters.set(host, component, name, value)
    done(request)


@service("parameter.clear", changes=True)
def parameter_clear(request: Request) -> None:
    """Forgets the parameter `name` of `component` in `virtual-host`."""
    host = parameter_host(request)
    model = administration(request, Tag.POLICYMAKER)
    model.parameters.clear(host, request.text("component"), request.text("name"))
    done(request)


@service("parameter.list")
def parameter_list(request: Request) -> Iterator[None]:
    """The parameters of `virtual-host` by component and name; `component` narrows it down."""
    host, only = parameter_host(request), request.text("component", "")
    values = administration(request, Tag.POLICYMAKER).parameters.values

    def row(component: str, name: str, value: FieldValue) -> FieldTable:
        return {"virtual-host": host, "component": component, "name": name, "value": value}

    return request.page(
        (component + APART + name, partial(row, component, name, value))
        for (within, component, name), value in values.items()
        if within == host and (not only or component == only)
    )
