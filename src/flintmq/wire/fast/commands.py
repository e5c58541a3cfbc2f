"""The commands of AMQP/Fast 0.8, and their octets.

    | size 2 | code 1 | fields ... | end 0xCE |              size counts from the code to the end octet
    | 0xFFFF | size 4 | code 1 | fields ... | end 0xCE |     where two octets do not hold the size

A message fragment lies behind its command, outside the frame: SEND, NOTIFY and PREPARE say how long it is.
Bits that follow one another share an octet, the first in its lowest bit.

    octet 1   short 2   long 4   shortstr 1+n, UTF-8 without NUL   longstr 2+n   table 2+n (tables.py)
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from struct import Struct
from typing import Any, ClassVar

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp
from flintmq.wire.fast import tables

END = 0xCE
LONG_SIZE = 0xFFFF
# Of CHALLENGE, RESPONSE and TUNE, which are all that a stranger may send.
COMMAND_BYTES_MAX_BEFORE_OPEN = 4096
FRAME_BYTES_MIN = 1024
SHORTSTR_OCTETS_MAX = 255

_SHORT = Struct(">H")
_LONG_HEAD = Struct(">HI")


def _of(kind: str, default: Any = None) -> Any:
    if default is None:
        defaults: dict[str, Any] = {"shortstr": "", "longstr": b"", "bit": False}
        default = defaults.get(kind, 0)
    if kind == "table":
        return field(default_factory=dict, metadata={"kind": kind})
    return field(default=default, metadata={"kind": kind})


@dataclass(slots=True)
class Command:
    """What one frame says."""

    CODE: ClassVar[int] = 0
    NAME: ClassVar[str] = ""


@dataclass(slots=True)
class ConnectionChallenge(Command):
    CODE = 10
    NAME = "connection.challenge"
    version: int = _of("octet")
    mechanisms: str = _of("shortstr")
    challenges: tables.Table = _of("table")


@dataclass(slots=True)
class ConnectionResponse(Command):
    CODE = 11
    NAME = "connection.response"
    mechanism: str = _of("shortstr")
    responses: tables.Table = _of("table")


@dataclass(slots=True)
class ConnectionTune(Command):
    CODE = 12
    NAME = "connection.tune"
    options: tables.Table = _of("table")
    dictionary: tables.Table = _of("table")


@dataclass(slots=True)
class ConnectionOpen(Command):
    CODE = 13
    NAME = "connection.open"
    confirm_tag: int = _of("short")
    virtual_path: str = _of("shortstr")
    client_name: str = _of("shortstr")
    options: tables.Table = _of("table")


@dataclass(slots=True)
class ConnectionPing(Command):
    CODE = 14
    NAME = "connection.ping"
    respond: bool = _of("bit")


@dataclass(slots=True)
class ConnectionReply(Command):
    CODE = 18
    NAME = "connection.reply"
    confirm_tag: int = _of("short")
    reply_code: int = _of("short")
    reply_text: str = _of("shortstr")


@dataclass(slots=True)
class ConnectionClose(Command):
    CODE = 19
    NAME = "connection.close"
    reply_code: int = _of("short")
    reply_text: str = _of("shortstr")


@dataclass(slots=True)
class ChannelOpen(Command):
    CODE = 20
    NAME = "channel.open"
    channel_id: int = _of("short")
    confirm_tag: int = _of("short")
    transacted: bool = _of("bit")
    restartable: bool = _of("bit")
    options: tables.Table = _of("table")
    out_of_band: str = _of("shortstr")


@dataclass(slots=True)
class ChannelAck(Command):
    CODE = 21
    NAME = "channel.ack"
    channel_id: int = _of("short")
    confirm_tag: int = _of("short")
    message_nbr: int = _of("long")


@dataclass(slots=True)
class ChannelCommit(Command):
    CODE = 22
    NAME = "channel.commit"
    channel_id: int = _of("short")
    confirm_tag: int = _of("short")
    options: tables.Table = _of("table")


@dataclass(slots=True)
class ChannelRollback(Command):
    CODE = 23
    NAME = "channel.rollback"
    channel_id: int = _of("short")
    confirm_tag: int = _of("short")
    options: tables.Table = _of("table")


@dataclass(slots=True)
class ChannelReply(Command):
    CODE = 28
    NAME = "channel.reply"
    channel_id: int = _of("short")
    confirm_tag: int = _of("short")
    reply_code: int = _of("short")
    reply_text: str = _of("shortstr")


@dataclass(slots=True)
class ChannelClose(Command):
    CODE = 29
    NAME = "channel.close"
    channel_id: int = _of("short")
    reply_code: int = _of("short")
    reply_text: str = _of("shortstr")


@dataclass(slots=True)
class HandleOpen(Command):
    CODE = 30
    NAME = "handle.open"
    channel_id: int = _of("short")
    handle_id: int = _of("short")
    service_type: int = _of("short")
    confirm_tag: int = _of("short")
    producer: bool = _of("bit")
    consumer: bool = _of("bit")
    browser: bool = _of("bit")
    temporary: bool = _of("bit")
    dest_name: str = _of("shortstr")
    mime_type: str = _of("shortstr")
    encoding: str = _of("shortstr")
    options: tables.Table = _of("table")


@dataclass(slots=True)
class HandleSend(Command):
    CODE = 31
    NAME = "handle.send"
    handle_id: int = _of("short")
    confirm_tag: int = _of("short")
    fragment_size: int = _of("long")
    partial: bool = _of("bit")
    out_of_band: bool = _of("bit")
    recovery: bool = _of("bit")
    dest_name: str = _of("shortstr")


@dataclass(slots=True)
class HandleConsume(Command):
    CODE = 32
    NAME = "handle.consume"
    handle_id: int = _of("short")
    confirm_tag: int = _of("short")
    prefetch: int = _of("short")
    no_local: bool = _of("bit")
    no_ack: bool = _of("bit")
    dynamic: bool = _of("bit")
    dest_name: str = _of("shortstr")
    selector: tables.Table = _of("table")


@dataclass(slots=True)
class HandleFlow(Command):
    CODE = 34
    NAME = "handle.flow"
    handle_id: int = _of("short")
    confirm_tag: int = _of("short")
    flow_pause: bool = _of("bit")


@dataclass(slots=True)
class HandleUnget(Command):
    CODE = 35
    NAME = "handle.unget"
    handle_id: int = _of("short")
    confirm_tag: int = _of("short")
    message_nbr: int = _of("long")


@dataclass(slots=True)
class HandleQuery(Command):
    CODE = 36
    NAME = "handle.query"
    handle_id: int = _of("short")
    message_nbr: int = _of("long")
    dest_name: str = _of("shortstr")
    selector: bytes = _of("longstr")
    mime_type: str = _of("shortstr")


@dataclass(slots=True)
class HandleBrowse(Command):
    CODE = 37
    NAME = "handle.browse"
    handle_id: int = _of("short")
    confirm_tag: int = _of("short")
    message_nbr: int = _of("long")


@dataclass(slots=True)
class HandleCreated(Command):
    CODE = 40
    NAME = "handle.created"
    handle_id: int = _of("short")
    dest_name: str = _of("shortstr")


@dataclass(slots=True)
class HandleNotify(Command):
    CODE = 41
    NAME = "handle.notify"
    handle_id: int = _of("short")
    message_nbr: int = _of("long")
    fragment_size: int = _of("long")
    partial: bool = _of("bit")
    out_of_band: bool = _of("bit")
    recovery: bool = _of("bit")
    delivered: bool = _of("bit")
    redelivered: bool = _of("bit")
    dest_name: str = _of("shortstr")


@dataclass(slots=True)
class HandleIndex(Command):
    CODE = 42
    NAME = "handle.index"
    handle_id: int = _of("short")
    message_nbr: int = _of("long")
    message_list: bytes = _of("longstr")


@dataclass(slots=True)
class HandlePrepare(Command):
    CODE = 43
    NAME = "handle.prepare"
    handle_id: int = _of("short")
    fragment_size: int = _of("long")
    content_hash: str = _of("shortstr")


@dataclass(slots=True)
class HandleReady(Command):
    CODE = 44
    NAME = "handle.ready"
    handle_id: int = _of("short")
    message_size: int = _of("long")


@dataclass(slots=True)
class HandleReply(Command):
    CODE = 48
    NAME = "handle.reply"
    handle_id: int = _of("short")
    confirm_tag: int = _of("short")
    reply_code: int = _of("short")
    reply_text: str = _of("shortstr")


@dataclass(slots=True)
class HandleClose(Command):
    CODE = 49
    NAME = "handle.close"
    handle_id: int = _of("short")
    reply_code: int = _of("short")
    reply_text: str = _of("shortstr")


COMMANDS: dict[int, type[Command]] = {kind.CODE: kind for kind in Command.__subclasses__()}
# Name and kind of the fields of each.
_FIELDS = {
    code: tuple((each.name, str(each.metadata["kind"])) for each in fields(kind))
    for code, kind in COMMANDS.items()
}
_SIZES = {"octet": 1, "short": 2, "long": 4}


def fields_of(kind: type[Command]) -> tuple[tuple[str, str], ...]:
    """Name and form of each field of a command."""
    return _FIELDS[kind.CODE]


def decode(payload: bytes) -> Command:
    """The command in a frame, without its size and its end octet."""
    kind = COMMANDS.get(payload[0]) if payload else None
    if kind is None:
        text = f"unknown command {payload[0]}" if payload else "an empty command"
        raise ConnectionFault(amqp.COMMAND_INVALID, text)
    values: dict[str, Any] = {}
    at = 1
    bit = 0  # how many of the bits of the octet before `at` are read
    for name, form in fields_of(kind):
        if form == "bit":
            if not bit:
                at += 1
            if at > len(payload):
                raise _cut_short(kind, name)
            values[name] = payload[at - 1] >> bit & 1 == 1
            bit += 1
            continue
        bit = 0
        values[name], at = _read(kind, name, form, payload, at)
    if at != len(payload):
        raise ConnectionFault(amqp.SYNTAX_ERROR, f"{kind.NAME} has {len(payload) - at} octets too many")
    return kind(**values)


def _read(kind: type[Command], name: str, form: str, payload: bytes, at: int) -> tuple[Any, int]:
    size = _SIZES.get(form)
    if size is not None:
        if at + size > len(payload):
            raise _cut_short(kind, name)
        return int.from_bytes(payload[at : at + size], "big"), at + size
    width = 1 if form == "shortstr" else 2
    if at + width > len(payload):
        raise _cut_short(kind, name)
    start = at + width
    stop = start + int.from_bytes(payload[at:start], "big")
    if stop > len(payload):
        raise _cut_short(kind, name)
    octets = payload[start:stop]
    if form == "table":
        return tables.decode(octets), stop
    return (octets if form == "longstr" else read_text(octets, f"{kind.NAME}: {name}")), stop


def read_text(octets: bytes, what: str) -> str:
    """A short string: UTF-8 without NUL."""
    if 0 in octets:
        raise ConnectionFault(amqp.SYNTAX_ERROR, f"{what} contains a NUL")
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise ConnectionFault(amqp.SYNTAX_ERROR, f"{what} is not UTF-8") from None


def encode(command: Command) -> bytes:
    """The whole frame."""
    parts = [bytes((command.CODE,))]
    bits: list[bool] = []
    for name, form in fields_of(type(command)):
        value = getattr(command, name)
        if form == "bit":
            bits.append(value)
            continue
        if bits:
            parts.append(_packed(bits))
            bits = []
        parts.append(_encoded(command, name, form, value))
    if bits:
        parts.append(_packed(bits))
    return framed(b"".join(parts))


def framed(payload: bytes) -> bytes:
    """Size, payload and end octet."""
    size = len(payload) + 1
    head = _SHORT.pack(size) if size < LONG_SIZE else _LONG_HEAD.pack(LONG_SIZE, size)
    return head + payload + bytes((END,))


def _packed(bits: list[bool]) -> bytes:
    return bytes((sum(1 << place for place, bit in enumerate(bits) if bit),))


def _encoded(command: Command, name: str, form: str, value: Any) -> bytes:
    size = _SIZES.get(form)
    if size is not None:
        if not 0 <= value < 1 << 8 * size:
            raise ProtocolMisuse(f"{command.NAME}: {name} has {size} octets, which do not hold {value}")
        octets: bytes = value.to_bytes(size, "big")
        return octets
    if form == "shortstr":
        return encode_text(value, f"{command.NAME}: {name}")
    octets = tables.encode(value) if form == "table" else value
    if len(octets) > tables.TABLE_OCTETS_MAX:
        raise ProtocolMisuse(f"{command.NAME}: {name} of {len(octets)} octets is longer than 65535")
    return _SHORT.pack(len(octets)) + octets


def encode_text(text: str, what: str) -> bytes:
    octets = text.encode()
    if len(octets) > SHORTSTR_OCTETS_MAX or 0 in octets:
        raise ProtocolMisuse(f"{what} has at most {SHORTSTR_OCTETS_MAX} octets and no NUL: {text[:64]!r}")
    return bytes((len(octets),)) + octets


def _cut_short(kind: type[Command], name: str) -> ConnectionFault:
    return ConnectionFault(amqp.SYNTAX_ERROR, f"{kind.NAME} is cut short at {name}")
