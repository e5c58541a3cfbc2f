"""The broker on real sockets: the only asyncio code for AMQP.

Begin with server.py and session.py. `run` is all that the command line needs.
"""

from flintmq.server.lifecycle import run

__all__ = ["run"]
