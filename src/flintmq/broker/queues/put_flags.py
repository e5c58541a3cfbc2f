"""What has become of a message that was put into queues: bits, or 0 where it is just there. A twin."""

CONGESTED = (
    1  # a queue whose consumers' sockets are full, or a stream whose disk is behind: pause the publisher
)
IN_STREAM = 2  # a stream has it, and its publisher has to wait for the disk
REFUSED = 4  # a queue has not taken it
DRAINED = 8  # a queue whose consumers take from disk all that a pass can hand out: pause the publisher
CROWDED = 16  # too many dead letters wait, and the message has made another: pause the publisher at once
UNROUTED = 32  # no queue was there for it
