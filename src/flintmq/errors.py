"""The faults of FlintMQ, one tree.

A PeerFault is the peer's: it carries the reply code and text of the Close that answers it. The text says what
is wrong; the name of the code, with which every reply text starts, comes from REPLY_NAMES alone.
A ServiceFault is the answer to a request that the broker itself does not serve.
ProtocolMisuse is a bug of ours, StorageFault is the disk's, ConfigFault is the operator's.
"""

from __future__ import annotations

from flintmq.reply_codes import REPLY_NAMES

# What the system refuses, and what to look at.
NO_THREAD = (
    "the system starts no more threads; look at the limits of memory and of processes: ulimit -v and -u, "
    "MemoryMax= and TasksMax= of a service"
)
NO_MEMORY = (
    "the system gives no more memory; look at ulimit -v, MemoryMax= of a service, and what else runs on the "
    "machine"
)


class FlintError(Exception):
    """Anything FlintMQ raises on purpose."""


class RepliedFault(FlintError):
    """A fault that the peer is told of: an AMQP reply code, and what was wrong."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = text
        self.reply_text = reply_text(code, text)
        super().__init__(f"{code} {self.reply_text}")


def reply_text(code: int, text: str) -> str:
    """What a peer is told. It starts with the name of the code, as clients of RabbitMQ know it."""
    name = REPLY_NAMES.get(code, "INTERNAL_ERROR")
    # A plug-in may have written the name already.
    return text if text.startswith(name) else f"{name} - {text}"


class PeerFault(RepliedFault):
    """The peer broke a rule; answered with a Close that carries `code` and `reply_text`."""

    def __init__(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(code, text)
        self.class_id = class_id
        self.method_id = method_id


class ChannelFault(PeerFault):
    """Closes the channel it happened on."""


class TooLong(ChannelFault):
    """Finding the queues of a message takes too long."""


class UnreadableFault(ChannelFault):
    """The disk does not give messages back now. They are not lost: they come when it does."""


class ConnectionFault(PeerFault):
    """Closes the whole connection."""


class ServiceFault(RepliedFault):
    """A request that is answered by a failure."""


class ProtocolMisuse(FlintError):
    """Our own code asked for something the protocol does not allow: a bug."""


class StorageFault(FlintError):
    """The disk failed us, or what it holds is damaged."""


class ConfigFault(FlintError):
    """A setting is wrong; the text says which one and what to do."""


class NotRegularFile(ConfigFault):
    """What is to be read while the broker runs is a pipe or the like: it might never give anything."""
