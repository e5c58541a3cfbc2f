"""Where a channel is in receiving a content, and its states as numbers: the Python half of a twin."""

EXPECTS_METHOD = 0
EXPECTS_HEADER = 1
EXPECTS_BODY = 2

CHANNEL_CLOSED = 0
CHANNEL_OPEN = 1
CHANNEL_CLOSING = 2

CONNECTION_HEADER = 0
CONNECTION_OPEN = 5
CONNECTION_CLOSING = 6
CONNECTION_CLOSED = 7
