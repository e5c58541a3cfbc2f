"""What the management process knows of the broker: the way to it, snapshots of it, and counts over time.

Read snapshots.py first.
"""
