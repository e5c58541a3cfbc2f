"""Contents of the file and stream classes, as the broker keeps them: with a basic header.

    basic   type encoding headers mode priority ... reply-to ... message-id          timestamp ... cluster-id
    file    type encoding headers      priority     reply-to     message-id filename timestamp     cluster-id
    stream  type encoding headers      priority                                      timestamp

What two classes share comes in the same order and has the same octets in both: it is copied undecoded. The
file name goes into the headers, in front of all others, under FILENAME. A file is persistent, and a stream
message has no delivery mode, so that it never is. The traits of a message say of which class it was.
"""

from __future__ import annotations

import struct

from flintmq.errors import ConnectionFault
from flintmq.wire import amqp, traits
from flintmq.wire.fields import truncated
from flintmq.wire.header_edits import FLAGS_AT, PROPERTIES_AT, place_of, with_property
from flintmq.wire.headers import entry_places
from flintmq.wire.properties import BasicProperties, FileProperties, Properties, StreamProperties

# The header that basic consumers find the name of a file in.
FILENAME = "x-filename"

_CLASSES: dict[int, type[Properties]] = {
    amqp.CLASS_BASIC: BasicProperties,
    amqp.CLASS_FILE: FileProperties,
    amqp.CLASS_STREAM: StreamProperties,
}
_TRAITS = {amqp.CLASS_FILE: traits.FILE_CONTENT, amqp.CLASS_STREAM: traits.STREAM_CONTENT}
_CLASS_IDS = {trait: class_id for class_id, trait in _TRAITS.items()}
_SIZES = {"delivery_mode": 1, "priority": 1, "timestamp": 8}
_PERSISTENT = b"\x02"

_HEAD = struct.Struct(">H")
_LENGTH = struct.Struct(">I")
_NAME = bytes((len(FILENAME),)) + FILENAME.encode()
_BASIC, _STREAM = _HEAD.pack(amqp.CLASS_BASIC), _HEAD.pack(amqp.CLASS_STREAM)
# The flags in a basic header of what a stream message may have: type, encoding, headers, priority, timestamp.
_STREAM_IN_BASIC = 0xE000 | amqp.FLAG_PRIORITY | amqp.FLAG_TIMESTAMP

Pieces = dict[str, bytes]


def trait_of(class_id: int) -> int:
    """The bit of a class among the traits of a message; 0 for basic."""
    return _TRAITS.get(class_id, 0)


def class_of(found: int) -> int:
    """The class that a message with these traits was published in."""
    return _CLASS_IDS.get(found & traits.CONTENT_CLASSES, amqp.CLASS_BASIC)


def to_basic(header: bytes) -> bytes:
    """The basic header of a file or stream content; a ConnectionFault where its lengths do not fit.

    Of a stream content the body may lie behind the header.
    """
    class_id: int = _HEAD.unpack_from(header)[0]
    if class_id == amqp.CLASS_STREAM:
        flags: int = _HEAD.unpack_from(header, FLAGS_AT)[0]
        if not flags & ~StreamProperties.FLAGS:  # whether the lengths fit is for survey (wire/content.py)
            flags = flags & 0xE000 | (flags & 0x1000) >> 1 | (flags & 0x0800) >> 5
            return _BASIC + header[2:FLAGS_AT] + _HEAD.pack(flags) + header[PROPERTIES_AT:]
    pieces = split(class_id, header)
    if class_id == amqp.CLASS_FILE:
        pieces["delivery_mode"] = _PERSISTENT
        filename = pieces.pop("filename", None)
        if filename is not None:
            entry = _NAME + b"S" + _LENGTH.pack(filename[0]) + filename[1:]
            entries = entry + pieces.get("headers", bytes(4))[4:]
            pieces["headers"] = _LENGTH.pack(len(entries)) + entries
    return join(amqp.CLASS_BASIC, header, pieces)


def from_basic(class_id: int, header: bytes) -> bytes:
    """The header in a class for its consumers, of a message that was published in it."""
    pieces: Pieces = {}
    if class_id == amqp.CLASS_STREAM:
        flags: int = _HEAD.unpack_from(header, FLAGS_AT)[0]
        if not flags & ~_STREAM_IN_BASIC:
            flags = flags & 0xE000 | (flags & amqp.FLAG_PRIORITY) << 1 | (flags & amqp.FLAG_TIMESTAMP) << 5
            return _STREAM + header[2:FLAGS_AT] + _HEAD.pack(flags) + header[PROPERTIES_AT:]
    if class_id == amqp.CLASS_FILE:
        header, filename = without_filename(header)
        if filename is not None:
            pieces["filename"] = filename
    pieces |= split(amqp.CLASS_BASIC, header)
    return join(class_id, header, pieces)


def without_filename(header: bytes) -> tuple[bytes, bytes | None]:
    """The basic header of a file without the header that has its name, and the name as a short string."""
    places = entry_places(header, len(header), FILENAME.encode())
    if not places:
        return header, None
    start, type_at, end = places[0]
    name = header[type_at + 5 : end]
    if header[type_at] != ord("S") or len(name) > 255:
        return header, None  # not of our writing
    table_at, table_end = place_of(header, amqp.FLAG_HEADERS)
    entries = header[table_at + 4 : start] + header[end:table_end]
    table = _LENGTH.pack(len(entries)) + entries if entries else b""
    return with_property(header, amqp.FLAG_HEADERS, table), bytes((len(name),)) + name


def split(class_id: int, header: bytes) -> Pieces:
    """The octets of each property that a header has."""
    fields = _CLASSES[class_id]
    flags: int = _HEAD.unpack_from(header, FLAGS_AT)[0]
    if flags & ~fields.FLAGS:
        text = (
            f"content header of class {class_id} with flags {flags:#06x}, of which it has {fields.FLAGS:#06x}"
        )
        raise ConnectionFault(amqp.SYNTAX_ERROR, text)
    pieces: Pieces = {}
    at = PROPERTIES_AT
    for place, name in enumerate(fields.FIELDS):
        if flags & 0x8000 >> place:
            size = size_at(name, header, at)
            if at + size > len(header):
                raise truncated(f"{name} of a content header")
            pieces[name] = header[at : at + size]
            at += size
    if at != len(header):
        raise ConnectionFault(amqp.SYNTAX_ERROR, "properties of a content header do not fit its size")
    return pieces


def size_at(name: str, header: bytes, at: int) -> int:
    """How many octets the property takes that begins at `at`; too many where that is cut short."""
    if name == "headers":
        return 4 + int.from_bytes(header[at : at + 4], "big")
    fixed = _SIZES.get(name)
    if fixed is not None:
        return fixed
    return 1 + (header[at] if at < len(header) else 0)


def join(class_id: int, header: bytes, pieces: Pieces) -> bytes:
    """A header of the class with those of the pieces that it has a property for; body size as in `header`."""
    flags = 0
    octets: list[bytes] = []
    for place, name in enumerate(_CLASSES[class_id].FIELDS):
        piece = pieces.get(name)
        if piece is not None:
            flags |= 0x8000 >> place
            octets.append(piece)
    return b"".join((_HEAD.pack(class_id), header[2:FLAGS_AT], _HEAD.pack(flags), *octets))
