"""The AMQP model: virtual hosts, exchanges, queues, channels. Synchronous: no sockets, no event loop.

definitions     the file of users, policies and topology that RabbitMQ's tools exchange
broker.py       the broker, which puts all of it together and ends each pass; beside it recovery.py,
                static_topology.py (what the settings declare), quotas.py and memory_shedding.py
services        requests to the broker itself, over AMQP
administration  users, permissions, limits and virtual hosts, changed at run time
virtual_host.py one name space; beside it policies.py and policy_enforcement.py, topology_journal.py,
                topology_teardown.py, and for what is declared declare_checks.py, queue_templates.py and
                queue_namespaces.py
transactions    tx, and distributed transactions by dtx
channels        what clients do: publish, consume, ack, confirm
streams         queues that keep what was read
exchanges       exchange types, bindings, and routes to queues
queues          messages waiting for consumers, and the rules of a queue
matching        which of many conditions a message meets
store           what is on disk: messages, bodies, the topology
scheduling      when work is done: in this pass, in portions, or at a given time
messages        a message and its properties

Highest first: a room imports from the rooms below it. Begin with broker.py (passes) and virtual_host.py
(names).
"""
