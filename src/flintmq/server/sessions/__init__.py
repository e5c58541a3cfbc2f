"""A session joins one connection's protocol events to the broker.

Read session.py first: publishes, acks, and how a fault becomes a Close. handshake.py is the way to an open
connection with its login, parting.py the end of a connection. Sessions of AMQP/Fast are in fast/ and fast09/.
What channels ask for is in commands/; the socket is in network/.
"""

from __future__ import annotations

# The others know the type of a session, and session.py imports them: compiled, it has to come first.
from flintmq.server.sessions import session as session
