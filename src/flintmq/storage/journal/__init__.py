"""The journal: append now, promised once synced, read back by sequence number.

record          the octets of one record
segment         one file of the journal, and what is still needed in it
index           where each live entry lies, and who still owns it
batch           the records on their way to the disk
appender        what is appended, and the shape of the batch
journal         the whole: group commit, failures, reading back
reader          entries from segment files, with readahead
replay          recovery: what the files say
report          what recovery tells
migrate         from older formats to this one
writer          the threads that write, sync and tidy
overflow        transient entries that do not fit in memory
reclaim         dead segments dropped, sparse ones rewritten
delivered_marks how far each queue was delivered, for the flag `redelivered`

Begin with journal.py.
"""
