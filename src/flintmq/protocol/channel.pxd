cimport cython
cimport flintmq.protocol.phases as phases


@cython.final
cdef class Channel:
    cdef readonly unsigned int number
    cdef readonly int state
    cdef public int expects
    cdef public object method
    cdef public bytes route
    cdef public int flags
    cdef public bytes header
    cdef public long long remaining
    cdef public list chunks
    cdef public object sink
    cdef public object owner
    cdef public object requests

    cpdef follow(self, str event)
    cpdef bytes take_content(self)
    cpdef abandon_content(self)
