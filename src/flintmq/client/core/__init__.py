"""The client without sockets: the sync and the async client share it.

Begin with connection.py and channel.py. confirms.py is the ledger of publisher confirms, topology.py what is
declared again after a loss.
"""
