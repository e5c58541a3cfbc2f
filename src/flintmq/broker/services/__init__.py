"""Requests to the broker itself: a message to the exchange `amq.system`, answered by a message.

Begin with request.py. The files named *_services hold the services. exchanges/system_exchange.py takes
requests in.
"""
