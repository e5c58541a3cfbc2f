"""Which life of a queue this is: a random id that no other queue has, nor the next one of the same name.

Whoever keeps a place in a queue or stream (an offset, the number of a lease) keeps the id with it, and sees
by it that the queue was deleted and made again, that it is of another kind now, or that the broker has lost
its disk. A queue gets its id when somebody asks for it; that of a durable queue is in the journal before it
is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.services.request import Request
from flintmq.errors import ServiceFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.queues.queue import Queue

ID_OCTETS = 16
# The name of the argument and of the result.
CREATION_ID = "creation-id"


def creation_id(queue: Queue, request: Request) -> str:
    """The queue's id as text; the answer to the request is held back until a new one is on disk."""
    if queue.creation_id is None:
        host = request.channel.virtual_host
        queue.creation_id = host.router.chance().getrandbits(8 * ID_OCTETS).to_bytes(ID_OCTETS, "big")
        if queue.number and host.topology is not None and host.store is not None:
            host.topology.put_queue(queue)
            host.store.hold_back(request.channel.output, host.store.last())
    return str(queue.creation_id.hex())


def require_same(queue: Queue, request: Request) -> None:
    """Refuses a request that names the id of another queue, which had this name before."""
    asked = request.text(CREATION_ID, "")
    if asked and asked != creation_id(queue, request):
        raise ServiceFault(
            amqp.PRECONDITION_FAILED,
            f"{request.name}: queue '{queue.name}' was made again: its {CREATION_ID} "
            f"is {creation_id(queue, request)}, not {asked}",
        )
