"""Between the broker and flintmq.storage: what is kept of messages and of the topology, and who waits for it.

Begin with store.py; topology.py has the records of exchanges, queues and bindings.
"""
