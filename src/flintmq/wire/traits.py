"""What survey() finds in a basic content header, as bits: the Python half of a twin.

The priority is in bits 8 to 15.
"""

MALFORMED = -1
# A delivery mode other than 1 and 2.
WRONG_MODE = -2
PERSISTENT = 1
HAS_HEADERS = 2
HAS_EXPIRATION = 4
HAS_USER_ID = 8
HAS_REPLY_TO = 16
HAS_PRIORITY = 32
# Not found in the header: the body lies in a spool, see broker/store/spooling.py.
SPOOLED = 64
# Its headers may name further routing keys, see broker/messages/cc_bcc.py. Above the priority.
HAS_COPIES = 0x10000
# Not found in the header either: it is known when the message came, which is on disk with it.
TIMED = 0x20000
# Of an entry on disk: when the message came and by which connection is noted, see broker/store/entry_head.py.
NOTED = 0x40000
# Not found in the header, where it was: behind its route are the keys of its BCC (broker/messages/cc_bcc.py).
BLIND = 0x80000
# Nor this: the broker itself has put it where it is, from where it would come again if that were lost.
MOVED = 0x100000
# tables.py has to judge the headers before the message is accepted, see broker/channels/publish_checks.py.
UNPROVEN = 0x200000
# There are more headers than HEADERS_MAX: not for a client to publish.
TOO_MANY = 0x400000
# Not found in the header: the answer of a service, which may have secrets in it.
ANSWER = 0x800000
# Nor these: the class that the content was published in. It is kept with a basic header, whatever its class
# (wire/content_class.py). Of a basic one neither is set.
FILE_CONTENT = 0x1000000
STREAM_CONTENT = 0x2000000
CONTENT_CLASSES = 0x3000000

# Entries and array elements in the headers of one message, nested ones included. Whoever reads all of them
# takes some 0.15 microseconds for each: 0.3 ms, in which nobody else has a turn.
HEADERS_MAX = 2048
