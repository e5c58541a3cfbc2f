"""The state machine of a connection: octets in, events out, for the server and for the client.

Begin with states.py and connection.py. outbox.py holds what a connection has to send.
"""
