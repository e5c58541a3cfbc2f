"""A channel, as those see it who keep what it publishes and tell it when that is safe."""

from __future__ import annotations

from typing import Any, Protocol

from flintmq.protocol.outbox import Output


class PublisherConfirms(Protocol):
    """What they know of its confirms; channels/confirms.py has the whole."""

    stream_batch: int
    active: bool
    published: int

    @property
    def origin(self) -> int: ...

    @property
    def output(self) -> Output: ...

    def lose(self, number: int) -> None: ...

    def note_kept(self, entry: int) -> None: ...

    def confirm(self) -> None: ...

    def confirm_streamed(self, published: int) -> None: ...

    def confirm_through(self, published: int) -> None: ...


class Publisher(Protocol):
    """What rooms below the channels know of one; channels/channel.py has the whole."""

    transaction: Any

    @property
    def number(self) -> int: ...

    @property
    def origin(self) -> int: ...

    @property
    def confirms(self) -> PublisherConfirms: ...

    def holds(self, tag: int) -> bool: ...

    def take_back(self, tag: int) -> None: ...
