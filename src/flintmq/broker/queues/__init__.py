"""Queues: messages that wait, consumers that take turns, and the rules that a queue was declared with.

Begin with queue.py. What a queue has beyond first in, first out is listed in active_rules.py: limits.py,
expiry.py, retries.py, consumer_choice.py, consumer_timeout.py. exchanges/dead_letter.py sends dead messages
on. paged_tail.py is the part of a long queue that lies on disk. What a queue
leaves for the end of a pass, and what is due later, is in scheduling/.
"""
