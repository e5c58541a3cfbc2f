"""The methods of AMQP/Fast 0.9, and their octets.

    | class 1 | method 1 | flags 1 | synctag 2 | fields ... |          section 3.14.3

The flags are SYNCHREQ 0x80, UNREAL 0x40 and TRACER 0x20; 0x10 is not used, and the revision in the four low
bits is 0. Bits that follow one another share an octet, the first in its lowest bit.

    octet 1   short 2   long 4   longlong 8   shortstr 1+n, UTF-8 without NUL   longstr 2+n   table 4+n

METHODS is section 3.17 as a table. Channel.Synch, which the document uses and does not define, is 2/6, and
Queue.Cancel, which is in its grammar alone, is 5/9 with the fields of Queue.Register.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp
from flintmq.wire.fast09 import tables

SYNCHREQ = 0x80
UNREAL = 0x40
TRACER = 0x20
REVISION = 0x0F

HEAD_OCTETS = 5
SHORTSTR_OCTETS_MAX = 255
LONGSTR_OCTETS_MAX = 65_535
# Methods with content that are remembered with what they say, and of how many octets.
_REMEMBERED = 256
_REMEMBERED_OCTETS = 256

CLASS_JMS = 6
CLASS_FILE = 7
CLASS_STREAM = 8
CLASS_TEST = 11

_HEAD = Struct(">BBBH")
_SHORT = Struct(">H")
_DELIVERY = Struct(">BBBHQ?")
_DELIVER_ID = 6
_SIZES = {"octet": 1, "short": 2, "long": 4, "longlong": 8}
_DEFAULTS: dict[str, Any] = {"shortstr": "", "longstr": b"", "bit": False}

# Who implements a method: the server, to which clients send it, the client, or both.
# Behind that its reply, or "async", or "-" for a reply; and "+" where content follows.
_TABLE = """
connection.start     1/1   client  start-ok   version_major:octet version_minor:octet mechanisms:longstr
                                              locales:longstr
connection.start-ok  1/2   server  -          mechanism:shortstr locale:shortstr
connection.secure    1/3   client  secure-ok  challenge:longstr
connection.secure-ok 1/4   server  -          response:longstr
connection.tune      1/5   client  tune-ok    frame_max:long channel_max:short access_max:short
                                              consumer_max:short heartbeat:short txn_limit:short
                                              jms_support:bit file_support:bit stream_support:bit
connection.tune-ok   1/6   server  -          frame_max:long channel_max:short ticket_max:short
                                              heartbeat:short jms_support:bit file_support:bit
                                              stream_support:bit prefetch_max:long
connection.open      1/7   server  open-ok    virtual_path:shortstr client_id:shortstr
connection.open-ok   1/8   client  -          client_id:shortstr
connection.unknown   1/9   both    async      class_id:octet method_id:octet synctag:short reply_code:short
                                              reply_text:shortstr
connection.close     1/10  both    close-ok   reply_code:short reply_text:shortstr class_id:octet
                                              method_id:octet synctag:short
connection.close-ok  1/11  both    -
channel.open         2/1   server  open-ok    prefetch_max:long out_of_band:shortstr tx_mode:octet
channel.open-ok      2/2   client  -
channel.flow         2/3   both    async      flow_pause:bit
channel.close        2/4   both    close-ok   reply_code:short reply_text:shortstr class_id:octet
                                              method_id:octet synctag:short
channel.close-ok     2/5   both    -
channel.synch        2/6   client  async
access.grant         3/1   server  grant-ok   realm:shortstr exclusive:bit passive:bit active:bit write:bit
                                              read:bit
access.grant-ok      3/2   client  -          ticket:short
proxy.assert         4/1   server  assert-ok  ticket:short proxy:shortstr class_name:shortstr if_exists:bit
                                              durable:bit auto_delete:bit
proxy.assert-ok      4/2   client  -
proxy.delete         4/3   server  delete-ok  ticket:short proxy:shortstr if_unused:bit
proxy.delete-ok      4/4   client  -
queue.assert         5/1   server  assert-ok  ticket:short namespace:shortstr queue:shortstr
                                              template:shortstr if_exists:bit durable:bit private:bit
                                              auto_delete:bit
queue.assert-ok      5/2   client  -          queue:shortstr proxy:shortstr message_count:long
                                              consumer_count:long
queue.register       5/3   server  register-ok ticket:short namespace:shortstr queue:shortstr proxy:shortstr
                                              arguments:table
queue.register-ok    5/4   client  -
queue.purge          5/5   server  purge-ok   ticket:short namespace:shortstr queue:shortstr
queue.purge-ok       5/6   client  -          message_count:long
queue.delete         5/7   server  delete-ok  ticket:short namespace:shortstr queue:shortstr if_unused:bit
                                              if_empty:bit
queue.delete-ok      5/8   client  -          message_count:long
queue.cancel         5/9   server  cancel-ok  ticket:short namespace:shortstr queue:shortstr proxy:shortstr
                                              arguments:table
queue.cancel-ok      5/10  client  -
jms.consume          6/1   server  consume-ok ticket:short namespace:shortstr queue:shortstr
                                              prefetch_size:short prefetch_count:short no_local:bit
                                              auto_ack:bit exclusive:bit
jms.consume-ok       6/2   client  -          consumer_tag:short
jms.cancel           6/3   server  cancel-ok  consumer_tag:short
jms.cancel-ok        6/4   client  -
jms.publish          6/5   server  async+     ticket:short proxy:shortstr immediate:bit
jms.deliver          6/6   client  async+     delivery_tag:longlong redelivered:bit proxy:shortstr
                                              namespace:shortstr queue:shortstr
jms.browse           6/7   server  browse-ok  ticket:short namespace:shortstr queue:shortstr no_local:bit
                                              auto_ack:bit
jms.browse-ok        6/8   client  -+         delivery_tag:longlong redelivered:bit message_count:long
jms.browse-empty     6/9   client  -
jms.ack              6/10  server  async      delivery_tag:longlong multiple:bit
jms.reject           6/11  server  async      delivery_tag:longlong requeue:bit
file.consume         7/1   server  consume-ok ticket:short namespace:shortstr queue:shortstr
                                              prefetch_size:short prefetch_count:short no_local:bit
                                              auto_ack:bit exclusive:bit
file.consume-ok      7/2   client  -          consumer_tag:short
file.cancel          7/3   server  cancel-ok  consumer_tag:short
file.cancel-ok       7/4   client  -
file.open            7/5   both    open-ok    identifier:shortstr content_size:longlong
file.open-ok         7/6   both    stage      staged_size:longlong
file.stage           7/7   both    -+
file.publish         7/8   server  async      ticket:short proxy:shortstr immediate:bit identifier:shortstr
file.deliver         7/9   client  async      delivery_tag:longlong redelivered:bit proxy:shortstr
                                              namespace:shortstr queue:shortstr identifier:shortstr
file.ack             7/10  server  async      delivery_tag:longlong multiple:bit
file.reject          7/11  server  async      delivery_tag:longlong requeue:bit
stream.consume       8/1   server  consume-ok ticket:short namespace:shortstr queue:shortstr
                                              prefetch_size:short prefetch_count:short consume_rate:long
                                              no_local:bit exclusive:bit
stream.consume-ok    8/2   client  -          consumer_tag:short
stream.cancel        8/3   server  cancel-ok  consumer_tag:short
stream.cancel-ok     8/4   client  -
stream.publish       8/5   server  async+     ticket:short proxy:shortstr immediate:bit
stream.deliver       8/6   client  async+     delivery_tag:longlong redelivered:bit proxy:shortstr
                                              namespace:shortstr queue:shortstr
tx.commit            9/1   server  commit-ok
tx.commit-ok         9/2   client  -
tx.abort             9/3   server  abort-ok
tx.abort-ok          9/4   client  -
dtx.start            10/1  server  start-ok   dtx_identifier:shortstr
dtx.start-ok         10/2  client  -
test.integer         11/1  both    integer-ok integer_1:octet integer_2:short integer_3:long
                                              integer_4:longlong operation:octet
test.integer-ok      11/2  both    -          result:longlong
test.string          11/3  both    string-ok  string_1:shortstr string_2:longstr operation:octet
test.string-ok       11/4  both    -          result:longstr
test.table           11/5  both    table-ok   table:table integer_op:octet string_op:octet
test.table-ok        11/6  both    -          integer_result:longlong string_result:longstr
test.content         11/7  both    content-ok+
test.content-ok      11/8  both    -+         content_checksum:long
"""


class MethodKind:
    """One row of the table."""

    __slots__ = (
        "class_id",
        "fields",
        "has_content",
        "is_async",
        "is_for_client",
        "is_for_server",
        "method_id",
        "name",
        "reply",
    )

    def __init__(self, name: str, ids: str, side: str, answer: str, fields: list[str]) -> None:
        self.name = name
        class_id, _, method_id = ids.partition("/")
        self.class_id, self.method_id = int(class_id), int(method_id)
        self.is_for_server = side != "client"
        self.is_for_client = side != "server"
        self.has_content = answer.endswith("+")
        answer = answer.removesuffix("+")
        self.is_async = answer == "async"
        # The name of the method that answers, "" where none does.
        self.reply = "" if answer in ("async", "-") else f"{name.partition('.')[0]}.{answer}"
        self.fields: tuple[tuple[str, str], ...] = tuple(
            (field, form) for field, _, form in (each.partition(":") for each in fields)
        )


def _kinds() -> dict[str, MethodKind]:
    words: list[list[str]] = []
    for line in _TABLE.strip().splitlines():
        if line.startswith(" "):
            words[-1] += line.split()
        else:
            words.append(line.split())
    return {each[0]: MethodKind(each[0], each[1], each[2], each[3], each[4:]) for each in words}


KINDS = _kinds()
_BY_ID = {(kind.class_id, kind.method_id): kind for kind in KINDS.values()}


class Method:
    """A method and the values of its fields, which are its attributes."""

    __slots__ = ("kind", "values")

    def __init__(self, kind: MethodKind, values: dict[str, Any]) -> None:
        self.kind = kind
        self.values = values

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(f"{self.kind.name} has no field {name}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Method) and self.kind is other.kind and self.values == other.values

    __hash__ = None  # type: ignore[assignment]  # the values may change

    def __repr__(self) -> str:
        return f"{self.kind.name}({', '.join(f'{name}={value!r}' for name, value in self.values.items())})"


def method(name: str, **values: Any) -> Method:
    """The method of this name; what is not given is 0, empty or false."""
    kind = KINDS[name]
    whole: dict[str, Any] = {}
    for field, form in kind.fields:
        default: Any = {} if form == "table" else _DEFAULTS.get(form, 0)
        whole[field] = values.pop(field, default)
    if values:
        raise ProtocolMisuse(f"{name} has no field {', '.join(values)}")
    return Method(kind, whole)


def read_ids(payload: bytes) -> tuple[int, int, int, int, MethodKind | None]:
    """Class, method, flags and synctag of a method frame, and the method that it is, if there is one."""
    if len(payload) < HEAD_OCTETS:
        raise ConnectionFault(amqp.SYNTAX_ERROR, f"a method frame of {len(payload)} octets")
    class_id, method_id, flags, synctag = _HEAD.unpack_from(payload)
    return class_id, method_id, flags, synctag, _BY_ID.get((class_id, method_id))


def decode(kind: MethodKind, payload: bytes) -> Method:
    """The fields of a method frame; a bad one is a ConnectionFault that says what is bad.

    Those of a method with content are the same for many contents, and are not to be changed.
    """
    if kind.has_content and len(payload) <= _REMEMBERED_OCTETS:
        return _remembered(kind.name, payload[HEAD_OCTETS:])
    return _decoded(kind, payload)


@lru_cache(_REMEMBERED)
def _remembered(name: str, arguments: bytes) -> Method:
    return _decoded(KINDS[name], bytes(HEAD_OCTETS) + arguments)


def _decoded(kind: MethodKind, payload: bytes) -> Method:
    values: dict[str, Any] = {}
    at = HEAD_OCTETS
    bit = 0  # how many of the bits of the octet before `at` are read
    for name, form in kind.fields:
        if form == "bit":
            if bit in (0, 8):
                at, bit = at + 1, 0
            if at > len(payload):
                raise _cut_short(kind, name)
            values[name] = payload[at - 1] >> bit & 1 == 1
            bit += 1
            continue
        bit = 0
        values[name], at = _read(kind, name, form, payload, at)
    if at != len(payload):
        raise ConnectionFault(amqp.SYNTAX_ERROR, f"{kind.name} has {len(payload) - at} octets too many")
    return Method(kind, values)


def _read(kind: MethodKind, name: str, form: str, payload: bytes, at: int) -> tuple[Any, int]:
    size = _SIZES.get(form)
    if size is not None:
        if at + size > len(payload):
            raise _cut_short(kind, name)
        return int.from_bytes(payload[at : at + size], "big"), at + size
    if form == "table":
        return tables.decode(payload, at, len(payload))
    start = at + (1 if form == "shortstr" else 2)
    if start > len(payload):
        raise _cut_short(kind, name)
    stop = start + int.from_bytes(payload[at:start], "big")
    if stop > len(payload):
        raise _cut_short(kind, name)
    octets = payload[start:stop]
    return (octets if form == "longstr" else read_text(octets, f"{kind.name}: {name}")), stop


def read_text(octets: bytes, what: str) -> str:
    """A short string: UTF-8 without NUL."""
    if 0 in octets:
        raise ConnectionFault(amqp.SYNTAX_ERROR, f"{what} contains a NUL")
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise ConnectionFault(amqp.SYNTAX_ERROR, f"{what} is not UTF-8") from None


def encode(said: Method, flags: int = 0, synctag: int = 0) -> bytes:
    """The body of a method frame; what cannot be encoded is a ProtocolMisuse."""
    parts = [_HEAD.pack(said.kind.class_id, said.kind.method_id, flags, synctag)]
    bits: list[bool] = []
    for name, form in said.kind.fields:
        value = said.values[name]
        if form == "bit":
            bits.append(value)
            continue
        if bits:
            parts.append(_packed(bits))
            bits = []
        parts.append(_encoded(said, name, form, value))
    if bits:
        parts.append(_packed(bits))
    return b"".join(parts)


def delivery_tail(proxy: str, namespace: str, queue: str) -> bytes:
    """What a deliver of Jms or Stream has behind its tag and its bit, the same for many of them."""
    return b"".join(encode_text(text, "deliver") for text in (proxy, namespace, queue))


def encode_delivery(class_id: int, flags: int, tag: int, redelivered: bool, tail: bytes) -> bytes:
    """The body of the method frame; `encode` makes the same of the whole method."""
    return _DELIVERY.pack(class_id, _DELIVER_ID, flags, 0, tag, redelivered) + tail


def _packed(bits: list[bool]) -> bytes:
    return bytes(
        sum(1 << place for place, bit in enumerate(bits[start : start + 8]) if bit)
        for start in range(0, len(bits), 8)
    )


def _encoded(said: Method, name: str, form: str, value: Any) -> bytes:
    size = _SIZES.get(form)
    if size is not None:
        if not 0 <= value < 1 << 8 * size:
            raise ProtocolMisuse(f"{said.kind.name}: {name} has {size} octets, which do not hold {value}")
        octets: bytes = value.to_bytes(size, "big")
        return octets
    if form == "table":
        return tables.encode(value)
    if form == "shortstr":
        return encode_text(value, f"{said.kind.name}: {name}")
    if len(value) > LONGSTR_OCTETS_MAX:
        raise ProtocolMisuse(f"{said.kind.name}: {name} of {len(value)} octets is longer than 65535")
    return _SHORT.pack(len(value)) + bytes(value)


def encode_text(text: str, what: str) -> bytes:
    octets = text.encode("utf-8", "surrogateescape")
    if len(octets) > SHORTSTR_OCTETS_MAX or 0 in octets:
        raise ProtocolMisuse(f"{what} has at most {SHORTSTR_OCTETS_MAX} octets and no NUL: {text[:64]!r}")
    return bytes((len(octets),)) + octets


def _cut_short(kind: MethodKind, name: str) -> ConnectionFault:
    return ConnectionFault(amqp.SYNTAX_ERROR, f"{kind.name} is cut short at {name}")
