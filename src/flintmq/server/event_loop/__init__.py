"""The turns of the event loop: who was read, when a pass ends, who is sent to, and how long a turn took.

Read pass_scheduler.py first. This room never knows what a socket or a method is.
"""
