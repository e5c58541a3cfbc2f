"""The wire: octets to values and back. Knows no sockets, no queues and no time.

Begin with content.py and tables.py. amqp.py, methods.py and properties.py are generated from spec/.
"""
