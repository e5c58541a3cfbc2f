"""The options of the `amqp` format: their names, what they may be, and where credentials come from.

Names are those of Spark's Kafka source where it has one. Spark hands options over in lower case and as
text. An option that is not known is an error with the nearest name, as a misspelt limit is else found
out in production.

Spark shows options in plans, and plans in logs, except those whose names match its patterns of redaction: of
ours `url`, `password` and `passwordFile` do, and `uri` in sessions that sessions.py has made.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from flintmq import checks
from flintmq.client.core.errors import BadSettings
from flintmq.client.core.settings import Secret, Settings, parse_uri
from flintmq.spark.errors import BadOption

URI_DEFAULT = "amqp://guest:guest@localhost:5672/"
SETS_URI = "FLINTMQ_URI"
SETS_PASSWORD = "FLINTMQ_PASSWORD"
EARLIEST = "earliest"
LATEST = "latest"
# As in Kafka's JSON: these two numbers stand for the words.
NUMBER_LATEST = -1
NUMBER_EARLIEST = -2
PASSWORD_FILE_BYTES_MAX = 4096
RETRY_TIMEOUT_S = 120.0

READ, STREAM, WRITE = "read", "stream", "write"
# Not known yet which of the two reads it will be.
ANY_READ = "any read"

Positions = str | dict[str, int | str]
"""`earliest`, `latest`, or where each queue begins: a number or one of the words."""


def _uri(text: str) -> str:
    if parse_uri(checks.some_text(text)).password.reveal() not in ("", "guest") and _has_password(text):
        warnings.warn(
            "The option 'uri' has a password in it, which Spark shows in plans and logs unless the session "
            "was made by flintmq.spark.session. Give the same text as the option 'url', which Spark hides "
            f"by itself, or the password as 'password', 'passwordFile' or ${SETS_PASSWORD}.",
            stacklevel=2,
        )
    if "@" in urlsplit(text).path:
        raise ValueError("it has an '@' after a '/'; write '/' in a password as %2F, '@' in a name as %40")
    return text


def _flag(text: str) -> bool:
    return bool(checks.switch({"true": True, "false": False}.get(text.lower())))


def _count(text: str) -> int:
    return checks.count(int(text) if text.isascii() and text.isdigit() else None)


_SIZES = {
    f"{prefix}{b}": 1 << shift for prefix, shift in (("k", 10), ("m", 20), ("g", 30)) for b in ("", "b", "ib")
}
_SIZES |= {"": 1, "b": 1}
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def _size(text: str) -> int:
    found = checks.quantity(text.lower(), _SIZES)
    if not isinstance(found, int) or not 0 < found <= checks.NUMBER_MAX:
        raise checks.expected("a size such as 64m or 67108864")
    return found


def _seconds(text: str) -> float:
    found = checks.quantity(text.lower(), _SECONDS)
    if found is None or not 0 < found <= 86_400:
        raise checks.expected("a time such as 60s or 500ms, one day at most")
    return found


def _one_of(*choices: str) -> Callable[[str], Any]:
    check = checks.one_of(*choices)
    return lambda text: check(text.lower())


def _names(text: str) -> tuple[str, ...]:
    """A list with commas, or a JSON array where a name has one in it."""
    if text.startswith("["):
        found = json.loads(text)
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise ValueError('expected names with commas between, or a JSON array ["a", "b"]')
    else:
        found = [name.strip() for name in text.split(",")]
    names = tuple(dict.fromkeys(name for name in found if name))
    if not names:
        raise ValueError("expected at least one name")
    return names


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from None
    return text


def _milliseconds(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError("expected milliseconds since 1970")
    return int(text)


def _positions(text: str) -> Positions:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    found = json.loads(text) if text.startswith("{") else None
    if not isinstance(found, dict) or not found:
        raise ValueError('expected earliest, latest, or JSON such as {"ticks": 23} or {"ticks": {"0": 23}}')
    return {name: _position(name, given) for name, given in found.items()}


def _position(name: str, given: object) -> int | str:
    if isinstance(given, dict):
        if list(given) != ["0"]:
            raise ValueError(f'queue {name!r}: a queue has the one partition "0"')
        given = given["0"]
    if given in (EARLIEST, NUMBER_EARLIEST):
        return EARLIEST
    if given in (LATEST, NUMBER_LATEST):
        return LATEST
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise ValueError(f"queue {name!r}: expected an offset, -2 for earliest or -1 for latest")
    return given


@dataclass(frozen=True)
class Known:
    """One option: its name as users write it, how its text is read, and where it means something."""

    name: str
    read: Callable[[str], Any]
    uses: frozenset[str]
    default: Any = None


_ALL = frozenset((READ, STREAM, WRITE))
_READS = frozenset((READ, STREAM))
_BATCH = frozenset((READ,))
_STREAMS = frozenset((STREAM,))
_WRITES = frozenset((WRITE,))

KNOWN = {
    each.name.lower(): each
    for each in (
        Known("uri", _uri, _ALL),
        Known("url", checks.some_text, _ALL),
        Known("username", checks.some_text, _ALL),
        Known("password", str, _ALL),
        Known("passwordFile", checks.some_text, _ALL),
        Known("retryTimeout", _seconds, _ALL, RETRY_TIMEOUT_S),
        Known("queue", checks.some_text, _ALL),
        Known("queues", _names, _READS),
        Known("queuePattern", _pattern, _READS),
        Known("queueType", _one_of("classic", "stream"), _READS),
        Known("consumerName", checks.some_text, _STREAMS),
        Known("startingOffsets", _positions, _READS),
        Known("startingTimestamp", _milliseconds, _READS),
        Known("endingOffsets", _positions, _BATCH, LATEST),
        Known("endingTimestamp", _milliseconds, _BATCH),
        Known("maxOffsetsPerTrigger", _count, _STREAMS),
        Known("maxBytesPerTrigger", _size, _STREAMS),
        Known("minPartitions", _count, _READS),
        Known("failOnDataLoss", _flag, _READS, True),
        Known("includeHeaders", _flag, _READS, False),
        Known("includeProperties", _flag, _READS, False),
        Known("columns", _names, _READS),
        Known("fetchBytes", _size, _READS, 4 << 20),
        Known("leaseTimeout", _seconds, _STREAMS, 60.0),
        Known("ack", _flag, _BATCH, False),
        Known("mode", _one_of("confirm", "transactional"), _WRITES, "confirm"),
        Known("exchange", str, _WRITES),
        Known("routingKey", str, _WRITES),
        Known("persistent", _flag, _WRITES, True),
        Known("mandatory", _flag, _WRITES),
        Known("confirmTimeout", _seconds, _WRITES, 120.0),
        Known("knownBatches", _one_of("fail", "skip", "write"), _WRITES, "fail"),
        Known("waitForRows", _flag, _WRITES, False),
        Known("orderBy", checks.some_text, _WRITES),
        Known("figuresFile", checks.some_text, _WRITES),
    )
}
# What Spark itself puts among the options of a reader or writer.
OF_SPARK = frozenset(("path", "checkpointlocation", "queryname", "outputmode", "__dummy__"))


def parse(options: Mapping[str, str], use: str) -> dict[str, Any]:
    """Every option that means something for this use, by its name, with defaults."""
    found: dict[str, Any] = {}
    for key, text in options.items():
        name = key.lower()
        if name in OF_SPARK:
            continue
        known = KNOWN.get(name)
        if known is None:
            raise BadOption(f"There is no option {key!r} of the amqp format{_nearest(name)}")
        if use not in known.uses and not (use == ANY_READ and known.uses & _READS):
            raise BadOption(f"Option {known.name!r} means nothing {_WHERE[use]}; leave it out.")
        try:
            found[known.name] = known.read(text.strip() if known.name != "password" else text)
        except ValueError as error:
            shown = "" if known.name in ("uri", "url", "password") else f" {text!r}"
            raise BadOption(f"Option {known.name!r}{shown} is wrong: {error}.") from None
    for known in KNOWN.values():
        if use in known.uses or use == ANY_READ:
            found.setdefault(known.name, known.default)
    return found


_WHERE = {READ: "in a batch read", STREAM: "in a streaming read", WRITE: "in a write", ANY_READ: "in a read"}


def _nearest(name: str) -> str:
    nearest = checks.nearest(name, KNOWN)
    if nearest is not None:
        return f"; did you mean {KNOWN[nearest].name!r}?"
    return f"; there are {', '.join(sorted(known.name for known in KNOWN.values()))}."


def settings_of(
    options: Mapping[str, Any], environment: Mapping[str, str] | None = None, name: str = "spark"
) -> Settings:
    """Where to connect and as whom. An option wins over a file, a file over the environment."""
    environment = os.environ if environment is None else environment
    if options.get("uri") and options.get("url"):
        raise BadOption("Give one of the options 'uri' and 'url': they say the same.")
    uri = options.get("url") or options.get("uri") or environment.get(SETS_URI) or URI_DEFAULT
    changes: dict[str, Any] = {}
    if options.get("username"):
        changes["user"] = options["username"]
    password = options.get("password")
    if password is None and options.get("passwordFile"):
        password = _password_in(options["passwordFile"])
    if password is None and not _has_password(uri):
        password = environment.get(SETS_PASSWORD)
    if password is not None:
        changes["password"] = Secret(password)
    try:
        settings = Settings.of(uri, **changes)
        return settings if settings.name else Settings.of(settings, name=name)
    except BadSettings as error:
        raise BadOption(f"{_place_of(options)} is wrong: {error}.") from None


def _place_of(options: Mapping[str, Any]) -> str:
    """Where the address came from."""
    given = next((name for name in ("url", "uri") if options.get(name)), None)
    return f"${SETS_URI}" if given is None else f"Option {given!r}"


def _has_password(uri: str) -> bool:
    authority = uri.partition("://")[2].partition("/")[0]
    return ":" in authority.rpartition("@")[0]


def _password_in(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(PASSWORD_FILE_BYTES_MAX).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise BadOption(f"Option 'passwordFile': {path!r} cannot be read: {reason}.") from None


@dataclass(frozen=True)
class ReadOptions:
    """What a batch or streaming read was asked for. Pickles; its repr shows no password."""

    settings: Settings
    queues: tuple[str, ...]
    pattern: str | None
    queue_type: str | None
    consumer: str | None
    starting: Positions
    starting_ms: int | None
    ending: Positions
    ending_ms: int | None
    rows_max: int | None
    bytes_max: int | None
    partitions_min: int | None
    fail_on_data_loss: bool
    fetch_bytes: int
    lease_timeout_s: float
    retry_timeout_s: float

    @classmethod
    def of(cls, given: Mapping[str, str], use: str) -> ReadOptions:
        found = parse(given, use)
        if found.get("ack"):
            raise BadOption(
                "Option 'ack' cannot be true: Spark does not tell a batch read that its rows are safe; use "
                "spark.readStream with trigger(availableNow=True), which takes what is there and acks it."
            )
        for name in ("startingOffsets", "endingOffsets"):
            _check_places(name, found)
        return cls(
            settings=settings_of(found),
            queues=_queues_of(found),
            pattern=found["queuePattern"],
            queue_type=found["queueType"],
            consumer=found.get("consumerName"),
            starting=found["startingOffsets"] or (EARLIEST if use == READ else LATEST),
            starting_ms=found["startingTimestamp"],
            ending=_ending_of(found) if use == READ else LATEST,
            ending_ms=found.get("endingTimestamp"),
            rows_max=found.get("maxOffsetsPerTrigger"),
            bytes_max=found.get("maxBytesPerTrigger"),
            partitions_min=found["minPartitions"],
            fail_on_data_loss=found["failOnDataLoss"],
            fetch_bytes=min(found["fetchBytes"], 16 << 20),
            lease_timeout_s=found.get("leaseTimeout", 60.0),
            retry_timeout_s=found["retryTimeout"],
        )


def _queues_of(found: Mapping[str, Any]) -> tuple[str, ...]:
    chosen = [name for name in ("queue", "queues", "queuePattern") if found[name]]
    if len(chosen) != 1:
        raise BadOption(
            "Give one of the options 'queue', 'queues' and 'queuePattern'"
            + (f", not {' and '.join(map(repr, chosen))}." if chosen else ": which queues are to be read?")
        )
    if found["queuePattern"]:
        return ()
    return (found["queue"],) if found["queue"] else tuple(found["queues"])


def _check_places(option: str, found: Mapping[str, Any]) -> None:
    """A place in a queue that is not read is a slip: else the queue that was meant begins elsewhere."""
    places = found.get(option)
    if not isinstance(places, dict):
        return
    queues, pattern = _queues_of(found), found["queuePattern"]
    for name in places:
        if name in queues or (pattern and re.fullmatch(pattern, name)):
            continue
        advice = checks.suggestion(name, queues) or "; correct the name, or leave it out."
        raise BadOption(f"Option {option!r} names {name!r}, which this query does not read{advice}")


def _ending_of(found: Mapping[str, Any]) -> Positions:
    ending: Positions = found["endingOffsets"]
    if ending == EARLIEST or (isinstance(ending, dict) and EARLIEST in ending.values()):
        raise BadOption("Option 'endingOffsets' cannot be earliest: there would be nothing to read.")
    return ending


@dataclass(frozen=True)
class WriteOptions:
    """What a write was asked for. Pickles; its repr shows no password."""

    settings: Settings
    transactional: bool
    queue: str | None
    exchange: str | None
    routing_key: str | None
    persistent: bool
    mandatory: bool
    confirm_timeout_s: float
    retry_timeout_s: float
    known_batches: str = "fail"
    wait_for_rows: bool = False
    order_by: str | None = None
    figures_file: str | None = None
    checkpoint: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> WriteOptions:
        found = parse(given, WRITE)
        of_spark = {name.lower(): text for name, text in given.items()}
        queue, exchange, key = found["queue"], found["exchange"], found["routingKey"]
        if queue is not None and (exchange is not None or key is not None):
            raise BadOption("Give either the option 'queue' or 'exchange' and 'routingKey'.")
        if queue is not None:
            exchange, key = "", queue
        mandatory = found["mandatory"]
        if mandatory and queue is None and found["mode"] == "transactional":
            raise BadOption(
                "Option 'mandatory' cannot be true in the mode 'transactional': messages are routed when all "
                "of them are committed; give the option 'queue', or use the mode 'confirm'."
            )
        return cls(
            settings=settings_of(found),
            transactional=found["mode"] == "transactional",
            queue=queue,
            exchange=exchange,
            routing_key=key,
            persistent=found["persistent"],
            mandatory=queue is not None if mandatory is None else mandatory,
            confirm_timeout_s=found["confirmTimeout"],
            retry_timeout_s=found["retryTimeout"],
            known_batches=found["knownBatches"],
            wait_for_rows=found["waitForRows"],
            order_by=found["orderBy"],
            figures_file=found["figuresFile"],
            checkpoint=of_spark.get("checkpointlocation"),
        )
