"""A definitions file in parts, as the services of definitions take and give them.

    {"rabbit_version": ..., "users": [a, b], "queues": [c, d, e]}
        --> {"rabbit_version": ..., "users": [a, b], "queues": [c]}, {"queues": [d, e]}

Each part is a definitions file by itself. For whoever asks the services: the command line, the HTTP API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from flintmq import checks
from flintmq.checks import Unfit

# Well below what a broker takes at once.
PART_OCTETS = 65_536
# A key that is wrong is told with so much of its name.
KEY_CHARS_MAX = 64

Document = dict[str, Any]


def split(document: Document, octets_max: int = PART_OCTETS) -> Iterator[bytes]:
    """The parts, of about so many octets; an item is never cut. There is one at least."""
    part: Document = {}
    octets = 0
    for key, value in document.items():
        if not isinstance(value, list):
            part[key] = value
            octets += len(json.dumps({key: value}))
            continue
        part[key] = []
        for item in value:
            size = len(json.dumps(item))
            if octets + size > octets_max and octets:
                yield json.dumps(part).encode()
                part, octets = {key: []}, 0
            part[key].append(item)
            octets += size
    yield json.dumps(part).encode()


def join(document: Document, part: Document) -> None:
    """Adds a part to what was joined before."""
    for key, value in part.items():
        if isinstance(value, list) and isinstance(document.get(key), list):
            document[key] += value
        else:
            document[key] = value


def decode(octets: bytes) -> Document:
    """The JSON object that the octets are; Unfit says where they are none."""
    try:
        found = json.loads(octets.decode("utf-8-sig"), object_pairs_hook=_once, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise Unfit(f"not UTF-8 text at octet {error.start}") from None
    except json.JSONDecodeError as error:
        raise Unfit(f"not JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise Unfit("not JSON that can be read: nested too deeply") from None
    except ValueError as error:
        raise Unfit(f"not JSON that can be read: {error}") from None
    if not isinstance(found, dict):
        raise checks.expected("a JSON object with users, vhosts, queues and the like")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a key that is there twice the first value would be lost without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {json.dumps(twice)[:KEY_CHARS_MAX]} is there twice in one object")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")
