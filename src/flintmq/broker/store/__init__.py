"""Between the broker and flintmq.storage: what is kept of messages and of the topology, and who waits for it.

Begin with store.py; topology_records.py has the octets of exchanges, queues and bindings.
"""
