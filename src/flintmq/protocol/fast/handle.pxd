cimport cython
from flintmq.protocol.channel cimport Channel


@cython.final
cdef class Handle:
    cdef readonly int number
    cdef readonly Channel channel
    cdef readonly int service
    cdef public str name
    cdef public str mime_type
    cdef public str encoding
    cdef public bint is_producer
    cdef public bint is_consumer
    cdef public bint is_browser
    cdef public bint is_closing
    cdef public bytes sent_name
    cdef public bytes route
    cdef public int flags
    cdef public bint is_exact
    cdef public list copies
    cdef public bytes head
    cdef public bytes header
