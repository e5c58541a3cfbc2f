"""Services for administrators: users, virtual hosts, permissions, policies, parameters.

    user.add, user.set-password, user.set-tags, user.delete, user.list
    vhost.add, vhost.describe, vhost.delete, vhost.list, trace.on, trace.off
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

from flintmq.auth import Operation, Permissions, Tag, User, require
from flintmq.auth.passwords import PasswordHash, parse_hash
from flintmq.auth.permissions import TopicPermissions
from flintmq.broker.administration import host_metadata
from flintmq.broker.administration.limits import UNLIMITED
from flintmq.broker.services.arguments import PAGE
from flintmq.broker.services.request import Request, service
from flintmq.checks import Unfit
from flintmq.config import PASSWORD_OCTETS_MAX, USER_TAGS, PermissionSettings
from flintmq.errors import ServiceFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from collections.abc import Generator

    from flintmq.broker.administration.administration import Administration
    from flintmq.broker.policies import Policy
    from flintmq.broker.scheduling.chores import Chore, Wait
    from flintmq.broker.services.request import Row
    from flintmq.wire.tables import FieldTable, FieldValue

POLICY = "name text, pattern text, definition table, priority? number, apply-to? text, virtual-host? text"
# What may be kept as the default queue type of a virtual host.
QUEUE_TYPES = (host_metadata.NO_QUEUE_TYPE, "classic", "quorum", "stream")
# Between the parts of a place in a list: no name of a user or virtual host is told apart by it.
APART = "\n"


def administration(request: Request, tag: Tag = Tag.ADMINISTRATOR) -> Administration:
    """The model, for whoever has the tag."""
    if not request.user.has_tag(tag):
        raise ServiceFault(
            amqp.ACCESS_REFUSED,
            f"{request.name}: user '{request.user.name}' has not the tag {tag}",
        )
    store = request.channel.store
    if store is not None and store.journal.in_group():
        raise ServiceFault(
            amqp.PRECONDITION_FAILED,
            f"{request.name}: cannot be asked from inside a transaction",
        )
    return request.broker.administration


def is_forced(request: Request) -> bool:
    """Whether it is to be done though nobody may be left who can administer."""
    return request.flag("force", False)


def done(request: Request, results: FieldTable | None = None, body: bytes = b"") -> None:
    """The answer, which leaves when what was done is on disk."""
    store = request.channel.store
    if store is not None:
        store.hold_back(request.channel.output, store.last())
    request.reply(results or {}, body)


# Users


@service(
    "user.add",
    "user text, password? secret, password-hash? secret, tags? array",
    changes=True,
    administers=True,
)
def user_add(request: Request) -> Chore:
    """Adds a user: `user`, `password` or `password-hash`, `tags`; it has no permissions yet."""
    name, tags = request.text("user"), tags_of(request, [])
    administration(request).accounts.check_new(name)
    password_hash = yield from password_of(request)
    administration(request).accounts.add(name, password_hash, tags)
    done(request)


@service(
    "user.set-password", "user text, password? secret, password-hash? secret", changes=True, administers=True
)
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


@service("user.set-tags", "user text, tags array, force? flag", changes=True, administers=True)
def user_set_tags(request: Request) -> None:
    """Gives `user` these `tags`, an array, in place of those there were."""
    model, name, tags = administration(request), request.text("user"), tags_of(request)
    model.accounts.changeable(name)
    if Tag.ADMINISTRATOR not in tags and not is_forced(request):
        model.administrator_access.keep_without_user(
            name, f"{request.name}: to take the tag of user '{name}' away"
        )
    model.accounts.set_tags(name, tags)
    done(request)


@service("user.delete", "user text, force? flag", changes=True, administers=True)
def user_delete(request: Request) -> None:
    """Deletes `user`, and closes the connections of that user; the last administrator takes `force`."""
    model, name = administration(request), request.text("user")
    model.accounts.changeable(name)
    if not is_forced(request):
        model.administrator_access.keep_without_user(name, f"{request.name}: to delete user '{name}'")
    model.delete_user(name, request.channel.origin)
    done(request)


@service("user.list", PAGE)
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
    if not isinstance(given, list) or len(known) < len(given):
        raise request.wrong("tags", f"expected an array of {', '.join(USER_TAGS)}")
    for each in known:
        if each not in USER_TAGS:
            raise request.wrong("tags", f"there is no tag '{each[:64]}'; there are {', '.join(USER_TAGS)}")
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


@service(
    "vhost.add",
    "virtual-host text, description? text, tags? array, default-queue-type? text",
    changes=True,
    administers=True,
)
def vhost_add(request: Request) -> None:
    """Adds the virtual host `virtual-host`, which nobody may use yet.

    `description`, `tags` and `default-queue-type` are kept for those who ask, and change nothing.
    """
    model, name, metadata = administration(request), request.text("virtual-host"), metadata_in(request)
    model.virtual_hosts.check_new(name)
    host_metadata.check(model.parameters, name, metadata)
    model.virtual_hosts.add(name)
    host_metadata.change(model.parameters, name, metadata)
    done(request)


@service(
    "vhost.describe",
    "virtual-host text, description? text, tags? array, default-queue-type? text",
    changes=True,
    administers=True,
)
def vhost_describe(request: Request) -> None:
    """What is given of these takes the place of what vhost.add has said of `virtual-host`."""
    model = administration(request)
    host_metadata.change(model.parameters, request.text("virtual-host"), metadata_in(request))
    done(request)


def metadata_in(request: Request) -> FieldTable:
    """As RabbitMQ's definitions have it; what is not given is not there."""
    found: FieldTable = {"description": request.text("description", "")}
    tags = request.arguments.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(each, str) and each for each in tags):
        raise request.wrong("tags", "expected an array of texts")
    found["tags"] = tags
    queue_type = request.text("default-queue-type", host_metadata.NO_QUEUE_TYPE)
    if queue_type not in QUEUE_TYPES:
        raise request.wrong("default-queue-type", f"expected one of {', '.join(QUEUE_TYPES)}")
    found["default_queue_type"] = queue_type
    return {name: value for name, value in found.items() if name.replace("_", "-") in request.arguments}


@service("vhost.delete", "virtual-host text, force? flag", changes=True, administers=True)
def vhost_delete(request: Request) -> None:
    """Deletes `virtual-host` with all that is in it, and closes its connections."""
    model, name = administration(request), request.text("virtual-host")
    model.virtual_hosts.changeable(name)
    if not is_forced(request):
        model.administrator_access.keep_without_host(name, f"{request.name}: to delete virtual host '{name}'")
    model.virtual_hosts.delete(name, request.channel.origin)
    done(request)


@service("trace.on", "virtual-host? text", changes=True, administers=True)
def trace_on(request: Request) -> None:
    """Has all that is published and delivered in `virtual-host` copied to its exchange amq.rabbitmq.trace."""
    administration(request).virtual_hosts.trace(host_of(request), True)
    done(request)


@service("trace.off", "virtual-host? text", changes=True, administers=True)
def trace_off(request: Request) -> None:
    """Ends that."""
    administration(request).virtual_hosts.trace(host_of(request), False)
    done(request)


@service("vhost.list", PAGE)
def vhost_list(request: Request) -> Iterator[None]:
    """The virtual hosts by name: `fixed`, `state`, `tracing`, `queues`, `connections`, and what is said of
    each: `description`, `tags`, `default-queue-type`."""
    hosts = administration(request, Tag.MONITORING).virtual_hosts
    broker = request.broker

    def row(name: str) -> FieldTable:
        running = broker.virtual_hosts.get(name)
        host = running or hosts.ending.get(name)
        said = host_metadata.metadata_of(broker.administration.parameters, name)
        found: FieldTable = {
            "virtual-host": name,
            "fixed": hosts.is_fixed(name),
            "state": "deleting" if running is None else "running",
            "description": said.get("description", ""),
            "tags": said.get("tags", []),
            "default-queue-type": said.get("default_queue_type", host_metadata.NO_QUEUE_TYPE),
        }
        if host is not None:
            found["tracing"] = host.router.is_traced
            found["queues"] = len(host.queues) - host.reply_queues
            found["connections"] = len(broker.clients.by_host.get(host, ()))
        return found

    return request.listing(lambda after: ((name, partial(row, name)) for name in hosts.names_after(after)))


# Permissions


@service(
    "permission.set",
    "user text, virtual-host? text, configure text, write text, read text, force? flag",
    changes=True,
    administers=True,
)
def permission_set(request: Request) -> None:
    """Sets what `user` may `configure`, `write` and `read` in `virtual-host`: patterns of names."""
    model, user, host = administration(request), request.text("user"), host_of(request)
    settings = PermissionSettings(*[request.text(each) for each in ("configure", "write", "read")])
    model.permissions.check(user, host, settings)
    if not is_forced(request):
        model.administrator_access.keep_under_permission(user, host, settings, request.name)
    model.permissions.set(user, host, settings)
    done(request)


@service("permission.clear", "user text, virtual-host? text, force? flag", changes=True, administers=True)
def permission_clear(request: Request) -> None:
    """Takes away all that `user` may do in `virtual-host`."""
    model, user, host = administration(request), request.text("user"), host_of(request)
    model.permissions.check_there(user, host)
    if not is_forced(request):
        model.administrator_access.keep_without_permission(user, host, request.name)
    model.permissions.clear(user, host)
    done(request)


@service("permission.list", "user? text, virtual-host? text, " + PAGE)
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
        for host, granted in model.permissions.of_user(user):
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
        "fixed": model.permissions.is_fixed(user, host),
    }


def host_of(request: Request) -> str:
    """The virtual host that is meant: that of the connection, unless another one is named."""
    return request.text("virtual-host", request.channel.virtual_host.name)


# Topic permissions


@service(
    "topic-permission.set",
    "user text, virtual-host? text, exchange text, write text, read text",
    changes=True,
    administers=True,
)
def topic_permission_set(request: Request) -> None:
    """Sets the routing keys of `exchange` that `user` may `write` and `read` in `virtual-host`: patterns."""
    administration(request).topic_permissions.set(
        request.text("user"),
        host_of(request),
        request.text("exchange"),
        request.text("write"),
        request.text("read"),
    )
    done(request)


@service(
    "topic-permission.clear", "user text, virtual-host? text, exchange text", changes=True, administers=True
)
def topic_permission_clear(request: Request) -> None:
    """`user` may use all routing keys of `exchange` in `virtual-host` again."""
    model = administration(request).topic_permissions
    model.clear(request.text("user"), host_of(request), request.text("exchange"))
    done(request)


@service("topic-permission.list", "user? text, virtual-host? text, " + PAGE)
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
        for (host, exchange), allowed in model.topic_permissions.of_user(user):
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
    name, user = host_of(request), request.user
    if not user.has_tag(Tag.ADMINISTRATOR) and not user.may_enter(name):
        raise ServiceFault(
            amqp.ACCESS_REFUSED, f"{request.name}: user '{user.name}' may not use virtual host '{name}'"
        )
    model.virtual_hosts.require(name)
    return name


def listed_hosts(request: Request, tag: Tag) -> list[str]:
    """Those that a list is about: the one that is named, or all that the asker may hear of."""
    if "virtual-host" in request.arguments:
        return [host_for(request, tag)]
    user, known = request.user, administration(request, tag).broker.virtual_hosts
    return [name for name in known if user.has_tag(Tag.ADMINISTRATOR) or user.may_enter(name)]


# Policies


def policy_set(request: Request, is_operator: bool, tag: Tag) -> None:
    host = host_for(request, tag)
    definition = request.arguments.get("definition")
    if not isinstance(definition, dict):
        raise request.wrong("definition", "expected a table")
    may_send_on(request, host, definition)
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


def may_send_on(request: Request, host: str, definition: FieldTable) -> None:
    """Who has messages of others sent somewhere needs to be allowed to write there; administrators are."""
    if not request.user.has_tag(Tag.ADMINISTRATOR):
        for key in ("dead-letter-exchange", "alternate-exchange"):
            if isinstance(exchange := definition.get(key), str):
                require(request.user, host, Operation.WRITE, "exchange", exchange)


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
    policies = administration(request, tag).policies
    return request.page(
        (policy.virtual_host + APART + policy.name, partial(policy_row, policy))
        for host in listed_hosts(request, tag)
        for policy in policies.of(host, is_operator)
    )


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


@service("policy.set", POLICY, changes=True, administers=True)
def ordinary_policy_set(request: Request) -> None:
    """Sets a policy: `name`, `pattern`, `definition`, `priority`, `apply-to`, `virtual-host`."""
    policy_set(request, False, Tag.POLICYMAKER)


@service("policy.clear", "name text, virtual-host? text", changes=True, administers=True)
def ordinary_policy_clear(request: Request) -> None:
    """Takes the policy `name` of `virtual-host` out of force."""
    policy_clear(request, False, Tag.POLICYMAKER)


@service("policy.list", "virtual-host? text, " + PAGE)
def ordinary_policy_list(request: Request) -> Iterator[None]:
    """The policies, of `virtual-host` or of all, by virtual host and name."""
    return policy_list(request, False, Tag.POLICYMAKER)


@service("operator-policy.set", POLICY, changes=True, administers=True)
def operator_policy_set(request: Request) -> None:
    """Sets an operator policy, with the arguments of policy.set; it caps what queues may have."""
    policy_set(request, True, Tag.ADMINISTRATOR)


@service("operator-policy.clear", "name text, virtual-host? text", changes=True, administers=True)
def operator_policy_clear(request: Request) -> None:
    """Takes the operator policy `name` of `virtual-host` out of force."""
    policy_clear(request, True, Tag.ADMINISTRATOR)


@service("operator-policy.list", "virtual-host? text, " + PAGE)
def operator_policy_list(request: Request) -> Iterator[None]:
    """The operator policies, of `virtual-host` or of all, by virtual host and name."""
    return policy_list(request, True, Tag.ADMINISTRATOR)


# Limits


def limited(request: Request) -> tuple[str, str]:
    """Whose limits are meant: those of `user`, else those of `virtual-host`."""
    user = request.text("user", "")
    return ("user", user) if user else ("virtual-host", host_of(request))


@service(
    "limit.set",
    "user? text, virtual-host? text, name text, value number, force? flag",
    changes=True,
    administers=True,
)
def limit_set(request: Request) -> None:
    """Sets the limit `name` (max-connections, ...) of `user` or of `virtual-host`; `value` -1: none."""
    model = administration(request)
    owner, name = limited(request), request.text("name")
    value = request.number("value", minimum=UNLIMITED)
    if value == UNLIMITED:
        model.limits.lift(owner, name)
        done(request)
        return
    model.limits.check_known(owner, name, value)
    if not is_forced(request):
        model.administrator_access.keep_under_limit(owner, name, value, request.name)
    model.limits.set(owner, name, value)
    done(request)


@service("limit.clear", "user? text, virtual-host? text, name text", changes=True, administers=True)
def limit_clear(request: Request) -> None:
    """Takes the limit `name` of `user`, or else of `virtual-host`, away."""
    administration(request).limits.clear(limited(request), request.text("name"))
    done(request)


@service("limit.list", PAGE)
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


@service(
    "parameter.set",
    "component text, name text, value secret, virtual-host? text",
    changes=True,
    administers=True,
)
def parameter_set(request: Request) -> None:
    """Sets the parameter `name` of `component` in `virtual-host` (empty: the whole broker) to `value`."""
    host = parameter_host(request)
    if "value" not in request.arguments:
        raise request.wrong("value", "is missing")
    component, name, value = request.text("component"), request.text("name"), request.arguments["value"]
    administration(request, Tag.POLICYMAKER).parameters.set(host, component, name, value)
    done(request)


@service("parameter.clear", "component text, name text, virtual-host? text", changes=True, administers=True)
def parameter_clear(request: Request) -> None:
    """Forgets the parameter `name` of `component` in `virtual-host`."""
    host = parameter_host(request)
    model = administration(request, Tag.POLICYMAKER)
    model.parameters.clear(host, request.text("component"), request.text("name"))
    done(request)


@service("parameter.list", "component? text, virtual-host? text, " + PAGE)
def parameter_list(request: Request) -> Iterator[None]:
    """The parameters, of `virtual-host` or of all, by component and name; `component` narrows it down."""
    only = request.text("component", "")
    values = administration(request, Tag.POLICYMAKER).parameters.values
    if request.arguments.get("virtual-host") == "":
        hosts = {parameter_host(request)}
    else:
        hosts = set(listed_hosts(request, Tag.POLICYMAKER))
        if "virtual-host" not in request.arguments and request.user.has_tag(Tag.ADMINISTRATOR):
            hosts.add("")

    def row(host: str, component: str, name: str, value: FieldValue) -> FieldTable:
        return {"virtual-host": host, "component": component, "name": name, "value": value}

    return request.page(
        (APART.join(key), partial(row, *key, value))
        for key, value in values.items()
        if key[0] in hosts and (not only or key[1] == only)
    )
