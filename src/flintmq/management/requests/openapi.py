"""The OpenAPI document, made of the table of endpoints."""

from __future__ import annotations

from functools import cache
from typing import Any

from flintmq import __version__
from flintmq.management.requests.routes import ANYBODY, ENDPOINTS, Call, Endpoint, endpoint, names_in

FAULT = {
    "description": "What is wrong.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Fault"}}},
}
UNHEALTHY = {
    "description": "The broker is not as it should be, or not there.",
    "content": {"application/json": {"schema": {"type": "object", "required": ["reason"]}}},
}
NUMBERS = ("page", "page_size", "msg_rates_age", "msg_rates_incr", "lengths_age", "lengths_incr", "limit")
FLAGS = ("use_regex", "pagination", "sort_reverse", "if-empty", "if-unused")


@endpoint("GET", "/api/openapi.json", ANYBODY)
async def openapi(call: Call) -> dict[str, Any]:
    """This document."""
    return document()


@cache
def document() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for each in ENDPOINTS:
        paths.setdefault(each.path, {})[each.method.lower()] = operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "FlintMQ management",
            "version": __version__,
            "description": "RabbitMQ's management API in shape and meaning, and more: docs/management.md.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": {
                "Fault": {
                    "type": "object",
                    "required": ["error", "reason"],
                    "properties": {"error": {"type": "string"}, "reason": {"type": "string"}},
                }
            },
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "flintmq_session"},
            },
        },
    }


def operation(each: Endpoint) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in names_in(each.path)
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": schema_of(name)} for name in each.query
    ]
    made: dict[str, Any] = {
        "operationId": each.handler.__name__
        + "_"
        + each.path.replace("/", "_").replace("{", "").replace("}", ""),
        "summary": each.summary,
        "tags": [each.path.split("/")[2] if each.path.startswith("/api/") else "metrics"],
        "parameters": parameters,
        "responses": responses(each),
    }
    if each.level:
        made["security"] = [{"basic": []}, {"bearer": []}, {"session": []}]
        made["description"] = f"Takes the tag `{each.level}`."
    if each.body is not None:
        made["requestBody"] = {"content": {"application/json": {"schema": each.body}}}
    return made


def schema_of(name: str) -> dict[str, Any]:
    if name in NUMBERS:
        return {"type": "integer"}
    if name in FLAGS:
        return {"type": "string", "enum": ["true", "false"]}
    return {"type": "string"}


def responses(each: Endpoint) -> dict[str, Any]:
    is_text = each.path.startswith("/metrics")
    kind = "text/plain" if is_text else "application/json"
    found: dict[str, Any] = {"200": {"description": "What was asked for.", "content": {kind: {}}}}
    if each.method in ("PUT", "DELETE", "POST"):
        found["204"] = {"description": "Done."}
        found["201"] = {"description": "Made."}
    for status in ("400", "401", "403", "404", "408", "413"):
        found[status] = FAULT
    found["503"] = UNHEALTHY
    return found
