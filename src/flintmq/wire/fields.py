"""What method arguments and content properties share: equality, short strings, truncation faults.

A short string is one length octet and that many octets of text:

    +--------+---------------------+
    | length | octets (0 to 255)   |
    +--------+---------------------+

Names in AMQP are octets that are mostly UTF-8. They are `str` here, with the octets that are not UTF-8
kept as surrogate escapes, so that any text a peer sends goes back to it unchanged. The broker takes only
UTF-8 in methods (protocol/connection.py), but for the routing key of a publish.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp

# The length octet of every short string there can be, made once.
_LENGTH_OCTETS = tuple(bytes((length,)) for length in range(amqp.SHORTSTR_BYTES_MAX + 1))


class Fields:
    """A record of named values: equal to one of the same class with equal values."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]  # the values may change

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.FIELDS)
        return f"{type(self).__name__}({values})"


class Content(NamedTuple):
    """The body of message.transfer: the octets themselves, or the name of a reference that holds them."""

    octets: bytes = b""
    is_reference: bool = False


def encode_shortstr(text: str) -> bytes:
    """Encodes a short string with its length octet; too long a one is our own mistake."""
    try:
        octets = text.encode("utf-8", "surrogateescape")
        return _LENGTH_OCTETS[len(octets)] + octets
    except IndexError:
        raise ProtocolMisuse(f"a short string of {len(octets)} octets: {text[:40]!r}...") from None
    except UnicodeEncodeError:
        raise ProtocolMisuse(f"a short string that is not text: {text[:40]!r}") from None
    except (AttributeError, TypeError):
        raise ProtocolMisuse(f"a short string that is not text: {text!r:.40}") from None


def is_text(value: str) -> bool:
    """Whether all octets of a decoded string were UTF-8."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def truncated(field: str) -> ConnectionFault:
    """The fault of octets that end within the field named, as in "queue.declare queue"."""
    return ConnectionFault(amqp.SYNTAX_ERROR, f"{field} is cut short")


def truncated_among(name: str, octets_left: int, sizes: tuple[tuple[str, int], ...]) -> ConnectionFault:
    """The fault of octets that end within a run of fixed-size fields; names the first that is not whole."""
    for field, size in sizes:
        if octets_left < size:
            return truncated(f"{name} {field}")
        octets_left -= size
    raise ProtocolMisuse(f"{name} is not cut short")
