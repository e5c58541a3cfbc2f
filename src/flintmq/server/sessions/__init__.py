"""A session joins one connection's protocol events to the broker.

Read session.py first. Sessions of AMQP/Fast, in fast/ and fast09/, are made of it. What channels ask for is
in commands/; the socket is in network/.
"""
