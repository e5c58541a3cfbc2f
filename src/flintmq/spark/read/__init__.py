"""Queues and streams read by Spark: stream_reader.py for readStream, batch_reader.py for read.

stream_planner.py is the half that Spark asks for offsets and tasks.
"""
