"""What the management process knows of the broker: the way to it, snapshots of it, and counts over time.

Read snapshots.py first; shapes.py has how a row of it looks in JSON, with RabbitMQ's names of fields.
"""
