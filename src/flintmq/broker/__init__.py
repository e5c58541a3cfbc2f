"""The AMQP model: virtual hosts, exchanges, queues, channels. Synchronous: no sockets, no event loop.

services        requests to the broker itself, over AMQP
transactions    tx, and distributed transactions by dtx
channels        what clients do: publish, consume, ack, confirm
streams         queues that keep what was read
exchanges       exchange types, bindings, and routes to queues
queues          messages waiting for consumers, and the rules of a queue
matching        which of many conditions a message meets
store           what is on disk: messages, bodies, the topology
messages        a message and its properties

Highest first: a room imports from the rooms below it. The files beside the rooms are above all of them.
Begin with broker.py (passes) and virtual_host.py (names).
"""
