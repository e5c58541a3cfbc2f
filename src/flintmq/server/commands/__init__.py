"""What clients ask of a channel: a file for each class of AMQP, in it a function for each method.

A function takes the session, the channel and the method, calls the broker, and answers. Faults are raised;
the session makes a Close of them. This room never knows octets or sockets. Read command.py first: it has the
table of all methods, what is checked in front of each, work that takes more than one pass, and SELDOM: the
classes that are not loaded here.
"""

# Each adds its methods to the table.
from flintmq.server.commands import access, basic, channel, confirm, content, exchange, queue, tx

__all__ = ["access", "basic", "channel", "confirm", "content", "exchange", "queue", "tx"]
