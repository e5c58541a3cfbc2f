"""The journal: what must survive, in segments of checksummed records. Knows nothing of AMQP.

disk        the one seam to the disk
layout      the numbers and octet access of the format (twin of layout.pxd)
record      the octets of one record
segment     one file of the journal, and what is still needed in it
index       where each live entry lies, and who still owns it
batch       the records on their way to the disk
writer      the threads that write, sync and tidy
appender    what is appended, and the shape of the batch
journal     the whole: group commit, failures, reading back
reader      entries from segment files, with readahead
replay      recovery: what the files say
migrate     from older formats to this one
reclaim     dead segments dropped, sparse ones rewritten
spool       bodies too large for memory
overflow    transient entries that do not fit in memory
inspect     look, check and repair, for people
"""
