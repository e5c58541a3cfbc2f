# The C half of the twin outcome.py.
cdef enum:
    CONGESTED = 1
    IN_STREAM = 2
    REFUSED = 4
    DRAINED = 8
    CROWDED = 16
    UNROUTED = 32
