"""Exchanges, their types and bindings: where does a message go?

Begin with router.py (the one road into queues) and exchange.py (the types of AMQP). exchange_types.py lists
all types, route.py holds an outcome of routing, chains.py bindings with conditions of several exchanges,
dead_letter.py what queues give up.
"""
