"""Definitions: RabbitMQ's JSON of users, virtual hosts, policies, queues and the rest, out and in."""

from __future__ import annotations

import json
from typing import Any

import orjson
from starlette.responses import Response

from flintmq.checks import Unfit
from flintmq.definition_parts import decode, join, split
from flintmq.management.broker_state.broker_link import Place
from flintmq.management.requests.faults import BadRequest
from flintmq.management.requests.listing import json_response
from flintmq.management.requests.routes import ADMINISTRATOR, Call, endpoint

OBJECT = {"type": "object"}
# Reasons that are told of an import that was refused.
REASONS_MAX = 20


async def exported(call: Call, vhost: str) -> Response:
    document: dict[str, Any] = {}
    arguments: dict[str, Any] = {"virtual-host": vhost} if vhost else {}
    while True:
        reply = await call.reply("definitions.export", arguments)
        join(document, part_of(reply.body))
        if "next" not in reply.results:
            break
        arguments["after"] = reply.results["next"]
    response = Response(octets_of(document), media_type="application/json")
    name = call.query("download")
    if name and name.replace(".", "").replace("-", "").replace("_", "").isalnum() and name.isascii():
        response.headers["content-disposition"] = f'attachment; filename="{name}"'
    return response


def part_of(octets: bytes) -> dict[str, Any]:
    """A part of the definitions. Arguments may have octets that are no text, which are lone surrogates here,
    and numbers that are none, which become null; orjson refuses both."""
    found: dict[str, Any]
    try:
        found = orjson.loads(octets)
    except ValueError:
        found = json.loads(octets, parse_constant=lambda name: None)
    return found


def octets_of(document: dict[str, Any]) -> bytes:
    """As JSON from which the same octets can be imported."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return json.dumps(document).encode()


async def imported(call: Call, vhost: str) -> Response:
    """All of it or nothing, over a connection of its own: parts are gathered by connection."""
    try:
        parts = list(split(decode(await call.octets())))
    except Unfit as unfit:
        raise BadRequest(str(unfit)) from None
    place = Place(call.context.link, "", "")
    try:
        for number, part in enumerate(parts):
            arguments: dict[str, Any] = {"part": number, "more": number < len(parts) - 1}
            if vhost:
                arguments["virtual-host"] = vhost
            reply = await call.reply("definitions.import", arguments, "", part, place)
    finally:
        await place.close()
    report = orjson.loads(reply.body)
    if not report["applied"]:
        reasons = [f"{each['item']}: {each['reason']}" for each in report["refused"][:REASONS_MAX]]
        raise BadRequest("nothing was changed: " + "; ".join(reasons))
    return json_response(report)


@endpoint("GET", "/api/definitions", ADMINISTRATOR, query=("download",))
async def definitions(call: Call) -> Response:
    """All definitions of the broker, with the hashes of passwords."""
    return await exported(call, "")


@endpoint("POST", "/api/definitions", ADMINISTRATOR, body=OBJECT)
async def definitions_post(call: Call) -> Response:
    """Puts definitions into force, all of them or nothing; a report."""
    return await imported(call, "")


@endpoint("GET", "/api/definitions/{vhost}", ADMINISTRATOR, query=("download",))
async def definitions_of_host(call: Call) -> Response:
    """The definitions of a virtual host."""
    return await exported(call, call.vhost)


@endpoint("POST", "/api/definitions/{vhost}", ADMINISTRATOR, body=OBJECT)
async def definitions_of_host_post(call: Call) -> Response:
    """Puts definitions into force in a virtual host."""
    return await imported(call, call.vhost)
