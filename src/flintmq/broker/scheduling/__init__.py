"""When the broker does its work: at the end of a pass, in portions over several passes, or at a given time.

Begin with pass_work.py. Queues and channels put themselves there, and the broker empties it once a pass.
chores.py is work in portions that nobody waits for, errands.py work in portions that a connection waits for,
and timetable.py holds what is due later.
"""
