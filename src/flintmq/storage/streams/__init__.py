"""The logs of streams: chunks of messages in segments with a sparse index.

Begin with store.py (one writer for all streams) and log.py (one stream); chunk.py has the octets.
"""
