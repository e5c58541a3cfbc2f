"""A body on its way out that is read piece by piece: the part of a content that never lies in memory whole.

    channel 1    method  header  body  body  body  body ...  | what was written behind it
    channel 2                 method  header  body      ...

Frames of other channels may come between those of a body; those of its own channel may not, so they
gather behind it. A body that is called off ends with an empty frame, as basic.reject of the standard has it.
Knows nothing of files: whoever starts a stream says what to read from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol


class Body(Protocol):
    """Where the octets are."""

    octets: int

    def read(self, at: int, count: int) -> bytes:
        """Exactly so many."""

    def close(self) -> None:
        """Nothing more will be read."""


class HeldBody:
    """The body of a content that lies in memory."""

    __slots__ = ("content", "octets", "start")

    def __init__(self, content: bytes, header_size: int) -> None:
        self.content = content
        self.start = header_size
        self.octets = len(content) - header_size

    def read(self, at: int, count: int) -> bytes:
        return self.content[self.start + at : self.start + at + count]

    def close(self) -> None:
        self.content = b""


class Told(Protocol):
    """Who waits for the end of a stream."""

    def stream_ended(self) -> None:
        """All of it is written, or nothing more will be."""


class BodyStream:
    """One body between its header frame and its last frame."""

    __slots__ = ("at", "behind", "body", "channel", "followers", "tag", "told")

    def __init__(self, channel: int, body: Body, told: Told, tag: int) -> None:
        self.channel = channel
        self.body = body
        self.told = told
        self.tag = tag  # of its delivery; 0 for what is no delivery
        self.at = 0
        self.behind: Any = None  # an Output with what its channel has to send afterwards
        self.followers: list[
            BodyStream
        ] = []  # further ones of its channel, each after what is behind the last

    def next_piece(self, bytes_max: int) -> bytes:
        """What follows; nothing when the body has been called off."""
        if self.is_over():
            return b""
        piece = self.body.read(self.at, min(bytes_max, self.body.octets - self.at))
        self.at += len(piece)
        return piece

    def call_off(self) -> None:
        """An empty frame follows, and it is the last."""
        self.at = self.body.octets

    def is_over(self) -> bool:
        return self.at >= self.body.octets

    def last(self) -> BodyStream:
        return self.followers[-1] if self.followers else self

    def next_of_channel(self) -> BodyStream | None:
        """The one that takes its place."""
        if not self.followers:
            return None
        following = self.followers.pop(0)
        following.followers = self.followers
        return following

    def end(self) -> None:
        self.body.close()
        self.told.stream_ended()


def held_octets(streams: Iterable[BodyStream]) -> int:
    """Of bodies that lie in memory until the last octet is read."""
    return sum([each.body.octets for each in all_of(streams) if isinstance(each.body, HeldBody)])


def left_octets(streams: Iterable[BodyStream]) -> int:
    """What the peer has yet to read of these."""
    return sum([each.body.octets - each.at for each in all_of(streams) if isinstance(each.body, HeldBody)])


def all_of(streams: Iterable[BodyStream]) -> list[BodyStream]:
    return [each for stream in streams for each in (stream, *stream.followers)]
