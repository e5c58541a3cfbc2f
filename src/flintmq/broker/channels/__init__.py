"""Channels as the broker sees them: publish, consume, ack, reject, confirm, and what a close leaves behind.

Begin with channel.py: a publish comes in and a confirm goes out there.
"""
