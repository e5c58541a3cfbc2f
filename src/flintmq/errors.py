"""The faults of FlintMQ, one tree.

A PeerFault is the peer's: it carries the reply code and text of the Close that answers it.
A ServiceFault is the answer to a request that the broker itself does not serve.
ProtocolMisuse is a bug of ours, StorageFault is the disk's, ConfigFault is the operator's.
"""

from __future__ import annotations


class FlintError(Exception):
    """Anything FlintMQ raises on purpose."""


class PeerFault(FlintError):
    """The peer broke a rule; answered with a Close that carries `code` and `text`."""

    def __init__(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text
        self.class_id = class_id
        self.method_id = method_id


class ChannelFault(PeerFault):
    """Closes the channel it happened on."""


class ConnectionFault(PeerFault):
    """Closes the whole connection."""


class ServiceFault(FlintError):
    """A request that is answered by a failure: an AMQP reply code, and what was wrong."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


class ProtocolMisuse(FlintError):
    """Our own code asked for something the protocol does not allow: a bug."""


class StorageFault(FlintError):
    """The disk failed us, or what it holds is damaged."""


class ConfigFault(FlintError):
    """A setting is wrong; the text says which one and what to do."""
