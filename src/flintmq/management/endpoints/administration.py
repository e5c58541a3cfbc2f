"""Virtual hosts, users, permissions, policies, parameters, limits: the services of administration, over HTTP.

Each is asked in the name of the user: what the user may change is the broker's to say.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any

from starlette.responses import Response

from flintmq.client.core.errors import ServiceError
from flintmq.config import USER_TAGS
from flintmq.management.broker_state import shapes
from flintmq.management.broker_state.broker_link import unless_gone
from flintmq.management.broker_state.samples import rate
from flintmq.management.requests.faults import BadRequest, NotFound
from flintmq.management.requests.listing import Listing, answer
from flintmq.management.requests.routes import (
    ADMINISTRATOR,
    LIST_QUERY,
    POLICYMAKER,
    Call,
    endpoint,
    no_content,
    number_in,
    required,
    table_of,
    text_of,
)
from flintmq.wire import amqp

OBJECT = {"type": "object"}
TEXT = {"type": "string"}
# What a virtual host shows of its messages, by what the broker counts.
HOST_DEPTHS = (
    ("messages_delayed", "delayed"),
    ("messages_ready", "ready"),
    ("messages_unacknowledged", "unacked"),
)
# How long a request waits until a deleted virtual host is gone from all lists.
GONE_S = 5.0


def listed(call: Call, rows: list[dict[str, Any]], name: str = "name") -> Response:
    return answer(call, Listing(rows, lambda row: row, lambda row: str(row.get(name, ""))))


def one(rows: list[dict[str, Any]], **wanted: str) -> dict[str, Any]:
    for row in rows:
        if all(row.get(name) == value for name, value in wanted.items()):
            return row
    raise NotFound


# Virtual hosts


async def host_rows(call: Call) -> list[dict[str, Any]]:
    samples = call.context.samples
    now = await samples.current()
    before = samples.before(now)
    seconds = 0.0 if before is None else now.time_s - before.time_s
    found = []
    for name, said in (await call.context.described_hosts()).items():
        if not call.identity.sees(name):
            continue
        counts = now.hosts.get(name)
        row = host_row(call, name, counts, None if before is None else before.hosts.get(name), seconds)
        found.append(row | metadata_shown(said))
    return found


def metadata_shown(said: dict[str, Any]) -> dict[str, Any]:
    """What is said of a virtual host, in the two places where RabbitMQ shows it."""
    about = {"description": said["description"], "tags": said["tags"]}
    queue_type = said["default-queue-type"]
    metadata = about if queue_type == "undefined" else {**about, "default_queue_type": queue_type}
    return {**about, "default_queue_type": queue_type, "metadata": metadata}


def host_row(
    call: Call, name: str, counts: dict[str, Any] | None, before: dict[str, Any] | None, seconds: float
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "cluster_state": {call.context.node: "running"},
        "name": name,
        "tracing": counts is not None and counts["tracing"],
    }
    if counts is not None:
        for shown, count in HOST_DEPTHS:
            row[shown] = counts[count]
            earlier = None if before is None else before[count]
            row[f"{shown}_details"] = {"rate": rate(counts[count], earlier, seconds)}
        row["messages"] = counts["ready"] + counts["unacked"]
        was = None if before is None else before["ready"] + before["unacked"]
        row["messages_details"] = {"rate": rate(row["messages"], was, seconds)}
        were = None if before is None else shapes.octets(before)
        row |= shapes.with_rates(shapes.octets(counts), were, seconds)
        stats = shapes.channel_stats(counts)
        if any(stats.values()):
            earlier_stats = None if before is None else shapes.channel_stats(before)
            row["message_stats"] = shapes.with_rates(stats, earlier_stats, seconds)
    return row


@endpoint("GET", "/api/vhosts", query=LIST_QUERY)
async def vhosts(call: Call) -> Response:
    """The virtual hosts that the user may see."""
    return listed(call, await host_rows(call))


@endpoint("GET", "/api/vhosts/{vhost}", query=("columns",))
async def vhost_one(call: Call) -> dict[str, Any]:
    """One virtual host."""
    return one(await host_rows(call), name=call.vhost)


@endpoint("PUT", "/api/vhosts/{vhost}", ADMINISTRATOR, body=OBJECT)
async def vhost_put(call: Call) -> Response:
    """Adds a virtual host, in which a user of the broker itself gets all permissions; 201 if it is new.

    `description`, `tags` and `default_queue_type` are kept for those who ask; of one that is there those that
    are given change. `tracing` turns the firehose of the virtual host on or off.
    """
    body = await call.json()
    tracing = body.get("tracing")
    if tracing is not None and not isinstance(tracing, bool):
        raise BadRequest(f"tracing: expected true or false, not {tracing!r}")
    name = call["vhost"]
    is_new = name not in await call.context.hosts()
    said = metadata_given(body)
    if is_new:
        await call.ask("vhost.add", {"virtual-host": name, **said})
        if not call.identity.visitor:  # what a back end allows is not the broker's to change
            everything = {"configure": ".*", "write": ".*", "read": ".*"}
            await call.ask("permission.set", {"user": call.identity.user, "virtual-host": name, **everything})
    elif said:
        await call.ask("vhost.describe", {"virtual-host": name, **said})
    if tracing is not None:
        await call.ask("trace.on" if tracing else "trace.off", {"virtual-host": name})
    return no_content(201 if is_new else 204)


def metadata_given(body: dict[str, Any]) -> dict[str, Any]:
    """Arguments of vhost.add and vhost.describe; tags may be a text with commas between them."""
    tags = body.get("tags")
    if isinstance(tags, str):
        tags = [each.strip() for each in tags.split(",") if each.strip()]
    queue_type = body.get("default_queue_type", body.get("defaultqueuetype"))
    given = {"description": body.get("description"), "tags": tags, "default-queue-type": queue_type}
    return {name: value for name, value in given.items() if value is not None}


@endpoint("DELETE", "/api/vhosts/{vhost}", ADMINISTRATOR)
async def vhost_delete(call: Call) -> Response:
    """Deletes a virtual host with all that is in it."""
    await call.ask("vhost.delete", {"virtual-host": call["vhost"]})
    until_s = call.context.clock.monotonic_s() + GONE_S
    while call.context.clock.monotonic_s() < until_s:
        if all(row["virtual-host"] != call["vhost"] for row in await call.rows("vhost.list")):
            break
        await asyncio.sleep(0.05)
    return no_content()


@endpoint("GET", "/api/vhosts/{vhost}/permissions", ADMINISTRATOR, query=LIST_QUERY)
async def vhost_permissions(call: Call) -> Response:
    """Who may do what in a virtual host."""
    return listed(call, await permission_rows(call, vhost=await known_host(call)), "user")


@endpoint("GET", "/api/vhosts/{vhost}/topic-permissions", ADMINISTRATOR, query=LIST_QUERY)
async def vhost_topic_permissions(call: Call) -> Response:
    """Who may use which routing keys in a virtual host."""
    return listed(call, await topic_permission_rows(call, vhost=await known_host(call)), "user")


@endpoint("POST", "/api/vhosts/{vhost}/start/{node}", ADMINISTRATOR)
async def vhost_start(call: Call) -> Response:
    """A virtual host runs as long as it exists: nothing is to be started."""
    await known_host(call)
    return no_content()


async def known_host(call: Call) -> str:
    if call["vhost"] not in await call.context.hosts():
        raise NotFound
    return call["vhost"]


# Users


def user_row(row: dict[str, Any], limits: dict[str, int]) -> dict[str, Any]:
    return {
        "name": row["user"],
        "password_hash": "",
        "hashing_algorithm": "",
        "tags": row["tags"],
        "limits": limits,
    }


async def user_rows(call: Call) -> list[dict[str, Any]]:
    limits: dict[str, dict[str, int]] = {}
    for row in await call.rows("limit.list"):
        if "user" in row:
            limits.setdefault(row["user"], {})[row["name"]] = row["value"]
    return [user_row(row, limits.get(row["user"], {})) for row in await call.rows("user.list")]


@endpoint("GET", "/api/users", ADMINISTRATOR, query=LIST_QUERY)
async def users(call: Call) -> Response:
    """All users; their password hashes are not told."""
    return listed(call, await user_rows(call))


@endpoint("GET", "/api/users/without-permissions", ADMINISTRATOR)
async def users_without_permissions(call: Call) -> list[dict[str, Any]]:
    """Users who may enter no virtual host."""
    permitted = {row["user"] for row in await permission_rows(call)}
    return [row for row in await user_rows(call) if row["name"] not in permitted]


@endpoint("POST", "/api/users/bulk-delete", ADMINISTRATOR, body=OBJECT)
async def users_delete(call: Call) -> Response:
    """Deletes the users of the array `users`."""
    names = (await call.json()).get("users")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadRequest("users must be an array of texts")
    for name in names:
        with unless_gone():
            await call.ask("user.delete", {"user": name})
    return no_content()


@endpoint("GET", "/api/users/{user}", ADMINISTRATOR)
async def user_one(call: Call) -> dict[str, Any]:
    """One user."""
    return one(await user_rows(call), name=call["user"])


@endpoint("PUT", "/api/users/{user}", ADMINISTRATOR, body=OBJECT)
async def user_put(call: Call) -> Response:
    """Adds or changes a user: `tags`, and `password` or `password_hash`; 201 if it is new."""
    body = await call.json()
    tags = tags_of(body)
    secret = secret_of(body)
    name = call["user"]
    found = [row for row in await call.rows("user.list") if row["user"] == name]
    if not found:
        if not secret:
            raise BadRequest("give password or password_hash")
        await call.ask("user.add", {"user": name, "tags": tags, **secret})
        return no_content(201)
    await user_changed(call, found[0], tags, secret)
    return no_content()


async def user_changed(call: Call, before: dict[str, Any], tags: list[str], secret: dict[str, str]) -> None:
    """Both or none. An administrator who gives the own tag away can change no password behind that."""
    name = before["user"]
    if not secret or name == call.identity.user:
        if secret:
            await call.ask("user.set-password", {"user": name, **secret})
        await call.ask("user.set-tags", {"user": name, "tags": tags})
        return
    await call.ask("user.set-tags", {"user": name, "tags": tags})
    try:
        await call.ask("user.set-password", {"user": name, **secret})
    except ServiceError:
        await call.ask("user.set-tags", {"user": name, "tags": before["tags"]})
        raise


def tags_of(body: dict[str, Any]) -> list[str]:
    """An array, or a text with commas, as RabbitMQ takes both."""
    given = body.get("tags", body.get("administrator"))
    if given is None:
        raise BadRequest("key_missing: tags")
    if given is True:
        return ["administrator"]
    if isinstance(given, str):
        given = [tag for tag in (each.strip() for each in given.split(",")) if tag]
    if not isinstance(given, list) or not all(isinstance(tag, str) for tag in given):
        raise BadRequest("tags must be an array of texts, or a text with commas")
    if not set(given) <= set(USER_TAGS) or len(set(given)) < len(given):
        raise BadRequest(f"tags must be some of {', '.join(USER_TAGS)}")
    return given


def secret_of(body: dict[str, Any]) -> dict[str, str]:
    for name in ("password", "password_hash"):
        if body.get(name) == "" and not body.get("password"):
            raise BadRequest(
                f"{name} is empty, and a user of the broker always has a password: leave it out to keep the "
                "password, or set a long one that nobody knows"
            )
    if body.get("password"):
        return {"password": text_of(body, "password")}
    if body.get("password_hash"):
        return {"password-hash": text_of(body, "password_hash")}
    return {}


@endpoint("DELETE", "/api/users/{user}", ADMINISTRATOR)
async def user_delete(call: Call) -> Response:
    """Deletes a user, and closes the user's connections."""
    await call.ask("user.delete", {"user": call["user"]})
    return no_content()


@endpoint("GET", "/api/users/{user}/permissions", ADMINISTRATOR, query=LIST_QUERY)
async def user_permissions(call: Call) -> Response:
    """What a user may do, by virtual host."""
    one(await user_rows(call), name=call["user"])
    return listed(call, await permission_rows(call, user=call["user"]), "vhost")


@endpoint("GET", "/api/users/{user}/topic-permissions", ADMINISTRATOR, query=LIST_QUERY)
async def user_topic_permissions(call: Call) -> Response:
    """Which routing keys a user may use, by virtual host and exchange."""
    one(await user_rows(call), name=call["user"])
    return listed(call, await topic_permission_rows(call, user=call["user"]), "vhost")


# Permissions


async def permission_rows(call: Call, user: str = "", vhost: str = "") -> list[dict[str, Any]]:
    rows = await call.rows("permission.list", narrowed(user, vhost))
    return [
        {
            "user": row["user"],
            "vhost": row["virtual-host"],
            "configure": row["configure"],
            "write": row["write"],
            "read": row["read"],
        }
        for row in rows
        if vhost in ("", row["virtual-host"])
    ]


def narrowed(user: str, vhost: str) -> dict[str, Any]:
    return {**({"user": user} if user else {}), **({"virtual-host": vhost} if vhost else {})}


@endpoint("GET", "/api/permissions", ADMINISTRATOR, query=LIST_QUERY)
async def permissions(call: Call) -> Response:
    """All permissions."""
    return listed(call, await permission_rows(call), "user")


@endpoint("GET", "/api/permissions/{vhost}/{user}", ADMINISTRATOR)
async def permission_one(call: Call) -> dict[str, Any]:
    """What a user may do in a virtual host."""
    return one(await permission_rows(call, call["user"], call["vhost"]), user=call["user"])


@endpoint("PUT", "/api/permissions/{vhost}/{user}", ADMINISTRATOR, body=OBJECT)
async def permission_put(call: Call) -> Response:
    """Sets the patterns `configure`, `write` and `read`; 201 if there were none."""
    body = await call.json()
    patterns = {name: text_of(body, name) for name in ("configure", "write", "read")}
    try:
        had = await permission_rows(call, call["user"], call["vhost"])
    except ServiceError as error:
        if error.code != amqp.NOT_FOUND:
            raise
        had = []
    await call.ask("permission.set", {"user": call["user"], "virtual-host": call["vhost"], **patterns})
    return no_content(204 if had else 201)


@endpoint("DELETE", "/api/permissions/{vhost}/{user}", ADMINISTRATOR)
async def permission_delete(call: Call) -> Response:
    """Takes away what a user may do in a virtual host."""
    await call.ask("permission.clear", {"user": call["user"], "virtual-host": call["vhost"]})
    return no_content()


async def topic_permission_rows(call: Call, user: str = "", vhost: str = "") -> list[dict[str, Any]]:
    rows = await call.rows("topic-permission.list", narrowed(user, vhost))
    return [
        {
            "user": row["user"],
            "vhost": row["virtual-host"],
            "exchange": row["exchange"],
            "write": row["write"],
            "read": row["read"],
        }
        for row in rows
    ]


@endpoint("GET", "/api/topic-permissions", ADMINISTRATOR, query=LIST_QUERY)
async def topic_permissions(call: Call) -> Response:
    """All permissions on routing keys."""
    return listed(call, await topic_permission_rows(call), "user")


@endpoint("GET", "/api/topic-permissions/{vhost}/{user}", ADMINISTRATOR)
async def topic_permission_of(call: Call) -> list[dict[str, Any]]:
    """Which routing keys a user may use in a virtual host."""
    found = await topic_permission_rows(call, call["user"], call["vhost"])
    if not found:
        raise NotFound
    return found


@endpoint("PUT", "/api/topic-permissions/{vhost}/{user}", ADMINISTRATOR, body=OBJECT)
async def topic_permission_put(call: Call) -> Response:
    """Sets the patterns `write` and `read` for an `exchange`; 201 if there were none."""
    body = await call.json()
    exchange = text_of(body, "exchange")
    patterns = {"write": text_of(body, "write"), "read": text_of(body, "read")}
    had = [
        row
        for row in await topic_permission_rows(call, call["user"], call["vhost"])
        if row["exchange"] == exchange
    ]
    await call.ask(
        "topic-permission.set",
        {"user": call["user"], "virtual-host": call["vhost"], "exchange": exchange, **patterns},
    )
    return no_content(204 if had else 201)


@endpoint("DELETE", "/api/topic-permissions/{vhost}/{user}", ADMINISTRATOR)
async def topic_permission_delete(call: Call) -> Response:
    """Takes away all patterns of a user in a virtual host."""
    for row in await topic_permission_rows(call, call["user"], call["vhost"]):
        await call.ask(
            "topic-permission.clear",
            {"user": call["user"], "virtual-host": call["vhost"], "exchange": row["exchange"]},
        )
    return no_content()


# Policies


def policy_row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "vhost": row["virtual-host"],
        "name": row["name"],
        "pattern": row["pattern"],
        "apply-to": row["apply-to"],
        "definition": shapes.plain(row["definition"]),
        "priority": row["priority"],
    }


async def policy_rows(call: Call, prefix: str, vhost: str | None) -> list[dict[str, Any]]:
    async def rows(host: str) -> list[dict[str, Any]]:
        policies = await call.context.policies(host, prefix == "operator-policy")
        return [policy_row(each.row) for each in policies]

    if vhost is not None:
        return await rows(vhost)
    return list(chain.from_iterable(await call.context.of_hosts(call.identity.sees, rows)))


def add_policy_endpoints(path: str, prefix: str, level: str) -> None:
    """The endpoints of policies, and the same of operator policies."""
    what = prefix.replace("-", " ")

    async def every(call: Call) -> Response:
        return listed(call, await policy_rows(call, prefix, None))

    async def of_host(call: Call) -> Response:
        return listed(call, await policy_rows(call, prefix, call.vhost))

    async def single(call: Call) -> dict[str, Any]:
        return one(await policy_rows(call, prefix, call.vhost), name=call["name"])

    async def put(call: Call) -> Response:
        body = await call.json()
        required(body, "pattern", "definition")
        priority = number_in(body.get("priority", 0))
        if not isinstance(priority, int) or isinstance(priority, bool):
            raise BadRequest("priority must be a whole number")
        definition = table_of(body, "definition")
        if not definition:
            raise BadRequest("definition must be an object with at least one key")
        had = [row for row in await policy_rows(call, prefix, call.vhost) if row["name"] == call["name"]]
        await call.ask(
            f"{prefix}.set",
            {
                "name": call["name"],
                "virtual-host": call["vhost"],
                "pattern": text_of(body, "pattern"),
                "definition": definition,
                "priority": priority,
                "apply-to": text_of(body, "apply-to", "queues" if prefix != "policy" else "all"),
            },
        )
        return no_content(204 if had else 201)

    async def delete(call: Call) -> Response:
        await call.ask(f"{prefix}.clear", {"name": call["name"], "virtual-host": call["vhost"]})
        return no_content()

    for method, rest, handler, text, takes in (
        ("GET", "", every, f"All {what}s.".replace("policys", "policies"), "management"),
        ("GET", "/{vhost}", of_host, f"Each {what} of a virtual host.", "management"),
        ("GET", "/{vhost}/{name}", single, f"One {what}.", "management"),
        ("PUT", "/{vhost}/{name}", put, f"Sets the {what}; 201 if it is new.", level),
        ("DELETE", "/{vhost}/{name}", delete, f"Takes the {what} out of force.", level),
    ):
        handler.__doc__ = text
        is_list = method == "GET" and not rest.endswith("{name}")
        body = OBJECT if method == "PUT" else None
        endpoint(method, path + rest, takes, query=LIST_QUERY if is_list else (), body=body)(handler)


add_policy_endpoints("/api/policies", "policy", POLICYMAKER)
add_policy_endpoints("/api/operator-policies", "operator-policy", ADMINISTRATOR)


# Parameters


async def parameter_rows(call: Call, component: str, vhost: str | None) -> list[dict[str, Any]]:
    async def rows(host: str) -> list[dict[str, Any]]:
        arguments = {"virtual-host": host, **({"component": component} if component else {})}
        return [
            {
                "vhost": row["virtual-host"],
                "component": row["component"],
                "name": row["name"],
                "value": shapes.plain(row["value"]),
            }
            for row in await call.rows("parameter.list", arguments)
        ]

    if vhost is not None:
        return await rows(vhost)
    return list(chain.from_iterable(await call.context.of_hosts(call.identity.sees, rows)))


@endpoint("GET", "/api/parameters", POLICYMAKER, query=LIST_QUERY)
async def parameters(call: Call) -> Response:
    """All parameters of virtual hosts."""
    return listed(call, await parameter_rows(call, "", None))


@endpoint("GET", "/api/parameters/{component}", POLICYMAKER, query=LIST_QUERY)
async def parameters_of_component(call: Call) -> Response:
    """The parameters of a component."""
    return listed(call, await parameter_rows(call, call["component"], None))


@endpoint("GET", "/api/parameters/{component}/{vhost}", POLICYMAKER, query=LIST_QUERY)
async def parameters_of_host(call: Call) -> Response:
    """The parameters of a component in a virtual host."""
    return listed(call, await parameter_rows(call, call["component"], call.vhost))


@endpoint("GET", "/api/parameters/{component}/{vhost}/{name}", POLICYMAKER)
async def parameter_one(call: Call) -> dict[str, Any]:
    """One parameter."""
    return one(await parameter_rows(call, call["component"], call.vhost), name=call["name"])


@endpoint("PUT", "/api/parameters/{component}/{vhost}/{name}", POLICYMAKER, body=OBJECT)
async def parameter_put(call: Call) -> Response:
    """Sets a parameter to `value`; 201 if it is new."""
    body = await call.json()
    required(body, "value")
    had = [
        row
        for row in await parameter_rows(call, call["component"], call.vhost)
        if row["name"] == call["name"]
    ]
    arguments = {"component": call["component"], "virtual-host": call["vhost"], "name": call["name"]}
    await call.ask("parameter.set", {**arguments, "value": body["value"]})
    return no_content(204 if had else 201)


@endpoint("DELETE", "/api/parameters/{component}/{vhost}/{name}", POLICYMAKER)
async def parameter_delete(call: Call) -> Response:
    """Forgets a parameter."""
    arguments = {"component": call["component"], "virtual-host": call.vhost, "name": call["name"]}
    await call.ask("parameter.clear", arguments)
    return no_content()


GLOBAL = "global"


async def global_rows(call: Call) -> list[dict[str, Any]]:
    rows = await call.rows("parameter.list", {"virtual-host": "", "component": GLOBAL})
    return [{"name": row["name"], "value": shapes.plain(row["value"])} for row in rows]


@endpoint("GET", "/api/global-parameters", ADMINISTRATOR, query=LIST_QUERY)
async def global_parameters(call: Call) -> Response:
    """The parameters of the whole broker."""
    return listed(call, await global_rows(call))


@endpoint("GET", "/api/global-parameters/{name}", ADMINISTRATOR)
async def global_parameter_one(call: Call) -> dict[str, Any]:
    """One parameter of the whole broker."""
    return one(await global_rows(call), name=call["name"])


@endpoint("PUT", "/api/global-parameters/{name}", ADMINISTRATOR, body=OBJECT)
async def global_parameter_put(call: Call) -> Response:
    """Sets a parameter of the whole broker to `value`; 201 if it is new."""
    body = await call.json()
    required(body, "value")
    had = [row for row in await global_rows(call) if row["name"] == call["name"]]
    arguments = {"component": GLOBAL, "virtual-host": "", "name": call["name"]}
    await call.ask("parameter.set", {**arguments, "value": body["value"]})
    return no_content(204 if had else 201)


@endpoint("DELETE", "/api/global-parameters/{name}", ADMINISTRATOR)
async def global_parameter_delete(call: Call) -> Response:
    """Forgets a parameter of the whole broker."""
    await call.ask("parameter.clear", {"component": GLOBAL, "virtual-host": "", "name": call["name"]})
    return no_content()


# Limits


async def limit_rows(call: Call, kind: str, shown: str, only: str | None) -> list[dict[str, Any]]:
    """By owner: RabbitMQ tells each owner's limits as one object."""
    found: dict[str, dict[str, int]] = {}
    for row in await call.context.rows("limit.list"):
        if kind in row and only in (None, row[kind]):
            found.setdefault(row[kind], {})[row["name"]] = row["value"]
    return [{shown: owner, "value": values} for owner, values in sorted(found.items())]


@endpoint("GET", "/api/vhost-limits", query=LIST_QUERY)
async def vhost_limits(call: Call) -> Response:
    """The limits of virtual hosts."""
    rows = await limit_rows(call, "virtual-host", "vhost", None)
    return listed(call, [row for row in rows if call.identity.sees(row["vhost"])], "vhost")


@endpoint("GET", "/api/vhost-limits/{vhost}", query=LIST_QUERY)
async def vhost_limits_of(call: Call) -> Response:
    """The limits of a virtual host."""
    return listed(call, await limit_rows(call, "virtual-host", "vhost", call.vhost), "vhost")


@endpoint("PUT", "/api/vhost-limits/{vhost}/{name}", ADMINISTRATOR, body=OBJECT)
async def vhost_limit_put(call: Call) -> Response:
    """Sets a limit of a virtual host to `value`."""
    await set_limit(call, {"virtual-host": call["vhost"]})
    return no_content()


@endpoint("DELETE", "/api/vhost-limits/{vhost}/{name}", ADMINISTRATOR)
async def vhost_limit_delete(call: Call) -> Response:
    """Takes a limit of a virtual host away."""
    await call.ask("limit.clear", {"virtual-host": call["vhost"], "name": call["name"]})
    return no_content()


@endpoint("GET", "/api/user-limits", ADMINISTRATOR, query=LIST_QUERY)
async def user_limits(call: Call) -> Response:
    """The limits of users."""
    return listed(call, await limit_rows(call, "user", "user", None), "user")


@endpoint("GET", "/api/user-limits/{user}", ADMINISTRATOR, query=LIST_QUERY)
async def user_limits_of(call: Call) -> Response:
    """The limits of a user."""
    return listed(call, await limit_rows(call, "user", "user", call["user"]), "user")


@endpoint("PUT", "/api/user-limits/{user}/{name}", ADMINISTRATOR, body=OBJECT)
async def user_limit_put(call: Call) -> Response:
    """Sets a limit of a user to `value`."""
    await set_limit(call, {"user": call["user"]})
    return no_content()


@endpoint("DELETE", "/api/user-limits/{user}/{name}", ADMINISTRATOR)
async def user_limit_delete(call: Call) -> Response:
    """Takes a limit of a user away."""
    await call.ask("limit.clear", {"user": call["user"], "name": call["name"]})
    return no_content()


async def set_limit(call: Call, owner: dict[str, Any]) -> None:
    value = (await call.json()).get("value")
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadRequest("value must be a whole number")
    # Below 0 is none, as in RabbitMQ.
    await call.ask("limit.set", {**owner, "name": call["name"], "value": max(value, -1)})
