"""Streams: queues that keep what was read, read by each consumer at its own offset.

Begin with stream_queue.py. The octets on disk are in flintmq.storage.streams.
"""
