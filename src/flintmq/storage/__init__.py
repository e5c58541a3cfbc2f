"""The disk: what must survive. Knows nothing of AMQP.

inspection  look, check and repair, for people
journal     segments of checksummed records, group commit, recovery
streams     the logs of streams
file_lock   one process at a time
options     how a journal is asked to behave
disk        the one seam to the disk
file_calls  several calls of the system in a row (twin of file_calls.pxd)
layout      the numbers and octet access of the formats (twin of layout.pxd)
sync_notes  what was promised, so that damage is told from a torn tail
spool       bodies too large for memory

Begin with disk.py and journal/journal.py.
"""
