"""Channels as the broker sees them: publish, consume, ack, reject, confirm, and what a close leaves behind.

Begin with channel.py.
"""
