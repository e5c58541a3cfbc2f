"""Queues: messages that wait, consumers that take turns, and the rules that a queue was declared with.

Begin with queue.py. A message expires, is limited and is retried in regime.py; exchanges/dead_letter.py
sends it on. paged_tail.py is the part of a long queue that lies on disk. pass_work.py lists what the end of a
pass has to do, timetable.py what is due later, chores.py what takes many passes.
"""
